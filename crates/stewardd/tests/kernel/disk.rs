//! Whose disk requests come first, and by what disks order them, on a real kernel.

use steward_machine::MachineConfig;

use crate::check;
use crate::transcript::Transcript;

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn interactive_programs_come_first_on_a_disk_and_nothing_is_left_of_it() {
    let config =
        MachineConfig { cpus: 1, memory_mib: 512, icount_shift: Some(2), ..MachineConfig::default() };
    let told = Transcript::with_timed_disk(config, include_str!("disk.sh"));
    let before = told.text("before");
    let order = |section: &str| {
        let text = told.text(section);
        text.lines().find(|line| line.contains(" with ")).unwrap_or_default().to_owned()
    };
    let journal = |section: &str| {
        let text = told.text(section);
        text.lines().find(|line| line.starts_with("journal: ")).map(str::to_owned)
    };
    check(&[
        ("without-an-interactive-program-nothing-is-changed", &|| {
            assert_eq!(told.text("nobody-interactive"), before);
        }),
        ("an-interactive-programs-requests-come-first-and-those-of-the-journal-with-them", &|| {
            assert_eq!(order("interactive"), "bfq with 128");
            let says = ["strict_guarantees:1", "slice_idle_us:2000", "low_latency:0"];
            told.says("interactive", &says);
            told.says("interactive", &["player: realtime: prio 2", "journal: realtime: prio 4"]);
        }),
        ("what-it-starts-has-nothing-of-that", &|| {
            told.says("heir", &["parent: realtime: prio 4"]);
            assert!(!told.text("heir").contains("heir: realtime"), "{}", told.text("heir"));
        }),
        ("who-has-chosen-a-priority-keeps-it", &|| told.says("chosen", &["own: idle"])),
        ("a-killed-daemon-leaves-it-to-the-next-one", &|| {
            assert_eq!(order("killed"), "bfq with 128");
            let reverted =
                told.text("started-again").lines().next().and_then(|line| line.parse::<u32>().ok());
            assert!(reverted.is_some_and(|reverted| reverted >= 4), "{}", told.text("started-again"));
            told.says("started-again", &["player: realtime: prio 2"]);
        }),
        ("with-the-last-one-all-is-as-before", &|| {
            assert_eq!(order("left-by-all"), order("before"));
            assert_eq!(journal("left-by-all"), journal("before"));
        }),
        ("what-somebody-else-chose-stays", &|| {
            let lines = told.text("somebody-else-chose");
            assert!(lines.lines().all(|line| line.starts_with("mq-deadline")), "{lines}");
        }),
        ("a-daemon-that-stops-leaves-nothing", &|| {
            told.says("stopped", &["exit code 0"]);
            assert!(!told.text("stopped").contains("realtime"), "{}", told.text("stopped"));
            assert_eq!(journal("stopped"), journal("before"));
        }),
    ]);
}
