// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asking a libfabric, found at run time, which providers it would offer to this process.
//!
//! Only names and two properties; nothing is opened. The C declarations are those of `fabric.h`
//! since libfabric 1.3. Loading a libfabric loads its providers, and runs what they run at loading,
//! so this is for a process that may fail.

#![allow(unsafe_code, reason = "calls into a C library")]

use crate::foreign::{ForeignError, Library, Names};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// FI_VERSION(1, 14): the oldest that Open MPI 4 and MPICH 4 ask for.
const VERSION: u32 = 1 << 16 | 14;
/// FI_TAGGED and FI_REMOTE_COMM: messages with tags, to other hosts, too.
const WANTED: u64 = 1 << 3 | 1 << 52;
/// FI_EP_RDM.
const RELIABLE_DATAGRAM: c_int = 3;

/// `fi_info`, up to the last field that is read.
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

/// `fi_ep_attr`, its first field.
#[repr(C)]
struct EndpointAttr {
    kind: c_int,
}

/// `fi_fabric_attr`, up to the provider's name.
#[repr(C)]
struct FabricAttr {
    fabric: *const c_void,
    name: *const c_char,
    provider: *const c_char,
}

// What a C compiler says of the places of the two on a 64-bit machine.
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

/// A libfabric, as this process's environment makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Major and minor version.
    pub version: (u32, u32),
    /// Providers of reliable datagrams with tags, also to other hosts, which is what MPI wants; the
    /// preferred first, each once.
    pub providers: Vec<String>,
}

/// Loads the first of `names` that there is, and asks it what it offers.
///
/// # Errors
/// When no library can be loaded, or it fails; to offer nothing is no error.
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
    // SAFETY: no node, no service, no hints; `first` takes a pointer.
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
            // SAFETY: `first` is the list that the library has just made, freed once.
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

/// Adds the names of what can carry MPI.
///
/// # Safety
/// `info` must be a list of libfabric's.
unsafe fn collect(mut info: *const Info, providers: &mut Vec<String>) {
    while !info.is_null() {
        // SAFETY: the list ends with a null pointer, and attributes are null or complete.
        unsafe {
            let (endpoint, fabric) = ((*info).ep_attr, (*info).fabric_attr);
            let fits = !endpoint.is_null()
                && (*endpoint).kind == RELIABLE_DATAGRAM
                && (*info).caps & WANTED == WANTED;
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
    fn what_is_no_libfabric_is_refused() {
        let error = offer(&["libc.so.6".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("fi_getinfo"), "{error}");
    }

    #[test]
    fn a_list_is_read_to_its_end() {
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
        let last = info(ptr::null(), WANTED, reliable, &raw const tcp);
        let local = info(&raw const last, 1 << 3, reliable, &raw const shm);
        let twice = info(&raw const local, u64::MAX, reliable, &raw const tcp);
        let other = info(&raw const twice, WANTED, stream, &raw const shm);
        let empty = info(&raw const other, WANTED, ptr::null(), ptr::null());
        let mut found = Vec::new();
        // SAFETY: five live entries, the last of which ends the list.
        unsafe { collect(&raw const empty, &mut found) };
        assert_eq!(found, ["tcp"]);
    }
}
