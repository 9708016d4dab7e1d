//! By what it is known what protected domains use.

use steward_machine::MachineConfig;

use super::{Transcript, check, figure};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn without_page_ages_a_protected_program_keeps_its_pages_and_it_is_said_by_what_its_use_is_known() {
    let config =
        MachineConfig { cpus: 1, memory_mib: 512, icount_shift: Some(2), ..MachineConfig::default() };
    let told = Transcript::in_machine(config, include_str!("ages.sh"));
    let mib =
        |section: &str, what: &str| figure(&told.text(section).replace(" MiB", ""), &format!("{what} "));
    check(&[
        ("while-nobody-is-protected-it-is-known-by-nothing", &|| told.says("nobody", &["from ."])),
        ("with-page-ages-it-is-known-by-them", &|| told.says("ages", &["from mglru."])),
        ("when-they-are-turned-off-it-is-known-by-refaults-and-pressure-and-said", &|| {
            let of_both = "from refaults_and_pressure, of the editor from refaults_and_pressure.";
            let shown = "memory used, by: what is fetched back of the little that is given up at a time";
            told.says("turned-off", &[of_both, shown, "memory used, by refaults-and-pressure"]);
        }),
        ("a-protected-program-keeps-its-pages-beside-hogs-all-the-same", &|| {
            assert!(mib("beside-hogs", "keys") >= 3, "{}", told.text("beside-hogs"));
            assert_eq!(mib("beside-hogs", "faults"), 0, "{}", told.text("beside-hogs"));
            assert!(mib("beside-hogs", "has") >= 58, "{}", told.text("beside-hogs"));
        }),
        ("what-it-can-do-without-is-tried-a-little-at-a-time", &|| {
            assert!(mib("tried", "taken") >= 2, "{}", told.text("tried"));
            assert!(mib("tried", "has") >= 120, "{}", told.text("tried"));
        }),
        ("beside-a-disk-that-rotates-nothing-is-tried", &|| {
            told.says("slow-disk", &["from none.", "memory used, by none"]);
        }),
        ("what-the-configuration-says-goes-first-and-what-it-cannot-say-is-named", &|| {
            told.says("by-hand", &["from refaults_and_pressure.", "ages = \"damon\" is nothing"]);
        }),
        ("when-they-are-turned-on-again-it-is-known-by-them", &|| told.says("on-again", &["from mglru."])),
    ]);
}
