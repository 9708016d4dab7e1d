//! From facts to promises. Pure: the same facts give the same page.
//!
//! The judgement is about a daemon that runs as root on this machine, whoever asks; what a caller without the right
//! can not see is noted on the page instead.

use std::fmt;

use serde::{Deserialize, Serialize};
use steward_core::cpu::mechanism::MechanismKind;

use super::facts::{Facts, SCHEDULER_NAME, SchedExt};

/// Whether a promise holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// As promised.
    Yes,
    /// With the exceptions that the reason names.
    Partly,
    /// Not on this machine.
    No,
}

impl fmt::Display for Holds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Holds::Yes => "yes",
            Holds::Partly => "partly",
            Holds::No => "no",
        })
    }
}

/// One promise of Steward, judged for one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// A short name that stays the same over versions.
    pub name: String,
    /// What is promised.
    pub text: String,
    /// Whether it holds.
    pub holds: Holds,
    /// Why, or what is excepted.
    pub why: String,
    /// What the person can do for it to hold; empty when it does.
    pub what_to_do: String,
}

/// What enforces reservations on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The best that the machine has; `None` where nothing can.
    pub mechanism: Option<MechanismKind>,
    /// Why this one.
    pub why: String,
    /// What would give a better one; empty when it is the best.
    pub what_to_do: String,
}

/// What judging a promise gives: whether it holds, why, and what to do.
struct Verdict(Holds, String, String);

impl Verdict {
    fn yes(why: &str) -> Self {
        Verdict(Holds::Yes, why.into(), String::new())
    }
}

/// What gives Steward's own scheduler.
pub(super) const NEWER_KERNEL: &str = "use kernel 7.1 or later built with CONFIG_SCHED_CLASS_EXT (on Debian: the kernel of the \
    backports suite)";
const KEEP_ONE_SCHEDULER: &str =
    "stop it (for example `systemctl disable --now scx_loader`), then start Steward";

/// Which mechanism the daemon should use.
pub fn choose_mechanism(facts: &Facts) -> Choice {
    match obstacle_to_sched_ext(facts) {
        None => {
            let why = "this kernel loads schedulers (sched_ext)".to_owned();
            Choice { mechanism: Some(MechanismKind::SchedExt), why, what_to_do: String::new() }
        }
        Some((why, what_to_do)) => {
            let mechanism =
                if facts.realtime_budget_us == Some(0) { None } else { Some(MechanismKind::Deadline) };
            Choice { mechanism, why, what_to_do: what_to_do.into() }
        }
    }
}

/// Why Steward's own scheduler can not be loaded, and what to do about it.
fn obstacle_to_sched_ext(facts: &Facts) -> Option<(String, &'static str)> {
    let ext = &facts.sched_ext;
    if !ext.present {
        let why = format!("kernel {} has no loadable schedulers (sched_ext)", facts.release);
        return Some((why, NEWER_KERNEL));
    }
    if facts.realtime {
        let why = "this kernel is built for real time (PREEMPT_RT), and then refuses loadable schedulers";
        return Some((why.into(), "boot a kernel that is not built with PREEMPT_RT"));
    }
    if !facts.btf {
        let why =
            "the kernel does not describe its types (no /sys/kernel/btf/vmlinux), which a scheduler needs";
        return Some((why.into(), "use a kernel built with CONFIG_DEBUG_INFO_BTF"));
    }
    if let Some(other) = other_scheduler(ext) {
        let why = format!("another scheduler, {other}, is loaded, and there can be only one");
        return Some((why, KEEP_ONE_SCHEDULER));
    }
    None
}

fn other_scheduler(ext: &SchedExt) -> Option<&str> {
    let loaded = ext.loaded.as_deref()?;
    let is_on = ext.state.as_deref() != Some("disabled");
    (is_on && !loaded.starts_with(SCHEDULER_NAME)).then_some(loaded)
}

/// All promises, judged for the mechanism that was chosen.
pub fn promises(facts: &Facts, choice: &Choice) -> Vec<Promise> {
    type Judge = fn(&Facts, MechanismKind) -> Verdict;
    let judged: [(&str, &str, Judge); 8] = [
        ("reservation", "A program with C:T gets its C of CPU in every T, whatever else runs", reservation),
        ("at-exec", "A program has its reservation from its first instruction", at_exec),
        ("bomb-refused", "Programs beyond what the machine can hold are refused one by one", bomb_refused),
        ("leftover", "A program over its budget shares what is left like any other", leftover),
        (
            "cgroup-policy",
            "cpu.weight, cpu.max, cpu.idle and nice mean what they always meant",
            cgroup_policy,
        ),
        ("real-time", "Real-time tasks that run wild do not stop everything else", real_time),
        ("fallback", "When the daemon dies, no program is worse off than without it", fallback),
        ("accounted", "Every missed deadline and used-up budget is counted and shown", accounted),
    ];
    judged
        .into_iter()
        .map(|(name, text, judge)| {
            let Verdict(holds, why, advice) = match choice.mechanism {
                Some(MechanismKind::Nice) => only_nice_values(),
                Some(mechanism) => judge(facts, mechanism),
                None => nothing_enforces(),
            };
            let what_to_do = match (holds, advice.is_empty()) {
                (Holds::Yes, _) => String::new(),
                (_, true) => choice.what_to_do.clone(),
                (_, false) => advice,
            };
            Promise { name: name.into(), text: text.into(), holds, why, what_to_do }
        })
        .collect()
}

fn nothing_enforces() -> Verdict {
    let why = "there are no loadable schedulers, and SCHED_DEADLINE is off (kernel.sched_rt_runtime_us is 0)";
    Verdict(Holds::No, why.into(), "set kernel.sched_rt_runtime_us to 950000, the kernel's default".into())
}

/// The daemon ends there, and only from what is chosen here: where it starts is a question of the machine.
fn only_nice_values() -> Verdict {
    let why = "nothing is reserved any more: programs with a specification have a better nice value";
    Verdict(Holds::No, why.into(), "run systemctl restart stewardd once the cause is found".into())
}

fn reservation(facts: &Facts, mechanism: MechanismKind) -> Verdict {
    match mechanism {
        MechanismKind::SchedExt => Verdict::yes("Steward's scheduler runs admitted tasks by their deadlines first"),
        MechanismKind::Deadline if facts.realtime_budget_us == Some(-1) => Verdict(
            Holds::Partly,
            "through SCHED_DEADLINE, whose own admission is off (kernel.sched_rt_runtime_us is -1): programs that \
             use it beside Steward can break the promise"
                .into(),
            "set kernel.sched_rt_runtime_us to 950000, the kernel's default".into(),
        ),
        MechanismKind::Deadline | MechanismKind::Nice => Verdict(
            Holds::Partly,
            "through SCHED_DEADLINE: it holds for tasks that may run on every CPU; a task confined to some gets a \
             better nice value instead, and one that has a reservation can not be confined"
                .into(),
            String::new(),
        ),
    }
}

fn at_exec(_: &Facts, mechanism: MechanismKind) -> Verdict {
    match mechanism {
        MechanismKind::SchedExt => Verdict::yes("specifications are matched in the kernel"),
        MechanismKind::Deadline | MechanismKind::Nice => Verdict(
            Holds::Partly,
            "the daemon gives it as soon as the kernel tells of the program, a few milliseconds after the start (up \
             to a second on a kernel built without CONFIG_PROC_EVENTS)"
                .into(),
            String::new(),
        ),
    }
}

fn bomb_refused(_: &Facts, mechanism: MechanismKind) -> Verdict {
    match mechanism {
        MechanismKind::SchedExt => Verdict::yes("admission is decided in the kernel, as each program starts"),
        MechanismKind::Deadline | MechanismKind::Nice => Verdict(
            Holds::Partly,
            "admission is by what is promised to others, not by what they use, and nothing is revoked under overload"
                .into(),
            String::new(),
        ),
    }
}

fn leftover(_: &Facts, mechanism: MechanismKind) -> Verdict {
    match mechanism {
        MechanismKind::SchedExt => Verdict::yes("it competes by weight until its next period"),
        MechanismKind::Deadline | MechanismKind::Nice => Verdict(
            Holds::Partly,
            "it goes on with CPU time that nobody reserved while nobody waits, and is stopped until its next period \
             while others do"
                .into(),
            String::new(),
        ),
    }
}

fn cgroup_policy(facts: &Facts, mechanism: MechanismKind) -> Verdict {
    if mechanism != MechanismKind::SchedExt {
        return Verdict::yes("best-effort programs stay with the kernel's own scheduler");
    }
    if !facts.cgroup.controllers.as_ref().is_some_and(|names| names.iter().any(|name| name == "cpu")) {
        let why = "nice is honoured, but the unified cgroup hierarchy hands out no CPU here, so there is no \
            cpu.weight, cpu.max or cpu.idle";
        let advice = "boot with systemd.unified_cgroup_hierarchy=1, or cgroup_no_v1=all without systemd";
        return Verdict(Holds::Partly, why.into(), advice.into());
    }
    let ext = &facts.sched_ext;
    let told =
        [(ext.cgroup_weight, "cpu.weight"), (ext.cgroup_bandwidth, "cpu.max"), (ext.cgroup_idle, "cpu.idle")];
    let untold: Vec<&str> = told.into_iter().filter(|(told, _)| !told).map(|(_, name)| name).collect();
    if untold.is_empty() {
        return Verdict::yes("Steward's scheduler does as they say");
    }
    let why =
        format!("kernel {} does not tell a loaded scheduler about {}", facts.release, untold.join(" and "));
    let holds = if untold.len() == told.len() { Holds::No } else { Holds::Partly };
    Verdict(holds, why, "use kernel 7.1 or later".into())
}

fn real_time(facts: &Facts, mechanism: MechanismKind) -> Verdict {
    match (mechanism, facts.sched_ext.server, facts.realtime_budget_us) {
        (MechanismKind::SchedExt, true, _) => {
            Verdict::yes("the kernel keeps some CPU time for Steward's scheduler")
        }
        (MechanismKind::SchedExt, false, _) => Verdict(
            Holds::Partly,
            format!(
                "kernel {} keeps no CPU time for a loaded scheduler: a real-time task that never sleeps stops all \
                 others on its CPU, until the kernel goes back to its own scheduler",
                facts.release
            ),
            "use kernel 7.1 or later".into(),
        ),
        (MechanismKind::Deadline, _, Some(-1)) => Verdict(
            Holds::Partly,
            "reservations come before real-time tasks, but for all others nothing is kept \
             (kernel.sched_rt_runtime_us is -1)"
                .into(),
            "set kernel.sched_rt_runtime_us to 950000, the kernel's default".into(),
        ),
        (MechanismKind::Deadline | MechanismKind::Nice, ..) => {
            Verdict::yes("reservations come before real-time tasks")
        }
    }
}

fn fallback(_: &Facts, mechanism: MechanismKind) -> Verdict {
    match mechanism {
        MechanismKind::SchedExt => Verdict::yes("the kernel itself puts every task back on its own scheduler"),
        MechanismKind::Deadline | MechanismKind::Nice => Verdict(
            Holds::Partly,
            "after a crash, tasks keep their reservations until the daemon starts again or `steward revert` runs; \
             one that was being held to its reservation stays held"
                .into(),
            String::new(),
        ),
    }
}

fn accounted(_: &Facts, mechanism: MechanismKind) -> Verdict {
    match mechanism {
        MechanismKind::SchedExt => Verdict::yes("Steward's scheduler counts them"),
        MechanismKind::Deadline | MechanismKind::Nice => {
            let why = "SCHED_DEADLINE counts neither; what a task used is shown";
            Verdict(Holds::No, why.into(), String::new())
        }
    }
}
