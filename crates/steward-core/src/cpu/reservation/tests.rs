//! Reservations as people write them.

use proptest::prelude::*;

use super::*;

#[test]
fn a_reservation_outside_what_can_be_promised_says_which_rule_it_breaks() {
    let cases = [
        ("40ms/30ms", "do not fit into a period"),
        ("0ms/30ms", "promises nothing"),
        ("5ms/0ms", "the period is zero"),
        ("0.5ms/0.9ms", "a period of 900us is outside"),
        ("5ms/11s", "a period of 11s is outside"),
        ("50us/30ms", "less than can be enforced"),
    ];
    for (text, expected) in cases {
        let reservation: Reservation = text.parse().expect(text);
        let message = reservation.validate().expect_err(text).to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
    for text in ["5ms/30ms", "1ms/1ms", "0.1ms/10s", "10s/10s"] {
        text.parse::<Reservation>().expect(text).validate().expect(text);
    }
}

proptest! {
    #[test]
    fn a_written_reservation_reads_back_the_same(budget_ns in any::<u64>(), period_ns in any::<u64>()) {
        let reservation = Reservation { budget_ns, period_ns };
        prop_assert_eq!(reservation.to_string().parse::<Reservation>(), Ok(reservation));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*") {
        let _ = text.parse::<Reservation>();
    }
}
