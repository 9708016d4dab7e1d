//! Programs are told how much memory they may use, and when they should give some back.

use steward_machine::MachineConfig;

use crate::transcript::Transcript;
use crate::{check, figure};

/// What a watcher was told: how many bytes in all, and when, in nanoseconds.
fn told(text: &str) -> Vec<(u64, u64)> {
    amounts(text).into_iter().map(|(amounts, at_ns)| (amounts[0], at_ns)).collect()
}

/// The same, with how many at once, where that was told.
fn amounts(text: &str) -> Vec<(Vec<u64>, u64)> {
    let numbers = |line: &str| {
        let (told, at_ns) = line.strip_prefix("told ")?.split_once(" at ")?;
        let amounts = told.split(' ').skip(1).map(|bytes| bytes.parse().ok()).collect::<Option<_>>()?;
        Some((amounts, at_ns.parse().ok()?))
    };
    text.lines().filter_map(numbers).collect()
}

/// Holds what one was told while 160 MiB were taken to what it was to be told; returns the last.
fn told_in_time(text: &str, who: &str) -> u64 {
    const MIB: u64 = 1 << 20;
    let [takes_ns, took_ns] =
        ["takes at ", "took at "].map(|name| u64::try_from(figure(text, name)).expect("a moment"));
    let told = told(text);
    let before = told.iter().rfind(|(_, at_ns)| *at_ns <= takes_ns).expect("told at once").0;
    let after: Vec<(u64, u64)> = told.iter().copied().filter(|(_, at_ns)| *at_ns > takes_ns).collect();
    let (last, last_ns) = *after.last().unwrap_or_else(|| panic!("nothing was told: {text}"));
    println!(
        "{who}: taking took {} ms; told first {} ms after it began, last {} ms after it ended",
        (took_ns - takes_ns) / 1_000_000,
        (after[0].1 - takes_ns) / 1_000_000,
        (last_ns as i64 - took_ns as i64) / 1_000_000
    );
    assert!(last_ns < took_ns + 300_000_000, "{who}: {text}");
    // What is less than a twentieth is not told; and 10 MiB for what else changes meanwhile.
    let off = (before - last).abs_diff(160 * MIB);
    assert!(off <= last / 20 + 10 * MIB, "{who}: 160 MiB were taken: {text}");
    last
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_program_is_told_within_300_ms_what_another_takes_and_again_when_the_daemon_is() {
    // Twice as fast as usual: the programs are not optimized as those are that people use, and this is about time.
    let config = MachineConfig { cpus: 2, icount_shift: Some(1), ..MachineConfig::default() };
    let transcript = Transcript::in_machine(config, include_str!("availability.sh"));
    let taken = transcript.text("taken");
    check(&[
        ("who-begins-to-watch-is-told-once", &|| {
            assert_eq!(told(&transcript.text("told")).len(), 1, "{}", transcript.text("told"));
        }),
        ("a-watcher-is-told-in-time", &|| {
            told_in_time(&taken, "watcher");
        }),
        ("less-than-a-twentieth-is-not-told", &|| {
            for pair in amounts(&taken).windows(2) {
                let mut changes = pair[0].0.iter().zip(&pair[1].0);
                let is_news = changes.any(|(before, after)| before.abs_diff(*after) * 20 >= *before);
                assert!(is_news, "less than a twentieth: {taken}");
            }
        }),
        ("who-polls-a-control-file-is-told-in-time", &|| {
            told_in_time(&transcript.text("polled"), "poller");
        }),
        ("a-control-file-says-what-was-told-last", &|| {
            let available = transcript.text("available");
            let now = available.lines().last().and_then(|line| line.parse().ok());
            let (now, last): (u64, u64) = (now.expect("the control file"), told_in_time(&taken, "watcher"));
            assert!(now.abs_diff(last) * 20 <= last, "{available} after {taken}");
        }),
        ("the-daemon-sleeps-when-nobody-watches", &|| {
            let idle = transcript.text("idle");
            let (watched, idle) = (figure(&idle, "watched "), figure(&idle, "idle "));
            println!("in 4 s the daemon wakes {watched} times with a watcher, {idle} without");
            assert!(watched >= idle + 10, "{watched} times in 4 s with a watcher, {idle} without");
        }),
        ("the-next-daemon-tells-again", &|| {
            assert!(told(&transcript.text("again")).len() >= 2, "{}", transcript.text("again"));
        }),
        ("what-was-told-is-taken-from-whoever-has-more-than-its-part", &|| {
            let part = transcript.text("part");
            let part = part.replace(" MiB in the swap", "").replace(" pages", "");
            assert_eq!(figure(&part, "a: "), 0, "{part}");
            assert_eq!(figure(&part, "taken from a: "), 0, "{part}");
            assert!(figure(&part, "c: ") >= 40 && figure(&part, "taken from c: ") >= 10_000, "{part}");
        }),
        ("what-may-not-be-swapped-out-is-told-to-nobody", &|| {
            let told = transcript.text("swap-limited").replace(" MiB", "");
            let [before, limited, after] =
                ["unlimited: ", "limited: ", "unlimited-again: "].map(|name| figure(&told, name));
            println!(
                "beside 200 MiB {before} MiB may be used, and {limited} where they may not be swapped out"
            );
            assert!(before - limited >= 150 && after - limited >= 150, "{told}");
        }),
        ("who-has-more-than-its-part-is-told-by-systemds-pressure-protocol", &|| {
            let part = transcript.text("part");
            println!(
                "told {} times, beside it {}",
                figure(&part, "pressure c "),
                figure(&part, "pressure a ")
            );
            assert!(figure(&part, "pressure c ") >= 1, "{part}");
        }),
    ]);
}
