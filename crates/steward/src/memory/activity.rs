//! Whether a protected domain is in use, in words.

use libsteward::api;
use steward_core::quantity::percent_to;

const SECOND_NS: u64 = 1_000_000_000;

/// When it was used last, and by what that is known: `3min ago: it read from its terminal`.
pub fn last_used(activity: &api::Activity) -> String {
    let idle = coarse(activity.idle_ns);
    match activity.evidence {
        api::Evidence::Protected => format!("not in the {idle} since it was protected"),
        api::Evidence::Terminal => format!("{idle} ago: it read from its terminal"),
        api::Evidence::Input => format!("{idle} ago: it ran when somebody used the keyboard or the mouse"),
        api::Evidence::Work => format!("{idle} ago: it had much to do"),
        api::Evidence::Faults => format!("{idle} ago: it had pages read back"),
    }
}

/// How much of the time it was in use.
pub fn in_use(activity: &api::Activity) -> String {
    let spans = [
        ("minute", 60, activity.used_minute_ns),
        ("hour", 3_600, activity.used_hour_ns),
        ("day", 24 * 3_600, activity.used_day_ns),
    ];
    let share = |(name, seconds, used_ns): (&str, u64, u64)| {
        // What has not been watched yet is not known.
        let of_ns = (seconds * SECOND_NS).min(activity.watched_ns).max(1);
        format!("{} of the last {name}", percent_to((used_ns as f64 / of_ns as f64).min(1.0), 0))
    };
    let watched = coarse(activity.watched_ns);
    format!("{}, watched for {watched}", spans.map(share).join(", "))
}

/// In a few words: for how long it has been idle, and whether its protection has lapsed.
pub fn words(activity: &api::Activity) -> String {
    let lapsed = if activity.lapsed { ", not protected any more" } else { "" };
    format!("idle for {}{lapsed}", coarse(activity.idle_ns))
}

/// Whole seconds, above two minutes whole minutes, above two hours whole hours.
fn coarse(duration_ns: u64) -> String {
    let seconds = duration_ns / SECOND_NS;
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7_200 => format!("{}min", seconds / 60),
        _ => format!("{}h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_use_is_told_with_what_shows_it_and_how_much_of_the_time_it_was() {
        let activity = api::Activity {
            lapsed: true,
            idle_ns: 2_000 * SECOND_NS,
            evidence: api::Evidence::Terminal,
            watched_ns: 7_200 * SECOND_NS,
            used_ns: 1_800 * SECOND_NS,
            used_minute_ns: 0,
            used_hour_ns: 900 * SECOND_NS,
            used_day_ns: 1_800 * SECOND_NS,
        };
        assert_eq!(last_used(&activity), "33min ago: it read from its terminal");
        let expected = "0 % of the last minute, 25 % of the last hour, 25 % of the last day, watched for 2h";
        assert_eq!(in_use(&activity), expected);
        assert_eq!(words(&activity), "idle for 33min, not protected any more");
        let fresh = api::Activity { idle_ns: 119 * SECOND_NS + 5, ..api::Activity::default() };
        assert_eq!(last_used(&fresh), "not in the 119s since it was protected");
        assert_eq!(words(&api::Activity::default()), "idle for 0s");
    }
}
