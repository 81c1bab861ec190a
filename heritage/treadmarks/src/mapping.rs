// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared memory of this process, mapped twice: for the program, with the access that the
//! protocol allows, and for the library, which always has access.

use crate::error::{Failure, failure};
use crate::protocol::{Access, Memory};
use std::ffi::c_int;
use std::io;
use std::ptr;

/// Address of the shared memory, the same in all processes. The system places programs,
/// libraries and stacks far above, and the memory of sanitizers elsewhere.
const BASE: usize = 0x2000_0000_0000;

/// Both mappings of the memory. They are never unmapped, because the program keeps pointers into
/// them.
pub(crate) struct Mapping {
    program: *mut u8,
    library: *mut u8,
    len: usize,
    page_len: usize,
    /// First failure of a change of access.
    failure: Option<io::Error>,
}

// SAFETY: the addresses are valid in every thread.
unsafe impl Send for Mapping {}

/// Returns the length of a page of memory.
pub(crate) fn page_len() -> usize {
    // SAFETY: the call has no preconditions.
    let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(len).unwrap_or(4096)
}

fn last(what: &str) -> Failure {
    let error = io::Error::last_os_error();
    failure(format!(
        "cannot {what}: {error}; lower TMK_HEAP, the MiB of shared memory of each process"
    ))
}

impl Mapping {
    /// Creates `len` bytes of zeros, which the program may read.
    pub(crate) fn create(len: usize, page_len: usize) -> Result<Mapping, Failure> {
        // SAFETY: the name is a string.
        let memory = unsafe { libc::memfd_create(c"treadmarks".as_ptr(), libc::MFD_CLOEXEC) };
        if memory < 0 {
            return Err(last("create the shared memory"));
        }
        let mapped = Mapping::map(memory, len, page_len);
        // SAFETY: opened above; the mappings remain.
        unsafe { libc::close(memory) };
        mapped
    }

    fn map(memory: c_int, len: usize, page_len: usize) -> Result<Mapping, Failure> {
        let size = libc::off_t::try_from(len).unwrap_or(libc::off_t::MAX);
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(memory, size) } != 0 {
            return Err(last("create the shared memory"));
        }
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let library = unsafe { libc::mmap(ptr::null_mut(), len, both, flags, memory, 0) };
        if library == libc::MAP_FAILED {
            return Err(last("map the shared memory"));
        }
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        let base = ptr::without_provenance_mut(BASE);
        // SAFETY: a new mapping, which replaces none.
        let program = unsafe { libc::mmap(base, len, libc::PROT_READ, flags, memory, 0) };
        if program != base {
            return Err(last(&format!("map the shared memory at {BASE:#x}")));
        }
        Ok(Mapping {
            program: program.cast(),
            library: library.cast(),
            len,
            page_len,
            failure: None,
        })
    }

    pub(crate) fn base(&self) -> usize {
        self.program.addr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the program's address of an offset.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.program.wrapping_add(offset)
    }

    /// Returns the offset of an address of the shared memory.
    pub(crate) fn offset_of(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.base())?;
        (offset < self.len).then_some(offset)
    }

    /// Reports a failed change of access.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.failure.take() {
            None => Ok(()),
            Some(error) => Err(failure(format!(
                "cannot change the access to shared memory: {error}; raise \
                 /proc/sys/vm/max_map_count, or use larger contiguous pieces of memory"
            ))),
        }
    }
}

impl Memory for Mapping {
    fn protect(&mut self, first: u32, count: u32, access: Access) {
        let (start, len) = (
            first as usize * self.page_len,
            count as usize * self.page_len,
        );
        assert!(start + len <= self.len);
        let access = match access {
            Access::None => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a part of the program's mapping. Forbidden accesses are handled.
        if unsafe { libc::mprotect(self.at(start).cast(), len, access) } != 0 {
            let error = io::Error::last_os_error();
            self.failure.get_or_insert(error);
        }
    }

    fn read(&self, page: u32, bytes: &mut [u8]) {
        let start = page as usize * self.page_len;
        assert!(bytes.len() == self.page_len && start + bytes.len() <= self.len);
        // SAFETY: a page of the library's mapping. The protocol reads it while the program cannot
        // write, or to save a copy while the program waits.
        unsafe {
            ptr::copy_nonoverlapping(self.library.add(start), bytes.as_mut_ptr(), bytes.len());
        }
    }

    fn write(&mut self, page: u32, bytes: &[u8]) {
        let start = page as usize * self.page_len;
        assert!(bytes.len() == self.page_len && start + bytes.len() <= self.len);
        // SAFETY: a page of the library's mapping, which the program cannot access now.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.library.add(start), bytes.len());
        }
    }
}
