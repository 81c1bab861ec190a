// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory for the program, and copies of its global variables.

use crate::error::{Failure, failure};
use crate::image;
use crate::machine::{Machine, run};
use crate::private::Private;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

impl Machine {
    /// Returns the page of an address of the shared memory.
    pub(crate) fn page_of(&mut self, address: usize) -> Option<u32> {
        let offset = self.dsm.memory().offset_of(address)?;
        u32::try_from(offset / crate::mapping::page_len()).ok()
    }

    fn allocate(&mut self, len: usize) -> *mut c_void {
        match self.arena.allocate(len) {
            Some(offset) => self.dsm.memory().at(offset).cast(),
            None => ptr::null_mut(),
        }
    }

    fn free(&mut self, address: usize) -> Result<(), Failure> {
        let not_a_block = || {
            failure(format!(
                "{address:#x} is not a block; pass a pointer that Tmk_malloc() has returned, once"
            ))
        };
        let offset = self
            .dsm
            .memory()
            .offset_of(address)
            .ok_or_else(not_a_block)?;
        let heap_len = self.dsm.memory().len() / self.dsm.size() as usize;
        let owner = u32::try_from(offset / heap_len).unwrap_or(u32::MAX);
        if owner != self.dsm.me() {
            let offset = offset as u64;
            return self.send(owner, &Private::Free { offset });
        }
        match self.arena.free(offset) {
            true => Ok(()),
            false => Err(not_a_block()),
        }
    }

    /// Copies a global variable to all other processes.
    ///
    /// # Safety
    /// The bytes are valid.
    unsafe fn distribute(&mut self, at: *const u8, len: usize) -> Result<(), Failure> {
        if len == 0 || self.dsm.memory().offset_of(at.addr()).is_some() {
            // Shared memory needs no copy.
            return Ok(());
        }
        let Some(place) = image::place_of(at.addr(), len) else {
            return Err(failure(format!(
                "the {len} bytes at {at:p} are not in a global variable; variables on the stack \
                 and memory of malloc() have different addresses in other processes"
            )));
        };
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { std::slice::from_raw_parts(at, len) }.to_vec();
        let message = Private::Distribute { place, bytes };
        let me = self.dsm.me();
        self.unstored = self.dsm.size() - 1;
        for to in (0..self.dsm.size()).filter(|&rank| rank != me) {
            self.send(to, &message)?;
        }
        self.wait(|machine| machine.unstored == 0)
    }
}

/// Allocates `size` bytes of shared memory. Returns null if this process has none left: each may
/// allocate TMK_HEAP MiB. Other processes use it after they got the pointer by Tmk_distribute() or
/// in shared memory. A block of a page or more begins on a page, so that it shares none.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_malloc(size: usize) -> *mut c_void {
    run("Tmk_malloc", |machine| Ok(machine.allocate(size)))
}

/// Frees a block of Tmk_malloc(), in any process. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_free(ptr: *mut c_void) {
    run("Tmk_free", |machine| match ptr.is_null() {
        true => Ok(()),
        false => machine.free(ptr.addr()),
    });
}

/// Allocates `size` bytes like Tmk_malloc(), for memory that is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_sbrk(size: c_uint) -> *mut c_void {
    run("Tmk_sbrk", |machine| Ok(machine.allocate(size as usize)))
}

/// Copies the global variable of `size` bytes at `ptr` to the same variable of all other processes,
/// and returns when they have it. They may use it after the next synchronisation with this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Tmk_distribute(ptr: *const c_void, size: c_int) {
    run("Tmk_distribute", |machine| {
        let len = usize::try_from(size)
            .map_err(|_| failure(format!("the size is {size}; pass 0 or more")))?;
        if ptr.is_null() && len > 0 {
            return Err(Failure::null("the pointer"));
        }
        // SAFETY: guaranteed by the program.
        unsafe { machine.distribute(ptr.cast(), len) }
    });
}
