// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries of other systems that are loaded at run time, and their errors.
//!
//! This module attaches no meaning to the functions. Invariant: a loaded library is never unloaded.

#![allow(unsafe_code, reason = "loading a library runs its initialisers")]

use libloading::os::unix;
use std::ffi::{CStr, CString, c_int};
use thiserror::Error;

/// Reason why a call into a foreign library failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// None of the names is a loadable library.
    #[error("none of {names} can be loaded ({why})")]
    NotFound {
        /// Names that were tried.
        names: String,
        /// Loader's error for the last name.
        why: String,
    },
    /// The library lacks a function.
    #[error("the library has no function {0}")]
    NoFunction(String),
    /// A call failed.
    #[error("{call} failed with status {status} {text}")]
    Call {
        /// Name of the function.
        call: &'static str,
        /// Status that it returned.
        status: c_int,
        /// The library's text for the status.
        text: String,
    },
    /// The library returned an invalid result.
    #[error("invalid result: {0}")]
    InvalidResult(String),
}

/// A library that stays loaded until the process ends.
pub(crate) struct Library(&'static unix::Library);

/// Visibility of the names that a library defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Its functions are only found by explicit lookup.
    Private,
    /// Libraries loaded by it can use them, too.
    Global,
}

impl Library {
    /// Loads the first of `names` that exists.
    pub(crate) fn open(names: &[String], scope: Names) -> Result<Library, ForeignError> {
        let flags = match scope {
            Names::Private => unix::RTLD_NOW | unix::RTLD_LOCAL,
            Names::Global => unix::RTLD_NOW | unix::RTLD_GLOBAL,
        };
        let mut why = "no name was given".to_owned();
        for name in names {
            // SAFETY: these are libraries made to be loaded, and run their own initialisers.
            match unsafe { unix::Library::open(Some(name), flags) } {
                // Leaked once per process, because the library's threads and handlers must outlive
                // all callers.
                Ok(library) => return Ok(Library(Box::leak(Box::new(library)))),
                Err(error) => why = error.to_string(),
            }
        }
        Err(ForeignError::NotFound {
            names: names.join(", "),
            why,
        })
    }

    /// Returns the function called `name`.
    ///
    /// # Safety
    /// `F` must be the type of that function.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, ForeignError> {
        // SAFETY: the caller guarantees the type; the library is never unloaded, so a copy of the
        // pointer stays valid.
        unsafe { self.0.get::<F>(name.to_bytes_with_nul()) }
            .map(|function| *function)
            .map_err(|_| ForeignError::NoFunction(name.to_string_lossy().into_owned()))
    }
}

/// Converts `text` for C.
pub(crate) fn c_text(text: &str) -> Result<CString, ForeignError> {
    CString::new(text)
        .map_err(|_| ForeignError::InvalidResult(format!("{text:?} contains a zero byte")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_missing_library_and_function() {
        let names = ["libno-such-1.so".to_owned(), "libno-such-2.so".to_owned()];
        let error = Library::open(&names, Names::Private)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("libno-such-1.so, libno-such-2.so"),
            "{error}"
        );
        let library = Library::open(
            &["libno-such.so".to_owned(), "libc.so.6".to_owned()],
            Names::Global,
        )
        .unwrap();
        // SAFETY: getpid takes nothing and returns an int.
        let getpid =
            unsafe { library.function::<unsafe extern "C" fn() -> c_int>(c"getpid") }.unwrap();
        // SAFETY: as above.
        let pid = unsafe { getpid() };
        assert_eq!(u32::try_from(pid), Ok(std::process::id()));
        // SAFETY: it does not exist, so no type is wrong.
        let missing = unsafe { library.function::<unsafe extern "C" fn()>(c"no_such_function") };
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .contains("no_such_function")
        );
    }
}
