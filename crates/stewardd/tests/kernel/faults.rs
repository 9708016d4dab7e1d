//! What goes wrong around protected memory, and what protection must never do.

use steward_machine::MachineConfig;

use super::transcript::counted;
use super::{Transcript, check, figure};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn each_fault_around_protected_memory_has_its_message_and_the_rest_goes_on() {
    let told = Transcript::in_machine(counted(512), include_str!("faults.sh"));
    let kept_mib = |section: &str| figure(&told.text(section).replace(" MiB", ""), "kept ");
    check(&[
        ("a-daemon-killed-in-mid-reclaim-leaves-what-was-protected-and-nobody-limited", &|| {
            assert!(kept_mib("killed") >= 56, "{}", told.text("killed"));
            told.says("killed", &["2147483648"]);
        }),
        ("a-daemon-started-again-puts-back-what-there-was-and-protects-anew", &|| {
            assert!(kept_mib("started-again") >= 56, "{}", told.text("started-again"));
            assert!(figure(&told.text("started-again"), "reverted ") >= 1);
        }),
        ("revert-leaves-nothing-of-a-killed-daemon", &|| {
            told.says("killed-again", &["exit code 0", "minimum 0", "alive"]);
        }),
        ("whom-the-kernel-ends-for-want-of-memory-is-neither-the-daemon-nor-protected", &|| {
            assert!(figure(&told.text("out-of-memory"), "hogs ended ") >= 1);
            told.says("out-of-memory", &["answers", "protected lives"]);
        }),
        ("what-the-daemon-uses-itself-is-locked-and-stays-in-memory-with-swap-on", &|| {
            let own = told.text("own-memory");
            assert_eq!((figure(&own, "swapped kB "), figure(&own, "unlocked ")), (0, 0), "{own}");
            assert!(figure(&own, "locked kB ") > 0 && figure(&own, "mappings ") > 0, "{own}");
        }),
        ("without-swap-a-domain-is-protected-all-the-same", &|| assert!(kept_mib("no-swap") >= 56)),
        ("on-a-full-disk-nothing-is-written-and-it-is-said", &|| {
            assert_eq!(kept_mib("full-disk"), 0);
            told.says("full-disk", &["No space left", "nothing was changed in the kernel"]);
        }),
        ("with-room-again-it-goes-on-by-itself", &|| assert!(kept_mib("room-again") >= 56)),
        ("a-cgroup-made-anew-under-the-name-of-one-that-is-gone-has-nothing-of-it", &|| {
            told.says("made-anew", &["minimum 0"]);
            assert!(kept_mib("made-anew") >= 56, "{}", told.text("made-anew"));
        }),
        ("without-page-ages-all-that-is-charged-counts-as-used", &|| {
            assert!(kept_mib("no-page-ages") >= 56);
            told.says("no-page-ages", &["turned off"]);
        }),
        ("where-nobody-hands-memory-out-it-is-handed-out-for-who-is-protected-and-taken-back", &|| {
            assert!(kept_mib("not-delegated") >= 56);
            told.says("not-delegated", &["cpuset cpu io pids", "cpuset cpu io memory pids"]);
            told.says("handed-back", &["exit code 0 cpuset cpu io pids"]);
        }),
    ]);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn nobody_is_ended_for_want_of_memory_who_would_have_lived_without_protection() {
    let config = MachineConfig { disk_mib: Some(900), ..counted(512) };
    let told = Transcript::in_machine(config, include_str!("oom.sh"));
    let mut histories_that_fit = 0;
    for seed in 1..=8 {
        let text = told.text(&format!("history-{seed}"));
        println!("{seed}: {text}");
        // Only a history in which all fits says something.
        if figure(&text, "without ") == 0 {
            histories_that_fit += 1;
            assert_eq!(figure(&text, "with "), 0, "history {seed}: {text}");
        }
    }
    assert!(histories_that_fit >= 3, "only {histories_that_fit} of eight histories say something");
    check(&[
        ("nobody-is-ended-below-a-maximum-where-nobody-is-protected", &|| {
            told.says("below-a-maximum-default", &["lived: steward", "all ended: 0", " of 100 MiB"]);
            assert!(!told.text("below-a-maximum-default").contains("ended: steward"));
        }),
        ("protection-below-a-maximum-is-dropped-before-it-ends-anybody-and-told", &|| {
            let told_of = "that no domain below it is protected for now";
            told.says(
                "below-a-maximum-60s",
                &["all ended: 0", told_of, "domains below it are protected again"],
            );
            let text = told.text("below-a-maximum-60s");
            assert!(
                !text.contains("ended: steward") && figure(&text.replace(" MiB", ""), "kept ") >= 130,
                "{text}"
            );
        }),
        ("protection-below-a-maximum-ends-nobody-though-the-daemon-sees-it-late", &|| {
            told.says("below-a-maximum-unseen", &["lived: sh", "all ended: 0"]);
            let text = told.text("below-a-maximum-unseen");
            assert!(!text.contains("never: ") && !text.contains("ended: sh"), "{text}");
        }),
        ("where-who-allocates-is-slowed-goes-with-the-maximum-though-what-is-kept-stays", &|| {
            told.says("below-a-maximum-unseen", &["slowed 0 times with room"]);
        }),
        ("a-maximum-below-what-is-kept-and-used-comes-into-force", &|| {
            told.says("below-a-maximum-60s", &["of 100 MiB"]);
            assert!(!told.text("below-a-maximum-60s").contains("never: "));
        }),
        ("nobody-is-ended-where-a-limit-keeps-others-out-of-the-swap", &|| {
            for section in ["out-of-the-swap-default", "out-of-the-swap-60s"] {
                told.says(section, &["all ended: 0", "lived: "]);
            }
        }),
    ]);
}
