// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of errors to codes and texts, and the guard that stops panics.

use portolan::Error;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Error codes of a library.
pub trait Codes {
    /// Name of the library, for reports of its bugs.
    const LIBRARY: &'static str;
    /// Code of a bug in the library.
    const INTERNAL: c_int;
    /// Code of a required pointer that is null.
    const NULL: c_int;

    /// Returns the code of an error.
    fn of(error: &Error) -> c_int;
}

/// Reason why a function failed. The text is boxed, because failures are rare and results are
/// returned in registers.
pub struct Failure<C> {
    code: c_int,
    text: Box<str>,
    codes: PhantomData<fn() -> C>,
}

impl<C: Codes> Failure<C> {
    /// Creates a failure with a code and a sentence that names the object, the cause and the
    /// remedy.
    #[cold]
    pub fn new(code: c_int, text: impl Into<String>) -> Self {
        Failure {
            code,
            text: text.into().into_boxed_str(),
            codes: PhantomData,
        }
    }

    /// Creates a failure for `what`, which must not be null.
    #[cold]
    #[must_use]
    pub fn null(what: &str) -> Self {
        Failure::new(C::NULL, format!("{what} is null"))
    }

    /// Returns the code.
    #[must_use]
    pub fn code(&self) -> c_int {
        self.code
    }

    /// Returns the sentence.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Stores the sentence for [`last_error`]. Returns the code.
    pub fn record(&self) -> c_int {
        let text: Vec<u8> = self.text.bytes().filter(|&byte| byte != 0).collect();
        // Cannot fail, because zero bytes were removed.
        let text = CString::new(text).unwrap_or_default();
        // A thread that is ending has no storage for it, and cannot read it either.
        let _ = LAST.try_with(|last| *last.borrow_mut() = text);
        self.code
    }

    #[cold]
    fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Failure::new(C::INTERNAL, format!("bug in {}: {message}", C::LIBRARY))
    }
}

impl<C: Codes> From<portolan::Failed> for Failure<C> {
    fn from(failed: portolan::Failed) -> Self {
        Error::from(failed).into()
    }
}

impl<C: Codes> From<Error> for Failure<C> {
    #[cold]
    fn from(error: Error) -> Self {
        Failure::new(C::of(&error), error.to_string())
    }
}

impl<C> fmt::Debug for Failure<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs `body` and returns its result. A panic becomes a failure.
///
/// # Errors
/// Returns the failure of `body`.
#[inline]
pub fn fenced<T, C: Codes>(body: impl FnOnce() -> Result<T, Failure<C>>) -> Result<T, Failure<C>> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => Err(Failure::of_panic(&*panic)),
    }
}

/// Runs the body of a function. Returns its result, or the code of its failure after storing the
/// sentence for [`last_error`].
#[inline]
pub fn guard<C: Codes>(body: impl FnOnce() -> Result<c_int, Failure<C>>) -> c_int {
    // Recorded inside, so that only a number crosses the unwind boundary.
    let record = |failure: Failure<C>| failure.record();
    let run = || body().unwrap_or_else(record);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| record(Failure::of_panic(&*panic)))
}

/// Returns the sentence of the last failure on this thread. It is empty before the first failure,
/// valid until the next one, and never null.
#[must_use]
pub fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    struct Own;

    impl Codes for Own {
        const LIBRARY: &'static str = "libown";
        const INTERNAL: c_int = -14;
        const NULL: c_int = -5;

        fn of(error: &Error) -> c_int {
            match error {
                Error::Forked => -15,
                _ => -99,
            }
        }
    }

    fn last_text() -> String {
        // SAFETY: belongs to this thread, on which no failure occurs meanwhile.
        let text = unsafe { CStr::from_ptr(last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn guard_returns_the_result_of_its_body() {
        assert_eq!(guard::<Own>(|| Ok(3)), 3);
        assert_eq!(last_text(), "");
    }

    #[test]
    fn failure_returns_code_and_stores_text() {
        assert_eq!(guard::<Own>(|| Err(Failure::null("buf"))), -5);
        assert_eq!(last_text(), "buf is null");
        assert_eq!(guard::<Own>(|| Err(Error::Forked.into())), -15);
        assert!(last_text().contains("forked"), "{}", last_text());
        let with_zero = || Err(Failure::new(-1, "a\0b"));
        assert_eq!(guard::<Own>(with_zero), -1);
        assert_eq!(last_text(), "ab");
    }

    #[test]
    fn panic_is_reported_as_bug() {
        assert_eq!(guard::<Own>(|| panic!("{} of {}", 1, 2)), -14);
        assert_eq!(last_text(), "bug in libown: 1 of 2");
        assert_eq!(guard::<Own>(|| panic!("plain")), -14);
        assert_eq!(last_text(), "bug in libown: plain");
    }
}
