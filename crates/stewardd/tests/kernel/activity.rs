//! Whether protected domains are in use, on a real kernel.

use super::transcript::counted;
use super::{Transcript, check, figure};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn protection_lapses_while_nobody_uses_a_domain_and_is_back_before_the_second_key() {
    let told = Transcript::in_machine(counted(512), include_str!("activity.sh"));
    let kept = |section: &str, name: &str| figure(&told.text(section).replace(" MiB kept", ""), name);
    let is_before_the_second_key = |section: &str| {
        let took_ms = figure(&told.text(section).replace(" ms", ""), "after ");
        println!("{section}: protected again {took_ms} ms after the key");
        assert!(took_ms < 200, "{}", told.text(section));
    };
    check(&[
        ("who-types-more-often-than-the-idle-period-stays-protected", &|| {
            assert!(kept("typing", "editor: ") >= 11, "{}", told.text("typing"));
            told.says("typing", &["ago: it read from its terminal"]);
        }),
        ("a-program-that-only-ticks-is-not-in-use", &|| {
            assert_eq!(kept("typing", "ticks: "), 0);
            told.says("ticks", &["protection: lapsed"]);
        }),
        ("without-a-key-for-the-idle-period-nothing-is-kept", &|| {
            assert_eq!(kept("lapses", "editor: "), 0);
            let says =
                ["protection: lapsed", "\"lapsed\":true", "\"evidence\":\"terminal\"", "2 domains are"];
            told.says("lapses", &says);
            told.says("lapses", &["protection-lapsed", "when it read from its terminal"]);
        }),
        ("with-the-first-key-all-that-it-has-is-kept-again", &|| {
            is_before_the_second_key("returns");
            assert!(kept("returns", "editor: ") >= 11, "{}", told.text("returns"));
            told.says("returns", &["is protected again: it read from its terminal"]);
        }),
        ("a-program-that-works-is-in-use-without-anybody-touching-it", &|| {
            assert!(kept("works", "works: ") > 0, "{}", told.text("works"));
            told.says("works", &["ago: it had much to do"]);
        }),
        ("watching-costs-next-to-nothing", &|| {
            let cost_us = figure(&told.text("cost"), "cost_us ");
            println!("watching two domains costs {cost_us} us of CPU time a second");
            // Half a percent, and in part what the kernel takes to sum up what it has counted (4.6 ms before the memory
            // loop left that to this thread, 5.5 since).
            assert!(cost_us < 6_000, "six tenths of a percent: {cost_us} us a second");
        }),
        ("a-stopped-daemon-leaves-nothing", &|| told.says("stopped", &["exit code 0 0"])),
    ]);
}
