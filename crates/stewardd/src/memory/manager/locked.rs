//! Keeps what the daemon uses itself in memory: it acts while there is little, and must not wait for a disk then.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Locks what the daemon has and, where that is safe, all that it will have: the stacks of threads that are yet to be
/// made, what they allocate. Pages are locked when they are used first: a stack of 8 MiB takes what is used of it.
///
/// # Errors
/// Where the kernel does not allow it.
pub(super) fn lock_own_memory() -> Result<(), Errno> {
    // What it asks of the kernel is what its unit has (LimitMEMLOCK=infinity); started by hand, root may have it too.
    let is_unlimited = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_ok()
        || getrlimit(Resource::Memlock).current.is_none();
    mlockall(flags(is_unlimited))
}

/// What is locked. A limit counts mappings as a whole, used or not: with one, no memory could be had any more as soon
/// as it is reached, so nothing is locked ahead then.
fn flags(is_unlimited: bool) -> MlockAllFlags {
    let known = MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT;
    if is_unlimited { known | MlockAllFlags::FUTURE } else { known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_later_is_locked_too_unless_a_limit_could_refuse_it() {
        assert!(flags(true).contains(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT));
        assert!(
            !flags(false).contains(MlockAllFlags::FUTURE) && flags(false).contains(MlockAllFlags::CURRENT)
        );
    }
}
