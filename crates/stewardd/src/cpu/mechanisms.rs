//! Puts a mechanism in force: the sched_ext program, SCHED_DEADLINE, or nice values.

use std::time::Duration;

use steward_core::cpu::mechanism::{Mechanism, MechanismError, MechanismKind};
use steward_core::cpu::thresholds::Thresholds;
use steward_core::domain::Names;
use steward_core::process::Process;
use steward_kernel::Roots;
use steward_kernel::cpu::deadline::DeadlineMechanism;

use crate::files::journal::OwnJournal;
use crate::watchdog::Guard;

/// A mechanism with what it needs from time to time.
pub trait Enforcer: Mechanism {
    /// How often it must be shown all processes; `None` for never.
    fn scan_every(&self) -> Option<Duration> {
        None
    }

    /// How long its events may gather before they are taken: long where nothing waits for them but the log.
    fn gather_for(&self) -> Duration {
        Duration::ZERO
    }

    /// Tells it how much memory a task that comes back may bring in, in bytes; `None` when that is not known.
    fn set_memory_free(&mut self, _bytes: Option<u64>) {}

    /// Tells it how the cgroups are called that Steward made.
    fn set_domain_names(&mut self, _names: &Names) {}

    /// Whether it is to be shown processes then, or finds them itself.
    fn needs_all_processes(&self) -> bool {
        true
    }

    /// Shows it all processes, with their first threads at least, if it [needs](Enforcer::needs_all_processes) them.
    ///
    /// # Errors
    /// What it could not do for some of them.
    fn scan(&mut self, _processes: &[Process]) -> Result<(), MechanismError> {
        Ok(())
    }
}

/// The mechanism in force, if one is.
pub type InForce = Option<Box<dyn Enforcer>>;

/// Why a mechanism could not be put in force.
#[derive(Clone, Debug)]
pub struct LoadFailure {
    /// Why, and what to do, in a sentence or two.
    pub reason: String,
    /// Whether this kernel does not have it, so that another mechanism is the best there is. Otherwise something
    /// stands in the way that a person has to decide about, such as another scheduler.
    pub kernel_lacks_it: bool,
}

/// Puts a mechanism in force.
pub type Loader = Box<dyn FnMut(MechanismKind, Thresholds) -> Result<Box<dyn Enforcer>, LoadFailure> + Send>;

/// Loads the real mechanisms. What SCHED_DEADLINE and nice values change is recorded in the journal.
pub fn loader(journal: OwnJournal) -> Loader {
    Box::new(move |kind, thresholds| match kind {
        MechanismKind::SchedExt => load_sched_ext(thresholds),
        MechanismKind::Deadline | MechanismKind::Nice => load_without_scheduler(kind, thresholds, &journal)
            .map_err(|reason| LoadFailure { reason, kernel_lacks_it: false }),
    })
}

#[cfg(feature = "sched_ext")]
impl Enforcer for steward_sched::SchedExt {
    /// The scheduler has acted already when it tells of it, up to thousands of times a second.
    fn gather_for(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn set_memory_free(&mut self, bytes: Option<u64>) {
        steward_sched::SchedExt::set_memory_free(self, bytes);
    }
}

#[cfg(feature = "sched_ext")]
fn load_sched_ext(thresholds: Thresholds) -> Result<Box<dyn Enforcer>, LoadFailure> {
    use steward_sched::{LoadError, LoadOptions, SchedExt};
    match SchedExt::load(&LoadOptions { thresholds, ..LoadOptions::default() }) {
        Ok(scheduler) => Ok(Box::new(scheduler)),
        Err(error) => Err(LoadFailure {
            // A real-time kernel (PREEMPT_RT) takes the program and then does not attach it.
            kernel_lacks_it: matches!(
                error,
                LoadError::NoSchedExt { .. }
                    | LoadError::NoTypeInformation { .. }
                    | LoadError::NotAttached { .. }
                    | LoadError::TooManyCpus { .. }
            ),
            reason: error.to_string(),
        }),
    }
}

#[cfg(not(feature = "sched_ext"))]
fn load_sched_ext(_thresholds: Thresholds) -> Result<Box<dyn Enforcer>, LoadFailure> {
    let reason = "this stewardd was built without sched_ext; use --mechanism deadline".to_owned();
    Err(LoadFailure { reason, kernel_lacks_it: true })
}

impl Enforcer for DeadlineMechanism {
    fn scan_every(&self) -> Option<Duration> {
        Some(self.scan_interval())
    }

    fn needs_all_processes(&self) -> bool {
        DeadlineMechanism::needs_all_processes(self)
    }

    fn set_domain_names(&mut self, names: &Names) {
        DeadlineMechanism::set_domain_names(self, names.clone());
    }

    fn scan(&mut self, processes: &[Process]) -> Result<(), MechanismError> {
        DeadlineMechanism::scan(self, processes)
    }
}

/// `CAP_SYS_NICE` of include/uapi/linux/capability.h.
const CAP_SYS_NICE: u32 = 23;

/// Whether we may give tasks SCHED_DEADLINE and better nice values. Where that cannot be known, trying will tell.
fn may_schedule() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    effective.is_none_or(|capabilities| capabilities & (1 << CAP_SYS_NICE) != 0)
}

fn load_without_scheduler(
    kind: MechanismKind,
    thresholds: Thresholds,
    journal: &OwnJournal,
) -> Result<Box<dyn Enforcer>, String> {
    if !may_schedule() {
        return Err(
            "no permission to give reservations: run stewardd as root, or with CAP_SYS_NICE".to_owned()
        );
    }
    let roots = Roots::default();
    let journal = journal.clone()?;
    let mechanism = if kind == MechanismKind::Nice {
        DeadlineMechanism::with_nice_values_only(roots, journal)
    } else {
        DeadlineMechanism::new(roots, journal)
    };
    let mut mechanism = mechanism.map_err(|error| error.to_string())?;
    mechanism.set_thresholds(thresholds).map_err(|error| error.to_string())?;
    // Where this program cannot be found again, nothing is frozen.
    if let Ok(own) = std::env::current_exe() {
        mechanism.set_watchdog(Box::new(Guard::new(&own)));
    }
    Ok(Box::new(mechanism))
}
