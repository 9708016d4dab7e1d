//! The command line of `steward domain`, as clap reads it.

use clap::{Args, Subcommand};
use libsteward::api::{DomainSettings, IoClass};
use steward_core::disk::Limit;
use steward_core::domain::Setting;
use steward_core::quantity::parse_fraction;

use crate::arguments::{JsonFlag, OneDomain};
use crate::disk::arguments::{Asked, DiskArguments, per_second};
use crate::memory::arguments::{Amount, MemoryArguments};
use crate::who::{Several, Who};

/// Divide the machine among groups of programs
///
/// A domain is a group of processes (a cgroup) with a share of the CPU. Its children are paid out of what it has. Every
/// slice, service and scope of the machine is one too, under its path: user.slice/user-1000.slice.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
        steward domain create batch --cpu 20%        20 % of the machine, whenever batch wants it\n  \
        steward run --domain batch -- make -j8\n  \
        steward domain set user.slice --weight 400   four times what its siblings get of the rest\n  \
        steward domain list")]
pub enum DomainCommand {
    Create(CreateArguments),
    Set(SetArguments),
    /// List all domains, as a tree
    ///
    /// CPU is what is reserved of the parent's, GUARANTEED what a domain with all below it has of the machine when
    /// everybody wants to run. WEIGHT divides what nobody reserved.
    List(JsonFlag),
    Show(ShowArguments),
    Move(MoveArguments),
    Remove(RemoveArguments),
    Check(CheckArguments),
}

/// Make a domain
///
/// It belongs to you, and goes away with its last process, or after a minute without one. To make one at the top needs
/// the right to reserve; below a domain of your own you may make any.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward domain create batch --cpu 20% --keep\n  \
        steward domain create front --parent web --weight 300")]
pub struct CreateArguments {
    /// What it is to be called: batch, or web/front below the domain web.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The domain that pays for it.
    #[arg(long, value_name = "DOMAIN")]
    pub parent: Option<String>,
    #[command(flatten)]
    pub settings: SettingArguments,
    /// The user it is to belong to, by name or number, instead of you.
    #[arg(long, value_name = "USER", value_parser = crate::users::parse)]
    pub user: Option<u32>,
    /// Let it stay when its last process has gone, until the next reboot; says how to have it from every boot on.
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// Change what a domain has, at once
///
/// Settings that are not named stay as they are; "default" takes one back, and so does "none".
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward domain set batch --cpu 30%\n  \
        steward domain set batch --cpu default --weight 50\n  \
        steward domain set batch --io-max default\n  \
        steward domain set user.slice/user-1000.slice --priority 5")]
pub struct SetArguments {
    /// The domain.
    #[arg(value_name = "DOMAIN")]
    pub domain: String,
    #[command(flatten)]
    pub settings: SettingArguments,
    /// The user it is to belong to, by name or number.
    #[arg(long, value_name = "USER", value_parser = crate::users::parse)]
    pub user: Option<u32>,
    /// Whether it stays when its last process has gone: yes or no.
    #[arg(long, value_name = "YES|NO", num_args = 0..=1, default_missing_value = "yes", value_parser = parse_yes)]
    pub keep: Option<bool>,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// Show one domain, with its processes
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  steward domain show batch\n  steward domain show --pid $$")]
pub struct ShowArguments {
    #[command(flatten)]
    pub which: OneDomain,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// Move a running process with all its threads into a domain that Steward made
///
/// You may move processes of your own into domains of your own.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  steward domain move 4321 batch\n  steward domain move make batch --all")]
pub struct MoveArguments {
    /// The process, by number or name.
    #[arg(value_name = "PROCESS", value_parser = crate::who::parse)]
    pub process: Who,
    #[command(flatten)]
    pub several: Several,
    /// The domain.
    #[arg(value_name = "DOMAIN")]
    pub domain: String,
}

/// Remove a domain that Steward made, with all below it
///
/// Its processes move to its parent. Of any other domain, takes back what it was given.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  steward domain remove batch\n  steward domain remove batch --kill")]
pub struct RemoveArguments {
    /// The domain.
    #[arg(value_name = "DOMAIN")]
    pub domain: String,
    /// End the processes in it.
    #[arg(long)]
    pub kill: bool,
}

/// Check files that declare domains
///
/// Such files are in /usr/lib/steward/domains, /run/steward/domains.d and /etc/steward/domains. Says what is wrong in
/// them, with the line, and ends with 1 if anything is. Needs neither root nor the daemon; whether there is room for
/// what they reserve is seen only when they are put in force (steward status).
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  steward domain check /etc/steward/domains/web.toml")]
pub struct CheckArguments {
    /// The files.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<std::path::PathBuf>,
}

/// What can be asked for a domain. "default" stands for what nobody asked for, and so does "none", as in control files.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingArguments {
    /// CPU reserved, of what the parent has (at the top: of the machine), as 20% or 0.2.
    #[arg(long, value_name = "FRACTION", value_parser = parse_wanted_fraction)]
    pub cpu: Option<Wanted<f64>>,
    /// Share of what nobody reserved, among siblings of one priority: 1 to 10000.
    #[arg(long, value_name = "N", value_parser = parse_number)]
    pub weight: Option<Wanted<i64>>,
    /// Order among siblings, 0 to 7: what a higher one wants, a lower one gets only by its reservation.
    #[arg(long, value_name = "N", value_parser = parse_number)]
    pub priority: Option<Wanted<i64>>,
    /// Weight of its own processes beside its children.
    #[arg(long, value_name = "N", value_parser = parse_number)]
    pub own_weight: Option<Wanted<i64>>,
    /// Priority of its own processes beside its children.
    #[arg(long, value_name = "N", value_parser = parse_number)]
    pub own_priority: Option<Wanted<i64>>,
    /// The most of its CPU that its children may reserve together.
    #[arg(long, value_name = "FRACTION", value_parser = parse_wanted_fraction)]
    pub cpu_reservable: Option<Wanted<f64>>,
    /// What is asked of memory.
    #[command(flatten)]
    pub memory: MemoryArguments<Wanted<i64>>,
    /// What is asked of the disk.
    #[command(flatten)]
    pub disk: DiskArguments<Wanted<IoClass>, Wanted<f64>, Wanted<Limit>>,
}

/// A value, or the default again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted<T> {
    /// This value.
    Value(T),
    /// The default.
    Default,
}

impl Amount for Wanted<i64> {
    fn read(text: &str, parse: fn(&str) -> Result<i64, String>) -> Result<Self, String> {
        wanted(text, parse)
    }
}

impl<V: Clone + Send + Sync + 'static> Asked<V> for Wanted<V> {
    fn read(text: &str, parse: fn(&str) -> Result<V, String>) -> Result<Self, String> {
        wanted(text, parse)
    }
}

impl SettingArguments {
    /// The same as the API has it.
    pub fn to_api(&self) -> DomainSettings {
        let mut reset = Vec::new();
        // The option has both: what it does not name is not limited any more.
        if self.disk.io_max.is_some() {
            reset.extend(
                [Setting::IoMaxBytes, Setting::IoMaxRequests].map(|setting| setting.name().to_owned()),
            );
        }
        let limit = match self.disk.io_max {
            Some(Wanted::Value(limit)) => limit,
            Some(Wanted::Default) | None => Limit::default(),
        };
        let settings = DomainSettings {
            cpu: value(self.cpu, Setting::Cpu, &mut reset),
            weight: value(self.weight, Setting::Weight, &mut reset),
            priority: value(self.priority, Setting::Priority, &mut reset),
            own_weight: value(self.own_weight, Setting::OwnWeight, &mut reset),
            own_priority: value(self.own_priority, Setting::OwnPriority, &mut reset),
            cpu_reservable: value(self.cpu_reservable, Setting::CpuReservable, &mut reset),
            memory_min: value(self.memory.memory_min, Setting::MemoryMin, &mut reset),
            memory_max: value(self.memory.memory_max, Setting::MemoryMax, &mut reset),
            protect: value(self.memory.protect, Setting::Protect, &mut reset),
            io: value(self.disk.io, Setting::Io, &mut reset),
            disk: value(self.disk.io_fraction, Setting::Disk, &mut reset),
            io_max_bytes: per_second(limit.bytes_per_second),
            io_max_requests: per_second(limit.requests_per_second),
            reset: Vec::new(),
        };
        DomainSettings { reset, ..settings }
    }
}

fn value<T>(wanted: Option<Wanted<T>>, setting: Setting, reset: &mut Vec<String>) -> Option<T> {
    match wanted? {
        Wanted::Value(value) => Some(value),
        Wanted::Default => {
            reset.push(setting.name().to_owned());
            None
        }
    }
}

fn wanted<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Wanted<T>, String> {
    if matches!(text, "default" | "none") {
        return Ok(Wanted::Default);
    }
    parse(text).map(Wanted::Value).map_err(|error| format!("{error} (\"default\" takes it back)"))
}

fn parse_number(text: &str) -> Result<Wanted<i64>, String> {
    wanted(text, |text| text.parse().map_err(|_| "write a whole number".to_owned()))
}

fn parse_wanted_fraction(text: &str) -> Result<Wanted<f64>, String> {
    wanted(text, parse_fraction)
}

fn parse_yes(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        settings: SettingArguments,
    }

    fn read(words: &[&str]) -> Result<DomainSettings, clap::Error> {
        let line = ["line"].iter().chain(words);
        <Line as clap::Parser>::try_parse_from(line).map(|line| line.settings.to_api())
    }

    #[test]
    fn the_limits_of_disk_and_memory_are_taken_away_by_the_same_words_on_the_command_line_and_in_control_files()
     {
        for word in ["default", "none"] {
            let settings = read(&["--io-max", word, "--memory-max", word]).expect("both can be taken away");
            assert_eq!(settings.reset, ["io_max_bytes", "io_max_requests", "memory_max"], "{word}");
            assert_eq!((settings.io_max_bytes, settings.memory_max), (None, None));
        }
        let error = read(&["--io-max", "nothing"]).expect_err("it is no limit").to_string();
        assert!(error.contains("10M/s") && error.contains("\"default\" takes it back"), "{error}");
    }

    #[test]
    fn what_a_limit_does_not_name_is_not_limited_any_more() {
        let settings = read(&["--io-max", "100/s"]).expect("it is a limit");
        assert_eq!((settings.io_max_bytes, settings.io_max_requests), (None, Some(100)));
        assert!(settings.reset.contains(&"io_max_bytes".to_owned()));
    }

    #[test]
    fn default_takes_a_setting_back() {
        let arguments = SettingArguments {
            cpu: Some(Wanted::Default),
            weight: Some(Wanted::Value(50)),
            ..SettingArguments::default()
        };
        let settings = arguments.to_api();
        assert_eq!((settings.cpu, settings.weight, settings.reset), (None, Some(50), vec!["cpu".to_owned()]));
    }
}
