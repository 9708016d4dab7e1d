//! By what it is known what protected domains use.

use steward_machine::MachineConfig;

use super::transcript::counted;
use super::{Transcript, check, figure};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn it_is_said_by_what_the_use_of_memory_is_known_and_without_page_ages_what_was_read_once_is_not_kept() {
    let config = MachineConfig { disk_mib: Some(400), icount_shift: Some(3), ..counted(384) };
    let told = Transcript::in_machine(config, include_str!("ages.sh"));
    let mib =
        |section: &str, what: &str| figure(&told.text(section).replace(" MiB", ""), &format!("{what} "));
    check(&[
        ("while-nobody-is-protected-it-is-known-by-nothing", &|| told.says("nobody", &["from ."])),
        ("with-page-ages-it-is-known-by-them", &|| told.says("ages", &["from mglru."])),
        ("when-they-are-turned-off-it-is-known-by-refaults-and-pressure-and-said", &|| {
            let of_both = "from refaults_and_pressure, of the reader from refaults_and_pressure.";
            let shown = "memory used, by: what is fetched back of the little that is given up at a time";
            told.says("turned-off", &[of_both, shown, "memory used, by refaults-and-pressure"]);
        }),
        ("who-reads-a-large-file-keeps-what-it-uses-and-not-the-file", &|| {
            assert!(mib("reads", "charged") >= 120, "{}", told.text("reads"));
            assert!((30..80).contains(&mib("reads", "kept")), "{}", told.text("reads"));
            assert_eq!(mib("reads", "demoted"), 0, "{}", told.text("reads"));
        }),
        ("beside-a-disk-that-rotates-nothing-is-tried-and-no-file-is-kept-that-was-read-once", &|| {
            told.says("slow-disk", &["from none.", "memory used, by none"]);
            assert!((30..80).contains(&mib("slow-disk", "kept")), "{}", told.text("slow-disk"));
        }),
        ("what-the-configuration-says-goes-first-and-what-it-cannot-say-is-named", &|| {
            told.says("by-hand", &["from refaults_and_pressure.", "ages = \"damon\" is nothing"]);
        }),
        ("when-they-are-turned-on-again-it-is-known-by-them", &|| told.says("on-again", &["from mglru."])),
    ]);
}
