// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client side of PMIx, from a `libpmix` found at run time.
//!
//! It covers only what joining a job needs: rank, put, fence, get, abort. The C declarations are
//! those of PMIx 3 to 5 (`pmix_common.h`); the PMIx standard keeps their layout. Invariant: the
//! library is never unloaded, because it starts a thread of its own.

#![allow(unsafe_code, reason = "calls into a C library")]

use crate::foreign::{ForeignError, Library, Names, c_text};
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::time::Duration;

/// PMIX_MAX_NSLEN and the terminating zero.
const NAMESPACE_LEN: usize = 256;
/// PMIX_MAX_KEYLEN and the terminating zero.
const KEY_LEN: usize = 512;
/// PMIX_RANK_WILDCARD: values of the job, not of a rank.
const RANK_WILDCARD: u32 = u32::MAX - 1;
/// PMIX_GLOBAL: for processes of all hosts.
const SCOPE_GLOBAL: u8 = 3;
/// PMIX_BOOL, PMIX_STRING, PMIX_INT, PMIX_UINT32.
const KIND_BOOL: u16 = 1;
const KIND_STRING: u16 = 3;
const KIND_INT: u16 = 6;
const KIND_UINT32: u16 = 14;
/// PMIX_JOB_SIZE, PMIX_COLLECT_DATA, PMIX_TIMEOUT.
const JOB_SIZE: &CStr = c"pmix.job.size";
const COLLECT_DATA: &CStr = c"pmix.collect";
const TIMEOUT: &CStr = c"pmix.timeout";

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    /// `char` in C, which is signed on some processors only.
    namespace: [u8; NAMESPACE_LEN],
    rank: u32,
}

/// The used members of the union of `pmix_value_t`; as long as its longest member, `pmix_envar_t`.
#[repr(C)]
#[derive(Clone, Copy)]
union Data {
    flag: bool,
    integer: c_int,
    uint32: u32,
    string: *mut c_char,
    words: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    /// `char` in C.
    key: [u8; KEY_LEN],
    flags: u32,
    value: Value,
}

// Sizes computed by a C compiler on a 64-bit machine.
const _: () = assert!(size_of::<Proc>() == 260);
const _: () = assert!(size_of::<Value>() == 32);
const _: () = assert!(size_of::<Info>() == 552);

type Init = unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Get =
    unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut Proc, usize) -> c_int;
type Text = unsafe extern "C" fn(c_int) -> *const c_char;

/// A connection to the PMIx server that started this process.
pub struct Pmix {
    me: Proc,
    finalize: Finalize,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    abort: Abort,
    text: Text,
}

impl std::fmt::Debug for Pmix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pmix")
            .field("namespace", &self.namespace())
            .field("rank", &self.me.rank)
            .finish_non_exhaustive()
    }
}

impl Pmix {
    /// Loads the first of `names` that exists, and connects to the server named in the environment.
    ///
    /// # Errors
    /// Fails if no library can be loaded, or the server does not reply.
    pub fn init(names: &[String]) -> Result<Pmix, ForeignError> {
        let library = Library::open(names, Names::Private)?;
        // SAFETY: the types are those of `pmix.h`; the library is never unloaded.
        let (init, mut pmix) = unsafe {
            let pmix = Pmix {
                me: Proc {
                    namespace: [0; NAMESPACE_LEN],
                    rank: 0,
                },
                finalize: library.function::<Finalize>(c"PMIx_Finalize")?,
                put: library.function::<Put>(c"PMIx_Put")?,
                commit: library.function::<Commit>(c"PMIx_Commit")?,
                fence: library.function::<Fence>(c"PMIx_Fence")?,
                get: library.function::<Get>(c"PMIx_Get")?,
                abort: library.function::<Abort>(c"PMIx_Abort")?,
                text: library.function::<Text>(c"PMIx_Error_string")?,
            };
            (library.function::<Init>(c"PMIx_Init")?, pmix)
        };
        // SAFETY: `me` is a live `pmix_proc_t`; no infos are passed.
        let status = unsafe { init(&raw mut pmix.me, ptr::null_mut(), 0) };
        pmix.check("PMIx_Init", status)?;
        Ok(pmix)
    }

    /// Returns the job's name, assigned by the launcher.
    #[must_use]
    pub fn namespace(&self) -> String {
        let name = self.me.namespace.split(|byte| *byte == 0).next();
        String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
    }

    /// Returns the rank of this process, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.me.rank
    }

    /// Returns the number of processes in the job.
    ///
    /// # Errors
    /// Fails if the server does not provide it.
    pub fn size(&self) -> Result<u32, ForeignError> {
        let value = self.value_of(RANK_WILDCARD, JOB_SIZE)?;
        // SAFETY: the server's value lives until it is freed below; `kind` selects the member.
        let size = unsafe {
            match (*value).kind {
                KIND_UINT32 => Some((*value).data.uint32),
                KIND_INT => u32::try_from((*value).data.integer).ok(),
                _ => None,
            }
        };
        // SAFETY: as above; a number owns nothing.
        unsafe { libc::free(value.cast()) };
        size.ok_or_else(|| ForeignError::InvalidResult("PMIX_JOB_SIZE is not a number".to_owned()))
    }

    /// Publishes `text` under `key` for all processes, from the next [`Pmix::fence`] on.
    ///
    /// # Errors
    /// Returns the error of the library.
    pub fn put(&mut self, key: &str, text: &str) -> Result<(), ForeignError> {
        let (key, text) = (c_text(key)?, c_text(text)?);
        let mut value = Value {
            kind: KIND_STRING,
            data: Data {
                string: text.as_ptr().cast_mut(),
            },
        };
        // SAFETY: key and value are live, and the library copies both.
        let status = unsafe { (self.put)(SCOPE_GLOBAL, key.as_ptr(), &raw mut value) };
        self.check("PMIx_Put", status)
    }

    /// Waits, `limit` at most, until all processes of the job have called this, and exchanges the
    /// values that they have put.
    ///
    /// # Errors
    /// Returns the error of the library, for example that a process has exited.
    pub fn fence(&mut self, limit: Duration) -> Result<(), ForeignError> {
        // SAFETY: no arguments.
        let status = unsafe { (self.commit)() };
        self.check("PMIx_Commit", status)?;
        let all_ranks = Proc {
            rank: RANK_WILDCARD,
            ..self.me
        };
        let seconds = c_int::try_from(limit.as_secs()).unwrap_or(c_int::MAX);
        let infos = [
            info(COLLECT_DATA, KIND_BOOL, Data { flag: true }),
            info(TIMEOUT, KIND_INT, Data { integer: seconds }),
        ];
        // SAFETY: one process and two infos are live, as the counts state.
        let status = unsafe { (self.fence)(&raw const all_ranks, 1, infos.as_ptr(), infos.len()) };
        self.check("PMIx_Fence", status)
    }

    /// Returns the value that process `rank` has put under `key`.
    ///
    /// # Errors
    /// Returns the error of the library, for example that there is no value.
    pub fn get(&self, rank: u32, key: &str) -> Result<String, ForeignError> {
        let value = self.value_of(rank, &c_text(key)?)?;
        // SAFETY: the value lives until it is freed; its string is a C string from malloc, freed in
        // the same way as by PMIX_VALUE_RELEASE.
        unsafe {
            let mut text = None;
            if (*value).kind == KIND_STRING && !(*value).data.string.is_null() {
                let string = (*value).data.string;
                text = Some(CStr::from_ptr(string).to_string_lossy().into_owned());
                libc::free(string.cast());
            }
            libc::free(value.cast());
            text.ok_or_else(|| ForeignError::InvalidResult(format!("{key} is not a string")))
        }
    }

    /// Disconnects from the server. Values can no longer be read.
    pub fn finalize(self) {
        // SAFETY: no infos are passed.
        let status = unsafe { (self.finalize)(ptr::null(), 0) };
        if let Err(error) = self.check("PMIx_Finalize", status) {
            // The error is useless, because the process is leaving the job.
            drop(error);
        }
    }

    /// Requests the launcher to end the job with exit status `status`, because of `reason`.
    ///
    /// # Errors
    /// Returns the error of the library.
    pub fn abort(&mut self, status: i32, reason: &str) -> Result<(), ForeignError> {
        let reason = c_text(&reason.replace('\0', " "))?;
        // SAFETY: the text is live; no processes means all of the job.
        let result = unsafe { (self.abort)(status, reason.as_ptr(), ptr::null_mut(), 0) };
        self.check("PMIx_Abort", result)
    }

    /// Returns a value that the caller must free.
    fn value_of(&self, rank: u32, key: &CStr) -> Result<*mut Value, ForeignError> {
        let owner = Proc { rank, ..self.me };
        let mut value = ptr::null_mut();
        // SAFETY: process and key are live, `value` receives a pointer, no infos are passed.
        let status = unsafe {
            (self.get)(
                &raw const owner,
                key.as_ptr(),
                ptr::null(),
                0,
                &raw mut value,
            )
        };
        self.check("PMIx_Get", status)?;
        if value.is_null() {
            return Err(ForeignError::InvalidResult(format!("{key:?} has no value")));
        }
        Ok(value)
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), ForeignError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a constant C string for every number.
        let text = unsafe {
            let text = (self.text)(status);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        Err(ForeignError::Call {
            call,
            status,
            text: text.unwrap_or_default(),
        })
    }
}

fn info(key: &CStr, kind: u16, data: Data) -> Info {
    let mut bytes = [0; KEY_LEN];
    bytes[..key.count_bytes()].copy_from_slice(key.to_bytes());
    let mut padded = Data { words: [0; 3] };
    // The rest of the union stays zero, because the library may copy all of it.
    //
    // SAFETY: each member is written separately, and any bits are a valid word.
    unsafe {
        match kind {
            KIND_BOOL => padded.flag = data.flag,
            _ => padded.integer = data.integer,
        }
    }
    Info {
        key: bytes,
        flags: 0,
        value: Value { kind, data: padded },
    }
}
