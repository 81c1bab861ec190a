// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code shared by the links for raw Ethernet frames: the header before a frame, as drawn in
//! `packet`, and the interface.

use crate::{LinkAddr, LinkError, LinkKind, PeerId};
use portolan_sys::net::{self, Interface, MacAddr};
use std::fmt;
use std::io;

/// EtherType "local experimental 1" (IEEE Std 802), not assigned to any protocol.
pub const ETHER_TYPE: u16 = 0x88B5;

/// Broadcast endpoint.
pub const ENDPOINT_ALL: u16 = 0xFFFF;

/// Bytes of an Ethernet header: two addresses and the EtherType.
pub(crate) const ETHERNET_LEN: usize = 14;

/// Bytes before the frame: the Ethernet header and two endpoints.
pub(crate) const HEADER_LEN: usize = ETHERNET_LEN + 4;

/// Maximum number of slices in a gather list. All are copied, so the system sets no limit; the
/// value is that of the UDP link.
pub(crate) const GATHER_MAX: usize = 256;

pub(crate) type Header = [u8; HEADER_LEN];

/// Name or number of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceRef {
    /// Name, such as `eth0`.
    Name(String),
    /// Interface index.
    Index(u32),
}

impl fmt::Display for InterfaceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceRef::Name(name) => f.write_str(name),
            InterfaceRef::Index(index) => write!(f, "number {index}"),
        }
    }
}

/// Constructor of errors for one kind of link.
#[derive(Clone, Copy)]
pub(crate) struct Errors(pub(crate) LinkKind);

impl Errors {
    pub(crate) fn system(self, what: String, errno: io::Error, remedy: &'static str) -> LinkError {
        LinkError::System {
            kind: self.0,
            what,
            errno,
            remedy,
        }
    }

    fn of_errno(self, what: String, errno: i32, remedy: &'static str) -> LinkError {
        self.system(what, io::Error::from_raw_os_error(errno), remedy)
    }

    /// Refuses the broadcast endpoint.
    pub(crate) fn check_endpoint(
        self,
        endpoint: u16,
        name: &InterfaceRef,
    ) -> Result<(), LinkError> {
        if endpoint != ENDPOINT_ALL {
            return Ok(());
        }
        let what = format!("endpoint {ENDPOINT_ALL} on {name}");
        let remedy = "0xFFFF is the broadcast endpoint; choose another one";
        Err(self.of_errno(what, libc::EINVAL, remedy))
    }

    /// Returns the interface, which must be up.
    pub(crate) fn find_interface(self, name: &InterfaceRef) -> Result<Interface, LinkError> {
        let all = net::interfaces().map_err(|source| {
            let what = "list the network interfaces".into();
            self.system(what, source, "check the host's limits on sockets")
        })?;
        let found = all.into_iter().find(|interface| match name {
            InterfaceRef::Name(name) => interface.name == *name,
            InterfaceRef::Index(index) => interface.index == *index,
        });
        let failed = |errno, remedy| self.of_errno(format!("interface {name}"), errno, remedy);
        match found {
            None => Err(failed(
                libc::ENODEV,
                "choose one that `ip link` lists on this host",
            )),
            Some(interface) if !interface.up => {
                Err(failed(libc::ENETDOWN, "enable it with `ip link set … up`"))
            }
            Some(interface) => Ok(interface),
        }
    }

    /// Returns the interface's hardware address; fails if it is not an Ethernet.
    pub(crate) fn mac_of(self, interface: &Interface) -> Result<MacAddr, LinkError> {
        interface.mac.ok_or_else(|| {
            let what = format!("interface {}", interface.name);
            self.of_errno(what, libc::EAFNOSUPPORT, "choose an Ethernet interface")
        })
    }

    /// Returns the address and endpoint of a peer.
    pub(crate) fn reach(self, peer: PeerId, addr: &LinkAddr) -> Result<(MacAddr, u16), LinkError> {
        let unreachable = |why| LinkError::Unreachable {
            kind: self.0,
            peer,
            why,
        };
        let LinkAddr::Packet { mac, endpoint } = *addr else {
            return Err(unreachable("its address is not a raw Ethernet one"));
        };
        if endpoint == ENDPOINT_ALL || mac[0] & 1 != 0 {
            return Err(unreachable("its address is a group address"));
        }
        Ok((MacAddr(mac), endpoint))
    }
}

/// Returns the bytes of the largest frame. The endpoints count as payload of the Ethernet frame.
pub(crate) fn frame_len_max(mtu: usize) -> usize {
    mtu.saturating_sub(HEADER_LEN - ETHERNET_LEN)
}

/// Returns the bytes before a frame.
pub(crate) fn header(from: MacAddr, from_endpoint: u16, to: MacAddr, to_endpoint: u16) -> Header {
    let mut header = [0; HEADER_LEN];
    header[..6].copy_from_slice(&to.0);
    header[6..12].copy_from_slice(&from.0);
    header[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    header[14..16].copy_from_slice(&to_endpoint.to_be_bytes());
    header[16..].copy_from_slice(&from_endpoint.to_be_bytes());
    header
}
