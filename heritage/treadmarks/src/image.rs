// SPDX-License-Identifier: MIT OR Apache-2.0
//! Global variables of the program, named by their file and offset. Their addresses differ between
//! processes, because the system loads programs at random addresses.

use std::ffi::{CStr, c_int, c_void};
use std::path::Path;

/// A piece of a program's or library's writable data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Name of the library's file without its directory; empty for the program.
    pub(crate) file: Vec<u8>,
    pub(crate) offset: u64,
}

/// A writable segment that is loaded in this process.
struct Segment {
    file: Vec<u8>,
    /// Address to which offsets are relative.
    base: usize,
    start: usize,
    end: usize,
}

/// Returns the writable segments of the program and its libraries.
fn segments() -> Vec<Segment> {
    let mut found: Vec<Segment> = Vec::new();
    // SAFETY: `add` casts the pointer back; the list lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn add(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    found: *mut c_void,
) -> c_int {
    // SAFETY: passed by `segments`; used by this thread only.
    let found = unsafe { &mut *found.cast::<Vec<Segment>>() };
    // SAFETY: valid during the call.
    let info = unsafe { &*info };
    let name = match info.dlpi_name.is_null() {
        true => c"",
        // SAFETY: a string, valid during the call.
        false => unsafe { CStr::from_ptr(info.dlpi_name) },
    };
    let name = Path::new(std::ffi::OsStr::new(name.to_str().unwrap_or_default()));
    let file = name
        .file_name()
        .map(|file| file.as_encoded_bytes().to_vec());
    let base = usize::try_from(info.dlpi_addr).unwrap_or(usize::MAX);
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the array has that many headers.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0 {
            let number = |value: u64| usize::try_from(value).unwrap_or(0);
            #[allow(clippy::useless_conversion, reason = "32 bits on other machines")]
            let start = base.wrapping_add(number(header.p_vaddr.into()));
            #[allow(clippy::useless_conversion, reason = "32 bits on other machines")]
            let len = number(header.p_memsz.into());
            found.push(Segment {
                file: file.clone().unwrap_or_default(),
                base,
                start,
                end: start.wrapping_add(len),
            });
        }
    }
    0
}

/// Returns the name of `len` bytes of global variables; `None` if they are something else.
pub(crate) fn place_of(address: usize, len: usize) -> Option<Place> {
    let end = address.checked_add(len)?;
    let list = segments();
    let segment = list
        .into_iter()
        .find(|one| one.start <= address && end <= one.end)?;
    Some(Place {
        offset: (address - segment.base) as u64,
        file: segment.file,
    })
}

/// Returns the address of `len` bytes with that name in this process.
pub(crate) fn address_of(place: &Place, len: usize) -> Option<*mut u8> {
    let offset = usize::try_from(place.offset).ok()?;
    segments().into_iter().find_map(|one| {
        let address = one.base.checked_add(offset)?;
        let end = address.checked_add(len)?;
        let is_it = one.file == place.file && one.start <= address && end <= one.end;
        is_it.then_some(std::ptr::with_exposed_provenance_mut(address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    static GLOBAL: AtomicU64 = AtomicU64::new(1);

    #[test]
    fn global_variable_is_found_again() {
        let address = (&raw const GLOBAL).addr();
        let place = place_of(address, 8).unwrap();
        assert_eq!(address_of(&place, 8).unwrap().addr(), address);
        assert!(address_of(&place, 1 << 40).is_none());
    }

    #[test]
    fn stack_and_heap_have_no_name() {
        let local = 5_u64;
        let boxed = Box::new(5_u64);
        assert_eq!(place_of((&raw const local).addr(), 8), None);
        assert_eq!(place_of((&raw const *boxed).addr(), 8), None);
    }
}
