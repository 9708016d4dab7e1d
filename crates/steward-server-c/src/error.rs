//! Codes, and the sentence of the last failure.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Done.
pub const STEWARD_SERVER_OK: i32 = 0;
/// An argument is null, no UTF-8, or out of its range.
pub const STEWARD_SERVER_ERROR_ARGUMENT: i32 = -1;
/// A goal that cannot be held, or settings without routes or without workers.
pub const STEWARD_SERVER_ERROR_GOAL: i32 = -2;
/// The kernel gives no thread.
pub const STEWARD_SERVER_ERROR_RESOURCES: i32 = -3;
/// As many requests as can be answered in time were accepted, and the route refuses others.
pub const STEWARD_SERVER_ERROR_FULL: i32 = -4;
/// So many requests wait that one more is not to.
pub const STEWARD_SERVER_ERROR_TOO_MANY_WAIT: i32 = -5;
/// The server is closed.
pub const STEWARD_SERVER_ERROR_CLOSED: i32 = -6;
/// A mistake in this library.
pub const STEWARD_SERVER_ERROR_INTERNAL: i32 = -7;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A code with its sentence.
pub(crate) struct Failure {
    pub(crate) code: i32,
    pub(crate) sentence: String,
}

impl Failure {
    /// An argument that cannot be used.
    pub(crate) fn argument(sentence: impl Into<String>) -> Self {
        Failure { code: STEWARD_SERVER_ERROR_ARGUMENT, sentence: sentence.into() }
    }
}

/// Runs the body of a function that C calls: its failure and even its panic become a code, with a sentence kept for
/// this thread.
pub(crate) fn guarded(body: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let sentence = "there is a mistake in libstewardserver; what it was is on standard error".to_owned();
        Err(Failure { code: STEWARD_SERVER_ERROR_INTERNAL, sentence })
    });
    outcome.unwrap_or_else(|Failure { code, sentence }| {
        LAST.with(|last| *last.borrow_mut() = text(&sentence));
        code
    })
}

/// A text for C, which reads no further than the first NUL.
pub(crate) fn text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// The text that C gave; `None` for null.
///
/// # Safety
/// `text` is null or points to bytes that end with a NUL and do not change during the call.
pub(crate) unsafe fn read<'text>(text: *const c_char) -> Result<Option<&'text str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Failure::argument("a text is no UTF-8"))
}

/// What was wrong with the last call that failed on this thread, in a sentence that also says what to do; empty when
/// none has failed. It is valid until the next call on this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn steward_server_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
