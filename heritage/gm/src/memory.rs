// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that others may reach. GM's hardware needed registered memory for everything; Portolan needs it
//! for nothing, so it only says what the other processes may touch, and costs an entry in a table.

use crate::code::*;
use crate::error::{Failure, invalid};
use crate::machine::{Machine, enter, must};
use crate::port::gm_port;
use portolan_ffi::guard;
use std::ffi::c_void;
use std::ptr;

/// What the memory of gm_dma_malloc() begins at: a page, as GM's did.
const ALIGN: usize = 4096;

/// In front of such memory: its length.
const HEAD: usize = ALIGN;

fn piece(ptr: *mut c_void, length: gm_size_t) -> Result<(usize, usize), Failure> {
    if ptr.is_null() {
        return Err(Failure::null("the memory"));
    }
    match usize::try_from(length) {
        Ok(length) if length <= isize::MAX.unsigned_abs() => Ok((ptr.expose_provenance(), length)),
        _ => Err(invalid("the length is beyond memory")),
    }
}

impl Machine {
    /// Waits until nothing that others have asked for touches these bytes any more. What they ask for from
    /// now on is refused, so this ends however much they send.
    fn drain(&mut self, at: usize, len: usize) -> Result<(), Failure> {
        while self.world().lends_registered(at, len) {
            self.turn()?;
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Registers `length` bytes: others may read and write them when the port allows it. They may be
/// registered more than once.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_register_memory(
    port: *mut gm_port,
    ptr: *mut c_void,
    length: gm_size_t,
) -> gm_status_t {
    guard(|| {
        let (machine, _own) = enter(port)?;
        let (at, len) = piece(ptr, length)?;
        machine.world().registered.add(at, len);
        Ok(GM_SUCCESS)
    })
}

/// As gm_register_memory(); `pvma`, the address that others use, must be that of the memory.
///
/// Errors: those of gm_register_memory().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_register_memory_ex(
    port: *mut gm_port,
    ptr: *mut c_void,
    length: gm_size_t,
    pvma: *mut c_void,
) -> gm_status_t {
    if pvma != ptr {
        return guard(|| -> Result<_, Failure> {
            Err(invalid("pvma is not the address of the memory"))
        });
    }
    // SAFETY: the program's promise.
    unsafe { gm_register_memory(port, ptr, length) }
}

/// Ends one registration of just these bytes. On return nobody touches them any more, unless they are
/// registered otherwise, too.
///
/// Errors: GM_INVALID_PARAMETER when they were not registered, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_deregister_memory(
    port: *mut gm_port,
    ptr: *mut c_void,
    length: gm_size_t,
) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        let (at, len) = piece(ptr, length)?;
        if !machine.world().registered.remove(at, len) {
            return Err(invalid("these bytes were not registered"));
        }
        if !machine.world().registered.has(at, len) {
            machine.drain(at, len)?;
        }
        Ok(GM_SUCCESS)
    })
}

/// `length` bytes of registered memory; null when there is none. To be freed by gm_dma_free().
#[unsafe(no_mangle)]
pub extern "C" fn gm_dma_malloc(port: *mut gm_port, length: gm_size_t) -> *mut c_void {
    must("gm_dma_malloc", || {
        let (machine, _own) = enter(port)?;
        let whole = usize::try_from(length)
            .ok()
            .and_then(|len| len.checked_add(HEAD));
        let Some(whole) = whole else {
            return Ok(ptr::null_mut());
        };
        let mut at = ptr::null_mut();
        // SAFETY: a power of two, and a place for the result.
        if unsafe { libc::posix_memalign(&raw mut at, ALIGN, whole) } != 0 {
            return Ok(ptr::null_mut());
        }
        // SAFETY: the head is there, and aligned to a page.
        unsafe { at.cast::<usize>().write(whole - HEAD) };
        // SAFETY: within the memory, or at its end.
        let at = unsafe { at.byte_add(HEAD) };
        machine
            .world()
            .registered
            .add(at.expose_provenance(), whole - HEAD);
        Ok(at)
    })
}

/// As gm_dma_malloc(), `count` times `length` bytes of zeros.
#[unsafe(no_mangle)]
pub extern "C" fn gm_dma_calloc(
    port: *mut gm_port,
    count: gm_size_t,
    length: gm_size_t,
) -> *mut c_void {
    let Some(len) = count.checked_mul(length) else {
        return ptr::null_mut();
    };
    let at = gm_dma_malloc(port, len);
    if !at.is_null() {
        // SAFETY: as long as was asked for.
        unsafe { at.write_bytes(0, usize::try_from(len).unwrap_or(0)) };
    }
    at
}

/// Memory of gm_dma_malloc() that the program does not use any more. It is freed when this is dropped.
pub(crate) struct Retired {
    /// Address and length of the program's bytes.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// Start of the allocation.
    head: *mut c_void,
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: of posix_memalign(). `World::retire_memory` keeps it as long as an operation uses it.
        unsafe { libc::free(self.head) };
    }
}

/// Frees memory of gm_dma_malloc() and gm_dma_calloc(); null is none. Memory of sends that have not ended
/// stays until they have, so that their receivers get the bytes; so does memory that others read or write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_dma_free(port: *mut gm_port, ptr: *mut c_void) {
    must("gm_dma_free", || {
        let (machine, _own) = enter(port)?;
        if ptr.is_null() {
            return Ok(());
        }
        if !ptr.addr().is_multiple_of(ALIGN) {
            return Err(invalid("this is not memory of gm_dma_malloc()"));
        }
        // SAFETY: the program's promise: memory of gm_dma_malloc(), which has a head.
        let head = unsafe { ptr.byte_sub(HEAD) };
        // SAFETY: as above.
        let len = unsafe { head.cast::<usize>().read() };
        if !machine.world().registered.remove(ptr.addr(), len) {
            return Err(invalid(
                "this is not memory of gm_dma_malloc(), or was freed",
            ));
        }
        let memory = Retired {
            at: ptr.addr(),
            len,
            head,
        };
        machine.world().retire_memory(memory);
        Ok(())
    });
}
