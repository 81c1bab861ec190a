// SPDX-License-Identifier: MIT OR Apache-2.0
//! Internet socket addresses in the kernel's form, converted once and reused for every send.
#![allow(
    unsafe_code,
    reason = "a sockaddr is a C union, distinguished by its first field"
)]

use super::socklen_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An IPv4 or IPv6 socket address, ready for the kernel.
#[derive(Clone, Copy)]
pub struct SockAddr {
    raw: Raw,
    len: libc::socklen_t,
}

#[derive(Clone, Copy)]
#[repr(C)]
union Raw {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
}

impl SockAddr {
    /// Returns a buffer for an address that the kernel writes.
    pub(super) fn empty() -> Self {
        SockAddr {
            raw: Raw {
                bytes: [0; size_of::<libc::sockaddr_in6>()],
            },
            len: socklen_of::<Raw>(),
        }
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.raw).cast()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.raw).cast()
    }

    pub(super) fn len(&self) -> libc::socklen_t {
        self.len
    }

    /// Returns `true` for the length of an IPv6 address.
    pub(super) fn is_ipv6(&self) -> bool {
        self.len == socklen_of::<libc::sockaddr_in6>()
    }

    /// Returns the address, if it is an internet address.
    #[must_use]
    pub fn to_std(&self) -> Option<SocketAddr> {
        // SAFETY: every constructor initialises all bytes of the union, the kernel overwrites whole
        // prefixes of them, and each of these fields is valid for any bytes. The family is at the
        // same offset in both structures.
        let (family, v4, v6) = unsafe { (self.raw.v4.sin_family, self.raw.v4, self.raw.v6) };
        match i32::from(family) {
            libc::AF_INET => {
                let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(addr: SocketAddr) -> Self {
        let mut new = SockAddr::empty();
        match addr {
            SocketAddr::V4(addr) => {
                new.raw.v4 = libc::sockaddr_in {
                    sin_family: AF_INET,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: addr.ip().to_bits().to_be(),
                    },
                    sin_zero: [0; 8],
                };
                new.len = socklen_of::<libc::sockaddr_in>();
            }
            SocketAddr::V6(addr) => {
                new.raw.v6 = libc::sockaddr_in6 {
                    sin6_family: AF_INET6,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: addr.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: addr.ip().octets(),
                    },
                    sin6_scope_id: addr.scope_id(),
                };
            }
        }
        new
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "address families are small numbers"
)]
const AF_INET: libc::sa_family_t = libc::AF_INET as libc::sa_family_t;
#[allow(
    clippy::cast_possible_truncation,
    reason = "address families are small numbers"
)]
const AF_INET6: libc::sa_family_t = libc::AF_INET6 as libc::sa_family_t;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in [
            "10.77.0.1:4791",
            "[fe80::1234]:65535",
            "0.0.0.0:0",
            "[::]:1",
        ] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::from(addr).to_std(), Some(addr));
        }
    }

    #[test]
    fn unset_address_is_no_address() {
        assert_eq!(SockAddr::empty().to_std(), None);
    }
}
