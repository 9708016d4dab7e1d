//! The tree mounted and used from a shell, over a daemon in memory, where the kernel lets us: in a mount namespace of
//! one thread, which nobody else sees.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rustix::mount::{MountFlags, MountPropagationFlags, mount as mount_raw, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::mount::{Mounted, mount};
use crate::stand_in::StandIn;
use crate::turns::BUSY_PER_USER_MAX;

/// A shell's working directory is the parent of the mount, as `/run/steward` is.
struct Place {
    directory: PathBuf,
    daemon: StandIn,
    mounted: Option<Mounted>,
}

/// Runs a test in a namespace of its own; where that is not possible, says so and lets it pass.
fn in_own_namespace(test: fn(&mut Place)) {
    let thread = std::thread::spawn(move || {
        // SAFETY: only this thread's view of the mounts changes; no descriptors are unshared.
        if let Err(errno) = unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
            return eprintln!("not tried: no mount namespace ({errno}); needs root");
        }
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        mount_change("/", private).expect("a namespace's mounts can be made its own");
        let directory = std::env::temp_dir().join(format!(
            "steward-files-{}-{:?}",
            std::process::id(),
            rustix::thread::gettid()
        ));
        std::fs::create_dir(&directory).expect("a temporary directory");
        let mut place = Place { directory, daemon: StandIn::new(), mounted: None };
        match place.mount() {
            Ok(()) => test(&mut place),
            Err(error) => eprintln!("not tried: {error}"),
        }
        drop(place.mounted.take());
        std::fs::remove_dir_all(&place.directory).expect("nothing is mounted there any more");
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

impl Place {
    fn mount(&mut self) -> Result<(), crate::MountError> {
        self.mounted = Some(mount(&self.directory.join("fs"), self.daemon.clone())?);
        Ok(())
    }

    fn output(&self, script: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("LC_ALL", "C").current_dir(&self.directory);
        shell.output().expect("every machine has sh")
    }

    /// What a script says, its errors too.
    fn says(&self, script: &str) -> String {
        let Output { stdout, stderr, .. } = self.output(script);
        String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned()
    }
}

#[test]
fn a_shell_reads_and_writes_the_files() {
    in_own_namespace(|place| {
        assert_eq!(place.says("readlink fs/self; ls fs"), "domains\ndomains\nforecasts\nlast_error\nself\n");
        assert_eq!(place.says("mkdir domains/batch && cat domains/batch/cpu"), "none\n");
        assert_eq!(
            place.says("echo 50 >domains/batch/cpu; cat domains/batch/cpu domains/batch/cpu.sum"),
            "50\n50\n"
        );
        place.daemon.state().own = "batch".to_owned();
        assert_eq!(place.says("echo 40 >self/cpu && cat self/cpu; readlink fs/self"), "40\ndomains/batch\n");
        assert_eq!(
            place.says("echo 1G >>self/memory; cat self/memory; ls domains | tail -n 1"),
            "1073741824\nsystem.slice\n"
        );
        assert_eq!(place.says("sh -c 'echo $$ >self/members'; wc -l <self/members"), "1\n");
        assert_eq!(place.says("mkdir -p domains/batch/a/b; find domains/batch/a/ -type d | wc -l"), "2\n");
        assert_eq!(place.says("rmdir domains/batch/a/b domains/batch/a; ls -d domains/batch/*/"), {
            "ls: cannot access 'domains/batch/*/': No such file or directory\n"
        });
    });
}

#[test]
fn whoever_takes_requests_comes_before_those_who_answer_them() {
    in_own_namespace(|place| {
        // So that all have begun.
        assert_eq!(place.says("cat domains/cpu"), "100\n");
        let nice_of = |name: &str| -> Vec<i32> {
            let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
            let tasks = tasks.filter_map(|task| {
                let path = task.ok()?.path();
                let is_meant = std::fs::read_to_string(path.join("comm")).ok()?.trim_end() == name;
                let stat = std::fs::read_to_string(path.join("stat")).ok().filter(|_| is_meant)?;
                // The 19th, of which the first two are before this.
                stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok()
            });
            tasks.collect()
        };
        let (taking, answering) = (nice_of("fuser-0"), nice_of("control-files"));
        assert!(!taking.is_empty() && taking.iter().all(|nice| *nice == crate::nice::FIRST), "{taking:?}");
        assert!(!answering.is_empty() && answering.iter().all(|nice| *nice == 0), "{answering:?}");
    });
}

#[test]
fn a_shell_sees_why_a_change_is_refused() {
    in_own_namespace(|place| {
        place.says("mkdir domains/batch");
        let refused = |script: &str, errno: &str, why: &str| {
            let said = place.says(script);
            assert!(said.contains(errno), "{script}: {said}");
            let last = place.says("cat last_error");
            assert!(last.contains(why), "{script}: {last}");
        };
        refused("env echo 0 >domains/batch/cpu", "Invalid argument", "0 % is no reservation");
        refused("env echo 96 >domains/batch/cpu", "No space left", "0.95 is all");
        refused("env echo 5 >domains/batch/cpu.sum", "Permission denied", "can only be read");
        assert!(place.says("mkdir domains/batch").contains("File exists"), "the kernel knows that by itself");
        refused("head -c 5000 /dev/zero >domains/batch/cpu", "Invalid argument", "128 bytes");
        refused("rmdir domains/system.slice", "Operation not permitted", "whoever did");
        let said = place.says(
            "touch domains/new; rm domains/batch/cpu; mv domains/batch domains/c; chmod 600 last_error",
        );
        assert_eq!(said.matches("Operation not permitted").count(), 4, "{said}");
        assert_eq!(place.says("cat domains/batch/cpu domains/nothing/cpu"), {
            "none\ncat: domains/nothing/cpu: No such file or directory\n"
        });
    });
}

#[test]
fn the_kernel_copies_what_a_file_says_now() {
    in_own_namespace(|place| {
        // Busybox's cat has the kernel copy (sendfile), which believes the file's size.
        assert_eq!(place.says("busybox cat domains/sched domains/cpu"), "virtual-time\n100\n");
        place.says("mkdir domains/batch");
        place.daemon.state().domains.get_mut("batch").expect("made").1 = (1..5000).collect();
        assert_eq!(
            place.says("busybox cat domains/batch/members | tail -n 1; wc -l <domains/batch/members"),
            "4999\n4999\n"
        );
        // In pieces, while it changes: what one thread reads is one text.
        let pieces = "import os; file = os.open('domains/batch/cpu.weight', 0); begun = os.read(file, 2); \
                      os.system('echo 9999 >domains/batch/cpu.weight'); print(begun + os.read(file, 9))";
        assert_eq!(place.says(&format!("python3 -c \"{pieces}\"")), "b'100\\n'\n");
    });
}

#[test]
fn what_needs_nobody_waits_for_nobody() {
    in_own_namespace(|place| {
        let daemon = place.daemon.clone();
        // The daemon answers nothing, and more wait for it than there are threads that wait.
        let held = daemon.state();
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let mut cat = Command::new("cat");
                cat.arg("domains/cpu").current_dir(&place.directory).stdout(Stdio::null());
                cat.spawn().expect("every machine has cat")
            })
            .collect();
        while place.daemon.calls() < BUSY_PER_USER_MAX {
            std::thread::yield_now();
        }
        assert_eq!(place.says("timeout 60 stat -c %s domains/cpu fs/domains/cpu.weight"), "4096\n4096\n");
        drop(held);
        for mut reader in readers {
            assert!(reader.wait().expect("it ends").success());
        }
    });
}

#[test]
fn the_daemon_itself_is_refused_because_it_would_wait_for_itself() {
    in_own_namespace(|place| {
        for path in ["fs/self/cpu", "fs/domains/cpu", "fs/last_error"] {
            let error = std::fs::read(place.directory.join(path)).expect_err("refused");
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::DEADLK.raw_os_error()), "{path}");
        }
    });
}

#[test]
fn a_living_mount_is_left_alone_and_one_that_ended_makes_room() {
    in_own_namespace(|place| {
        let first = place.mounted.take();
        let error = place.mount().expect_err("the first still answers");
        assert!(error.to_string().contains("something else is mounted there"), "{error}");
        drop(first);
        assert_eq!(place.says("ls -a fs | wc -l; ls"), "2\nfs\n");
        place.mount().expect("mounted again");
        assert_eq!(place.says("cat domains/cpu"), "100\n");
    });
}

#[test]
fn whoever_uses_the_files_when_they_go_is_let_go() {
    in_own_namespace(|place| {
        place.says("mkdir domains/batch");
        let scripts = [
            "while cat domains/cpu; do :; done",
            "while env echo 5 >domains/batch/cpu; do :; done",
            "while ls -l domains/batch; do :; done",
            "exec 3<domains/cpu; cd domains/batch; while cat cpu; do :; done",
        ];
        let running: Vec<_> = scripts
            .iter()
            .map(|script| {
                let mut shell = Command::new("sh");
                shell.args(["-c", script]).current_dir(&place.directory);
                shell.stdout(Stdio::null()).stderr(Stdio::null());
                shell.spawn().expect("every machine has sh")
            })
            .collect();
        // Each has done its thing at least once.
        while place.daemon.state().changes < 3 {
            std::thread::yield_now();
        }
        place.mounted = None;
        for (script, mut shell) in scripts.iter().zip(running) {
            // Whoever is in a directory of it still finds it there, until the process that answers has ended.
            if script.contains("cd ") {
                shell.kill().expect("it runs");
            }
            let status = shell.wait().expect("it ends");
            assert_eq!(status.success(), !script.contains("cd "), "{script}: {status}");
        }
    });
}

#[test]
fn what_a_dead_daemon_left_is_cleared_away() {
    in_own_namespace(|place| {
        // Whoever had opened the device has closed it again, as after kill -9.
        let dead = place.directory.join("fs");
        place.mounted = None;
        let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").expect("FUSE");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).expect("no NUL");
        mount_raw("dead", &dead, "fuse", MountFlags::empty(), Some(options.as_c_str())).expect("mounted");
        drop(device);
        assert!(place.says("ls fs").contains("not connected"));
        place.mount().expect("mounted in its place");
        assert_eq!(place.says("cat domains/cpu"), "100\n");
    });
}
