//! Bytes on the socket, as the daemon cuts them into messages, reads and answers them.
#![no_main]

use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use libsteward::wire::{self, Call, Framer, Reply};
use steward_fuzz::{Machine, user};

static MACHINE: LazyLock<Mutex<Machine>> = LazyLock::new(Mutex::default);

fuzz_target!(|input: &[u8]| {
    let [choice, cut, bytes @ ..] = input else { return };
    let mut machine = MACHINE.lock().expect("no input made it panic");
    machine.next_input();
    let mut framer = Framer::new(wire::REQUEST_BYTES_MAX);
    // It must not matter in how many pieces they arrive.
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    for piece in [first, second] {
        framer.push(piece);
        while let Ok(Some(message)) = framer.next_message() {
            let Ok(call) = serde_json::from_slice::<Call>(&message) else { continue };
            match machine.reply(user(*choice), call) {
                Ok(parameters) => _ = wire::encode(&Reply { parameters, ..Reply::default() }),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
});
