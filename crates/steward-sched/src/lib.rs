//! Steward's sched_ext program and its loader.
//!
//! The program (`src/bpf`) decides; this crate puts it into the kernel, fills its tables, and reads what it did.
//! [`SchedExt`] implements [`Mechanism`](steward_core::cpu::mechanism::Mechanism). The scheduler lives as long as the
//! value: dropping it, or the process's death, makes the kernel put every task back on the default scheduler.

mod bumper;
pub mod decide;
mod error;
mod load;
mod scheduler;
#[allow(missing_docs, clippy::all, non_camel_case_types, non_snake_case)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/steward.skel.rs"));
}

pub use error::LoadError;
pub use scheduler::{LoadOptions, SchedExt, domain_record};

/// The most tasks that can have a specification at one time (`MAX_SLOTS` of `src/bpf/record.h`).
pub const TASKS_MAX: usize = 4096;
/// The most executables that can have a specification (`MAX_EXECUTABLES` of `src/bpf/record.h`).
pub const EXECUTABLES_MAX: usize = 4096;
/// The most CPUs (`MAX_CPUS` of `src/bpf/record.h`).
pub const CPUS_MAX: usize = 512;
/// The most cgroups (`MAX_DOMAINS` of `src/bpf/decide/best_effort.h`); index 0 stands for none, 1 for the root.
pub const DOMAINS_MAX: usize = 4096;
