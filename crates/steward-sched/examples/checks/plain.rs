//! Plain load, without any specification: that it goes on, and the kernel finds nothing to complain of.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::thread::sleep;
use std::time::Duration;

use steward_core::cpu::mechanism::Mechanism;
use steward_sched::SchedExt;

use crate::programs::{Program, measure, shared};
use crate::watched::Notes;
use crate::{Outcome, check};

/// The longest that a task which computes may wait for its turn, in seconds: far beyond what any order among a few can
/// come to, and a small part of the 30 after which the kernel takes a scheduler out.
const TOO_LONG: f64 = 3.0;

/// What the kernel says when a CPU or a task does not go on, or when it takes a scheduler out.
const COMPLAINTS: &[&str] =
    &["soft lockup", "hard LOCKUP", "rcu: INFO", "task stall", "blocked for more than", "sched_ext: "];

/// What the kernel says from now on.
struct KernelLog(File);

impl KernelLog {
    fn from_now() -> Result<Self, String> {
        let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        let mut log = opened.map_err(|error| format!("/dev/kmsg: {error}"))?;
        log.seek(SeekFrom::End(0)).map_err(|error| format!("/dev/kmsg: {error}"))?;
        Ok(KernelLog(log))
    }

    /// The lines that are a complaint. Each read is one record, until there is none.
    fn complaints(mut self) -> Vec<String> {
        let (mut record, mut lines) = ([0; 8192], Vec::new());
        while let Ok(length @ 1..) = self.0.read(&mut record) {
            let text = String::from_utf8_lossy(&record[..length]).trim_end().to_owned();
            if COMPLAINTS.iter().any(|complaint| text.contains(complaint)) {
                lines.push(text);
            }
        }
        lines
    }
}

fn goes_on(scheduler: &mut SchedExt, log: KernelLog, waits: &[f64]) -> Result<f64, String> {
    let (reason, complaints) = (scheduler.exit_reason(), log.complaints());
    check!(reason.is_none(), "the scheduler left: {reason:?}; the kernel said {complaints:#?}");
    check!(complaints.is_empty(), "the kernel said {complaints:#?}");
    let longest = waits.iter().copied().fold(0.0, f64::max);
    check!(longest < TOO_LONG, "the loops waited for up to {waits:.1?} s");
    Ok(longest)
}

/// Five loops and a film on two CPUs, nothing reserved: an emulator that lets one CPU run on while the other waits, or
/// a scheduler that forgets one, has the kernel take the scheduler out here.
pub fn loops_and_a_film() -> Outcome {
    const SECONDS: u64 = 40;
    let (notes_file, film_file) = ("/dev/shm/plain-notes", "/dev/shm/plain-film");
    let _ = fs::remove_file(film_file);
    let mut scheduler = shared()?;
    let (log, notes) = (KernelLog::from_now()?, Notes::of_new(notes_file, 5)?);
    let loops = Program::start(&["watched", "5", "0", notes_file]);
    let film = Program::start(&["film", film_file]);
    sleep(Duration::from_secs(SECONDS));
    let waits = notes.longest();
    let shown = fs::read_to_string(film_file).unwrap_or_default();
    drop((loops, film));
    let outcome = goes_on(&mut scheduler, log, &waits);
    drop(scheduler);
    let longest = outcome?;
    let numbers: Vec<u64> = shown.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[frames, late] = numbers.as_slice() else { return Err(format!("the film has shown `{shown}`")) };
    // It writes once a second, and it may have begun late.
    check!(frames >= 25 * (SECONDS - 3), "the film has shown {frames} frames in {SECONDS} s");
    Ok(format!("{late} of {frames} frames late, no loop waited for more than {longest:.2} s"))
}

/// A real-time task has CPU 0 for itself, but for what the kernel leaves to others there. Who may run elsewhere does,
/// and who may not has that little.
pub fn beside_a_real_time_loop() -> Outcome {
    const SECONDS: f64 = 35.0;
    let notes_file = "/dev/shm/plain-notes";
    let mut scheduler = shared()?;
    let (log, notes) = (KernelLog::from_now()?, Notes::of_new(notes_file, 3)?);
    let loops = Program::start(&["watched", "3", "0", notes_file]);
    let (pinned, hog) = (Program::start(&["spin"]).pin(0), Program::start(&["spin"]).pin(0));
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: a plain system call on our own child.
    unsafe { libc::sched_setscheduler(hog.pid(), libc::SCHED_FIFO, &parameters) };
    let times = measure(&[&hog, &pinned], SECONDS);
    let waits = notes.longest();
    drop((hog, pinned, loops));
    let outcome = goes_on(&mut scheduler, log, &waits);
    drop(scheduler);
    let longest = outcome?;
    check!(times[0] > 900.0 * SECONDS, "the real-time task had {:.0} ms in {SECONDS} s", times[0]);
    Ok(format!(
        "beside {:.0} ms of the real-time task the one that stays there had {:.0}, and no loop waited for more than \
         {longest:.2} s",
        times[0], times[1]
    ))
}
