//! What a protected domain waits for, and what is done so that it need not.

use libsteward::api;
use steward_machine::MachineConfig;

use crate::transcript::{Transcript, counted};
use crate::{check, figure};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_protected_domain_that_stood_still_is_told_with_the_name_of_who_took_memory_meanwhile() {
    let config = MachineConfig { icount_shift: Some(3), ..counted(1068) };
    let told = Transcript::with_timed_disk(config, include_str!("stall.sh"));
    println!("{}\n{}", told.text("stalled"), told.text("pressure"));
    check(&[
        ("what-is-swapped-out-is-not-held-back-while-somebody-is-protected", &|| {
            assert_eq!(told.text("held-back"), "75000\n0");
            assert_eq!(told.text("held-back-again"), "75000");
        }),
        ("a-promise-that-is-kept-is-told-so", &|| {
            told.says(
                "calm",
                &["editor is protected", "the promise of memory was kept: it never waited for memory"],
            );
        }),
        ("one-that-is-broken-is-told-with-who-took-memory", &|| {
            told.says(
                "stalled",
                &["the promise of memory was broken in", "The most memory was taken then by hog ("],
            );
        }),
        ("the-same-in-figures", &|| {
            let audit: api::DomainAudit = serde_json::from_str(&told.text("json")).expect("it is JSON");
            let memory = audit.memory.expect("memory is promised to it");
            let minute = &memory[0];
            assert!(
                minute.broken > 0 && minute.refaults > 100 && minute.worst_stalled_ns > 50_000_000,
                "{minute:?}"
            );
            assert_eq!(minute.culprits[0].domain.as_deref(), Some("hog"), "{minute:?}");
        }),
        ("it-is-a-decision-that-can-be-followed", &|| {
            told.says(
                "events",
                &["The promise of memory to editor was broken", "hog took the most memory then"],
            );
        }),
        ("who-takes-memory-faster-than-it-is-freed-is-held-back-and-goes-on", &|| {
            let writers = told.text("writers");
            println!("{writers}");
            let (_, taker) = writers.split_once("\ntaker:").expect("a line of its own");
            let (taker, burst) = taker.split_once("\nburst:").expect("a line of its own");
            assert!(taker.contains("because they took memory faster than"), "{writers}");
            assert!(!burst.contains("held back"), "{writers}");
            assert!(figure(&writers, "written ") >= 2, "who changes files goes on: {writers}");
        }),
        (
            "meanwhile-a-protected-program-takes-memory-in-bursts-without-taking-it-from-others-itself",
            &|| {
                let writers = told.text("writers");
                assert!(figure(&writers, "bursts ") >= 10, "{writers}");
                assert_eq!(figure(&writers, "scanned directly "), 0, "{writers}");
                assert_eq!(figure(&writers, "stood still us "), 0, "{writers}");
                assert_eq!(figure(&writers, "swapped "), 0, "{writers}");
            },
        ),
        ("a-domain-is-explained", &|| {
            let phrases =
                ["editor uses", "It is protected, and keeps what it used in the last 60s", "hog uses"];
            told.says("explain", &phrases);
            told.says("explain", &["It is promised none of that"]);
        }),
    ]);
}
