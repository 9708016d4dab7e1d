//! Tests of [`crate::quantity`].

use proptest::prelude::*;

use super::*;

#[test]
fn durations_are_read_with_every_unit_and_with_fractions() {
    let cases = [
        ("5ms", 5_000_000),
        ("1.5s", 1_500_000_000),
        ("30min", 1_800_000_000_000),
        ("250us", 250_000),
        ("250µs", 250_000),
        ("0.25 ms", 250_000),
        ("2h", 7_200_000_000_000),
        ("1.5min", 90_000_000_000),
        ("7ns", 7),
    ];
    for (text, nanoseconds) in cases {
        assert_eq!(parse_duration(text), Ok(nanoseconds), "{text}");
    }
}

#[test]
fn a_duration_that_is_none_says_why() {
    let cases = [
        ("5", "has no unit"),
        ("5m", "could be minutes or milliseconds"),
        ("ms", "is not a duration"),
        ("-5ms", "is not a duration"),
        ("1.2.3ms", "is not a duration"),
        ("5 parsecs", "\"parsecs\" is not a unit"),
        ("0.5ns", "finer than a nanosecond"),
        ("0.00000000000000000000000001h", "finer than a nanosecond"),
        ("600000000h", "too large"),
        ("99999999999999999999s", "too large"),
        ("", "is not a duration"),
        ("half an hour", "is not a duration"),
    ];
    for (text, expected) in cases {
        let message = parse_duration(text).expect_err(text).to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn durations_are_written_in_their_shortest_exact_form() {
    let cases = [
        (5_000_000, "5ms"),
        (1_500_000_000, "1.5s"),
        (1_800_000_000_000, "30min"),
        (250_000, "250us"),
        (90_000_000_000, "90s"),
        (0, "0ms"),
        (1_000_001, "1000001ns"),
        (3_600_000_000_000, "1h"),
    ];
    for (nanoseconds, text) in cases {
        assert_eq!(format_duration(nanoseconds), text);
    }
}

#[test]
fn approximate_durations_have_three_digits() {
    let cases = [
        (3_217_456_789, "3.22s"),
        (48_000_000, "48ms"),
        (0, "0ms"),
        (123_456, "123us"),
        (72_000_000_000, "72s"),
        (99_960_000, "100ms"),
    ];
    for (nanoseconds, text) in cases {
        assert_eq!(approximate_duration(nanoseconds), text);
    }
}

#[test]
fn sizes_are_powers_of_1024_and_ambiguous_units_are_refused() {
    let cases = [
        ("64M", 64 << 20),
        ("64MiB", 64 << 20),
        ("1g", 1 << 30),
        ("1.5K", 1536),
        ("4096", 4096),
        ("7B", 7),
        ("2T", 2 << 40),
    ];
    for (text, bytes) in cases {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for (text, expected) in [
        ("64MB", "in \"64MB\", \"MB\" could be powers of 1000 or of 1024; write \"64M\" for powers of 1024"),
        ("1mb", "in \"1mb\", \"mb\" could be powers of 1000 or of 1024; write \"1M\" for"),
        ("1 MB", "in \"1 MB\", \"MB\" could be powers of 1000 or of 1024; write \"1M\" for"),
        ("10%", "\"10%\" is a part, and no amount; write a number and K, M, G or T"),
        ("-5M", "\"-5M\" is negative; write an amount above 0"),
        (" - 5", "is negative"),
        ("-M", "is not a unit"),
        ("64X", "is not a unit"),
        ("0.3K", "finer than a byte"),
        ("M", "is not a size"),
        ("99999999999T", "too large"),
    ] {
        let message = parse_size(text).expect_err(text).to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
    assert_eq!(format_size(64 << 20), "64M");
    assert_eq!(format_size(1000), "1000");
    assert_eq!(format_size(0), "0");
}

#[test]
fn a_percentage_has_as_many_decimals_as_it_has_and_as_are_wanted() {
    let texts = [(0.125, 2), (0.125, 1), (0.125, 0), (1.0, 0), (0.1 + 0.2, 6), (-0.0, 2), (0.0, 0)];
    let texts = texts.map(|(fraction, decimals)| percent_to(fraction, decimals));
    assert_eq!(texts, ["12.5 %", "12.5 %", "12 %", "100 %", "30 %", "0 %", "0 %"]);
    assert_eq!(percent_number(0.00016, 2), "0.02");
}

proptest! {
    #[test]
    fn a_written_duration_reads_back_the_same(nanoseconds in any::<u64>(), zeros in 0_u32..10) {
        let nanoseconds = nanoseconds / 10_u64.pow(zeros) * 10_u64.pow(zeros);
        prop_assert_eq!(parse_duration(&format_duration(nanoseconds)), Ok(nanoseconds));
        prop_assert_eq!(parse_milliseconds(&format_milliseconds(nanoseconds)), Ok(nanoseconds));
    }

    #[test]
    fn a_written_size_reads_back_the_same(bytes in any::<u64>(), shift in 0_u32..50) {
        let bytes = bytes >> shift << shift;
        prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC*") {
        let _ = (parse_duration(&text), parse_size(&text), parse_milliseconds(&text));
    }
}

#[test]
fn a_size_is_told_as_people_read_it() {
    for (bytes, expected) in [
        (0, "0"),
        (36 * 1024 + 7, "36K"),
        (10 << 20, "10M"),
        ((300 << 20) + 4096, "300M"),
        (806_397_542, "769M"),
        (2 << 30, "2G"),
    ] {
        assert_eq!(approximate_size(bytes), expected);
    }
}

#[test]
fn a_small_share_never_reads_as_nothing() {
    let texts = [0.0, 0.0001, 0.0005, 1.0 / 3.0, 1.0].map(approximate_percent);
    assert_eq!(texts, ["0 %", "less than 0.1 %", "0.1 %", "33.3 %", "100 %"]);
}
