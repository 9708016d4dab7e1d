//! The control files: any names, any writes by anybody, over the real daemon.
#![no_main]

use std::sync::{LazyLock, Mutex};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use libsteward::ApiError;
use libsteward::wire::Call;
use serde_json::{Map, Value};
use steward_files::names::{ControlFile, Node};
use steward_files::tree::{Owner, Tree};
use steward_files::{Asker, Backend, Credentials};
use steward_fuzz::{Machine, user};

struct Daemon(Mutex<Machine>);

impl Backend for Daemon {
    fn call(&self, caller: Credentials, call: Call) -> Result<Map<String, Value>, ApiError> {
        self.0.lock().expect("no input made it panic").reply(caller.uid, call)
    }
}

#[derive(Arbitrary, Debug)]
enum Step {
    Make { parent: String, name: String },
    Remove { parent: String, name: String },
    Read { domain: String, file: u8 },
    Write { domain: String, file: u8, bytes: Vec<u8> },
    WriteNumber { domain: String, file: u8, number: f64 },
}

static TREE: LazyLock<Tree<Shared>> = LazyLock::new(|| Tree::new(Shared));
static DAEMON: LazyLock<Daemon> = LazyLock::new(|| Daemon(Mutex::default()));

/// The one daemon, so that it can be replaced and checked.
struct Shared;

impl Backend for Shared {
    fn call(&self, caller: Credentials, call: Call) -> Result<Map<String, Value>, ApiError> {
        DAEMON.call(caller, call)
    }
}

fuzz_target!(|steps: Vec<(u8, Step)>| {
    DAEMON.0.lock().expect("no input made it panic").next_input();
    for (choice, step) in steps {
        let uid = user(choice);
        let asker = Asker { tid: std::process::id() as i32, uid, gid: uid, can_wait: false };
        let outcome = match step {
            Step::Make { parent, name } => TREE.make(asker, &Node::Domain(parent), &name).map(drop),
            Step::Remove { parent, name } => TREE.remove(asker, &Node::Domain(parent), &name),
            Step::Read { domain, file } => {
                TREE.read(asker, &Node::File(domain, control_file(file))).map(drop)
            }
            Step::Write { domain, file, bytes } => {
                TREE.write(asker, Owner::of(asker), &Node::File(domain, control_file(file)), &bytes)
            }
            Step::WriteNumber { domain, file, number } => {
                let node = Node::File(domain, control_file(file));
                TREE.write(asker, Owner::of(asker), &node, format!("{number}\n").as_bytes())
            }
        };
        // A refusal can be read by who was refused.
        if outcome.is_err() {
            TREE.read(asker, &Node::LastError).expect("everyone may read their own");
        }
    }
    DAEMON.0.lock().expect("no input made it panic").check_domains();
});

fn control_file(choice: u8) -> ControlFile {
    ControlFile::ALL[usize::from(choice) % ControlFile::ALL.len()]
}
