// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address of an endpoint, in 64 bytes that programs pass on unchanged.
//!
//! ```text
//!  0  version u8 = 3        1  flags u8: 1 shm, 2 packet
//!  2  UDP port u16          4  liveness port u16
//!  6  prefix length u8      7  count of IPv4 addresses u8, 0 to 4
//!  8  token, 16 bytes: random; its holders may open a session
//! 24  host, 8 bytes: hash of the boot and the network namespace
//! 32  IPv4 addresses of 4 bytes each, then zeros; if their count is 0, one IPv6 address
//! 48  MAC, 6 bytes         54  user u32         58  process u32
//! 62  raw Ethernet endpoint u16, 0 if none
//! ```
//! Integers are little-endian. The prefix length belongs to the first address. The endpoint of raw
//! Ethernet is the UDP port or a number assigned by a broker.

use crate::address::{Address, ENDPOINT_IPV4_MAX as IPV4_MAX, HostAddress};
use crate::error::Error;
use portolan_link::{HostId, LinkAddr};
use portolan_proto::ENDPOINT_ID_LEN;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const VERSION: u8 = 3;
const FLAG_SHM: u8 = 1;
const FLAG_PACKET: u8 = 2;

/// Address of an endpoint. It contains a token that permits sending to the endpoint, so pass it
/// only to processes that may send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointAddress([u8; ENDPOINT_ID_LEN]);

impl EndpointAddress {
    /// Length of an address in bytes.
    pub const LEN: usize = ENDPOINT_ID_LEN;

    /// Parses an address that another endpoint has published.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if the bytes are not an address, or are one of another version.
    pub fn from_bytes(bytes: &[u8; ENDPOINT_ID_LEN]) -> Result<EndpointAddress, Error> {
        let bad = |why| Err(Error::BadAddress { why });
        if bytes[0] != VERSION {
            return bad("it is of another version; use one version on all hosts");
        }
        let flags_are_known = bytes[1] & !(FLAG_SHM | FLAG_PACKET) == 0;
        let address = EndpointAddress(*bytes);
        let has_packet = bytes[1] & FLAG_PACKET != 0;
        let rest = &address.0[32..48][usize::from(bytes[7]).min(IPV4_MAX) * 4..];
        let has_zero_rest = bytes[7] == 0 || rest.iter().all(|byte| *byte == 0);
        if !flags_are_known || !has_zero_rest || has_packet != (address.port(62) != 0) {
            return bad("reserved bytes are not zero");
        }
        if usize::from(bytes[7]) > IPV4_MAX {
            return bad("it has too many IPv4 addresses");
        }
        if address.ips().any(|ip| ip.is_unspecified()) || address.port(2) == 0 {
            return bad("it has no network address");
        }
        Ok(address)
    }

    /// Returns the bytes to pass on.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; ENDPOINT_ID_LEN] {
        &self.0
    }

    /// Composes the address of this process. `own` has a UDP address and a network.
    pub(crate) fn of(own: &Address, token: [u8; 16]) -> EndpointAddress {
        let mut bytes = [0; ENDPOINT_ID_LEN];
        bytes[0] = VERSION;
        for link in &own.links {
            match link {
                LinkAddr::Shm { uid, .. } => {
                    bytes[1] |= FLAG_SHM;
                    bytes[54..58].copy_from_slice(&uid.to_le_bytes());
                }
                LinkAddr::Udp { socket } => {
                    bytes[2..4].copy_from_slice(&socket.port().to_le_bytes());
                }
                LinkAddr::Packet { mac, endpoint } => {
                    bytes[1] |= FLAG_PACKET;
                    bytes[48..54].copy_from_slice(mac);
                    bytes[62..64].copy_from_slice(&endpoint.to_le_bytes());
                }
                LinkAddr::Sim { .. } => {}
            }
        }
        if let Some(liveness) = own.liveness {
            bytes[4..6].copy_from_slice(&liveness.port().to_le_bytes());
        }
        if let Some((first, prefix_len)) = own.network {
            bytes[6] = prefix_len;
            put_ips(&mut bytes, first, &own.addresses);
        }
        bytes[8..24].copy_from_slice(&token);
        bytes[24..32].copy_from_slice(&host_hash(&own.host));
        bytes[58..62].copy_from_slice(&std::process::id().to_le_bytes());
        EndpointAddress(bytes)
    }

    /// Returns the address with another process id, for a simulated process.
    pub(crate) fn with_pid(mut self, pid: u32) -> EndpointAddress {
        self.0[58..62].copy_from_slice(&pid.to_le_bytes());
        self
    }

    /// Returns an address that belongs to no process.
    pub(crate) fn nowhere() -> EndpointAddress {
        EndpointAddress([0; ENDPOINT_ID_LEN])
    }

    /// Returns the process id of the owner on its host, for messages to users.
    #[must_use]
    pub fn pid(&self) -> u32 {
        u32::from_le_bytes(field(&self.0, 58))
    }

    /// Returns the first IP address of the owner's host.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        match self.0[7] {
            0 => IpAddr::V6(field::<16>(&self.0, 32).into()),
            _ => IpAddr::V4(self.v4(0)),
        }
    }

    fn v4(&self, index: usize) -> Ipv4Addr {
        field::<4>(&self.0, 32 + index * 4).into()
    }

    /// Returns the IP addresses of the owner's host, the most likely to be reached first.
    fn ips(&self) -> impl Iterator<Item = IpAddr> {
        let count = usize::from(self.0[7]).min(IPV4_MAX);
        let v4 = (1..count).map(|index| IpAddr::V4(self.v4(index)));
        std::iter::once(self.ip()).chain(v4)
    }

    /// Tests whether both addresses belong to one process. No two processes share a liveness port.
    pub(crate) fn is_of_process_of(&self, other: &EndpointAddress) -> bool {
        (self.ip(), self.port(4)) == (other.ip(), other.port(4))
    }

    /// Returns the full form of the address, as `own` can use it.
    pub(crate) fn write_out(&self, own: &Address) -> Address {
        let ip = self.ip();
        let host = if self.0[24..32] == host_hash(&own.host) {
            own.host.clone()
        } else {
            HostId {
                boot_id: hex::encode(&self.0[24..32]),
                netns: 0,
            }
        };
        let socket = SocketAddr::new(ip, self.port(2));
        let mut links = vec![LinkAddr::Udp { socket }];
        if self.0[1] & FLAG_SHM != 0 {
            links.push(LinkAddr::Shm {
                host: host.clone(),
                uid: u32::from_le_bytes(field(&self.0, 54)),
                // The kernel reports it when the two connect.
                pid: 0,
                name: shm_name(&self.token()),
            });
        }
        if self.0[1] & FLAG_PACKET != 0 {
            links.push(LinkAddr::Packet {
                mac: field(&self.0, 48),
                endpoint: self.port(62),
            });
        }
        let liveness = Some(self.port(4)).filter(|&port| port != 0);
        Address {
            host_name: ip.to_string(),
            host,
            links,
            network: Some((ip, self.0[6])),
            liveness: liveness.map(|port| SocketAddr::new(ip, port)),
            addresses: self.ips().map(|ip| self.host_address(ip, own)).collect(),
            unusable: None,
        }
    }

    /// Returns `ip` with its prefix length. The address holds only that of the first IP address;
    /// for the rest the prefix length of this host on the same subnet is assumed.
    fn host_address(&self, ip: IpAddr, own: &Address) -> HostAddress {
        let is_near = |ours: &&HostAddress| ours.network().contains(ip);
        let near = || own.addresses.iter().find(is_near);
        HostAddress {
            addr: ip,
            prefix_len: match ip == self.ip() {
                true => self.0[6],
                false => near().map_or(u8::MAX, |ours| ours.prefix_len),
            },
            interface: String::new(),
            kind: String::new(),
            speed: None,
            index: 0,
        }
    }

    /// Returns the key of handshakes with the endpoint. Only holders of its address have the key.
    pub(crate) fn key(&self) -> [u8; 32] {
        endpoint_key(&self.token())
    }

    /// Derives the secret of this endpoint and `other`, which seals their frames (`P10.7`). Only
    /// holders of both addresses have it.
    pub(crate) fn pair_secret(&self, other: &EndpointAddress) -> [u8; 32] {
        let mut tokens = [self.token(), other.token()];
        tokens.sort_unstable();
        blake3::derive_key("portolan endpoint pair, version 1", tokens.as_flattened())
    }

    fn token(&self) -> [u8; 16] {
        field(&self.0, 8)
    }

    fn port(&self, at: usize) -> u16 {
        u16::from_le_bytes(field(&self.0, at))
    }
}

/// Derives the key of handshakes from the token in an endpoint's address.
pub(crate) fn endpoint_key(token: &[u8; 16]) -> [u8; 32] {
    blake3::derive_key("portolan endpoint handshake, version 1", token)
}

/// Derives the name of an endpoint's shared-memory socket. Names are visible to all users, so the
/// token must not follow from the name.
pub(crate) fn shm_name(token: &[u8; 16]) -> String {
    let hash = blake3::derive_key("portolan endpoint socket, version 1", token);
    format!("portolan/endpoint/{}", hex::encode(&hash[..16]))
}

impl fmt::Display for EndpointAddress {
    /// Formats the address without the token, because the text appears in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = SocketAddr::new(self.ip(), self.port(2));
        write!(f, "portolan://{socket}")
    }
}

impl fmt::Debug for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointAddress({self})")
    }
}

fn host_hash(host: &HostId) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(host.boot_id.as_bytes());
    hasher.update(&host.netns.to_le_bytes());
    field(hasher.finalize().as_bytes(), 0)
}

/// Writes `first`, and as many of the other addresses as fit.
fn put_ips(bytes: &mut [u8; ENDPOINT_ID_LEN], first: IpAddr, others: &[HostAddress]) {
    let first = match first {
        IpAddr::V6(v6) => return bytes[32..48].copy_from_slice(&v6.octets()),
        IpAddr::V4(v4) => v4,
    };
    let mut ips = vec![first];
    for other in others {
        match other.addr {
            IpAddr::V4(v4) if !ips.contains(&v4) => ips.push(v4),
            _ => {}
        }
    }
    ips.truncate(IPV4_MAX);
    bytes[7] = u8::try_from(ips.len()).unwrap_or(0);
    for (place, ip) in bytes[32..48].chunks_exact_mut(4).zip(&ips) {
        place.copy_from_slice(&ip.octets());
    }
}

fn field<const LEN: usize>(bytes: &[u8], at: usize) -> [u8; LEN] {
    let mut out = [0; LEN];
    out.copy_from_slice(&bytes[at..at + LEN]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_proto::LinkId;

    fn own(netns: u64) -> Address {
        let host = HostId {
            boot_id: "boot".into(),
            netns,
        };
        let socket = SocketAddr::from(([10, 77, 0, 1], 9000));
        Address {
            host_name: "10.77.0.1".into(),
            host: host.clone(),
            links: vec![
                LinkAddr::Udp { socket },
                LinkAddr::Shm {
                    host,
                    uid: 1000,
                    pid: 0,
                    name: shm_name(&[7; 16]),
                },
                LinkAddr::Packet {
                    mac: [2; 6],
                    // Assigned by a broker.
                    endpoint: 7,
                },
            ],
            network: Some((socket.ip(), 24)),
            liveness: Some(SocketAddr::new(socket.ip(), 9001)),
            addresses: Box::default(),
            unusable: None,
        }
    }

    #[test]
    fn address_round_trips() {
        let short = EndpointAddress::of(&own(1), [7; 16]);
        let read = EndpointAddress::from_bytes(short.as_bytes()).unwrap();
        let written = read.write_out(&own(1));
        let ips: Vec<String> = written
            .addresses
            .iter()
            .map(|it| it.addr.to_string())
            .collect();
        assert_eq!(ips, ["10.77.0.1"]);
        let addresses = Box::default();
        assert_eq!(
            Address {
                addresses,
                ..written
            },
            own(1)
        );
        assert_eq!(read.pid(), std::process::id());
        let there = read.write_out(&own(2));
        assert_ne!(there.host, own(2).host);
        assert_eq!(
            own(2).common_links(&there),
            [LinkId::UDP, LinkId::PACKET],
            "of another host"
        );
    }

    #[test]
    fn address_holds_four_ipv4_or_one_ipv6() {
        let of = |text: &str| HostAddress {
            addr: text.parse().unwrap(),
            prefix_len: 16,
            interface: "eth0".into(),
            kind: "device".into(),
            speed: None,
            index: 1,
        };
        let published = [
            "10.1.0.1",
            "fd00::1",
            "10.77.0.1",
            "10.2.0.1",
            "10.3.0.1",
            "10.4.0.1",
        ];
        let many = Address {
            addresses: published.map(of).into(),
            ..own(1)
        };
        let short = EndpointAddress::of(&many, [7; 16]);
        let read = EndpointAddress::from_bytes(short.as_bytes()).unwrap();
        let asker = Address {
            addresses: [of("10.2.0.9")].into(),
            ..own(2)
        };
        let written = read.write_out(&asker).addresses;
        let shown = written
            .iter()
            .map(|it| (it.addr.to_string(), it.prefix_len));
        let far = u8::MAX;
        let expected = [
            ("10.77.0.1", 24),
            ("10.1.0.1", far),
            ("10.2.0.1", 16),
            ("10.3.0.1", far),
        ];
        assert!(shown.eq(expected.map(|(ip, len)| (ip.to_owned(), len))));
        let six = Address {
            network: Some(("fd00::1".parse().unwrap(), 64)),
            ..many
        };
        let short = EndpointAddress::of(&six, [7; 16]);
        let read = EndpointAddress::from_bytes(short.as_bytes()).unwrap();
        assert!(read.ips().eq(["fd00::1".parse::<IpAddr>().unwrap()]));
    }

    #[test]
    fn displayed_address_hides_the_token() {
        let short = EndpointAddress::of(&own(1), [0xab; 16]);
        let seen = format!("{short} {short:?} {}", shm_name(&[0xab; 16]));
        assert!(seen.contains("10.77.0.1:9000"), "{seen}");
        assert!(!seen.contains("abab"), "{seen}");
    }

    #[test]
    fn invalid_bytes_are_refused_with_reason() {
        let good = *EndpointAddress::of(&own(1), [7; 16]).as_bytes();
        for (at, byte) in [(0, 2), (1, 0x80), (1, 0), (7, 2), (7, 5), (36, 1), (62, 0)] {
            let mut bad = good;
            bad[at] = byte;
            assert!(EndpointAddress::from_bytes(&bad).is_err(), "byte {at}");
        }
        let mut nowhere = good;
        nowhere[2..4].fill(0);
        assert!(EndpointAddress::from_bytes(&nowhere).is_err());
        assert!(EndpointAddress::from_bytes(&[0; 64]).is_err());
    }
}
