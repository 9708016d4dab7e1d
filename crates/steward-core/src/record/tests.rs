//! The record of promises, as an example of what is kept: what is written is read again, and damage costs little.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::cpu::audit::Tally;

fn tally() -> impl Strategy<Value = Tally> {
    any::<[u64; 8]>().prop_map(|numbers| Tally {
        seen_ns: numbers[0],
        promised_ns: numbers[1],
        wanted_ns: numbers[2],
        received_ns: numbers[3],
        waited_ns: numbers[4],
        seconds: numbers[5],
        broken: numbers[6],
        worst_missing_ns: numbers[7],
    })
}

fn records() -> impl Strategy<Value = Records<Tally>> {
    let addition = ("[a-z./ é]{0,12}", 0u32..3, 0u64..200_000, tally());
    vec(addition, 0..60).prop_map(|mut additions| {
        additions.sort_by_key(|(_, _, at_s, _)| *at_s);
        let mut records = Records::<Tally>::default();
        for (path, user, at_s, tally) in &additions {
            records.add(path, *user, *at_s, tally);
        }
        records
    })
}

fn without_seconds(mut records: Records<Tally>) -> Records<Tally> {
    records.by_path.values_mut().for_each(|record| record.seconds.slots.clear());
    records
}

proptest! {
    #[test]
    fn what_was_written_is_read_again_but_for_the_last_minute(records in records(), offset_s: u64) {
        let timeline = Timeline { boot_id: "9f1c-boot".to_owned(), offset_s };
        let (read, again, problems) = file::decode::<Tally>(&file::encode(&records, &timeline));
        prop_assert_eq!(problems, Vec::<String>::new());
        prop_assert_eq!((read, again), (without_seconds(records), timeline));
    }

    #[test]
    fn a_file_that_was_cut_off_loses_one_domain_at_most(records in records(), cut in 0.0..1.0f64) {
        let text = file::encode(&records, &Timeline::default());
        let mut end = (text.len() as f64 * cut) as usize;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (read, _, problems) = file::decode::<Tally>(&text[..end]);
        let whole = text[..end].matches("\nend ").count();
        prop_assert!(read.by_path.len() + 1 >= whole && problems.len() <= 2, "{problems:?}");
        let records = without_seconds(records);
        for (path, record) in read.iter() {
            prop_assert_eq!(records.by_path.get(path), Some(record));
        }
    }

    #[test]
    fn a_changed_byte_costs_the_domain_that_it_is_in_and_is_said(records in records(), place: usize, byte in 32u8..127) {
        let text = file::encode(&records, &Timeline::default());
        let mut bytes = text.clone().into_bytes();
        let place = place % bytes.len();
        prop_assume!(bytes[place].is_ascii() && bytes[place] != byte);
        bytes[place] = byte;
        let changed = String::from_utf8(bytes).expect("ASCII for ASCII");
        let (read, _, problems) = file::decode::<Tally>(&changed);
        let in_blocks = place > text.match_indices('\n').nth(1).map_or(usize::MAX, |(end, _)| end);
        prop_assert!(!in_blocks || !problems.is_empty(), "byte {place}");
        let records = without_seconds(records);
        for (path, record) in read.iter() {
            prop_assert_eq!(records.by_path.get(path), Some(record));
        }
    }

    #[test]
    fn any_text_at_all_is_read_without_harm(
        lines in vec(prop_oneof![
            Just("steward-audit 1".to_owned()), Just("time 5 boot".to_owned()), Just("domain 0 5 a".to_owned()),
            Just("m 1 1 1 1 1 1 1 1 1".to_owned()), Just("end 0".to_owned()), ".{0,40}",
        ], 0..30),
    ) {
        let (read, timeline, _) = file::decode::<Tally>(&lines.join("\n"));
        let _ = (read.newest_s(), timeline.at_s(u64::MAX));
    }

    #[test]
    fn a_span_sums_what_happened_within_it_and_nothing_older(
        times in vec(0u64..200_000, 1..200), now in 0u64..300_000,
    ) {
        let mut times = times;
        times.sort_unstable();
        let now = now.max(*times.last().expect("not empty"));
        let mut records = Records::<Tally>::default();
        let one = Tally { seconds: 1, ..Tally::default() };
        for at_s in &times {
            records.add("a", 0, *at_s, &one);
        }
        let record = records.get("a", 0).expect("it was added");
        for span in Span::ALL {
            let oldest = (now / span.width_s() + 1).saturating_sub(span.slots()) * span.width_s();
            let within = times.iter().filter(|at_s| **at_s >= oldest).count() as u64;
            prop_assert_eq!(record.sum(span, now).seconds, within, "{}", span.name());
        }
    }
}

#[test]
fn the_store_is_bounded_whatever_happens_and_the_oldest_goes_first() {
    let mut records = Records::<Tally>::default();
    let most = Tally { seconds: u64::MAX, seen_ns: u64::MAX, promised_ns: u64::MAX, ..Tally::default() };
    let most = Tally { wanted_ns: u64::MAX, received_ns: u64::MAX, waited_ns: u64::MAX, ..most };
    let most = Tally { broken: u64::MAX, worst_missing_ns: u64::MAX, ..most };
    for at_s in (0..200_000).step_by(30) {
        records.add("a", 0, 1_000_000_000 + at_s, &most);
    }
    let text = file::encode(&records, &Timeline::default());
    assert!(text.lines().count() <= 2 + 1 + 156 + 1 && text.len() < 32 * 1024, "{} bytes", text.len());
    for domain in 0..DOMAINS_MAX as u64 + 5 {
        records.add(&format!("b{domain}"), 0, 2_000_000_000 + domain, &Tally::default());
    }
    assert_eq!(records.iter().count(), DOMAINS_MAX);
    assert!(
        records.get("a", 0).is_none() && records.get("b0", 0).is_none() && records.get("b9", 0).is_some()
    );
    records.expire(2_000_000_000 + 2 * 86_400);
    assert_eq!(records.iter().count(), 0);
}

#[test]
fn who_makes_many_domains_pushes_out_records_of_nobody_else() {
    let mut records = Records::<Tally>::default();
    let one = Tally { seconds: 1, ..Tally::default() };
    (0..3).for_each(|domain| records.add(&format!("old{domain}"), 1000, domain, &one));
    let many = DOMAINS_MAX as u64 + 50;
    (0..many).for_each(|domain| records.add(&format!("many{domain}"), 1001, 100 + domain, &one));
    assert_eq!(records.iter().count(), DOMAINS_MAX);
    assert!((0..3).all(|domain| records.get(&format!("old{domain}"), 1000).is_some()));
    assert!(
        records.get("many0", 1001).is_none() && records.get(&format!("many{}", many - 1), 1001).is_some()
    );
    // Who has few has them beside one who has many, and no more than that once both have as many.
    (0..many).for_each(|domain| records.add(&format!("also{domain}"), 1002, 9_000 + domain, &one));
    let of = |user| records.iter().filter(|(_, record)| record.user == user).count();
    assert!(of(1000) == 3 && of(1001).abs_diff(of(1002)) <= 1, "{} {}", of(1001), of(1002));
}

#[test]
fn a_domain_of_the_same_name_that_belongs_to_somebody_else_is_another_one() {
    let mut records = Records::<Tally>::default();
    let one = Tally { seconds: 1, ..Tally::default() };
    records.add("a", 1000, 5, &one);
    assert!(records.get("a", 1001).is_none());
    records.add("a", 1001, 6, &one);
    assert_eq!(records.get("a", 1001).map(|record| record.sum(Span::Day, 6).seconds), Some(1));
    assert!(records.get("a", 1000).is_none());
}

#[test]
fn time_goes_on_within_a_boot_and_never_goes_back_across_boots() {
    let first = Timeline::continued(&Timeline::default(), 0, "one", 1_000_000, 50);
    assert_eq!(first.at_s(50), 1_000_000);
    let same = Timeline::continued(&first, 1_000_100, "one", 5, 200);
    assert_eq!(same, first, "within a boot the clock of the wall does not matter");
    let later = Timeline::continued(&first, 1_000_100, "two", 1_500_000, 10);
    assert_eq!(later.at_s(10), 1_500_000);
    let clock_went_back = Timeline::continued(&first, 1_000_100, "two", 7, 10);
    assert_eq!(clock_went_back.at_s(10), 1_000_101);
}
