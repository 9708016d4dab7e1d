//! Codes, and the sentence of the last failure.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libsteward::{ApiError, Error};

/// Done.
pub const STEWARD_OK: i32 = 0;
/// An argument is null, no UTF-8, no JSON, or out of its range.
pub const STEWARD_ERROR_ARGUMENT: i32 = -1;
/// Nobody listens at the socket, or the daemon takes nobody in for 30 seconds.
pub const STEWARD_ERROR_CONNECT: i32 = -2;
/// The connection broke or was closed, or no answer came within 150 seconds. Close the handle and connect again.
pub const STEWARD_ERROR_BROKEN: i32 = -3;
/// The daemon answered what this library does not understand.
pub const STEWARD_ERROR_MALFORMED: i32 = -4;
/// The caller may not do this.
pub const STEWARD_ERROR_PERMISSION_DENIED: i32 = -5;
/// The daemon found a parameter wrong.
pub const STEWARD_ERROR_INVALID_PARAMETER: i32 = -6;
/// There is no such process.
pub const STEWARD_ERROR_NO_SUCH_TASK: i32 = -7;
/// There is no room for the reservation on any CPU.
pub const STEWARD_ERROR_ADMISSION_REFUSED: i32 = -8;
/// There is no such domain.
pub const STEWARD_ERROR_NO_SUCH_DOMAIN: i32 = -9;
/// There is a domain of that name already.
pub const STEWARD_ERROR_DOMAIN_EXISTS: i32 = -10;
/// A level of domains would reserve more than it has.
pub const STEWARD_ERROR_OVERCOMMITTED: i32 = -11;
/// Nothing enforces reservations now.
pub const STEWARD_ERROR_MECHANISM_GONE: i32 = -12;
/// The kernel refused.
pub const STEWARD_ERROR_MECHANISM_FAILED: i32 = -13;
/// The daemon has no such method; it may be older than this library.
pub const STEWARD_ERROR_METHOD_NOT_FOUND: i32 = -14;
/// An error of the daemon's that this library does not know.
pub const STEWARD_ERROR_OTHER: i32 = -15;
/// A mistake in this library.
pub const STEWARD_ERROR_INTERNAL: i32 = -16;

/// The process can have no more descriptors or threads.
pub const STEWARD_ERROR_RESOURCES: i32 = -17;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A code with its sentence.
pub(crate) struct Failure {
    code: i32,
    sentence: String,
}

impl Failure {
    /// An argument that cannot be used.
    pub(crate) fn argument(sentence: impl Into<String>) -> Self {
        Failure { code: STEWARD_ERROR_ARGUMENT, sentence: sentence.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Connect { .. } | Error::Ended { .. } | Error::Starting { .. } | Error::Busy { .. } => {
                STEWARD_ERROR_CONNECT
            }
            Error::Broken(_) | Error::Closed | Error::Late => STEWARD_ERROR_BROKEN,
            Error::Malformed(_) => STEWARD_ERROR_MALFORMED,
            Error::Api(error) => code_of(error),
        };
        Failure { code, sentence: error.to_string() }
    }
}

impl From<std::io::Error> for Failure {
    /// The kernel gives no descriptor or no thread.
    fn from(error: std::io::Error) -> Self {
        Failure { code: STEWARD_ERROR_RESOURCES, sentence: format!("the kernel gives no more: {error}") }
    }
}

fn code_of(error: &ApiError) -> i32 {
    match error {
        ApiError::PermissionDenied { .. } => STEWARD_ERROR_PERMISSION_DENIED,
        ApiError::InvalidParameter { .. } => STEWARD_ERROR_INVALID_PARAMETER,
        ApiError::NoSuchTask { .. } => STEWARD_ERROR_NO_SUCH_TASK,
        ApiError::AdmissionRefused { .. } => STEWARD_ERROR_ADMISSION_REFUSED,
        ApiError::NoSuchDomain { .. } => STEWARD_ERROR_NO_SUCH_DOMAIN,
        ApiError::DomainExists { .. } => STEWARD_ERROR_DOMAIN_EXISTS,
        ApiError::Overcommitted { .. } => STEWARD_ERROR_OVERCOMMITTED,
        ApiError::MechanismGone { .. } => STEWARD_ERROR_MECHANISM_GONE,
        ApiError::MechanismFailed { .. } => STEWARD_ERROR_MECHANISM_FAILED,
        ApiError::MethodNotFound { .. } => STEWARD_ERROR_METHOD_NOT_FOUND,
        _ => STEWARD_ERROR_OTHER,
    }
}

/// Runs the body of a function that C calls: its failure and even its panic become a code, with a sentence kept for
/// this thread. Whatever it returns when it succeeds is returned.
pub(crate) fn guarded(body: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let sentence = "there is a mistake in libsteward; what it was is on standard error".to_owned();
        Err(Failure { code: STEWARD_ERROR_INTERNAL, sentence })
    });
    match outcome {
        Ok(value) => value,
        Err(Failure { code, sentence }) => {
            // No sentence has a NUL in it, and without one C could not read it anyway.
            let sentence = CString::new(sentence.replace('\0', " ")).unwrap_or_default();
            LAST.with(|last| *last.borrow_mut() = sentence);
            code
        }
    }
}

/// What was wrong with the last call that failed on this thread, in a sentence that also says what to do; empty when
/// none has failed. It is valid until the next call on this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn steward_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
