//! The lab's machine with the daemon in it, and what a script printed there.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use libsteward::api;
use steward_machine::{GuestFile, MachineConfig, build_directory, run};

/// A machine of one CPU with so much memory, in MiB. It counts 4 ns of its clock for each instruction: then the clock
/// does not depend on how busy the host is.
pub fn counted(memory_mib: u32) -> MachineConfig {
    MachineConfig { cpus: 1, memory_mib, icount_shift: Some(2), ..MachineConfig::default() }
}

/// A program of this build, and where it is in the machine.
pub fn built(name: &str, guest: &str) -> GuestFile {
    GuestFile::from_host(build_directory().join(name), guest).expect("make test-kernel built it")
}

/// What a script printed, by heading.
pub struct Transcript(pub HashMap<String, Vec<String>>);

impl Transcript {
    /// On two CPUs.
    pub fn of(script: &str) -> Self {
        Self::on(2, script)
    }

    /// On that many CPUs. One where a second would show nothing.
    pub fn on(cpus: u32, script: &str) -> Self {
        let config = MachineConfig { cpus, ..counted(MachineConfig::default().memory_mib) };
        Self::in_machine(config, script)
    }

    /// With these Debian packages, on one CPU and with the host's clock: they are on a disk, and where instructions are
    /// counted the clock jumps to the next moment that anybody waits for while a busy host serves it late.
    pub fn with(packages: &[&str], script: &str) -> Self {
        let packages = packages.iter().map(|name| (*name).to_owned()).collect();
        Self::in_machine(MachineConfig { cpus: 1, packages, ..MachineConfig::default() }, script)
    }

    pub fn in_machine(config: MachineConfig, script: &str) -> Self {
        Self::with_files(config, Vec::new(), script)
    }

    /// With a disk whose speed is in the guest's time, which the script makes with `/lab/timed-disk.sh`.
    pub fn with_timed_disk(config: MachineConfig, script: &str) -> Self {
        Self::with_timed_disk_and(config, &[], script)
    }

    /// The same with these programs of the host, which `lab/setup.sh` has installed; each with where it is in the
    /// machine.
    pub fn with_timed_disk_and(config: MachineConfig, programs: &[(&str, &str)], script: &str) -> Self {
        let disk = steward_machine::repository().join("lab/machine/timed-disk.sh");
        let disk = (disk.as_path(), "/lab/timed-disk.sh");
        let always = [disk, (Path::new("/usr/sbin/mke2fs"), "/lab/bin/mke2fs")];
        let more = programs.iter().map(|(host, guest)| (Path::new(*host), *guest));
        let brought =
            |(host, guest): (&Path, &str)| GuestFile::from_host(host, guest).expect("every machine has it");
        Self::with_files(config, always.into_iter().chain(more).map(brought).collect(), script)
    }

    pub fn with_files(config: MachineConfig, more: Vec<GuestFile>, script: &str) -> Self {
        let config = MachineConfig { timeout_host: Duration::from_secs(1800), ..config };
        let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/polkit/io.steward.policy");
        let policy = GuestFile::from_host(policy, "/io.steward.policy").expect("it is part of the source");
        let programs = [
            ("stewardd", "/usr/sbin/stewardd"),
            ("steward", "/usr/bin/steward"),
            ("null-scheduler", "/usr/bin/null-scheduler"),
            ("examples/availability-check", "/usr/bin/availability-check"),
            ("examples/set-user-id-race", "/usr/bin/set-user-id-race"),
            ("busy-loops", "/usr/bin/busy-loops"),
            ("disk-load", "/usr/bin/disk-load"),
            ("file-save", "/usr/bin/file-save"),
            ("keystrokes", "/usr/bin/keystrokes"),
            ("memory-burst", "/usr/bin/memory-burst"),
            ("memory-hog", "/usr/bin/memory-hog"),
            ("memory-ramp", "/usr/bin/memory-ramp"),
            ("onoff", "/usr/bin/onoff"),
        ]
        .map(|(name, guest)| built(name, guest));
        let files: Vec<GuestFile> = programs.into_iter().chain([policy]).chain(more).collect();
        let script = format!("{}\n{script}", include_str!("prelude.sh"));
        let mut sections: HashMap<String, Vec<String>> = HashMap::new();
        let mut current = String::new();
        let command = ["/bin/sh".into(), "-c".into(), script];
        let ran = run(&config, &files, &command, &mut |line| match line.strip_prefix("== ") {
            Some(name) => current = name.to_owned(),
            None => sections.entry(current.clone()).or_default().push(line.to_owned()),
        });
        if let Err(error) = ran {
            panic!("the guest stands in {current:?} after {:#?}: {error:?}", sections.get(&current));
        }
        // Shown when the test fails.
        println!("{}", sections.get("in-the-end").map(|lines| lines.join("\n")).unwrap_or_default());
        Transcript(sections)
    }

    pub fn text(&self, section: &str) -> String {
        self.0.get(section).unwrap_or_else(|| panic!("no section {section}: {:#?}", self.0)).join("\n")
    }

    /// Has all these in it; a long page is compared without its line breaks.
    pub fn says(&self, section: &str, phrases: &[&str]) {
        let text = self.text(section);
        let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for phrase in phrases {
            assert!(flowing.contains(phrase), "{section} does not say {phrase:?}:\n{text}");
        }
    }

    pub fn status(&self, section: &str) -> api::StatusReply {
        let text = self.text(section);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{section}: {error}:\n{text}"))
    }
}
