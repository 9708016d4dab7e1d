//! The CPU's part of the daemon's configuration.
//!
//! ```toml
//! [cpu]
//! mechanism = "auto"           # or "sched_ext", "deadline"
//! best_effort = "virtual-time" # or "mtr-ls", "wrr"
//! service_cycle = "500ms"
//! preemption_interval = "0ms"
//! reservable = 0.95            # of the CPUs, for all reservations of domains together
//! [cpu.thresholds]             # Yang 2009, section 8.1.2; fractions of each CPU
//! reactivate_below = 0.65
//! admit_below = 0.80
//! revoke_above = 0.90
//! irrevocable_max = 0.80       # declared by what is never revoked
//! user_max = 0.75              # declared by one user, and by all of them
//! ```

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::best_effort::{BestEffortOrder, BestEffortSettings};
use super::thresholds::Thresholds;
use crate::domain::tree::ROOT_LIMIT;
use crate::quantity::{format_duration, parse_duration};
use crate::toml_reader::{Reader, lookup, suggest};

/// Its keys.
pub(crate) const KEYS: [&str; 6] =
    ["mechanism", "best_effort", "service_cycle", "preemption_interval", "reservable", "thresholds"];

/// The largest `revoke_above`: beside best-effort work that waits reservations get 95 % of a CPU at most, so that a
/// higher threshold would never be passed.
pub const REVOKE_ABOVE_MAX: f64 = 0.94;

/// The largest `irrevocable_max`: what is never revoked is to leave something to best-effort work.
pub const IRREVOCABLE_MAX: f64 = 0.95;

/// The largest `user_max`, in CPUs: more declared than that on one CPU is no limit any more.
pub const USER_MAX: f64 = 100.0;

/// Which mechanism the daemon is to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MechanismChoice {
    /// sched_ext where the kernel has it, otherwise SCHED_DEADLINE.
    #[default]
    Auto,
    /// sched_ext or nothing.
    SchedExt,
    /// SCHED_DEADLINE even where sched_ext could be used.
    Deadline,
}

/// The bounds of a service cycle, in nanoseconds: below, a turn is too short to be worth a switch; above, waiting for
/// one is noticed by everybody.
const SERVICE_CYCLE_NS: std::ops::RangeInclusive<u64> = 10_000_000..=10_000_000_000;
/// The longest preemption interval, in nanoseconds.
const PREEMPTION_INTERVAL_MAX_NS: u64 = 10_000_000;

/// What is set of the CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Which mechanism to use.
    pub mechanism: MechanismChoice,
    /// The order among domains, and its parameters.
    pub best_effort: BestEffortSettings,
    /// What all domains may reserve of the CPUs together, above 0 and at most 1.
    pub reservable: f64,
    /// Limits of admission, revocation and reactivation.
    pub thresholds: Thresholds,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mechanism: MechanismChoice::default(),
            best_effort: BestEffortSettings::default(),
            reservable: ROOT_LIMIT,
            thresholds: Thresholds::default(),
        }
    }
}

/// Reads `[cpu]`. A setting that is wrong is reported and keeps its default; the others stand.
pub(crate) fn read<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Config {
    let mut config = Config::default();
    let Some(section) = reader.section(table, "cpu", &KEYS) else { return config };
    config.mechanism = read_mechanism(reader, section).unwrap_or_default();
    config.best_effort = read_best_effort(reader, section);
    config.reservable = reader.part(section, "reservable", "the CPUs").unwrap_or(config.reservable);
    config.thresholds = read_thresholds(reader, section).unwrap_or_default();
    config
}

fn read_mechanism<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Option<MechanismChoice> {
    let word = reader.string(table, "mechanism", "auto")?;
    match word.get_ref().as_str() {
        "auto" => Some(MechanismChoice::Auto),
        "sched_ext" => Some(MechanismChoice::SchedExt),
        "deadline" => Some(MechanismChoice::Deadline),
        other => {
            let advice = suggest(other, &["auto", "sched_ext", "deadline"]);
            reader.error(word.span(), format!("there is no mechanism \"{other}\""), advice);
            None
        }
    }
}

/// The order among domains of that name: `virtual-time`, `mtr-ls`, `wrr`.
pub fn order_by_name(name: &str) -> Option<BestEffortOrder> {
    let all = [BestEffortOrder::VirtualTime, BestEffortOrder::MtrLs, BestEffortOrder::Wrr];
    all.into_iter().find(|order| order.to_string() == name)
}

fn read_best_effort<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> BestEffortSettings {
    let mut settings = BestEffortSettings::default();
    if let Some(word) = reader.string(table, "best_effort", "virtual-time") {
        match order_by_name(word.get_ref()) {
            Some(order) => settings.order = order,
            None => {
                let advice = suggest(word.get_ref(), &["virtual-time", "mtr-ls", "wrr"]);
                reader.error(
                    word.span(),
                    format!("there is no order of domains \"{}\"", word.get_ref()),
                    advice,
                );
            }
        }
    }
    if let Some(cycle_ns) = read_duration(reader, table, "service_cycle", SERVICE_CYCLE_NS) {
        settings.service_cycle_ns = cycle_ns;
    }
    let range = 0..=PREEMPTION_INTERVAL_MAX_NS;
    if let Some(interval_ns) = read_duration(reader, table, "preemption_interval", range) {
        settings.preemption_interval_ns = interval_ns;
    }
    settings
}

fn read_duration<'a>(
    reader: &mut Reader<'a>,
    table: &DeTable<'a>,
    key: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Option<u64> {
    let text = reader.string(table, key, "500ms")?;
    match parse_duration(text.get_ref()) {
        Ok(duration_ns) if range.contains(&duration_ns) => Some(duration_ns),
        Ok(_) => {
            let advice =
                format!("give {} to {}", format_duration(*range.start()), format_duration(*range.end()));
            reader.error(text.span(), format!("{key} = \"{}\" is out of range", text.get_ref()), advice);
            None
        }
        Err(fault) => {
            reader.error(text.span(), format!("{key}: {}", fault.what), fault.advice);
            None
        }
    }
}

fn read_thresholds<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Option<Thresholds> {
    let value = lookup(table, "thresholds")?;
    let toml::de::DeValue::Table(section) = value.get_ref() else {
        let advice = "write [cpu.thresholds], then its keys below it";
        reader.error(value.span(), "thresholds is not a table", advice);
        return None;
    };
    let before = reader.problems.len();
    let known = ["reactivate_below", "admit_below", "revoke_above", "irrevocable_max", "user_max"];
    reader.reject_unknown_keys(section, &known, "[cpu.thresholds]");
    let default = Thresholds::default();
    let mut read = |key: &str, default: f64| {
        reader.number(section, key, &default.to_string()).map_or(default, |number| number.into_inner())
    };
    let thresholds = Thresholds {
        reactivate_below: read("reactivate_below", default.reactivate_below),
        admit_below: read("admit_below", default.admit_below),
        revoke_above: read("revoke_above", default.revoke_above),
        irrevocable_max: read("irrevocable_max", default.irrevocable_max),
        user_max: read("user_max", default.user_max),
    };
    if let Err(what) = check_thresholds(&thresholds) {
        let advice = format!(
            "they are fractions of a CPU in this order: 0 < reactivate_below < admit_below < revoke_above <= \
             {REVOKE_ABOVE_MAX}; a key left out is {}, {}, {}",
            default.reactivate_below, default.admit_below, default.revoke_above
        );
        reader.error(value.span(), what, advice);
    }
    for (key, most, given) in [
        ("irrevocable_max", IRREVOCABLE_MAX, thresholds.irrevocable_max),
        ("user_max", USER_MAX, thresholds.user_max),
    ] {
        if !(given > 0.0 && given <= most) {
            let span = lookup(section, key).map_or(value.span(), toml::Spanned::span);
            let advice = format!("give a number above 0 and at most {most}: C/T in CPUs, per CPU");
            reader.error(span, format!("{key} = {given} is out of range"), advice);
        }
    }
    (reader.problems.len() == before).then_some(thresholds)
}

/// Holds thresholds against `0 < Rlo < Rhi < Rmax <= 0.94` (Yang 2009, section 8.1.2).
///
/// # Errors
/// The first pair that is out of order, in words.
pub fn check_thresholds(thresholds: &Thresholds) -> Result<(), String> {
    let ladder = [
        ("0", 0.0),
        ("reactivate_below", thresholds.reactivate_below),
        ("admit_below", thresholds.admit_below),
        ("revoke_above", thresholds.revoke_above),
    ];
    for pair in ladder.windows(2) {
        let ((lower_name, lower), (upper_name, upper)) = (pair[0], pair[1]);
        // A NaN is out of order too.
        if lower.partial_cmp(&upper) != Some(Ordering::Less) {
            return Err(format!("{upper_name} = {upper} is not above {}", named(lower_name, lower)));
        }
    }
    let highest = thresholds.revoke_above;
    if highest <= REVOKE_ABOVE_MAX {
        Ok(())
    } else {
        Err(format!(
            "revoke_above = {highest} is above {REVOKE_ABOVE_MAX}, which reservations never pass beside other work"
        ))
    }
}

fn named(name: &str, value: f64) -> String {
    if name == "0" { name.to_owned() } else { format!("{name} = {value}") }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::parse_config;

    fn parse(text: &str) -> (Config, Vec<String>) {
        let text = if text.starts_with('[') { text.to_owned() } else { format!("[cpu]\n{text}") };
        let (config, problems) = parse_config(Path::new("steward.toml"), &text);
        (config.cpu, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_order_of_domains_is_read_and_checked() {
        let text = "best_effort = \"wrr\"\nservice_cycle = \"250ms\"\npreemption_interval = \"2ms\"\nreservable = 0.5\n";
        let (config, problems) = parse(text);
        assert_eq!(problems, Vec::<String>::new());
        let expected = BestEffortSettings {
            order: BestEffortOrder::Wrr,
            service_cycle_ns: 250_000_000,
            preemption_interval_ns: 2_000_000,
        };
        assert_eq!(config.best_effort, expected);
        assert_eq!(config.reservable, 0.5);
        for (line, expected) in [
            ("best_effort = \"mtrls\"", "did you mean \"mtr-ls\"?"),
            ("service_cycle = \"5ms\"", "out of range; give 10ms to 10s"),
            ("service_cycle = \"5\"", "service_cycle: "),
            ("preemption_interval = \"1s\"", "out of range"),
            ("reservable = 1.5", "no fraction"),
            ("limit = 1", "no key"),
        ] {
            let (config, problems) = parse(line);
            assert_eq!(config, Config::default(), "{line}");
            assert!(problems.len() == 1 && problems[0].contains(expected), "{line}: {problems:?}");
        }
    }

    #[test]
    fn thresholds_out_of_order_say_which_pair() {
        let cases = [
            ("reactivate_below = 0", "reactivate_below = 0 is not above 0"),
            ("reactivate_below = 0.85", "admit_below = 0.8 is not above reactivate_below = 0.85"),
            ("revoke_above = 0.7", "revoke_above = 0.7 is not above admit_below = 0.8"),
            ("revoke_above = 0.97", "is above 0.94"),
            ("irrevocable_max = 1", "irrevocable_max = 1 is out of range"),
            ("user_max = 0", "user_max = 0 is out of range"),
            ("admit_below = nan", "is not above"),
            ("revoke_above = \"90%\"", "revoke_above is a string"),
            ("revoke_over = 0.9", "did you mean \"revoke_above\"?"),
        ];
        for (line, expected) in cases {
            let (config, problems) = parse(&format!("[cpu.thresholds]\n{line}\n"));
            assert_eq!(config.thresholds, Thresholds::default(), "{line}");
            assert!(problems.len() == 1 && problems[0].contains(expected), "{line}: {problems:?}");
        }
        assert!(parse("thresholds = 3").1[0].contains("is not a table"));
    }
}
