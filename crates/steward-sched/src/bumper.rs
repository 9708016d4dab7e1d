//! Holding tasks for moments, from any thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::{ProgramMut, libbpf_sys};
use steward_core::cpu::mechanism::{Bumper, MechanismError, MechanismKind};

use crate::load::as_bytes;
use crate::skeleton::types;

/// The program's request of that name, by a descriptor of its own: the scheduler may be taken out of force meanwhile,
/// and then it holds nobody.
pub(crate) struct KernelBumper {
    program: OwnedFd,
}

impl KernelBumper {
    /// # Errors
    /// When there can be no more descriptors.
    pub(crate) fn of(program: &ProgramMut<'_>) -> io::Result<Self> {
        Ok(KernelBumper { program: program.as_fd().try_clone_to_owned()? })
    }
}

impl Bumper for KernelBumper {
    fn bump(&self, cgroup_id: u64, for_ns: u64) -> Result<(), MechanismError> {
        let request = types::bump_request { cgroup_id, for_ns };
        let mut bytes = as_bytes(&request).to_vec();
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: bytes.as_mut_ptr().cast(),
            ctx_size_in: bytes.len() as u32,
            ..Default::default()
        };
        // SAFETY: the descriptor is open, and the options and what they point to live for as long as the call.
        let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) };
        let code = if error == 0 { (options.retval as i32).wrapping_neg() } else { error.wrapping_neg() };
        match code {
            0 => Ok(()),
            libc::ENOENT => Err(MechanismError::Gone { reason: "it was taken out of force".to_owned() }),
            libc::EOPNOTSUPP => Err(MechanismError::Unsupported {
                what: "holding tasks for moments on a kernel before 6.16, which does not say where they are",
                by: MechanismKind::SchedExt,
            }),
            code => Err(MechanismError::Kernel {
                action: format!("holding back what is charged to the cgroup with id {cgroup_id}"),
                source: io::Error::from_raw_os_error(code),
                advice: "stewardd must run as root".to_owned(),
            }),
        }
    }
}
