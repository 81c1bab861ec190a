// SPDX-License-Identifier: MIT OR Apache-2.0
//! Query of a libfabric, found at run time, for the providers that it offers to this process.
//!
//! Only names and two properties are read; nothing is opened. The C declarations are those of
//! `fabric.h` since libfabric 1.3. Loading a libfabric loads its providers and runs their
//! initialisers, so this belongs in a process that may crash.

#![allow(unsafe_code, reason = "calls into a C library")]

use crate::foreign::{ForeignError, Library, Names};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// FI_VERSION(1, 14): the oldest that Open MPI 4 and MPICH 4 request.
const VERSION: u32 = 1 << 16 | 14;
/// FI_TAGGED and FI_REMOTE_COMM: tagged messages, also to other hosts.
const REQUIRED_CAPS: u64 = 1 << 3 | 1 << 52;
/// FI_EP_RDM.
const RELIABLE_DATAGRAM: c_int = 3;

/// Leading part of `fi_info`, up to the last field that is read.
#[repr(C)]
struct Info {
    next: *const Info,
    caps: u64,
    mode: u64,
    addr_format: u32,
    addr_lens: [usize; 2],
    addrs: [*const c_void; 2],
    handle: *const c_void,
    tx_attr: *const c_void,
    rx_attr: *const c_void,
    ep_attr: *const EndpointAttr,
    domain_attr: *const c_void,
    fabric_attr: *const FabricAttr,
}

/// First field of `fi_ep_attr`.
#[repr(C)]
struct EndpointAttr {
    kind: c_int,
}

/// Leading part of `fi_fabric_attr`, up to the provider's name.
#[repr(C)]
struct FabricAttr {
    fabric: *const c_void,
    name: *const c_char,
    provider: *const c_char,
}

// Offsets computed by a C compiler on a 64-bit machine.
const _: () = assert!(std::mem::offset_of!(Info, ep_attr) == 88);
const _: () = assert!(std::mem::offset_of!(Info, fabric_attr) == 104);

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *const Info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*const Info);
type GetVersion = unsafe extern "C" fn() -> u32;

/// Version and providers of a libfabric in this process's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Major and minor version.
    pub version: (u32, u32),
    /// Providers of reliable datagrams with tags, also to other hosts, as MPI requires. The
    /// preferred one is first, and each is listed once.
    pub providers: Vec<String>,
}

/// Loads the first of `names` that exists and returns its offer.
///
/// # Errors
/// Fails if no library can be loaded, or the query fails. An empty offer is not an error.
pub fn offer(names: &[String]) -> Result<Offer, ForeignError> {
    let library = Library::open(names, Names::Private)?;
    // SAFETY: the types are those of `fabric.h`; the library is never unloaded.
    let (get, free, version) = unsafe {
        (
            library.function::<GetInfo>(c"fi_getinfo")?,
            library.function::<FreeInfo>(c"fi_freeinfo")?,
            library.function::<GetVersion>(c"fi_version")?,
        )
    };
    // SAFETY: no arguments.
    let version = unsafe { version() };
    let mut first: *const Info = ptr::null();
    // SAFETY: no node, no service, no hints; `first` receives a pointer.
    let status = unsafe {
        get(
            VERSION,
            ptr::null(),
            ptr::null(),
            0,
            ptr::null(),
            &raw mut first,
        )
    };
    let mut providers = Vec::new();
    match status {
        0 => {
            // SAFETY: `first` is the list that the library just returned, freed once.
            unsafe {
                collect(first, &mut providers);
                free(first);
            }
        }
        status if status == -libc::ENODATA => {}
        status => {
            return Err(ForeignError::Call {
                call: "fi_getinfo",
                status,
                text: String::new(),
            });
        }
    }
    Ok(Offer {
        version: (version >> 16, version & 0xffff),
        providers,
    })
}

/// Adds the names of the providers that can carry MPI.
///
/// # Safety
/// `info` must be a list made by libfabric.
unsafe fn collect(mut info: *const Info, providers: &mut Vec<String>) {
    while !info.is_null() {
        // SAFETY: the list ends with a null pointer, and attributes are null or complete.
        unsafe {
            let (endpoint, fabric) = ((*info).ep_attr, (*info).fabric_attr);
            let fits = !endpoint.is_null()
                && (*endpoint).kind == RELIABLE_DATAGRAM
                && (*info).caps & REQUIRED_CAPS == REQUIRED_CAPS;
            if fits && !fabric.is_null() && !(*fabric).provider.is_null() {
                let name = CStr::from_ptr((*fabric).provider).to_string_lossy();
                if !providers.iter().any(|known| *known == name) {
                    providers.push(name.into_owned());
                }
            }
            info = (*info).next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_are_refused() {
        let error = offer(&["libc.so.6".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("fi_getinfo"), "{error}");
    }

    #[test]
    fn provider_list_is_read_to_its_end() {
        let fabric = |name: &'static CStr| FabricAttr {
            fabric: ptr::null(),
            name: ptr::null(),
            provider: name.as_ptr(),
        };
        let (tcp, shm) = (fabric(c"tcp"), fabric(c"shm"));
        let [reliable, stream] = [RELIABLE_DATAGRAM, 1].map(|kind| EndpointAttr { kind });
        let info = |next, caps, ep_attr, fabric_attr| Info {
            next,
            caps,
            mode: 0,
            addr_format: 0,
            addr_lens: [0; 2],
            addrs: [ptr::null(); 2],
            handle: ptr::null(),
            tx_attr: ptr::null(),
            rx_attr: ptr::null(),
            ep_attr,
            domain_attr: ptr::null(),
            fabric_attr,
        };
        let (reliable, stream) = (&raw const reliable, &raw const stream);
        let last = info(ptr::null(), REQUIRED_CAPS, reliable, &raw const tcp);
        let local = info(&raw const last, 1 << 3, reliable, &raw const shm);
        let twice = info(&raw const local, u64::MAX, reliable, &raw const tcp);
        let other = info(&raw const twice, REQUIRED_CAPS, stream, &raw const shm);
        let empty = info(&raw const other, REQUIRED_CAPS, ptr::null(), ptr::null());
        let mut found = Vec::new();
        // SAFETY: five live entries, the last of which ends the list.
        unsafe { collect(&raw const empty, &mut found) };
        assert_eq!(found, ["tcp"]);
    }
}
