//! Tells programs that they should give memory back, by systemd's protocol (<https://systemd.io/PRESSURE/>), which
//! programs with sd-event know: they open what `MEMORY_PRESSURE_WATCH` names, write the data of `MEMORY_PRESSURE_WRITE`
//! to it, and free what they can do without whenever there is something to read.
//!
//! Each program that `steward run` asks it for has a FIFO of its own, to which a line is written while its domain uses
//! more than it may: at most once a second. It is a FIFO and not the socket of the API because sd-event goes on
//! calling its program when the other end of a socket is closed, without end: every program would use a whole CPU as
//! soon as the daemon has gone. A FIFO that the program has open for reading and writing has no end, and the next
//! daemon writes to it again.
//!
//! The program may be another user's by the time that it opens its FIFO (`--user`). So anybody may open it who knows
//! its name, which has 128 random bits, in a directory that only root can list.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steward_core::process::TaskId;
use steward_kernel::{Roots, process};

use crate::memory::looks::Amounts;
use crate::server::peer::Caller;
use crate::server::room::{Entry, entry};
use crate::server::turns::Payer;

/// Time between two looks for a program that listens, in nanoseconds.
const LOOK_EVERY_NS: u64 = 250_000_000;
/// Who was told is told again no sooner than after this, in nanoseconds.
const TOLD_EVERY_NS: u64 = 1_000_000_000;
/// Time between two looks who listens, and whose program has ended, in nanoseconds.
const SURVEY_EVERY_NS: u64 = 1_000_000_000;
/// What is written: what it says does not matter.
const LINE: &[u8] = b"\n";

/// A program that asked to be told.
struct Listener {
    fifo: PathBuf,
    program: Caller,
    /// The FIFO's end for writing, while anybody has it open for reading.
    open: Option<File>,
    /// When to look next whether it uses too much, in nanoseconds of `CLOCK_MONOTONIC`.
    due_ns: u64,
}

impl Listener {
    /// Whether anybody has the FIFO open, so that there is somebody to tell.
    fn is_heard(&mut self) -> bool {
        if self.open.as_ref().is_some_and(has_no_reader) {
            self.open = None;
        }
        if self.open.is_none() {
            let nonblocking = libc::O_NONBLOCK | libc::O_NOFOLLOW;
            // Without a reader the kernel refuses (ENXIO).
            self.open = OpenOptions::new().write(true).custom_flags(nonblocking).open(&self.fifo).ok();
        }
        self.open.is_some()
    }

    fn tell(&mut self) {
        // One that has read nothing of what it was told needs no more; one that has closed it is seen at the next look.
        if let Some(open) = &mut self.open {
            let _ = open.write(LINE);
        }
    }
}

fn has_no_reader(fifo: &File) -> bool {
    let mut waiting = [PollFd::new(fifo, PollFlags::empty())];
    let _ = poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    waiting[0].revents().contains(PollFlags::ERR)
}

/// All programs that asked to be told.
#[derive(Default)]
pub(crate) struct Listeners {
    directory: PathBuf,
    /// In the order in which they came.
    listeners: Vec<Listener>,
    survey_at_ns: u64,
}

impl Listeners {
    /// Those that asked an earlier daemon and still run. What is left of others is removed.
    pub(crate) fn new(directory: &Path, roots: &Roots) -> Self {
        let mut listeners = Vec::new();
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let (name, fifo) = (entry.file_name(), entry.path());
            let program = name.to_str().and_then(id_of).and_then(|id| still_running(id, roots));
            match program {
                Some(program) => listeners.push(Listener { fifo, program, open: None, due_ns: 0 }),
                // What is not a file of ours and cannot be removed is in nobody's way.
                None => drop(fs::remove_file(fifo)),
            }
        }
        Listeners { directory: directory.to_owned(), listeners, survey_at_ns: 0 }
    }

    /// Whether nobody asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Where the FIFOs are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes a FIFO for a program, of whose user there may be so many as there may be connections. None where there is
    /// no room.
    ///
    /// # Errors
    /// When the kernel does not make it.
    pub(crate) fn add(
        &mut self,
        id: TaskId,
        program: Caller,
        is_kept_for: &dyn Fn(Payer) -> bool,
    ) -> io::Result<Option<PathBuf>> {
        let present = self.listeners.iter().map(|listener| listener.program.payer);
        match entry(present, program.payer, is_kept_for) {
            Entry::Room => {}
            Entry::InPlaceOf(payer) => self.remove_one_of(payer),
            Entry::Full => return Ok(None),
        }
        match fs::DirBuilder::new().mode(0o711).create(&self.directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let fifo = self.directory.join(format!("{}.{}.{}", id.tid, id.started_ticks, random()?));
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        // Not less by what the daemon's mask takes away.
        fs::set_permissions(&fifo, Permissions::from_mode(0o666))?;
        self.listeners.push(Listener { fifo: fifo.clone(), program, open: None, due_ns: 0 });
        Ok(Some(fifo))
    }

    fn remove_one_of(&mut self, payer: Payer) {
        if let Some(index) = self.listeners.iter().position(|listener| listener.program.payer == payer) {
            let _ = fs::remove_file(self.listeners.remove(index).fifo);
        }
    }

    /// Forgets programs that have ended, and sees who listens.
    pub(crate) fn survey(&mut self, now_ns: u64) {
        if now_ns < self.survey_at_ns {
            return;
        }
        self.survey_at_ns = now_ns + SURVEY_EVERY_NS;
        self.listeners.retain_mut(|listener| {
            let is_alive = listener.program.is_alive();
            if is_alive {
                listener.is_heard();
            } else {
                let _ = fs::remove_file(&listener.fifo);
            }
            is_alive
        });
    }

    /// Tells each that listens, whose time has come and that uses more than it may by what `amounts` says; where
    /// that is not known, nothing is told.
    pub(crate) fn tell(&mut self, now_ns: u64, amounts: &mut dyn FnMut(&Caller) -> Option<Amounts>) {
        for listener in self.listeners.iter_mut().filter(|listener| listener.open.is_some()) {
            if listener.due_ns > now_ns {
                continue;
            }
            let is_too_much = amounts(&listener.program)
                .is_some_and(|amounts| amounts.available_bytes < amounts.used_bytes);
            if is_too_much {
                listener.tell();
            }
            let after_ns = if is_too_much { TOLD_EVERY_NS } else { LOOK_EVERY_NS };
            // On the beat of those who watch, so that one look serves both.
            listener.due_ns = (now_ns / LOOK_EVERY_NS) * LOOK_EVERY_NS + after_ns;
        }
    }

    /// When there is something to look at next, in nanoseconds of `CLOCK_MONOTONIC`. Who begins to listen is seen
    /// when the daemon wakes anyway.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let listening = self.listeners.iter().filter(|listener| listener.open.is_some());
        listening.map(|listener| listener.due_ns).min()
    }
}

/// Of whose program a FIFO's name says that it is.
fn id_of(name: &str) -> Option<TaskId> {
    let mut parts = name.split('.');
    Some(TaskId { tid: parts.next()?.parse().ok()?, started_ticks: parts.next()?.parse().ok()? })
}

fn still_running(id: TaskId, roots: &Roots) -> Option<Caller> {
    let uid = process::user(id.tid, roots).ok()??;
    let program = Caller::of_process(uid, uid, id.tid);
    // Looked at once it is held: from then on the number means this one.
    let is_it = process::stat(id.tid, roots).is_ok_and(|process| process.id == id);
    (is_it && program.is_alive()).then_some(program)
}

fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND_NS: u64 = 1_000_000_000;

    fn own_id() -> TaskId {
        process::stat(std::process::id() as i32, &Roots::default()).expect("we run").id
    }

    fn own_program() -> Caller {
        Caller::of_process(1001, 1001, std::process::id() as i32)
    }

    fn may_use(mib: u64) -> impl FnMut(&Caller) -> Option<Amounts> {
        move |_| Some(Amounts { used_bytes: 100 * MIB, available_bytes: mib * MIB, ..Amounts::default() })
    }

    /// As sd-event opens a FIFO for which it has data to write.
    fn open(fifo: &Path) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(fifo).expect("it may be opened")
    }

    /// How much there was to read.
    fn drain(mut listening: &File) -> usize {
        listening.read(&mut [0; 4096]).unwrap_or(0)
    }

    fn listeners(directory: &tempfile::TempDir) -> Listeners {
        Listeners::new(&directory.path().join("pressure"), &Roots::default())
    }

    #[test]
    fn who_uses_more_than_it_may_is_told_at_most_once_a_second_and_nobody_else_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut all = listeners(&directory);
        let fifo = all.add(own_id(), own_program(), &|_| false).expect("made").expect("there is room");
        all.survey(0);
        assert_eq!(all.due_ns(), None, "nobody listens: nothing is looked at");
        all.tell(0, &mut |_| panic!("nobody listens"));
        let listening = open(&fifo);
        all.survey(SECOND_NS);
        for (at_ns, mib, told) in [
            (SECOND_NS, 100, 0),
            (SECOND_NS + LOOK_EVERY_NS - 1, 99, 0),
            (SECOND_NS + LOOK_EVERY_NS, 99, 1),
            (2 * SECOND_NS + LOOK_EVERY_NS - 1, 50, 0),
            (2 * SECOND_NS + LOOK_EVERY_NS, 50, 1),
            (4 * SECOND_NS, 500, 0),
        ] {
            all.tell(at_ns, &mut may_use(mib));
            assert_eq!(drain(&listening), told, "{mib} MiB at {at_ns}");
        }
        all.tell(6 * SECOND_NS, &mut |_| None);
        assert_eq!(drain(&listening), 0, "nothing is known");
        drop(listening);
        all.survey(7 * SECOND_NS);
        assert_eq!(all.due_ns(), None, "it does not listen any more");
    }

    #[test]
    fn the_next_daemon_tells_those_that_still_run_and_removes_what_is_left_of_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let fifo = {
            let mut all = listeners(&directory);
            let other = TaskId { started_ticks: 1, ..own_id() };
            all.add(other, own_program(), &|_| false).expect("made");
            all.add(own_id(), own_program(), &|_| false).expect("made").expect("there is room")
        };
        let listening = open(&fifo);
        let mut next = listeners(&directory);
        let left = fs::read_dir(directory.path().join("pressure")).expect("it is there").flatten();
        assert_eq!(left.map(|entry| entry.path()).collect::<Vec<_>>(), [fifo]);
        next.survey(0);
        next.tell(0, &mut may_use(50));
        assert_eq!(drain(&listening), 1);
        let mode = fs::metadata(directory.path().join("pressure")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o711, "nobody else lists the names");
    }

    #[test]
    fn one_user_has_no_more_of_them_than_connections_and_a_program_that_has_ended_has_none() {
        use crate::server::room::CLIENTS_PER_USER_MAX;
        let directory = tempfile::tempdir().expect("a directory");
        let mut all = listeners(&directory);
        let ended = Caller { process: None, ..own_program() };
        let of_ended = all.add(own_id(), ended, &|_| false).expect("made").expect("there is room");
        all.survey(0);
        assert!(all.listeners.is_empty() && !of_ended.exists());
        for _ in 0..2 * CLIENTS_PER_USER_MAX {
            all.add(own_id(), own_program(), &|_| false).expect("made").expect("there is room");
        }
        let files = fs::read_dir(directory.path().join("pressure")).expect("it is there").count();
        assert_eq!((all.listeners.len(), files), (CLIENTS_PER_USER_MAX, CLIENTS_PER_USER_MAX));
    }
}
