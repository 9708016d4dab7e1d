//! The daemon's own configuration, `/etc/steward/steward.toml`: text in, settings and problems out.
//!
//! ```toml
//! owner = "alice"              # may reserve for anyone, besides root; a name or a user id
//! [cpu]                        # see crate::cpu::config
//! mechanism = "auto"
//! [memory]                     # see crate::memory::config
//! reservable = 0.8
//! [disk]                       # see crate::disk::config
//! order = "auto"
//! [domains]
//! prefix = "steward."          # before the names of the cgroups that Steward makes
//! [metrics]
//! listen = "127.0.0.1:9101"    # or the path of a socket; nothing unless said
//! ```
//!
//! What is about one resource is in a table of its name, and is read in that resource's room.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use crate::domain::name::Names;
use crate::problem::Problem;
use crate::toml_reader::{Reader, lookup, suggest};
use crate::{cpu, disk, memory};

/// The name of the configuration's file; it is never taken for a file of specifications.
pub const CONFIG_FILE_NAME: &str = "steward.toml";

/// The user who may reserve for anyone, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// A user's name, still to be looked up.
    Name(String),
    /// A user's number.
    Uid(u32),
}

/// What concerns all domains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainConfig {
    /// What is before the names of the cgroups that Steward makes.
    pub prefix: String,
}

impl Default for DomainConfig {
    /// The prefix `steward.`.
    fn default() -> Self {
        DomainConfig { prefix: Names::default().prefix().to_owned() }
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
    /// The CPU.
    pub cpu: cpu::config::Config,
    /// The memory.
    pub memory: memory::config::Config,
    /// The disk.
    pub disk: disk::config::Config,
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
        reject_unknown(&mut reader, &table);
        config.owner = read_owner(&mut reader, &table);
        config.cpu = cpu::config::read(&mut reader, &table);
        config.memory = memory::config::read(&mut reader, &table);
        config.disk = disk::config::read(&mut reader, &table);
        config.domains = read_domains(&mut reader, &table);
        config.metrics = read_metrics(&mut reader, &table);
    }
    (config, reader.problems)
}

/// A key that is about one resource and stands outside of that one's table is told where it belongs.
fn reject_unknown<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) {
    let known = ["owner", "cpu", "memory", "disk", "domains", "metrics"];
    for key in table.keys() {
        let name: &str = key.get_ref();
        if known.contains(&name) {
            continue;
        }
        let advice = match cpu::config::KEYS.contains(&name) {
            true => format!("{name} is about the CPU: write it below [cpu]"),
            false => suggest(name, &known),
        };
        reader.error(key.span(), format!("the configuration has no key \"{name}\""), advice);
    }
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

fn read_domains<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> DomainConfig {
    let mut domains = DomainConfig::default();
    let Some(section) = reader.section(table, "domains", &["prefix"]) else { return domains };
    if let Some(prefix) = reader.string(section, "prefix", "steward.") {
        match Names::new(prefix.get_ref()) {
            Ok(names) => domains.prefix = names.prefix().to_owned(),
            Err(what) => {
                reader.error(prefix.span(), what, "write a short text without slashes, as in \"steward.\"")
            }
        }
    }
    domains
}

fn read_metrics<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Option<MetricsAddress> {
    let section = reader.section(table, "metrics", &["listen", "beyond_loopback"])?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::config::MechanismChoice;
    use crate::cpu::thresholds::Thresholds;

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
        let text = "owner = \"alice\"\n[cpu]\nmechanism = \"deadline\"\n[cpu.thresholds]\nreactivate_below = 0.5\n\
                    admit_below = 0.7\nrevoke_above = 0.94\nirrevocable_max = 0.5\nuser_max = 2\n";
        let (config, problems) = parse(text);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(config.owner, Some(Owner::Name("alice".into())));
        assert_eq!(config.cpu.mechanism, MechanismChoice::Deadline);
        assert_eq!(
            config.cpu.thresholds,
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
        let text = "ownr = 3\nowner = -1\nmechanism = \"auto\"\n[cpu]\nmechanism = \"sched-ext\"\n[cpu.thresholds]\nadmit_below = 0.95\n\
                    [memory]\nreservable = 2\n";
        let (config, problems) = parse(text);
        assert_eq!(config, Config::default());
        insta::assert_snapshot!(problems.join("\n"));
    }

    #[test]
    fn what_is_about_all_domains_and_about_memory_is_read_and_checked() {
        let (config, problems) = parse(
            "[domains]\nprefix = \"own-\"\n[memory]\nreservable = 0.5\nreserve = \"1M\"\nidle = \"2h\"\n",
        );
        assert_eq!(problems, Vec::<String>::new());
        let memory = (config.memory.reservable, config.memory.reserve_bytes, config.memory.idle_ns);
        assert_eq!(
            (config.domains.prefix.as_str(), memory),
            ("own-", (0.5, 1 << 20, Some(7_200_000_000_000)))
        );
        assert_eq!(parse("[memory]\nidle = \"never\"\n").0.memory.idle_ns, None);
        let ages = |word: &str| parse(&format!("[memory]\nages = \"{word}\"\n")).0.memory.ages.name();
        let words = ["auto", "mglru", "refaults-and-pressure", "none"];
        assert_eq!(words.map(ages), words);
        for (line, expected) in [
            ("domains = 3", "is not a table"),
            ("memory = 3", "is not a table"),
            ("[domains]\nprefix = \"a/b\"", "a short text without slashes"),
            ("[memory]\nreservable = 0", "no fraction"),
            ("[memory]\nlimit = 1", "no key"),
            ("[memory]\nreserve = 5", "a text in quotes"),
            ("[memory]\nages = \"lru\"", "is nothing by which Steward knows"),
            ("[memory]\nreserve = \"5mb\"", "powers of 1024"),
            ("[memory]\nreserve = \"2G\"", "give at most 1G"),
            ("[memory]\nidle = \"9s\"", "give 10s to 168h, or \"never\""),
            ("[memory]\nidle = \"200h\"", "out of range"),
            ("[memory]\nidle = \"soon\"", "or \"never\""),
            ("[memory]\nidle = 30", "a text in quotes"),
            ("service_cycle = \"1s\"", "write it below [cpu]"),
            ("[disk]\norder = \"kep\"", "did you mean \"keep\""),
            ("[disk]\norder = 1", "a text in quotes"),
            ("[disk]\nelevator = \"bfq\"", "no key"),
            ("[disk]\norder = \"charge\"", "is nothing that can be done with disks"),
            ("[disk]\ndevices = \"sda\"", "write [disk.devices]"),
            ("[disk.devices]\nsda = \"kep\"", "did you mean \"keep\""),
            ("[disk.devices]\nsda = 1", "a text in quotes"),
        ] {
            let (config, problems) = parse(line);
            assert_eq!(config, Config::default(), "{line}");
            assert!(problems.len() == 1 && problems[0].contains(expected), "{line}: {problems:?}");
        }
    }

    #[test]
    fn single_disks_are_read_by_name_or_number() {
        let text = "[disk]\norder = \"keep\"\n[disk.devices]\nvda = \"charge\"\n\"eui.1\" = \"elevator\"\n";
        let (config, problems) = parse(text);
        assert_eq!(problems, Vec::<String>::new());
        let of = |name, identity| config.disk.order_of(name, identity);
        use disk::config::Order;
        assert_eq!((of("vda", ""), of("sda", "wwid eui.1")), (Order::Charge, Order::Elevator));
        assert_eq!(of("sdb", "8 sectors"), Order::Keep);
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
    fn a_syntax_error_names_its_line() {
        let (config, problems) = parse("owner = \"alice\"\nmechanism = \n");
        assert_eq!(config, Config::default());
        assert!(problems[0].starts_with("steward.toml:2: not valid TOML"), "{problems:?}");
    }
}
