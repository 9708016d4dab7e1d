//! Who is compared: what manages the machine while the programs of a scenario run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What manages the machine while the programs of a scenario run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// The default scheduler as an ordinary user gets it: no privilege, nice 0.
    Stock,
    /// The default scheduler as root can set it up by hand: the foreground at nice -20.
    StockNice,
    /// `SCHED_DEADLINE` for programs that have a reservation.
    Deadline,
    /// Steward.
    Steward,
    /// Steward with weighted round-robin among domains.
    StewardWrr,
    /// Steward with Move-To-Rear List Scheduling among domains.
    StewardMtrLs,
    /// Steward's daemon without its scheduler: reservations through SCHED_DEADLINE, all else under the default
    /// scheduler.
    StewardDeadline,
    /// Steward without the memory that it keeps free for protected programs.
    StewardNoReserve,
    /// The least that a sched_ext scheduler can be (`lab/null-scheduler`): what the framework itself costs.
    NullScheduler,
    /// The default scheduler, and `memory.min` of each program that is to be protected set to its size by hand.
    MinByHand,
    /// The same with a third of the size: by somebody who does not know it.
    MinWrong,
    /// The default scheduler, and a `memory.high` by hand on all programs together that are not to be protected.
    HighByHand,
    /// The elevator BFQ with enough requests to choose from, weights of 1000:1 for what the person at the machine looks
    /// at, and the journal's thread first, by hand.
    BfqByHand,
    /// The same, and BFQ keeps the disk idle for a moment when one of two requests that follow each other is done.
    BfqStrictByHand,
    /// io.cost with a model that fits the disk, weights of 100:1, and the journal's thread first, by hand.
    IocostByHand,
    /// Another project's sched_ext scheduler, from the crate registry (`lab/machine/peer.sh`).
    #[serde(rename = "scx_bpfland")]
    ScxBpfland,
    /// As above.
    #[serde(rename = "scx_flash")]
    ScxFlash,
    /// As above.
    #[serde(rename = "scx_cosmos")]
    ScxCosmos,
}

impl Contender {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Contender; 18] = [
        Contender::Stock,
        Contender::StockNice,
        Contender::Deadline,
        Contender::Steward,
        Contender::StewardWrr,
        Contender::StewardMtrLs,
        Contender::StewardDeadline,
        Contender::StewardNoReserve,
        Contender::NullScheduler,
        Contender::MinByHand,
        Contender::MinWrong,
        Contender::HighByHand,
        Contender::BfqByHand,
        Contender::BfqStrictByHand,
        Contender::IocostByHand,
        Contender::ScxBpfland,
        Contender::ScxFlash,
        Contender::ScxCosmos,
    ];
    /// Those of a scenario that names none.
    pub const USUAL: [Contender; 4] =
        [Contender::Stock, Contender::StockNice, Contender::Deadline, Contender::Steward];

    /// Whether Steward's daemon runs.
    pub fn is_steward(self) -> bool {
        use Contender::{Steward, StewardDeadline, StewardMtrLs, StewardNoReserve, StewardWrr};
        matches!(self, Steward | StewardWrr | StewardMtrLs | StewardDeadline | StewardNoReserve)
    }

    /// What enforces Steward's reservations, where it is not its scheduler.
    pub fn mechanism(self) -> Option<&'static str> {
        (self == Contender::StewardDeadline).then_some("deadline")
    }

    /// The daemon's configuration, where it is not the machine's own.
    pub fn configuration(self) -> Option<&'static str> {
        (self == Contender::StewardNoReserve).then_some("[memory]\nreserve = \"0\"\n")
    }

    /// Steward's order among domains, where it is not the default.
    pub fn best_effort(self) -> Option<&'static str> {
        match self {
            Contender::StewardWrr => Some("wrr"),
            Contender::StewardMtrLs => Some("mtr-ls"),
            _ => None,
        }
    }

    /// Whether it is another project's scheduler, which need not be to be had everywhere.
    pub fn is_peer(self) -> bool {
        matches!(self, Contender::ScxBpfland | Contender::ScxFlash | Contender::ScxCosmos)
    }

    /// The program that loads its scheduler and holds it, where that is not Steward's daemon.
    pub fn holder(self) -> Option<&'static str> {
        (self.is_peer() || self == Contender::NullScheduler).then_some(self.name())
    }

    /// The name in scenario files, results and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Stock => "stock",
            Contender::StockNice => "stock-nice",
            Contender::Deadline => "deadline",
            Contender::Steward => "steward",
            Contender::StewardWrr => "steward-wrr",
            Contender::StewardMtrLs => "steward-mtr-ls",
            Contender::StewardDeadline => "steward-deadline",
            Contender::StewardNoReserve => "steward-no-reserve",
            Contender::NullScheduler => "null-scheduler",
            Contender::MinByHand => "min-by-hand",
            Contender::MinWrong => "min-wrong",
            Contender::HighByHand => "high-by-hand",
            Contender::BfqByHand => "bfq-by-hand",
            Contender::BfqStrictByHand => "bfq-strict-by-hand",
            Contender::IocostByHand => "iocost-by-hand",
            Contender::ScxBpfland => "scx_bpfland",
            Contender::ScxFlash => "scx_flash",
            Contender::ScxCosmos => "scx_cosmos",
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl std::str::FromStr for Contender {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Contender::ALL.into_iter().find(|contender| contender.name() == name).ok_or_else(|| {
            let names: Vec<_> = Contender::ALL.iter().map(|contender| contender.name()).collect();
            format!("`{name}` is not a contender: write one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_on_the_command_line_in_files_and_in_results() {
        for contender in Contender::ALL {
            assert_eq!(contender.name().parse(), Ok(contender));
            assert_eq!(serde_json::to_value(contender).unwrap(), contender.name());
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_are_known() {
        let error = "scx_rusty".parse::<Contender>().unwrap_err();
        assert!(
            error.starts_with("`scx_rusty` is not a contender: write one of stock, stock-nice,"),
            "{error}"
        );
        assert!(error.ends_with("scx_bpfland, scx_flash, scx_cosmos"), "{error}");
    }
}
