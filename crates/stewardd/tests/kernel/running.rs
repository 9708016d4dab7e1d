//! Memory of programs that run, given by hand.

use super::{Transcript, check};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_running_program_gets_memory_with_all_that_it_has_started_also_while_it_forks() {
    let told = Transcript::on(2, include_str!("running.sh"));
    let mib = |mib: u64| (mib << 20).to_string();
    let lines = |section: &str| told.text(section).lines().map(str::to_owned).collect::<Vec<_>>();
    check(&[
        ("a-process-goes-with-what-it-has-started-and-nobody-else", &|| {
            told.says("tree", &["and 2 that descend from it were moved from / to program-", "exit code 0"]);
            let has = lines("tree");
            assert!(has.ends_with(&[mib(16), mib(64), "there: 3".into(), "0::/".into()]), "{has:?}");
        }),
        ("another-amount-moves-nobody", &|| {
            told.says("changed", &["stays in program-", "24M of memory are promised there", "exit code 0"]);
            assert!(lines("changed").ends_with(&[mib(24), mib(64)]), "{}", told.text("changed"));
        }),
        ("it-is-taken-back", &|| {
            told.says("taken-back", &["no memory of its own is promised to it", "exit code 0"]);
            assert!(
                lines("taken-back").ends_with(&["0".into(), "max".into()]),
                "{}",
                told.text("taken-back")
            );
        }),
        ("a-name-is-a-domain-or-else-a-process", &|| {
            told.says(
                "by-name",
                &["exit code 0", &mib(8), "neither a domain nobody-is-called-so nor a process"],
            );
        }),
        ("what-cannot-be-is-refused-with-the-rule-and-changes-nothing", &|| {
            told.says(
                "refused",
                &[
                    "cannot have 100G of the memory of the machine",
                    "cannot be promised where at most 1M may be used",
                    "process 2 is a thread of the kernel",
                    "from process 1 all others descend",
                    "that is stewardd itself",
                    "is a thread of process",
                    "no process 999999999",
                    "user 1000 may not limit",
                    "is in another, whose processes are its manager's business",
                ],
            );
            let places: Vec<String> =
                lines("refused").into_iter().filter(|line| line.starts_with("0::")).collect();
            assert_eq!(places, ["0::/", "0::/another"]);
            assert!(!lines("refused").iter().any(|line| line == "exit code 0"), "{}", told.text("refused"));
        }),
        ("none-is-missed-of-what-is-begun-meanwhile", &|| {
            let forks = lines("forks");
            assert!(forks[0].contains("and SOME that descend from it were moved"), "{forks:?}");
            assert!(!forks.contains(&"/tmp/all".to_owned()), "it had begun all of them before: {forks:?}");
            assert!(!forks.iter().any(|line| line.starts_with("left: ")), "{forks:?}");
            // Itself, and each of 300 with what that began.
            assert_eq!(forks.last().map(String::as_str), Some("there: 601"), "{forks:?}");
            // All of a chain, or it says that it was not.
            let chain = told.text("chain");
            println!("{chain}");
            assert!(
                chain.ends_with("there: 101") || chain.contains("Not all that descend from it were moved"),
                "{chain}"
            );
        }),
        ("what-has-the-rights-of-another-stays-where-it-was", &|| {
            told.says(
                "others",
                &["and 1 that descend from it were moved", "Not moved: 1 that descend from it", "0::/"],
            );
            assert_eq!(
                told.text("others").matches("user 1000 may not limit").count(),
                2,
                "{}",
                told.text("others")
            );
        }),
        ("a-daemon-that-is-killed-in-between-leaves-nothing-that-asking-again-does-not-mend", &|| {
            assert_eq!(lines("killed").split_off(lines("killed").len() - 2), [mib(8), "1".into()]);
            told.says("stopped", &["exit code 0"]);
            assert!(lines("stopped").ends_with(&["0".into(), "1".into()]), "{}", told.text("stopped"));
        }),
    ]);
}
