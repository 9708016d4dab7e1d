//! What a process asks for itself before it executes a program.

use serde::{Deserialize, Serialize};

use super::cpu::{Reservation, Standing};
use super::disk::IoClass;
use super::method::Method;

/// For the calling process, which is about to execute a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// The reservation, kept over exec. Without it the process may take up the specification of the next
    /// program that it executes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Reservation>,
    /// Children get it too; no unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherit: Option<bool>,
    /// May be revoked under overload; yes unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revocable: Option<bool>,
    /// Without room, be best-effort until there is some, instead of
    /// [`AdmissionRefused`](super::ApiError::AdmissionRefused).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_if_refused: Option<bool>,
    /// Move to this domain first. With it and without `cpu` the process gets nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Move to a domain of its own first, below `domain` where that is given, that is promised this much memory, in
    /// bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_min: Option<i64>,
    /// The same, with at most so much memory, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<i64>,
    /// The same, of whose pages each may go unused for so long before it may be taken, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protect: Option<i64>,
    /// The same, whose disk requests are served so soon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoClass>,
    /// The same, with this much disk time reserved, as a fraction of what `domain` has, or else of the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<f64>,
    /// The same, which may read, and write, at most so much of each disk, in bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_max_bytes: Option<i64>,
    /// The same in requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_max_requests: Option<i64>,
    /// Have the program be told when it should give memory back, by systemd's pressure protocol; no unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<bool>,
}
method!(Run, "io.steward.Run", Ran);

impl Run {
    /// Whether it asks for something that only a domain can have, and so for one of its own.
    pub fn needs_domain(&self) -> bool {
        let of_memory = self.memory_min.is_some() || self.memory_max.is_some() || self.protect.is_some();
        let of_disk = self.io.is_some() || self.disk.is_some();
        of_memory || of_disk || self.io_max_bytes.is_some() || self.io_max_requests.is_some()
    }
}

/// What [`Run`] returns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Where the process' main thread stands now; `None` where that is decided later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// The domain that was made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The FIFO by which the program is told that it should give memory back, where that was asked for and there is
    /// room: for `MEMORY_PRESSURE_WATCH`, with anything in `MEMORY_PRESSURE_WRITE`, so that it is opened for writing
    /// too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<String>,
    /// In the domain to which it was moved, disk requests are served first; those of this process have that priority a
    /// moment after the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_first: Option<bool>,
}
