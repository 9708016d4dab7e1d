//! What the library has to say by itself: that nothing is reserved, or that a request does not end.

use std::ffi::c_char;
use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::error::{Failure, STEWARD_SERVER_OK, guarded, text};

/// A function that is told a sentence; on any thread, and not for longer than it takes to write it down.
pub type StewardServerSay = Option<unsafe extern "C" fn(sentence: *const c_char)>;

/// Hands warnings of this library to a function.
struct Saying(unsafe extern "C" fn(*const c_char));

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

impl Subscriber for Saying {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        let sentence = text(&message.0);
        // SAFETY: steward_server_log() asks for a function that can be called with a text on any thread.
        unsafe { (self.0)(sentence.as_ptr()) };
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Has a function told what the library has to say by itself, such as that the daemon does not run and nothing is
/// reserved. Once in a process, before the first server is started; without, it says nothing, and the page has it.
///
/// # Safety
/// `say` can be called on any thread for as long as the process lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_log(say: StewardServerSay) -> i32 {
    guarded(|| {
        let say = say.ok_or_else(|| Failure::argument("there is no function to be told anything"))?;
        let set = tracing::subscriber::set_global_default(Saying(say));
        set.map_err(|_| Failure::argument("somebody is told already; that cannot be changed"))?;
        Ok(STEWARD_SERVER_OK)
    })
}
