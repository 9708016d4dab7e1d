//! Why the scheduler could not be loaded, and what to do about it.

use std::io;

/// Why the scheduler could not be loaded. Nothing is left half-loaded after any of these.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel was built without `CONFIG_SCHED_CLASS_EXT`.
    #[error(
        "this kernel ({release}) has no sched_ext: {path} is missing; use a kernel of 6.12 or later built with \
         CONFIG_SCHED_CLASS_EXT (on Debian: linux-image-amd64 from backports), or run with --mechanism deadline"
    )]
    NoSchedExt {
        /// The kernel's release, as `uname -r` gives it.
        release: String,
        /// What was looked for.
        path: String,
    },
    /// The kernel gives no type information.
    #[error("this kernel has no BTF: {path} is missing; use a kernel built with CONFIG_DEBUG_INFO_BTF")]
    NoTypeInformation {
        /// What was looked for.
        path: String,
    },
    /// Another sched_ext scheduler is in force.
    #[error(
        "another scheduler is loaded already: \"{name}\" ({path}); stop it first (for one started by scx_loader: \
         systemctl stop scx_loader), Steward does not replace it"
    )]
    AnotherScheduler {
        /// The name that it gave itself.
        name: String,
        /// Where that was read.
        path: String,
    },
    /// The caller may not load BPF programs.
    #[error(
        "no permission to load a scheduler ({source}): run stewardd as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN"
    )]
    NoPermission {
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel's verifier refused the program.
    #[error(
        "this kernel's verifier rejected the scheduler: {summary}; please report it with the kernel's release and the \
         log that `stewardd --log bpf=debug` prints"
    )]
    Rejected {
        /// The last lines of the verifier's log that say why.
        summary: String,
    },
    /// The kernel accepted the program and then refused to put it in force.
    #[error(
        "the kernel did not put the scheduler in force: {source}{reason}; `dmesg | grep sched_ext` says more"
    )]
    NotAttached {
        /// What the kernel said.
        source: io::Error,
        /// The scheduler's exit reason, when it gave one.
        reason: String,
    },
    /// More CPUs than the program has room for.
    #[error("this machine has {cpus} possible CPUs; the scheduler was built for {most}")]
    TooManyCpus {
        /// Possible CPUs of the machine.
        cpus: usize,
        /// What the program has room for.
        most: usize,
    },
    /// Any other failure of the BPF system.
    #[error("{action}: {source}")]
    Bpf {
        /// What was tried.
        action: String,
        /// What came back.
        source: io::Error,
    },
}

/// Converts an error of libbpf-rs into one of the operating system's, keeping its text.
pub(crate) fn to_io(error: &libbpf_rs::Error) -> io::Error {
    let text = format!("{error:#}");
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => io::Error::new(io::ErrorKind::PermissionDenied, text),
        _ => io::Error::other(text),
    }
}

/// The part of a verifier's log that says what it objected to: the last lines that are not its statistics.
pub(crate) fn summarize_rejection(log: &str) -> String {
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| {
            !line.is_empty()
                && !line.starts_with("processed ")
                && !line.starts_with("-- ")
                && !line.contains("failed to load")
                && !line.contains("BPF program load failed")
        })
        .collect();
    let tail = &lines[lines.len().saturating_sub(3)..];
    if tail.is_empty() { "the kernel gave no reason".to_owned() } else { tail.join(" | ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_is_summarized_by_its_last_telling_lines() {
        let log = "libbpf: prog 'x': BPF program load failed: -EINVAL\nlibbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n\
                   0: (79) r6 = *(u64 *)(r1 +0)\nR6 invalid mem access 'scalar'\nprocessed 12 insns (limit 1000000)\n\
                   -- END PROG LOAD LOG --\nlibbpf: failed to load object 'steward_bpf'";
        let summary = summarize_rejection(log);
        assert!(
            summary.ends_with("R6 invalid mem access 'scalar' | libbpf: prog 'x': -- END")
                || summary.contains("invalid mem access")
        );
        assert!(!summary.contains("processed"));
    }

    #[test]
    fn an_empty_log_still_gives_a_sentence() {
        assert_eq!(summarize_rejection(""), "the kernel gave no reason");
    }
}
