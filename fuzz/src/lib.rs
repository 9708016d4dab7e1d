//! A daemon for fuzzing: the real one, on a mechanism and a cgroup tree in memory, so that whatever it is made to do
//! touches nothing of this machine. It reads the real /proc.

use std::sync::Arc;

use libsteward::ApiError;
use libsteward::api::{self, Method};
use libsteward::wire::Call;
use serde_json::{Map, Value};
use steward_kernel::Roots;
use stewardd::daemon::Daemon;
use stewardd::fake::cgroups::FakeCgroups;
use stewardd::fake::disk::FakeDisk;
use stewardd::fake::{Fake, options};
use stewardd::server::Answer;
use stewardd::server::peer::Caller;
use stewardd::server::pieces::Put;

/// The owner of the machine.
pub const OWNER: u32 = 1000;
/// After so many inputs a daemon is replaced: what earlier ones left behind makes each call slower.
const INPUTS_MAX: u32 = 500;

/// A daemon and its files.
pub struct Machine {
    daemon: Daemon,
    inputs: u32,
    _directory: tempfile::TempDir,
}

impl Default for Machine {
    fn default() -> Self {
        // In memory where that is possible: state is written at almost every call.
        let in_memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = in_memory.expect("a temporary directory");
        std::fs::write(directory.path().join("steward.toml"), format!("owner = {OWNER}\n")).expect("written");
        let daemon = Daemon::start(
            options(directory.path(), Roots::default()),
            Fake::default().loader(),
            Ok(Box::new(FakeCgroups::default())),
            Arc::new(FakeDisk::default()),
        );
        Machine { daemon: daemon.expect("the daemon starts"), inputs: 0, _directory: directory }
    }
}

impl Machine {
    /// To be called once for each input.
    pub fn next_input(&mut self) {
        self.inputs += 1;
        if self.inputs > INPUTS_MAX {
            *self = Machine::default();
        }
    }

    /// What the daemon answers to this process in the name of this user.
    pub fn answer(&mut self, uid: u32, call: Call) -> Answer {
        let caller = Caller::of_process(uid, uid, std::process::id() as i32);
        let mut answer = self.daemon.answer(&caller, call.clone());
        while let Answer::Again(made) = answer {
            answer = self.daemon.answer(&caller, Put { call: call.clone(), made: Some(made) });
        }
        answer
    }

    /// As [`Machine::answer`], for calls that have one reply.
    ///
    /// # Errors
    /// What the daemon answers instead.
    pub fn reply(&mut self, uid: u32, call: Call) -> Result<Map<String, Value>, ApiError> {
        match self.answer(uid, call) {
            Answer::Reply(parameters) => Ok(parameters),
            Answer::Text(text) => Ok(serde_json::from_str(&text).expect("a reply is an object")),
            Answer::Texts(parts) => Ok(serde_json::from_str(&parts.concat()).expect("a reply is an object")),
            Answer::Error(error) => Err(error),
            Answer::Stream(..) | Answer::Watch(_) => Err(ApiError::ExpectedMore),
            Answer::Wait | Answer::Later(_) | Answer::Again(_) => panic!("this caller cannot wait"),
        }
    }

    /// A call by its type.
    ///
    /// # Errors
    /// What the daemon answers instead of a reply.
    pub fn call<M: Method>(&mut self, uid: u32, method: &M) -> Result<M::Reply, ApiError> {
        let Ok(Value::Object(parameters)) = serde_json::to_value(method) else {
            unreachable!("parameters are structs with named fields")
        };
        let reply = self.reply(uid, Call { method: M::NAME.to_owned(), parameters, ..Call::default() })?;
        Ok(serde_json::from_value(Value::Object(reply)).expect("a reply is what the description says"))
    }

    /// Panics if a level of the tree of domains has more reserved than may be.
    pub fn check_domains(&mut self) {
        let list = self.call(OWNER, &api::ListDomains {}).expect("the owner may read");
        for parent in &list.domains {
            let children = list.domains.iter().filter(|domain| domain.parent.as_ref() == Some(&parent.name));
            let reserved: f64 = children.filter_map(|domain| domain.cpu).sum();
            assert!(
                reserved <= parent.cpu_reservable + 1e-9,
                "{} reserves {reserved}: {list:#?}",
                parent.name
            );
        }
    }
}

/// The users that calls are made as: root, the owner, one with a slice of the tree, and somebody else.
pub fn user(choice: u8) -> u32 {
    [0, OWNER, 1001, 1002][usize::from(choice) % 4]
}
