//! The daemon's own configuration, `/etc/steward/steward.toml`: text in, settings and problems out.
//!
//! ```toml
//! owner = "alice"              # may reserve for anyone, besides root; a name or a user id
//! mechanism = "auto"           # or "sched_ext", "deadline"
//! best_effort = "virtual-time" # or "mtr-ls", "wrr"
//! service_cycle = "500ms"
//! preemption_interval = "0ms"
//! [domains]
//! prefix = "steward."          # before the names of the cgroups that Steward makes
//! cpu_limit = 0.95             # of the machine, for all reservations of domains together
//! [metrics]
//! listen = "127.0.0.1:9101"    # or the path of a socket; nothing unless said
//! [thresholds]                 # Yang 2009, section 8.1.2; fractions of each CPU
//! reactivate_below = 0.65
//! admit_below = 0.80
//! revoke_above = 0.90
//! irrevocable_max = 0.80       # declared by what is never revoked
//! user_max = 0.75              # declared by one user
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use crate::cpu::best_effort::{BestEffortOrder, BestEffortSettings};
use crate::cpu::thresholds::Thresholds;
use crate::domain::name::Names;
use crate::domain::tree::ROOT_LIMIT;
use crate::problem::Problem;
use crate::quantity::{format_duration, parse_duration};
use crate::toml_reader::{Reader, lookup, suggest};

/// The name of the configuration's file; it is never taken for a file of specifications.
pub const CONFIG_FILE_NAME: &str = "steward.toml";

/// The largest `revoke_above`: beside best-effort work that waits reservations get 95 % of a CPU at most, so that a
/// higher threshold would never be passed.
pub const REVOKE_ABOVE_MAX: f64 = 0.94;

/// The largest `irrevocable_max`: what is never revoked is to leave something to best-effort work.
pub const IRREVOCABLE_MAX: f64 = 0.95;

/// The largest `user_max`, in CPUs: more declared than that on one CPU is no limit any more.
pub const USER_MAX: f64 = 100.0;

/// The user who may reserve for anyone, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// A user's name, still to be looked up.
    Name(String),
    /// A user's number.
    Uid(u32),
}

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

/// What concerns all domains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainConfig {
    /// What is before the names of the cgroups that Steward makes.
    pub prefix: String,
    /// What all domains may reserve of the machine together, above 0 and at most 1.
    pub cpu_limit: f64,
}

impl Default for DomainConfig {
    /// The prefix `steward.`, and [`ROOT_LIMIT`].
    fn default() -> Self {
        DomainConfig { prefix: Names::default().prefix().to_owned(), cpu_limit: ROOT_LIMIT }
    }
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricsAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The path of a socket, which root only may open.
    Unix(PathBuf),
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricsAddress::Tcp(address) => write!(formatter, "{address}"),
            MetricsAddress::Unix(path) => write!(formatter, "{}", path.display()),
        }
    }
}

/// The daemon's settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Who may reserve for anyone, besides root.
    pub owner: Option<Owner>,
    /// Limits of admission, revocation and reactivation.
    pub thresholds: Thresholds,
    /// Which mechanism to use.
    pub mechanism: MechanismChoice,
    /// The order among domains, and its parameters.
    pub best_effort: BestEffortSettings,
    /// What concerns all domains.
    pub domains: DomainConfig,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<MetricsAddress>,
}

/// Reads the configuration. A setting that is wrong is reported and keeps its default; the others stand.
pub fn parse_config(file: &Path, text: &str) -> (Config, Vec<Problem>) {
    let mut reader = Reader::new(file, text);
    let mut config = Config::default();
    if let Some(table) = reader.document() {
        let known = [
            "owner",
            "mechanism",
            "thresholds",
            "best_effort",
            "service_cycle",
            "preemption_interval",
            "domains",
            "metrics",
        ];
        reader.reject_unknown_keys(&table, &known, "the configuration");
        config.owner = read_owner(&mut reader, &table);
        config.mechanism = read_mechanism(&mut reader, &table).unwrap_or_default();
        config.thresholds = read_thresholds(&mut reader, &table).unwrap_or_default();
        config.best_effort = read_best_effort(&mut reader, &table);
        config.domains = read_domains(&mut reader, &table);
        config.metrics = read_metrics(&mut reader, &table);
    }
    (config, reader.problems)
}

fn read_owner<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Option<Owner> {
    let uid_advice = "write a user's name, or a number from 0 to 4294967294";
    let value = lookup(table, "owner")?;
    let digits = match value.get_ref() {
        DeValue::Integer(number) => number.as_str().to_owned(),
        _ => reader.string(table, "owner", "alice")?.into_inner(),
    };
    if digits.is_empty() {
        reader.error(value.span(), "owner is empty", "write a user's name or number, or leave the key out");
        return None;
    }
    if digits.starts_with('-') || digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let uid = digits.parse().ok().filter(|uid| *uid != u32::MAX);
        if uid.is_none() {
            reader.error(value.span(), format!("owner = {digits} is not a user's number"), uid_advice);
        }
        return uid.map(Owner::Uid);
    }
    Some(Owner::Name(digits))
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

fn read_domains<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> DomainConfig {
    let mut domains = DomainConfig::default();
    let Some(value) = lookup(table, "domains") else { return domains };
    let DeValue::Table(section) = value.get_ref() else {
        reader.error(value.span(), "domains is not a table", "write [domains], then its keys below it");
        return domains;
    };
    reader.reject_unknown_keys(section, &["prefix", "cpu_limit"], "[domains]");
    if let Some(prefix) = reader.string(section, "prefix", "steward.") {
        match Names::new(prefix.get_ref()) {
            Ok(names) => domains.prefix = names.prefix().to_owned(),
            Err(what) => {
                reader.error(prefix.span(), what, "write a short text without slashes, as in \"steward.\"")
            }
        }
    }
    if let Some(limit) = reader.number(section, "cpu_limit", "0.95") {
        if *limit.get_ref() > 0.0 && *limit.get_ref() <= 1.0 {
            domains.cpu_limit = *limit.get_ref();
        } else {
            let what = format!("cpu_limit = {} is no fraction of the machine", limit.get_ref());
            reader.error(limit.span(), what, "give a number above 0 and at most 1");
        }
    }
    domains
}

fn read_metrics<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Option<MetricsAddress> {
    let value = lookup(table, "metrics")?;
    let DeValue::Table(section) = value.get_ref() else {
        reader.error(value.span(), "metrics is not a table", "write [metrics], then its keys below it");
        return None;
    };
    reader.reject_unknown_keys(section, &["listen", "beyond_loopback"], "[metrics]");
    let beyond_loopback = lookup(section, "beyond_loopback").and_then(|value| match value.get_ref() {
        DeValue::Boolean(truth) => Some(*truth),
        _ => {
            reader.error(value.span(), "beyond_loopback is neither true nor false", "write true or false");
            None
        }
    });
    let listen = reader.string(section, "listen", "127.0.0.1:9101")?;
    let text = listen.get_ref();
    if text.starts_with('/') && !text.contains('\0') {
        return Some(MetricsAddress::Unix(PathBuf::from(text)));
    }
    let advice =
        "write an address and a port as in \"127.0.0.1:9101\" or \"[::1]:9101\", or the path of a socket";
    let Ok(address) = text.parse::<SocketAddr>() else {
        reader.error(listen.span(), format!("listen = \"{text}\" is no address"), advice);
        return None;
    };
    if !address.ip().is_loopback() && beyond_loopback != Some(true) {
        let what = format!("listen = \"{text}\" would let other machines read the metrics");
        let advice = "write a loopback address, or add beyond_loopback = true if that is what you want";
        reader.error(listen.span(), what, advice);
        return None;
    }
    Some(MetricsAddress::Tcp(address))
}

fn read_thresholds<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Option<Thresholds> {
    let value = lookup(table, "thresholds")?;
    let DeValue::Table(section) = value.get_ref() else {
        reader.error(value.span(), "thresholds is not a table", "write [thresholds], then its keys below it");
        return None;
    };
    let before = reader.problems.len();
    let known = ["reactivate_below", "admit_below", "revoke_above", "irrevocable_max", "user_max"];
    reader.reject_unknown_keys(section, &known, "[thresholds]");
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
    use super::*;

    fn parse(text: &str) -> (Config, Vec<String>) {
        let (config, problems) = parse_config(Path::new("steward.toml"), text);
        (config, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn an_empty_file_gives_the_defaults() {
        assert_eq!(parse(""), (Config::default(), vec![]));
    }

    #[test]
    fn every_setting_is_read() {
        let text = "owner = \"alice\"\nmechanism = \"deadline\"\n[thresholds]\nreactivate_below = 0.5\n\
                    admit_below = 0.7\nrevoke_above = 0.94\nirrevocable_max = 0.5\nuser_max = 2\n";
        let (config, problems) = parse(text);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(config.owner, Some(Owner::Name("alice".into())));
        assert_eq!(config.mechanism, MechanismChoice::Deadline);
        assert_eq!(
            config.thresholds,
            Thresholds {
                reactivate_below: 0.5,
                admit_below: 0.7,
                revoke_above: 0.94,
                irrevocable_max: 0.5,
                user_max: 2.0
            }
        );
        assert_eq!(parse("owner = 1000").0.owner, Some(Owner::Uid(1000)));
        assert_eq!(parse("owner = \"1000\"").0.owner, Some(Owner::Uid(1000)));
    }

    #[test]
    fn each_wrong_setting_is_reported_with_its_line_and_keeps_its_default() {
        let text = "ownr = 3\nowner = -1\nmechanism = \"sched-ext\"\n[thresholds]\nadmit_below = 0.95\n";
        let (config, problems) = parse(text);
        assert_eq!(config, Config::default());
        insta::assert_snapshot!(problems.join("\n"));
    }

    #[test]
    fn the_order_of_domains_and_their_prefix_are_read_and_checked() {
        let text = "best_effort = \"wrr\"\nservice_cycle = \"250ms\"\npreemption_interval = \"2ms\"\n\
                    [domains]\nprefix = \"own-\"\ncpu_limit = 0.5\n";
        let (config, problems) = parse(text);
        assert_eq!(problems, Vec::<String>::new());
        let expected = BestEffortSettings {
            order: BestEffortOrder::Wrr,
            service_cycle_ns: 250_000_000,
            preemption_interval_ns: 2_000_000,
        };
        assert_eq!(config.best_effort, expected);
        assert_eq!(config.domains, DomainConfig { prefix: "own-".into(), cpu_limit: 0.5 });
        for (line, expected) in [
            ("best_effort = \"mtrls\"", "did you mean \"mtr-ls\"?"),
            ("service_cycle = \"5ms\"", "out of range; give 10ms to 10s"),
            ("service_cycle = \"5\"", "service_cycle: "),
            ("preemption_interval = \"1s\"", "out of range"),
            ("domains = 3", "is not a table"),
            ("[domains]\nprefix = \"a/b\"", "a short text without slashes"),
            ("[domains]\ncpu_limit = 1.5", "no fraction"),
            ("[domains]\nlimit = 1", "cpu_limit"),
        ] {
            let (config, problems) = parse(line);
            assert_eq!(config, Config::default(), "{line}");
            assert!(problems.len() == 1 && problems[0].contains(expected), "{line}: {problems:?}");
        }
    }

    #[test]
    fn metrics_are_served_where_it_says_and_to_other_machines_only_if_it_says_so_twice() {
        for (text, expected) in [
            ("listen = \"127.0.0.1:9101\"", "127.0.0.1:9101"),
            ("listen = \"[::1]:9101\"", "[::1]:9101"),
            ("listen = \"/run/steward/metrics\"", "/run/steward/metrics"),
            ("listen = \"0.0.0.0:9101\"\nbeyond_loopback = true", "0.0.0.0:9101"),
        ] {
            let (config, problems) = parse(&format!("[metrics]\n{text}\n"));
            assert_eq!(problems, Vec::<String>::new());
            assert_eq!(config.metrics.map(|address| address.to_string()).as_deref(), Some(expected));
        }
        for (text, expected) in [
            ("metrics = true", "is not a table"),
            ("[metrics]\nlisten = \"0.0.0.0:9101\"", "beyond_loopback = true"),
            ("[metrics]\nlisten = \"0.0.0.0:9101\"\nbeyond_loopback = false", "beyond_loopback = true"),
            ("[metrics]\nlisten = \"localhost:9101\"", "is no address"),
            ("[metrics]\nlisten = \"127.0.0.1\"", "is no address"),
            ("[metrics]\nlisten = 9101", "listen"),
            ("[metrics]\nbeyond_loopback = 1", "neither true nor false"),
            ("[metrics]\nport = 9101", "port"),
        ] {
            let (config, problems) = parse(text);
            assert_eq!(config.metrics, None, "{text}");
            assert!(problems.len() == 1 && problems[0].contains(expected), "{text}: {problems:?}");
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
            let (config, problems) = parse(&format!("[thresholds]\n{line}\n"));
            assert_eq!(config.thresholds, Thresholds::default(), "{line}");
            assert!(problems.len() == 1 && problems[0].contains(expected), "{line}: {problems:?}");
        }
        assert!(parse("thresholds = 3").1[0].contains("is not a table"));
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let (config, problems) = parse("owner = \"alice\"\nmechanism = \n");
        assert_eq!(config, Config::default());
        assert!(problems[0].starts_with("steward.toml:2: not valid TOML"), "{problems:?}");
    }
}
