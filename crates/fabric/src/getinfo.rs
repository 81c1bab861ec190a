// SPDX-License-Identifier: MIT OR Apache-2.0
//! `fi_getinfo`: whether to answer at all, and the answer.
//!
//! Open MPI takes whatever provider qualifies. So none is offered here unless the user asked:
//! `FI_PROVIDER` names it, the program's hints do, or `PORTOLAN_FABRIC=1` is set.

#![allow(unsafe_code, reason = "reads and makes structures of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::ToSocketAddrs;
use std::ptr::null_mut;
use std::sync::Once;

use crate::abi::*;
use crate::errno::{Errno, status};
use crate::offer::{self, Asked, Offer};
use portolan::settings::{self, Setting};

/// The provider's name, as in `FI_PROVIDER=portolan` and `fi_info -p portolan`.
pub(crate) const NAME: &CStr = c"portolan";
/// The name of the one fabric and the one domain there are.
const FABRIC_NAME: &CStr = c"portolan";
/// Bytes beyond each structure, zero: later versions of libfabric append fields and read them.
const SLACK: usize = 128;

pub(crate) extern "C" fn getinfo(
    api: u32,
    node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const Info,
    out: *mut *mut Info,
) -> c_int {
    status(|| {
        // SAFETY: libfabric passes valid hints or null, and a place for the answer.
        unsafe {
            if !is_asked_for(hints) {
                return Err(Errno::NODATA);
            }
            let offer = answer(api, flags, hints)?;
            if flags & (SOURCE | PROV_ATTR_ONLY) == 0 && !is_host(node) {
                return Err(refused("a peer on a host that nobody knows"));
            }
            *out = build(&offer, api, hints)?;
        }
        Ok(())
    })
}

/// # Safety
/// `hints` is null or valid.
unsafe fn is_asked_for(hints: *const Info) -> bool {
    // SAFETY: the caller's promise; names are C strings or null.
    let by_hints = unsafe {
        hints
            .as_ref()
            .and_then(|hints| hints.fabric_attr.as_ref())
            .is_some_and(|fabric| is_our_name(fabric.prov_name))
    };
    by_hints
        || selected(&std::env::var("FI_PROVIDER").unwrap_or_default())
        || is_on(&settings::FABRIC)
}

/// Tell whether a C string is the provider's name.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn is_our_name(name: *const c_char) -> bool {
    // SAFETY: not null, and so a C string by the caller's promise.
    !name.is_null() && unsafe { CStr::from_ptr(name) } == NAME
}

/// Tell whether a switch in the environment is on. One that is neither on nor off is off, and told
/// once: libfabric asks many times.
fn is_on(switch: &Setting) -> bool {
    static TOLD: Once = Once::new();
    switch.is_on().unwrap_or_else(|error| {
        TOLD.call_once(|| eprintln!("portolan: {error}"));
        false
    })
}

/// Tell whether a list of providers, as in `FI_PROVIDER`, names this one. One that begins with
/// `^` lists those to leave out, and asks for nobody.
fn selected(list: &str) -> bool {
    let ours = NAME.to_str().unwrap_or_default();
    !list.starts_with('^')
        && list
            .split(',')
            .any(|name| name.trim().eq_ignore_ascii_case(ours))
}

/// # Safety
/// `hints` is null or valid.
unsafe fn answer(api: u32, flags: u64, hints: *const Info) -> Result<Offer, Errno> {
    // SAFETY: the caller's promise; each part is null or valid.
    let asked = unsafe {
        let Some(info) = hints.as_ref().filter(|_| flags & PROV_ATTR_ONLY == 0) else {
            return Ok(offer::everything());
        };
        Asked {
            api,
            info,
            tx: info.tx_attr.as_ref(),
            rx: info.rx_attr.as_ref(),
            ep: info.ep_attr.as_ref(),
            domain: info.domain_attr.as_ref(),
        }
    };
    // SAFETY: as above.
    unsafe { check_names(&asked)? };
    offer::matching(&asked).map_err(|mismatch| refused(mismatch.0))
}

/// Tell whether there is such a host. Addresses do not follow from it, but many programs name one
/// and exchange addresses in a way of their own.
///
/// # Safety
/// `node` is null or a C string.
unsafe fn is_host(node: *const c_char) -> bool {
    if node.is_null() {
        return true;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(node) }.to_str();
    name.is_ok_and(|name| (name, 0).to_socket_addrs().is_ok())
}

/// What a program asks for and cannot have is told to those who want to know.
fn refused(what: &str) -> Errno {
    if is_on(&settings::VERBOSE) {
        eprintln!("portolan: not offered to libfabric: the program asks for {what}");
    }
    Errno::NODATA
}

/// # Safety
/// Names in the hints are C strings or null.
unsafe fn check_names(asked: &Asked<'_>) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let fits =
        |name: *const c_char| name.is_null() || unsafe { CStr::from_ptr(name) } == FABRIC_NAME;
    // SAFETY: part of the hints.
    let fabric = unsafe { asked.info.fabric_attr.as_ref() };
    let named = asked.domain.is_none_or(|domain| fits(domain.name))
        && fabric.is_none_or(|fabric| fits(fabric.name));
    if named { Ok(()) } else { Err(Errno::NODATA) }
}

/// Make an answer that the application's libfabric can free.
///
/// # Safety
/// `hints` is null or valid.
unsafe fn build(offer: &Offer, api: u32, hints: *const Info) -> Result<*mut Info, Errno> {
    let mut domain = offer.domain;
    domain.head.name = text(FABRIC_NAME)?;
    let fabric = FabricAttr {
        fabric: null_mut(),
        name: text(FABRIC_NAME)?,
        // libfabric adds it.
        prov_name: null_mut(),
        prov_version: version(0, 1),
        api_version: api,
    };
    // SAFETY: the caller's promise.
    let hints = unsafe { hints.as_ref() };
    let (src_addr, src_addrlen) = hints.map_or(Ok((null_mut(), 0)), |hints| {
        // SAFETY: an application's address is as long as it says.
        unsafe { address(hints.src_addr, hints.src_addrlen) }
    })?;
    let (dest_addr, dest_addrlen) = hints.map_or(Ok((null_mut(), 0)), |hints| {
        // SAFETY: as above.
        unsafe { address(hints.dest_addr, hints.dest_addrlen) }
    })?;
    allocate(&Info {
        next: null_mut(),
        caps: offer.caps,
        mode: 0,
        addr_format: offer::ADDR_FORMAT,
        src_addrlen,
        dest_addrlen,
        src_addr,
        dest_addr,
        handle: null_mut(),
        tx_attr: allocate(&offer.tx)?,
        rx_attr: allocate(&offer.rx)?,
        ep_attr: allocate(&offer.ep)?,
        domain_attr: allocate(&domain)?.cast(),
        fabric_attr: allocate(&fabric)?,
        nic: null_mut(),
    })
}

/// Copy an address of ours; one of another length is not ours, and is left out.
///
/// # Safety
/// `from` is null or has `len` bytes.
unsafe fn address(from: *const c_void, len: usize) -> Result<(*mut c_void, usize), Errno> {
    if from.is_null() || len != portolan::EndpointAddress::LEN {
        return Ok((null_mut(), 0));
    }
    // SAFETY: `len` bytes are there, and are as many as the array has.
    let bytes = unsafe { *from.cast::<[u8; portolan::EndpointAddress::LEN]>() };
    Ok((allocate(&bytes)?.cast(), len))
}

/// Copy a value to memory from the C library's heap, which `fi_freeinfo` gives back.
fn allocate<T: Copy>(value: &T) -> Result<*mut T, Errno> {
    // SAFETY: no precondition.
    let memory = unsafe { libc::calloc(1, size_of::<T>() + SLACK) }.cast::<T>();
    if memory.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: just allocated, large enough, aligned for every type.
    unsafe { memory.write(*value) };
    Ok(memory)
}

fn text(value: &CStr) -> Result<*mut c_char, Errno> {
    // SAFETY: a C string.
    let copy = unsafe { libc::strdup(value.as_ptr()) };
    if copy.is_null() {
        Err(Errno::NOMEM)
    } else {
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_that_names_the_provider_asks_for_it() {
        assert!(selected("portolan"));
        assert!(selected("tcp,portolan"));
        assert!(!selected(""));
        assert!(!selected("tcp"));
        assert!(!selected("^portolan"));
        assert!(!selected("^tcp,portolan"));
        assert!(!selected("portolan;ofi_rxm"));
    }

    /// What a program gets that names the provider, and a host.
    fn ask(node: &CStr, flags: u64) -> c_int {
        // SAFETY: hints that live through the call, of which the rest is null; a place for the answer,
        // which is too little to be worth freeing in a test.
        unsafe {
            let mut fabric: FabricAttr = std::mem::zeroed();
            fabric.prov_name = NAME.as_ptr().cast_mut();
            let mut hints: Info = std::mem::zeroed();
            hints.fabric_attr = &raw mut fabric;
            let mut out = null_mut();
            getinfo(
                version(1, 17),
                node.as_ptr(),
                std::ptr::null(),
                flags,
                &raw const hints,
                &raw mut out,
            )
        }
    }

    #[test]
    fn a_host_that_nobody_knows_has_no_peer() {
        // Not a name at all, so nobody is asked about it.
        let nowhere = c"no host";
        assert_eq!(ask(nowhere, 0), -libc::ENODATA);
        assert_eq!(ask(nowhere, SOURCE), 0, "this host is no peer");
        assert_eq!(ask(c"127.0.0.1", 0), 0);
    }
}
