//! What all servers have in common: what the command line says of their pools, what can be done with one, and how that
//! is undone.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use steward_pool::SLOWDOWN_LIMIT;

/// What the command line says of the pool of any server.
#[derive(Clone, Debug, Args)]
pub struct PoolArguments {
    /// The domain that the workers are in, with the programs that they start.
    #[arg(long, value_name = "DOMAIN", required_unless_present = "pid")]
    pub domain: Option<String>,
    /// Or the one process whose threads are the workers.
    #[arg(long, conflicts_with = "domain", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// The fewest workers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub min: u32,
    /// The most workers; more than the server's own limit come to nothing.
    #[arg(long, value_name = "N", default_value_t = 150)]
    pub max: u32,
    /// The size to begin with; what the server has unless said, or --max where it has no limit or cannot tell.
    #[arg(long, value_name = "N")]
    pub start: Option<u32>,
    /// How many times slower than on an idle machine the CPU may be for the workers: so many busy ones share each CPU.
    #[arg(long, value_name = "N", default_value_t = SLOWDOWN_LIMIT)]
    pub max_slowdown: f64,
    /// Where to write down what the server had.
    #[arg(long, value_name = "DIR", default_value = libsteward::STATE_DIRECTORY)]
    pub state_directory: PathBuf,
}

/// A server whose pool can be sized.
pub trait Server {
    /// What it is called in messages.
    fn name(&self) -> String;
    /// The size that it has now; `None` when it has no limit, or that cannot be told.
    fn size(&self) -> Option<u32>;
    /// How many requests wait for a worker; `None` when that cannot be told.
    fn waiting(&mut self) -> anyhow::Result<Option<u64>>;
    /// Puts a size in force.
    fn set(&mut self, workers: u32) -> anyhow::Result<()>;
    /// How long after a change what is seen is due to it.
    fn patience(&self) -> Duration;
    /// How to undo every change.
    fn undo(&self) -> Undo;
}

/// How to put back what a server had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Undo {
    /// Remove the file, and have Apache read its configuration again.
    Apache {
        /// The file.
        drop_in: PathBuf,
        /// Where Apache keeps its number.
        pid_file: PathBuf,
        /// The command that checks its configuration.
        check: Vec<String>,
    },
    /// Set `maxconn` back.
    Haproxy {
        /// The runtime API.
        control: PathBuf,
        /// The backend.
        backend: String,
        /// The server in it.
        server: String,
        /// What it was.
        maxconn: u32,
        /// In which process of HAProxy's ([`super::haproxy::instance`]); `None` where that did not say so.
        #[serde(default)]
        instance: Option<String>,
    },
}
