// SPDX-License-Identifier: MIT OR Apache-2.0
//! `struct fi_info`: the results of `fi_getinfo`, and the information in a connection request. Each
//! part is allocated on the C heap, because the application's libfabric frees it.

#![allow(unsafe_code, reason = "reads and makes structures of C")]

use std::ffi::{CStr, c_char, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::null_mut;

use crate::abi::*;
use crate::errno::Errno;
use crate::offer::{self, Kind, Offer};
use crate::sockaddr::{self, CAddr};
use portolan::binding::candidates;
use portolan::binding::launch::Job;

/// Name of the provider, as in `FI_PROVIDER=portolan` and `fi_info -p portolan`.
pub(crate) const NAME: &CStr = c"portolan";
/// Name of the only fabric and the only domain.
pub(crate) const FABRIC_NAME: &CStr = c"portolan";
/// Zero bytes after each structure. Later versions of libfabric append fields and read them.
const SLACK: usize = 128;

/// Provider information in Rust form, before it is converted to C structures.
#[derive(Clone)]
pub(crate) struct ProviderInfo {
    offer: Offer,
    api: u32,
    addr_format: u32,
    src: Option<Box<[u8]>>,
    dest: Option<Box<[u8]>>,
    handle: usize,
    /// Set if the provider's name is included. libfabric adds the name to results of `fi_getinfo`
    /// only.
    is_named: bool,
}

// SAFETY: all pointers in the structures are null. `everything` and `matching` set none, and
// `from_info` clears those that an application may have set.
unsafe impl Send for ProviderInfo {}

/// Returns the first address of this host that the settings allow, or the loopback address.
fn own_address(is_v6: bool) -> IpAddr {
    let loopback = match is_v6 {
        true => IpAddr::from(Ipv6Addr::LOCALHOST),
        false => IpAddr::from(Ipv4Addr::LOCALHOST),
    };
    let job = Job::alone([0; 16], [0; 32]);
    let candidates = candidates(&job).unwrap_or_else(|error| {
        log::warn!("fi_getinfo: no address for peers: {error}");
        Vec::new()
    });
    let mut global = candidates
        .iter()
        .map(|(_, network)| network.addr)
        .filter(|addr| addr.is_ipv6() == is_v6 && !is_link_local(addr));
    global.next().unwrap_or(loopback)
}

/// Returns true for an address that is valid together with an interface only.
fn is_link_local(addr: &IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

impl ProviderInfo {
    /// Creates the information for a program that was built for the libfabric version `api`.
    pub(crate) fn new(offer: Offer, api: u32, addr_format: u32) -> ProviderInfo {
        ProviderInfo {
            offer,
            api,
            addr_format,
            src: None,
            dest: None,
            handle: 0,
            is_named: false,
        }
    }

    /// Recreates the offer from information that an application passes, without addresses.
    ///
    /// # Safety
    /// The parts of `info` are null or valid.
    pub(crate) unsafe fn from_info(info: &Info, api: u32) -> ProviderInfo {
        let mut offer = offer::everything(Kind::Connected);
        offer.caps = info.caps;
        // SAFETY: guaranteed by the caller.
        unsafe {
            offer.tx = info.tx_attr.as_ref().copied().unwrap_or(offer.tx);
            offer.rx = info.rx_attr.as_ref().copied().unwrap_or(offer.rx);
            offer.ep = info.ep_attr.as_ref().copied().unwrap_or(offer.ep);
            let head = info.domain_attr.as_ref().copied();
            offer.domain.head = head.unwrap_or(offer.domain.head);
        }
        // Names and keys of the application's objects are useless to other processes.
        (offer.domain.head.domain, offer.domain.head.name) = (null_mut(), null_mut());
        (offer.domain.head.auth_key, offer.ep.auth_key) = (null_mut(), null_mut());
        ProviderInfo::new(offer, api, info.addr_format)
    }

    /// Sets the source address, unless there is one.
    pub(crate) fn or_source(mut self, src: Option<Box<[u8]>>) -> ProviderInfo {
        self.src = self.src.or(src);
        self
    }

    /// Sets the wildcard address of this host as the source, unless there is one.
    ///
    /// MPICH prints the source of every result without a null check.
    pub(crate) fn or_any_source(self) -> ProviderInfo {
        let dest_len = self.dest.as_ref().map_or(0, |dest| dest.len());
        let is_v6 = self.addr_format == SOCKADDR_IN6 || dest_len == size_of::<libc::sockaddr_in6>();
        let any = match is_v6 {
            true => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            false => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        };
        self.or_source(Some(CAddr::of(&any).bytes().into()))
    }

    /// Replaces the wildcard address of the source by an address of this host. A layer above the
    /// connections sends the address to its peers.
    pub(crate) fn with_reachable_source(mut self) -> ProviderInfo {
        let src = self.src.as_deref().and_then(sockaddr::of_bytes);
        if let Some(mut addr) = src.filter(|addr| addr.ip().is_unspecified()) {
            addr.set_ip(own_address(addr.is_ipv6()));
            self.src = Some(CAddr::of(&addr).bytes().into());
        }
        self
    }

    /// Sets the destination address, unless there is one.
    pub(crate) fn or_destination(mut self, dest: Option<Box<[u8]>>) -> ProviderInfo {
        self.dest = self.dest.or(dest);
        self
    }

    /// Sets the handle from which an endpoint is created.
    pub(crate) fn with_handle(self, handle: *mut Fid) -> ProviderInfo {
        let handle = handle as usize;
        ProviderInfo { handle, ..self }
    }

    /// Returns the information for a request of `remote` for a connection with `local`.
    pub(crate) fn of_request(&self, local: &SocketAddr, remote: &SocketAddr) -> ProviderInfo {
        ProviderInfo {
            src: Some(CAddr::of(local).bytes().into()),
            dest: Some(CAddr::of(remote).bytes().into()),
            is_named: true,
            ..self.clone()
        }
    }

    /// Converts the information to C structures.
    ///
    /// # Errors
    /// `NOMEM`.
    pub(crate) fn build(&self) -> Result<OwnedInfo, Errno> {
        let mut domain = self.offer.domain;
        domain.head.name = text(FABRIC_NAME)?;
        let fabric = FabricAttr {
            fabric: null_mut(),
            name: text(FABRIC_NAME)?,
            prov_name: match self.is_named {
                true => text(NAME)?,
                false => null_mut(),
            },
            prov_version: version(0, 1),
            api_version: self.api,
        };
        let (src_addr, src_addrlen) = bytes(self.src.as_deref())?;
        let (dest_addr, dest_addrlen) = bytes(self.dest.as_deref())?;
        let info = allocate(&Info {
            next: null_mut(),
            caps: self.offer.caps,
            mode: 0,
            addr_format: self.addr_format,
            src_addrlen,
            dest_addrlen,
            src_addr,
            dest_addr,
            handle: self.handle as *mut Fid,
            tx_attr: allocate(&self.offer.tx)?,
            rx_attr: allocate(&self.offer.rx)?,
            ep_attr: allocate(&self.offer.ep)?,
            domain_attr: allocate(&domain)?.cast(),
            fabric_attr: allocate(&fabric)?,
            nic: null_mut(),
        })?;
        Ok(OwnedInfo(info))
    }
}

/// Information that has not been passed to the application yet.
pub(crate) struct OwnedInfo(*mut Info);

// SAFETY: this value is the only owner of the pointer, and no part of the structure is bound to a
// thread.
unsafe impl Send for OwnedInfo {}

impl OwnedInfo {
    /// Returns the pointer. The application may read through it but does not own it.
    pub(crate) fn ptr(&self) -> *mut Info {
        self.0
    }

    /// Transfers ownership to the application.
    pub(crate) fn into_raw(self) -> *mut Info {
        let info = self.0;
        std::mem::forget(self);
        info
    }

    /// Appends another structure to the list.
    pub(crate) fn append(&mut self, next: OwnedInfo) {
        // SAFETY: allocated by `build`, and still owned by `self`.
        unsafe { (*self.0).next = next.into_raw() };
    }
}

impl Drop for OwnedInfo {
    /// Frees the structure the way libfabric does.
    fn drop(&mut self) {
        // SAFETY: allocated by `build`. Each part is on the C heap and owned by `self`.
        unsafe {
            let info = &*self.0;
            drop((!info.next.is_null()).then(|| OwnedInfo(info.next)));
            libc::free((*info.domain_attr).name.cast());
            libc::free((*info.fabric_attr).name.cast());
            libc::free((*info.fabric_attr).prov_name.cast());
            for part in [
                info.tx_attr.cast::<c_void>(),
                info.rx_attr.cast(),
                info.ep_attr.cast(),
                info.domain_attr.cast(),
                info.fabric_attr.cast(),
                info.src_addr,
                info.dest_addr,
                self.0.cast(),
            ] {
                libc::free(part);
            }
        }
    }
}

/// Copies a value to the C heap, to be freed by `fi_freeinfo`.
fn allocate<T: Copy>(value: &T) -> Result<*mut T, Errno> {
    // SAFETY: the call has no preconditions.
    let memory = unsafe { libc::calloc(1, size_of::<T>() + SLACK) }.cast::<T>();
    if memory.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: just allocated, large enough, and aligned for every type.
    unsafe { memory.write(*value) };
    Ok(memory)
}

/// Copies bytes to the C heap and returns them with their count.
fn bytes(value: Option<&[u8]>) -> Result<(*mut c_void, usize), Errno> {
    let Some(value) = value else {
        return Ok((null_mut(), 0));
    };
    // SAFETY: the call has no preconditions.
    let memory = unsafe { libc::calloc(1, value.len() + SLACK) }.cast::<u8>();
    if memory.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: just allocated, with at least `value.len()` bytes.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), memory, value.len()) };
    Ok((memory.cast(), value.len()))
}

fn text(value: &CStr) -> Result<*mut c_char, Errno> {
    // SAFETY: `value` is a C string.
    let copy = unsafe { libc::strdup(value.as_ptr()) };
    if copy.is_null() {
        Err(Errno::NOMEM)
    } else {
        Ok(copy)
    }
}
