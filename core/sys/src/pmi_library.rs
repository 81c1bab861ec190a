// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of PMI-1 from a library found at run time: Slurm's `libpmi`, which connects to a
//! plain `srun`.
//!
//! It covers only what joining a job needs. The C declarations are those of `pmi.h` of MPICH, which
//! Slurm keeps.

#![allow(unsafe_code, reason = "calls into a C library")]

use crate::foreign::{ForeignError, Library, Names, c_text};
use std::ffi::{CStr, c_char, c_int};

type OneInt = unsafe extern "C" fn(*mut c_int) -> c_int;
type NoArgument = unsafe extern "C" fn() -> c_int;
type MyName = unsafe extern "C" fn(*mut c_char, c_int) -> c_int;
type Put = unsafe extern "C" fn(*const c_char, *const c_char, *const c_char) -> c_int;
type Commit = unsafe extern "C" fn(*const c_char) -> c_int;
type Get = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, c_int) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char) -> c_int;

/// A connection to the launcher through its PMI-1 library.
pub struct PmiLibrary {
    name: String,
    rank: u32,
    size: u32,
    value_len_max: usize,
    put: Put,
    commit: Commit,
    barrier: NoArgument,
    get: Get,
    abort: Abort,
    finalize: NoArgument,
}

impl std::fmt::Debug for PmiLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PmiLibrary")
            .field("name", &self.name)
            .field("rank", &self.rank)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl PmiLibrary {
    /// Loads the first of `names` that exists, and connects to the launcher.
    ///
    /// # Errors
    /// Fails if no library can be loaded, or the launcher does not reply.
    pub fn init(names: &[String]) -> Result<PmiLibrary, ForeignError> {
        // Its plugins, such as the one for authentication, need its names.
        let library = Library::open(names, Names::Global)?;
        // SAFETY: the types are those of `pmi.h`.
        let (init, rank, size) = unsafe {
            (
                library.function::<OneInt>(c"PMI_Init")?,
                library.function::<OneInt>(c"PMI_Get_rank")?,
                library.function::<OneInt>(c"PMI_Get_size")?,
            )
        };
        number(c"PMI_Init", init)?;
        let (rank, size) = (
            number(c"PMI_Get_rank", rank)?,
            number(c"PMI_Get_size", size)?,
        );
        // SAFETY: as above.
        unsafe {
            let name_len = library.function::<OneInt>(c"PMI_KVS_Get_name_length_max")?;
            let value_len = library.function::<OneInt>(c"PMI_KVS_Get_value_length_max")?;
            let my_name = library.function::<MyName>(c"PMI_KVS_Get_my_name")?;
            Ok(PmiLibrary {
                name: text(
                    "PMI_KVS_Get_my_name",
                    number(c"PMI_KVS_Get_name_length_max", name_len)?,
                    |at, len| my_name(at, len),
                )?,
                rank,
                size,
                value_len_max: number(c"PMI_KVS_Get_value_length_max", value_len)? as usize,
                put: library.function::<Put>(c"PMI_KVS_Put")?,
                commit: library.function::<Commit>(c"PMI_KVS_Commit")?,
                barrier: library.function::<NoArgument>(c"PMI_Barrier")?,
                get: library.function::<Get>(c"PMI_KVS_Get")?,
                abort: library.function::<Abort>(c"PMI_Abort")?,
                finalize: library.function::<NoArgument>(c"PMI_Finalize")?,
            })
        }
    }

    /// Returns the name of the job's key-value space.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rank of this process, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of processes in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the bytes of the longest value, including the terminating zero.
    #[must_use]
    pub fn value_len_max(&self) -> usize {
        self.value_len_max
    }

    /// Publishes `value` under `key` for all processes, from the next [`PmiLibrary::barrier`] on.
    ///
    /// # Errors
    /// Returns the error of the library.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), ForeignError> {
        let (name, key, value) = (c_text(&self.name)?, c_text(key)?, c_text(value)?);
        // SAFETY: three live C strings, which the library copies.
        let status = unsafe { (self.put)(name.as_ptr(), key.as_ptr(), value.as_ptr()) };
        check("PMI_KVS_Put", status)
    }

    /// Waits until all processes have called this, and exchanges the values that they have put.
    ///
    /// # Errors
    /// Returns the error of the library.
    pub fn barrier(&mut self) -> Result<(), ForeignError> {
        let name = c_text(&self.name)?;
        // SAFETY: a live C string; the barrier takes nothing.
        check("PMI_KVS_Commit", unsafe { (self.commit)(name.as_ptr()) })?;
        // SAFETY: no arguments.
        check("PMI_Barrier", unsafe { (self.barrier)() })
    }

    /// Returns the value that a process has put under `key`.
    ///
    /// # Errors
    /// Returns the error of the library, for example that there is no value.
    pub fn get(&self, key: &str) -> Result<String, ForeignError> {
        let (name, key) = (c_text(&self.name)?, c_text(key)?);
        let len = u32::try_from(self.value_len_max).unwrap_or(u32::MAX);
        // SAFETY: two live C strings, and a buffer of the length that is passed.
        text("PMI_KVS_Get", len, |at, len| unsafe {
            (self.get)(name.as_ptr(), key.as_ptr(), at, len)
        })
    }

    /// Disconnects from the launcher.
    ///
    /// # Errors
    /// Returns the error of the library.
    pub fn finalize(&mut self) -> Result<(), ForeignError> {
        // SAFETY: no arguments.
        check("PMI_Finalize", unsafe { (self.finalize)() })
    }

    /// Requests the launcher to end the job with exit status `status`, because of `reason`. The
    /// library may end this process.
    ///
    /// # Errors
    /// Returns the error of the library.
    pub fn abort(&mut self, status: i32, reason: &str) -> Result<(), ForeignError> {
        let reason = c_text(&reason.replace('\0', " "))?;
        // SAFETY: a live C string.
        check("PMI_Abort", unsafe {
            (self.abort)(status, reason.as_ptr())
        })
    }
}

fn check(call: &'static str, status: c_int) -> Result<(), ForeignError> {
    match status {
        0 => Ok(()),
        status => Err(ForeignError::Call {
            call,
            status,
            text: String::new(),
        }),
    }
}

/// Calls a function that writes a number.
fn number(name: &'static CStr, function: OneInt) -> Result<u32, ForeignError> {
    let mut value: c_int = 0;
    let call = name.to_str().unwrap_or_default();
    // SAFETY: `value` is live.
    check(call, unsafe { function(&raw mut value) })?;
    u32::try_from(value)
        .map_err(|_| ForeignError::InvalidResult(format!("{call} returned {value}")))
}

/// Calls a function that writes a text of at most `len` bytes.
fn text(
    call: &'static str,
    len: u32,
    fill: impl FnOnce(*mut c_char, c_int) -> c_int,
) -> Result<String, ForeignError> {
    // One byte more, so that the text is terminated even if the library fills all bytes.
    let mut bytes = vec![0_u8; len as usize + 1];
    let len_max = c_int::try_from(len).unwrap_or(c_int::MAX);
    check(call, fill(bytes.as_mut_ptr().cast(), len_max))?;
    bytes[len as usize] = 0;
    let text = CStr::from_bytes_until_nul(&bytes)
        .map_err(|_| ForeignError::InvalidResult(format!("{call} returned no string")))?;
    Ok(text.to_string_lossy().into_owned())
}
