// SPDX-License-Identifier: MIT OR Apache-2.0
//! From errors to numbers and texts, and the fence that no panic passes.

use portolan::Error;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The numbers of a library's failures.
pub trait Codes {
    /// Name of the library, for its bugs.
    const LIBRARY: &'static str;
    /// The library has a bug.
    const INTERNAL: c_int;
    /// A pointer that is needed is null.
    const NULL: c_int;

    /// The number of an error.
    fn of(error: &Error) -> c_int;
}

/// Why a function failed. Boxed text: failures are rare, and results travel in registers.
pub struct Failure<C> {
    code: c_int,
    text: Box<str>,
    codes: PhantomData<fn() -> C>,
}

impl<C: Codes> Failure<C> {
    /// A failure with a number and a sentence that names thing, cause and remedy.
    #[cold]
    pub fn new(code: c_int, text: impl Into<String>) -> Self {
        Failure {
            code,
            text: text.into().into_boxed_str(),
            codes: PhantomData,
        }
    }

    /// `what` is null and must not be.
    #[cold]
    #[must_use]
    pub fn null(what: &str) -> Self {
        Failure::new(C::NULL, format!("{what} is null"))
    }

    /// The number.
    #[must_use]
    pub fn code(&self) -> c_int {
        self.code
    }

    /// The sentence.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Keeps the sentence for [`last_error`]; the number.
    pub fn record(&self) -> c_int {
        let text: Vec<u8> = self.text.bytes().filter(|&byte| byte != 0).collect();
        // Without zeros it cannot fail.
        let text = CString::new(text).unwrap_or_default();
        // A thread that is ending has nowhere to put it, and nobody to read it.
        let _ = LAST.try_with(|last| *last.borrow_mut() = text);
        self.code
    }

    #[cold]
    fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Failure::new(C::INTERNAL, format!("bug in {}: {said}", C::LIBRARY))
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

/// Runs `body`; what it returns, or its failure, which a panic is, too.
///
/// # Errors
/// What `body` returns.
#[inline]
pub fn fenced<T, C: Codes>(body: impl FnOnce() -> Result<T, Failure<C>>) -> Result<T, Failure<C>> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => Err(Failure::of_panic(&*panic)),
    }
}

/// Runs the body of a function: what it returns, or the number of its failure, whose sentence is kept
/// for [`last_error`].
#[inline]
pub fn guard<C: Codes>(body: impl FnOnce() -> Result<c_int, Failure<C>>) -> c_int {
    // Recorded inside, so that only a number is returned across the fence.
    let record = |failure: Failure<C>| failure.record();
    let run = || body().unwrap_or_else(record);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| record(Failure::of_panic(&*panic)))
}

/// Why the last function that failed on this thread did so; empty before the first failure, valid
/// until the next one, never null.
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

    fn said() -> String {
        // SAFETY: of this thread, which does not fail meanwhile.
        let text = unsafe { CStr::from_ptr(last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_body_returns_its_number() {
        assert_eq!(guard::<Own>(|| Ok(3)), 3);
        assert_eq!(said(), "");
    }

    #[test]
    fn a_failure_leaves_a_number_and_a_sentence() {
        assert_eq!(guard::<Own>(|| Err(Failure::null("buf"))), -5);
        assert_eq!(said(), "buf is null");
        assert_eq!(guard::<Own>(|| Err(Error::Forked.into())), -15);
        assert!(said().contains("forked"), "{}", said());
        let with_zero = || Err(Failure::new(-1, "a\0b"));
        assert_eq!(guard::<Own>(with_zero), -1);
        assert_eq!(said(), "ab");
    }

    #[test]
    fn a_panic_is_a_bug_of_the_library() {
        assert_eq!(guard::<Own>(|| panic!("{} of {}", 1, 2)), -14);
        assert_eq!(said(), "bug in libown: 1 of 2");
        assert_eq!(guard::<Own>(|| panic!("plain")), -14);
        assert_eq!(said(), "bug in libown: plain");
    }
}
