//! Text that goes in and comes out.

use std::ffi::{CStr, CString, c_char};

use crate::error::Failure;

/// The text that C gave, or `None` for null.
///
/// # Safety
/// `text` is null or points to bytes that end with a NUL and do not change during the call.
pub(crate) unsafe fn optional<'text>(text: *const c_char) -> Result<Option<&'text str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Failure::argument("a text is no UTF-8"))
}

/// The text that C gave; null is an error.
///
/// # Safety
/// As [`optional`].
pub(crate) unsafe fn required<'text>(text: *const c_char, what: &str) -> Result<&'text str, Failure> {
    // SAFETY: as the caller promises.
    unsafe { optional(text) }?.ok_or_else(|| Failure::argument(format!("{what} is null")))
}

/// Hands a text over to C, if C wants it.
///
/// # Safety
/// `place` is null or can be written.
pub(crate) unsafe fn hand_over(text: String, place: *mut *mut c_char) {
    // JSON writes NUL as an escape, so there is none to replace.
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // SAFETY: as the caller promises.
    unsafe { store(text.into_raw(), place, |text| steward_free_text(text)) }
}

/// Writes what C asked for, or drops it when C does not want it.
///
/// # Safety
/// `place` is null or can be written.
pub(crate) unsafe fn store<T>(value: T, place: *mut T, otherwise: impl FnOnce(T)) {
    if place.is_null() {
        otherwise(value);
    } else {
        // SAFETY: as the caller promises; what was there is C's plain data.
        unsafe { place.write(value) };
    }
}

/// Frees a text that a function of this library gave. Null is nothing to free.
///
/// # Safety
/// `text` is null or was given by this library, and was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: as the caller promises, it is from CString::into_raw.
        drop(unsafe { CString::from_raw(text) });
    }
}
