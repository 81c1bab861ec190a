// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of IPv4 and IPv6 socket addresses between C and Rust.

#![allow(unsafe_code, reason = "structures of C, as bytes")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr::{null, null_mut};

use libc::{AF_INET, AF_INET6, sockaddr_in, sockaddr_in6};

/// A socket address in C layout.
#[derive(Clone, Copy)]
pub(crate) struct CAddr {
    /// Storage with the size of the longer structure, aligned for both.
    storage: sockaddr_in6,
    len: usize,
}

impl CAddr {
    pub(crate) fn of(addr: &SocketAddr) -> CAddr {
        // SAFETY: integers only, for which zero is valid.
        let mut storage: sockaddr_in6 = unsafe { std::mem::zeroed() };
        let len = match addr {
            SocketAddr::V4(v4) => {
                // SAFETY: `sockaddr_in6` is the longer one, and aligned for the other.
                let short = unsafe { &mut *(&raw mut storage).cast::<sockaddr_in>() };
                short.sin_family = family(AF_INET);
                short.sin_port = v4.port().to_be();
                short.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                size_of::<sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                storage.sin6_family = family(AF_INET6);
                storage.sin6_port = v6.port().to_be();
                storage.sin6_flowinfo = v6.flowinfo();
                storage.sin6_addr.s6_addr = v6.ip().octets();
                storage.sin6_scope_id = v6.scope_id();
                size_of::<sockaddr_in6>()
            }
        };
        CAddr { storage, len }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes of the structure, of which `len` belong to the address. It has no
        // padding.
        unsafe { std::slice::from_raw_parts((&raw const self.storage).cast(), self.len) }
    }
}

/// Converts an address family to the type of the address field. The numbers are small.
fn family(number: c_int) -> u16 {
    u16::try_from(number).unwrap_or_default()
}

/// Returns the address in these bytes, if it is an IPv4 or IPv6 address.
pub(crate) fn of_bytes(bytes: &[u8]) -> Option<SocketAddr> {
    // SAFETY: all bytes are valid.
    unsafe { read(bytes.as_ptr().cast(), bytes.len()) }
}

/// Returns true for an unspecified address without a port, such as `0.0.0.0:0`.
pub(crate) fn is_any(addr: &SocketAddr) -> bool {
    addr.ip().is_unspecified() && addr.port() == 0
}

/// Reads an address. Returns `None` if it is of another family, or shorter than its family
/// requires.
///
/// # Safety
/// `addr` is null or has `len` bytes.
pub(crate) unsafe fn read(addr: *const c_void, len: usize) -> Option<SocketAddr> {
    if addr.is_null() || len < size_of::<u16>() {
        return None;
    }
    // SAFETY: guaranteed by the caller; the family is the first field. Memory of programs may be
    // unaligned.
    let family = c_int::from(unsafe { addr.cast::<u16>().read_unaligned() });
    match family {
        AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: at least as long as the structure of the family.
            let v4 = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let v6 = unsafe { addr.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Reads an address whose length follows from its family.
///
/// # Safety
/// `addr` is null, or an address of any family.
pub(crate) unsafe fn read_by_family(addr: *const c_void) -> Option<SocketAddr> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let family = c_int::from(unsafe { addr.cast::<u16>().read_unaligned() });
    let len = match family {
        AF_INET => size_of::<sockaddr_in>(),
        AF_INET6 => size_of::<sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: an address has the length of its family's structure.
    unsafe { read(addr, len) }
}

/// A name resolution request.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) node: Option<&'a CStr>,
    pub(crate) service: Option<&'a CStr>,
    /// `AF_INET`, `AF_INET6`, or 0 for both.
    pub(crate) family: c_int,
    /// Resolves an address to listen at: without a node, the wildcard address.
    pub(crate) passive: bool,
    /// The node is a numeric address, and no name server is queried.
    pub(crate) numeric: bool,
}

impl Lookup<'_> {
    /// Returns the first IPv4 address found, or else the first IPv6 address.
    pub(crate) fn first(&self) -> Option<SocketAddr> {
        // SAFETY: integers and pointers, for which zero is valid.
        let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
        hints.ai_family = self.family;
        hints.ai_socktype = libc::SOCK_STREAM;
        hints.ai_flags |= if self.passive { libc::AI_PASSIVE } else { 0 };
        hints.ai_flags |= if self.numeric {
            libc::AI_NUMERICHOST
        } else {
            0
        };
        let ptr = |text: Option<&CStr>| text.map_or(null::<c_char>(), CStr::as_ptr);
        let mut list = null_mut();
        // SAFETY: C strings or null, hints, and storage for the result.
        let code = unsafe {
            let (node, service) = (ptr(self.node), ptr(self.service));
            libc::getaddrinfo(node, service, &raw const hints, &raw mut list)
        };
        if code != 0 {
            return None;
        }
        let mut found: Option<SocketAddr> = None;
        let mut next: *const libc::addrinfo = list;
        // SAFETY: a list of the C library, whose addresses have the lengths it states.
        while let Some(entry) = unsafe { next.as_ref() } {
            // SAFETY: as above.
            let addr = unsafe { read(entry.ai_addr.cast(), entry.ai_addrlen as usize) };
            found = match (found, addr) {
                (Some(first), Some(other)) if first.is_ipv6() && other.is_ipv4() => Some(other),
                (first, other) => first.or(other),
            };
            next = entry.ai_next;
        }
        // SAFETY: the list that `getaddrinfo` returned, freed once.
        unsafe { libc::freeaddrinfo(list) };
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts an address to C and reads back its first `len` bytes.
    fn again(addr: SocketAddr, len: usize) -> Option<SocketAddr> {
        let c = CAddr::of(&addr);
        // SAFETY: not longer than the bytes of `c`.
        unsafe { read(c.bytes().as_ptr().cast(), len.min(c.bytes().len())) }
    }

    #[test]
    fn address_round_trips_through_c() {
        for text in ["127.0.0.1:4711", "[fe80::1%3]:80", "[::1]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(again(addr, usize::MAX), Some(addr));
            assert_eq!(again(addr, 15), None, "too short");
        }
    }

    #[test]
    fn unknown_family_and_empty_address_are_refused() {
        let unix = [1u8, 0, b'/', b'x', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: the length of the array, or a null pointer.
        unsafe {
            assert_eq!(read(unix.as_ptr().cast(), unix.len()), None);
            assert_eq!(read(null(), 16), None);
            assert_eq!(read_by_family(unix.as_ptr().cast()), None);
        }
    }

    #[test]
    fn ports_and_hosts_are_resolved() {
        let lookup = Lookup {
            node: Some(c"127.0.0.1"),
            service: Some(c"4711"),
            family: 0,
            passive: false,
            numeric: true,
        };
        assert_eq!(lookup.first(), "127.0.0.1:4711".parse().ok());
        let node = Some(c"no address");
        assert_eq!(Lookup { node, ..lookup }.first(), None);
        let everywhere = Lookup {
            node: None,
            passive: true,
            ..lookup
        };
        assert_eq!(everywhere.first(), "0.0.0.0:4711".parse().ok());
    }
}
