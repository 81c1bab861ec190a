// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that other processes may access. GM's hardware needed registered memory for everything,
//! but Portolan does not. Registration here only grants access, and costs an entry in a table.

use crate::code::*;
use crate::error::{Failure, invalid};
use crate::machine::{Machine, enter, must};
use crate::port::gm_port;
use portolan_ffi::guard;
use std::ffi::c_void;
use std::ptr;

/// Alignment of memory from gm_dma_malloc(): a page, as in GM.
const ALIGN: usize = 4096;

/// Bytes before such memory, which contain its length.
const HEAD: usize = ALIGN;

fn piece(ptr: *mut c_void, length: gm_size_t) -> Result<(usize, usize), Failure> {
    if ptr.is_null() {
        return Err(Failure::null("the memory"));
    }
    match usize::try_from(length) {
        Ok(length) if length <= isize::MAX.unsigned_abs() => Ok((ptr.expose_provenance(), length)),
        _ => Err(invalid("the length exceeds the address space")),
    }
}

impl Machine {
    /// Waits until no operation of another process accesses these bytes. New operations are
    /// refused, so this ends however many messages arrive.
    fn drain(&mut self, at: usize, len: usize) -> Result<(), Failure> {
        while self.world().borrows_registered(at, len) {
            self.progress()?;
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Registers `length` bytes: other processes may read and write them if the port allows it. The
/// same bytes may be registered more than once.
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

/// Does the same as gm_register_memory(). `pvma`, the address for other processes, must be that of
/// the memory.
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
            Err(invalid("pvma differs from ptr; pass the same address"))
        });
    }
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { gm_register_memory(port, ptr, length) }
}

/// Ends one registration of exactly these bytes. After the return no other process accesses them,
/// unless another registration covers them.
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
            return Err(invalid(
                "these bytes are not registered; pass the address and length of the registration",
            ));
        }
        if !machine.world().registered.has(at, len) {
            machine.drain(at, len)?;
        }
        Ok(GM_SUCCESS)
    })
}

/// Allocates `length` bytes of registered memory. Returns null if there is no memory. Free it with
/// gm_dma_free().
#[unsafe(no_mangle)]
pub extern "C" fn gm_dma_malloc(port: *mut gm_port, length: gm_size_t) -> *mut c_void {
    must("gm_dma_malloc", || {
        let (machine, _own) = enter(port)?;
        let total = usize::try_from(length)
            .ok()
            .and_then(|len| len.checked_add(HEAD));
        let Some(total) = total else {
            return Ok(ptr::null_mut());
        };
        let mut at = ptr::null_mut();
        // SAFETY: the alignment is a power of two, and `at` is valid for the result.
        if unsafe { libc::posix_memalign(&raw mut at, ALIGN, total) } != 0 {
            return Ok(ptr::null_mut());
        }
        // SAFETY: the allocation begins with the head, which is aligned to a page.
        unsafe { at.cast::<usize>().write(total - HEAD) };
        // SAFETY: the result is within the allocation or at its end.
        let at = unsafe { at.byte_add(HEAD) };
        machine
            .world()
            .registered
            .add(at.expose_provenance(), total - HEAD);
        Ok(at)
    })
}

/// Allocates `count` times `length` bytes like gm_dma_malloc(), filled with zeros.
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
        // SAFETY: the allocation has `len` bytes.
        unsafe { at.write_bytes(0, usize::try_from(len).unwrap_or(0)) };
    }
    at
}

/// Memory from gm_dma_malloc() that the program has freed. Dropping this value releases it.
pub(crate) struct Retired {
    /// Address and length of the program's bytes.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// Start of the allocation.
    head: *mut c_void,
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: memory of posix_memalign(). `World::retire_memory` keeps it while an operation
        // uses it.
        unsafe { libc::free(self.head) };
    }
}

/// Frees memory from gm_dma_malloc() or gm_dma_calloc(). Does nothing for null. Memory of pending
/// sends is kept until they end, so that their receivers get the bytes. Memory that other processes
/// read or write is kept too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_dma_free(port: *mut gm_port, ptr: *mut c_void) {
    must("gm_dma_free", || {
        let (machine, _own) = enter(port)?;
        if ptr.is_null() {
            return Ok(());
        }
        if !ptr.addr().is_multiple_of(ALIGN) {
            return Err(invalid("the memory is not from gm_dma_malloc()"));
        }
        // SAFETY: the program passes memory from gm_dma_malloc(), which has a head.
        let head = unsafe { ptr.byte_sub(HEAD) };
        // SAFETY: as above.
        let len = unsafe { head.cast::<usize>().read() };
        if !machine.world().registered.remove(ptr.addr(), len) {
            return Err(invalid(
                "the memory is not from gm_dma_malloc(), or was freed",
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

/// Allocates at least `length` bytes of zeros in whole pages. Returns null if there is no memory.
/// The memory is not registered. Free it with gm_free_pages().
#[unsafe(no_mangle)]
pub extern "C" fn gm_alloc_pages(length: gm_size_t) -> *mut c_void {
    let Ok(len) = usize::try_from(length.max(1)) else {
        return ptr::null_mut();
    };
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping at an address that the system chooses.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
    match at == libc::MAP_FAILED {
        true => ptr::null_mut(),
        false => at,
    }
}

/// Frees the `length` bytes that gm_alloc_pages() has returned. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_free_pages(ptr: *mut c_void, length: gm_size_t) {
    let len = usize::try_from(length.max(1)).unwrap_or(usize::MAX);
    if !ptr.is_null() {
        // SAFETY: the program passes pages of gm_alloc_pages() with their length.
        unsafe { libc::munmap(ptr, len) };
    }
}

/// Copies `length` bytes from `from` to `to`, which may overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_bcopy(from: *const c_void, to: *mut c_void, length: gm_size_t) {
    let len = usize::try_from(length).unwrap_or(usize::MAX);
    if len > 0 {
        // SAFETY: the program passes valid memory.
        unsafe { ptr::copy(from.cast::<u8>(), to.cast::<u8>(), len) };
    }
}

/// Fills `length` bytes with zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_bzero(ptr: *mut c_void, length: gm_size_t) {
    let len = usize::try_from(length).unwrap_or(usize::MAX);
    if len > 0 {
        // SAFETY: the program passes valid memory.
        unsafe { ptr.cast::<u8>().write_bytes(0, len) };
    }
}
