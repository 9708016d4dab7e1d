//! What people gave to processes by hand.

use steward_core::authority::Amount;
use steward_core::cpu::plan::ByHand;
use steward_core::cpu::reservation::Grant;
use steward_core::process::TaskId;
use steward_kernel::process;

use crate::daemon::Daemon;
use crate::files::state::Kept;
use crate::health::Topic;
use crate::server::peer::Caller;

impl Kept for ByHand {
    const FILE_NAME: &'static str = "by-hand.json";
    const REMEDY: &'static str = "what is missing of steward run and steward set must be given again";
    const TOPIC: Topic = Topic::Save;
    const OTHERWISE: &'static str = "after a restart, what was given by hand will be lost";
}

impl Daemon {
    /// How much a reservation for this process is, beside what the caller's user has reserved by hand for others.
    pub(crate) fn amount(&self, caller: &Caller, process: TaskId, grant: &Grant) -> Amount {
        let is_other =
            |hand: &&ByHand| hand.user == caller.uid && hand.process != process && hand.grant.is_some();
        let others = self.cpu.by_hand.iter().filter(is_other);
        let alive = others.filter(|hand| process::is_alive(hand.process, &self.options.roots));
        let bandwidths = alive.filter_map(|hand| Some(hand.grant?.reservation.bandwidth()));
        Amount {
            asked: Amount::counted(grant.reservation.bandwidth()),
            held: bandwidths.map(Amount::counted).sum(),
            inherit: grant.inherit,
            revocable: grant.revocable,
        }
    }
}
