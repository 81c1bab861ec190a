// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bodies of connection messages: the addresses of both ends and the attributes of a VI.

use crate::nic::{ADDRESS_LEN, DISCRIMINATOR_MAX};
use crate::types::{VIP_NET_ADDRESS, VIP_VI_ATTRIBUTES};
use std::ffi::c_int;
use std::ptr;

/// A parsed address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: Vec<u8>,
    pub(crate) discriminator: Vec<u8>,
}

impl Address {
    /// Reads an address from the program's memory.
    ///
    /// # Safety
    /// `at` is null, or an address with as many bytes as it states.
    pub(crate) unsafe fn read(at: *const VIP_NET_ADDRESS) -> Option<Address> {
        if at.is_null() {
            return None;
        }
        // SAFETY: guaranteed by the caller.
        let (host_len, rest_len) = unsafe { ((*at).HostAddressLen, (*at).DiscriminatorLen) };
        let (host_len, rest_len) = (usize::from(host_len), usize::from(rest_len));
        // SAFETY: a field of the same address.
        let bytes = unsafe { (&raw const (*at).HostAddress).cast::<u8>() };
        // SAFETY: guaranteed by the caller.
        let address: &[u8] = unsafe { std::slice::from_raw_parts(bytes, host_len + rest_len) };
        Some(Address {
            host: address[..host_len].to_vec(),
            discriminator: address[host_len..].to_vec(),
        })
    }

    /// Writes an address to the program's memory.
    ///
    /// # Safety
    /// `at` has room for all bytes of the address.
    pub(crate) unsafe fn write(&self, at: *mut VIP_NET_ADDRESS) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            (*at).HostAddressLen = u16::try_from(self.host.len()).unwrap_or(0);
            (*at).DiscriminatorLen = u16::try_from(self.discriminator.len()).unwrap_or(0);
        }
        // SAFETY: a field of the same address.
        let bytes = unsafe { (&raw mut (*at).HostAddress).cast::<u8>() };
        for (index, byte) in self.host.iter().chain(&self.discriminator).enumerate() {
            // SAFETY: guaranteed by the caller.
            unsafe { bytes.add(index).write(*byte) };
        }
    }
}

/// Attributes of a VI that are sent to the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) level: u16,
    pub(crate) transfer_max: u64,
    pub(crate) qos: u64,
    pub(crate) rdma_write: bool,
    pub(crate) rdma_read: bool,
}

impl Traits {
    pub(crate) fn of(attrs: &VIP_VI_ATTRIBUTES) -> Traits {
        Traits {
            level: attrs.ReliabilityLevel,
            transfer_max: attrs.MaxTransferSize,
            qos: attrs.QoS.addr() as u64,
            rdma_write: attrs.EnableRdmaWrite != 0,
            rdma_read: attrs.EnableRdmaRead != 0,
        }
    }

    /// Returns the attributes for the program. The protection tag of another process is null.
    pub(crate) fn attributes(&self) -> VIP_VI_ATTRIBUTES {
        VIP_VI_ATTRIBUTES {
            ReliabilityLevel: self.level,
            MaxTransferSize: self.transfer_max,
            QoS: ptr::without_provenance_mut(usize::try_from(self.qos).unwrap_or(0)),
            Ptag: ptr::null_mut(),
            EnableRdmaWrite: c_int::from(self.rdma_write),
            EnableRdmaRead: c_int::from(self.rdma_read),
        }
    }
}

/// The body of a connection message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    /// Number of the request, unique in the requesting process.
    pub(crate) id: u32,
    /// Token of the sender's end of the connection.
    pub(crate) token: u32,
    /// Result, in a reply. In a peer request, the number of the request that it matched, or 0.
    pub(crate) result: u32,
    pub(crate) traits: Traits,
    pub(crate) from: Address,
    pub(crate) to: Address,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (piece, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(piece)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn piece(&mut self) -> Option<Vec<u8>> {
        let len = self.u16()?;
        Some(self.take(len.into())?.to_vec())
    }

    /// Reads an address. Returns `None` if it is longer than a program's buffer.
    fn address(&mut self) -> Option<Address> {
        let (host, discriminator) = (self.piece()?, self.piece()?);
        let fits = host.len() <= ADDRESS_LEN && discriminator.len() <= DISCRIMINATOR_MAX.into();
        fits.then_some(Address {
            host,
            discriminator,
        })
    }
}

fn put_piece(out: &mut Vec<u8>, piece: &[u8]) {
    let len = u16::try_from(piece.len()).unwrap_or(u16::MAX);
    out.extend(len.to_le_bytes());
    out.extend(&piece[..len.into()]);
}

impl Body {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        for word in [self.id, self.token, self.result] {
            out.extend(word.to_le_bytes());
        }
        let flags = u16::from(self.traits.rdma_write) | u16::from(self.traits.rdma_read) << 1;
        out.extend(self.traits.level.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(self.traits.transfer_max.to_le_bytes());
        out.extend(self.traits.qos.to_le_bytes());
        for address in [&self.from, &self.to] {
            put_piece(out, &address.host);
            put_piece(out, &address.discriminator);
        }
    }

    /// Parses a body. Returns `None` if it is malformed.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Body> {
        let mut reader = Reader(bytes);
        let (id, token, result) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (level, flags) = (reader.u16()?, reader.u16()?);
        let traits = Traits {
            level,
            transfer_max: reader.u64()?,
            qos: reader.u64()?,
            rdma_write: flags & 1 != 0,
            rdma_read: flags & 2 != 0,
        };
        let (from, to) = (reader.address()?, reader.address()?);
        reader.0.is_empty().then_some(Body {
            id,
            token,
            result,
            traits,
            from,
            to,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_body_is_parsed_back() {
        let body = Body {
            id: 1,
            token: 2,
            result: 14,
            traits: Traits {
                level: 4,
                transfer_max: 1 << 33,
                qos: 5,
                rdma_write: true,
                rdma_read: false,
            },
            from: Address {
                host: vec![1; 6],
                discriminator: vec![],
            },
            to: Address {
                host: vec![2; 6],
                discriminator: b"echo".to_vec(),
            },
        };
        let mut bytes = Vec::new();
        body.append(&mut bytes);
        assert_eq!(Body::parse(&bytes), Some(body));
        for short in 0..bytes.len() {
            assert_eq!(Body::parse(&bytes[..short]), None);
        }
        bytes.push(0);
        assert_eq!(Body::parse(&bytes), None);
    }
}
