// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leases of raw Ethernet sockets for processes without privilege. A broker on the host opens the
//! socket, ties it to one endpoint, and passes it over a Unix socket.
//!
//! A connection carries one request and one reply, each a record of fixed length. The open
//! connection then represents the lease; closing it returns the endpoint. Numbers are
//! little-endian.
//!
//! ```text
//! request  0 "PBRK"   4 version u16   6 kind u16 = 1   8 ring length u32   12 0 u32   16 interface [16]
//! reply    0 "PBRK"   4 version u16   6 status u16     8 endpoint u16     10 MAC address [6]
//!         16 MTU u32 20 ring: slot, block, blocks u32 32 detail u64       40 0 u64
//! ```
//! A reply of status 0 carries the socket. `detail` is a refusal's limit or errno.

use super::{ENDPOINT_ALL, filter};
use portolan_sys::net::{self, FilterOp, MacAddr, RingLayout};
use portolan_sys::seqpacket::Seqpacket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

/// Default address of a broker.
pub const SOCKET_DEFAULT: &str = "/run/portolan/broker.sock";

/// Returns the broker's address for a setting, or `None` for `off`.
#[must_use]
pub fn broker_address(setting: Option<String>) -> Option<String> {
    let name = setting.unwrap_or_else(|| SOCKET_DEFAULT.to_owned());
    (name != "off").then_some(name)
}

/// Version of requests and replies.
pub const VERSION: u16 = 1;

/// Bytes of a request.
pub const REQUEST_LEN: usize = 32;

/// Bytes of a reply.
pub const REPLY_LEN: usize = 48;

/// First bytes of requests and replies.
const MAGIC: [u8; 4] = *b"PBRK";

/// The only kind of request: a socket.
const KIND_SOCKET: u16 = 1;

/// Bytes of an interface's name including the terminating zero (IFNAMSIZ of linux/if.h).
const NAME_LEN: usize = 16;

/// Time limit for a broker's reply. It opens a socket in about 10 ms, one after the other, and a
/// host has as many processes as cores.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between attempts to connect while the broker's backlog is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Request of a process for a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name of the NIC on the broker's host.
    pub interface: String,
    /// Requested bytes of the receive ring.
    pub ring_len: u32,
}

/// Properties of a leased socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Endpoint of the process, enforced by the kernel.
    pub endpoint: u16,
    /// Source address that its frames must have.
    pub mac: MacAddr,
    /// Bytes of the largest packet.
    pub mtu: u32,
    /// Layout of the socket's ring.
    pub ring: RingLayout,
}

/// Reason why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Malformed request.
    Malformed,
    /// The broker uses another version, given here.
    Version(u16),
    /// The broker serves no NIC of that name.
    NoSuchNic,
    /// None of the user's groups may use the NIC.
    NotAllowed,
    /// The user reached the limit of sockets, given here.
    Sockets(u64),
    /// The user's rings together would exceed this limit in bytes.
    RingMemory(u64),
    /// All endpoints of the NIC are taken; the value is their number.
    Endpoints(u64),
    /// The user reached the limit of connections, given here.
    Connections(u64),
    /// The kernel refused with this errno.
    System(i32),
}

impl Refusal {
    fn parts(self) -> (u16, u64) {
        match self {
            Refusal::Malformed => (1, 0),
            Refusal::Version(version) => (2, version.into()),
            Refusal::NoSuchNic => (3, 0),
            Refusal::NotAllowed => (4, 0),
            Refusal::Sockets(max) => (5, max),
            Refusal::RingMemory(max) => (6, max),
            Refusal::Endpoints(max) => (7, max),
            Refusal::Connections(max) => (8, max),
            Refusal::System(errno) => (9, u64::from(errno.unsigned_abs())),
        }
    }

    fn from_parts(status: u16, detail: u64) -> Option<Refusal> {
        Some(match status {
            1 => Refusal::Malformed,
            2 => Refusal::Version(u16::try_from(detail).ok()?),
            3 => Refusal::NoSuchNic,
            4 => Refusal::NotAllowed,
            5 => Refusal::Sockets(detail),
            6 => Refusal::RingMemory(detail),
            7 => Refusal::Endpoints(detail),
            8 => Refusal::Connections(detail),
            9 => Refusal::System(i32::try_from(detail).ok()?),
            _ => return None,
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Malformed => {
                f.write_str("malformed request; use one version of Portolan and its broker")
            }
            Refusal::Version(version) => write!(
                f,
                "the broker has protocol version {version} and this process {VERSION}; use one \
                 version of Portolan and its broker"
            ),
            Refusal::NoSuchNic => f.write_str(
                "the broker does not serve this interface; name it in a [[nic]] of its configuration",
            ),
            Refusal::NotAllowed => f.write_str(
                "no group of this user is in the `groups` of the broker's configuration; add one",
            ),
            Refusal::Sockets(max) => write!(
                f,
                "this user has {max} sockets, which is the limit; raise `sockets` in the broker's [quota]"
            ),
            Refusal::RingMemory(max) => write!(
                f,
                "the rings of this user would exceed {max} bytes; raise `ring_memory` in the broker's \
                 [quota]"
            ),
            Refusal::Endpoints(max) => write!(
                f,
                "all {max} endpoints are taken; raise `endpoints` in the broker's [[nic]]"
            ),
            Refusal::Connections(max) => write!(
                f,
                "this user has {max} connections to the broker, which is the limit; close some"
            ),
            Refusal::System(errno) => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(
                    f,
                    "the kernel refused a socket to the broker ({error}); restart the broker if the \
                     interface is new"
                )
            }
        }
    }
}

impl Request {
    /// Encodes the request. Returns `None` if the name is not a valid interface name.
    #[must_use]
    pub fn encode(&self) -> Option<[u8; REQUEST_LEN]> {
        let name = self.interface.as_bytes();
        if !is_name(name) {
            return None;
        }
        let mut record = [0; REQUEST_LEN];
        record[..4].copy_from_slice(&MAGIC);
        record[4..6].copy_from_slice(&VERSION.to_le_bytes());
        record[6..8].copy_from_slice(&KIND_SOCKET.to_le_bytes());
        record[8..12].copy_from_slice(&self.ring_len.to_le_bytes());
        record[16..16 + name.len()].copy_from_slice(name);
        Some(record)
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// [`Refusal::Version`] or [`Refusal::Malformed`].
    pub fn decode(record: &[u8]) -> Result<Request, Refusal> {
        if record.get(..4) != Some(&MAGIC) {
            return Err(Refusal::Malformed);
        }
        if field(record, 4).map(u16::from_le_bytes) != Some(VERSION) {
            return Err(Refusal::Version(VERSION));
        }
        let record: &[u8; REQUEST_LEN] = record.try_into().map_err(|_| Refusal::Malformed)?;
        let kind = field(record, 6).map(u16::from_le_bytes);
        let name = &record[16..];
        let name_len = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_LEN);
        let (name, padding) = name.split_at(name_len);
        let is_padded = record[12..16].iter().chain(padding).all(|&byte| byte == 0);
        if kind != Some(KIND_SOCKET) || !is_name(name) || !is_padded {
            return Err(Refusal::Malformed);
        }
        Ok(Request {
            interface: String::from_utf8_lossy(name).into_owned(),
            ring_len: field(record, 8).map_or(0, u32::from_le_bytes),
        })
    }
}

/// Returns `true` for a valid interface name: the kernel's rules (dev_valid_name), and ASCII.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let is_legal = |byte: &u8| byte.is_ascii_graphic() && *byte != b'/' && *byte != b':';
    !name.is_empty() && name.len() < NAME_LEN && name.iter().all(is_legal)
}

/// Encodes a reply.
#[must_use]
pub fn encode_reply(reply: &Result<Grant, Refusal>) -> [u8; REPLY_LEN] {
    let mut record = [0; REPLY_LEN];
    record[..4].copy_from_slice(&MAGIC);
    record[4..6].copy_from_slice(&VERSION.to_le_bytes());
    match reply {
        Ok(grant) => {
            record[8..10].copy_from_slice(&grant.endpoint.to_le_bytes());
            record[10..16].copy_from_slice(&grant.mac.0);
            record[16..20].copy_from_slice(&grant.mtu.to_le_bytes());
            let parts = grant.ring.parts().unwrap_or_default();
            for (place, part) in record[20..32].chunks_exact_mut(4).zip(parts) {
                place.copy_from_slice(&part.to_le_bytes());
            }
        }
        Err(refusal) => {
            let (status, detail) = refusal.parts();
            record[6..8].copy_from_slice(&status.to_le_bytes());
            record[32..40].copy_from_slice(&detail.to_le_bytes());
        }
    }
    record
}

/// Decodes a reply. Returns `None` if it is malformed.
#[must_use]
pub fn decode_reply(record: &[u8]) -> Option<Result<Grant, Refusal>> {
    let record: &[u8; REPLY_LEN] = record.try_into().ok()?;
    if record[..4] != MAGIC || u16::from_le_bytes(field(record, 4)?) != VERSION {
        return None;
    }
    let status = u16::from_le_bytes(field(record, 6)?);
    if status != 0 {
        let refusal = Refusal::from_parts(status, u64::from_le_bytes(field(record, 32)?))?;
        return Some(Err(refusal));
    }
    let endpoint = u16::from_le_bytes(field(record, 8)?);
    let part = |at| Some(u32::from_le_bytes(field(record, at)?));
    let grant = Grant {
        endpoint,
        mac: MacAddr(field(record, 10)?),
        mtu: part(16)?,
        ring: RingLayout::from_parts([part(20)?, part(24)?, part(28)?])?,
    };
    (endpoint != ENDPOINT_ALL).then_some(Ok(grant))
}

fn field<const LEN: usize>(record: &[u8], at: usize) -> Option<[u8; LEN]> {
    record.get(at..at + LEN)?.try_into().ok()
}

/// Returns the filter of a leased socket: frames of our EtherType to exactly this address and
/// endpoint. It holds whatever the lessee does to the socket or the interface.
#[must_use]
pub fn filter(endpoint: u16, mac: MacAddr) -> Vec<FilterOp> {
    filter::only_own(endpoint, mac).to_vec()
}

/// A socket passed on by a broker.
#[derive(Debug)]
pub struct Lease {
    /// Restrictions of the socket.
    pub grant: Grant,
    /// The socket: bound, with its filter and its ring, which still has to be mapped.
    pub socket: OwnedFd,
    /// Connection to the broker; stays open while the socket is used.
    pub connection: Seqpacket,
}

/// Reason why no lease was obtained.
#[derive(Debug)]
pub enum LeaseError {
    /// No broker replies at that address.
    NoReply(io::Error),
    /// The broker refused.
    Refused(Refusal),
    /// The reply is malformed.
    InvalidReply,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaseError::NoReply(error) => write!(f, "no reply ({error})"),
            LeaseError::Refused(refusal) => write!(f, "request refused: {refusal}"),
            LeaseError::InvalidReply => {
                f.write_str("invalid reply; use one version of Portolan and its broker")
            }
        }
    }
}

/// Requests a socket from the broker at `name` (a path, or `@NAME` in the abstract namespace).
///
/// # Errors
/// See [`LeaseError`].
pub fn acquire(name: &str, request: &Request) -> Result<Lease, LeaseError> {
    let deadline = Instant::now() + REPLY_TIMEOUT;
    let record = request
        .encode()
        .ok_or(LeaseError::Refused(Refusal::NoSuchNic))?;
    let connection = connect(name, deadline).map_err(LeaseError::NoReply)?;
    let mut closed = false;
    if let Err(error) = connection.send(&record) {
        closed = is_closed(&error);
        if !closed {
            return Err(LeaseError::NoReply(error));
        }
    }
    // One byte more than a reply, to detect longer records.
    let mut buffer = [0; REPLY_LEN + 1];
    let record = loop {
        match connection.receive_with_fd(&mut buffer) {
            Ok(Some(record)) => break record,
            Ok(None) => wait(&connection, deadline).map_err(LeaseError::NoReply)?,
            // A connection refused before the request was read or sent reports the hang-up first.
            // The reply is queued behind it.
            Err(error) if is_closed(&error) && !closed => closed = true,
            Err(error) => return Err(LeaseError::NoReply(error)),
        }
    };
    if record.len == 0 {
        return Err(LeaseError::NoReply(io::ErrorKind::ConnectionReset.into()));
    }
    match (decode_reply(&buffer[..record.len]), record.fd) {
        (Some(Ok(grant)), Some(socket)) => Ok(Lease {
            grant,
            socket,
            connection,
        }),
        (Some(Ok(_)), None) if record.fd_lost => {
            let errno = io::Error::from_raw_os_error(libc::EMFILE);
            Err(LeaseError::NoReply(errno))
        }
        (Some(Err(refusal)), _) => Err(LeaseError::Refused(refusal)),
        _ => Err(LeaseError::InvalidReply),
    }
}

fn connect(name: &str, deadline: Instant) -> io::Result<Seqpacket> {
    loop {
        match Seqpacket::connect_named(name) {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
            {
                thread::sleep(RETRY_INTERVAL);
            }
            other => return other,
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

fn wait(connection: &Seqpacket, deadline: Instant) -> io::Result<()> {
    use std::os::fd::AsFd;
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    net::wait_readable(&[connection.as_fd().as_raw_fd()], left).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_sys::seqpacket::SeqpacketListener;
    use std::os::fd::AsFd;

    fn request() -> Request {
        Request {
            interface: "eth0".into(),
            ring_len: 4 << 20,
        }
    }

    #[test]
    fn refusal_sent_before_the_request_is_read() {
        let name = format!("@portolan-test-refusal-{}", std::process::id());
        let listener = SeqpacketListener::bind_named(&name).unwrap();
        let refuse = move || {
            let waited = [listener.as_fd().as_raw_fd()];
            net::wait_readable(&waited, REPLY_TIMEOUT).unwrap();
            let connection = listener.accept().unwrap().unwrap();
            net::wait_readable(&[connection.as_fd().as_raw_fd()], REPLY_TIMEOUT).unwrap();
            let refusal = Err(Refusal::Connections(7));
            connection.send(&encode_reply(&refusal)).unwrap();
        };
        let broker = thread::spawn(refuse);
        let result = acquire(&name, &request());
        broker.join().unwrap();
        let refused = matches!(result, Err(LeaseError::Refused(Refusal::Connections(7))));
        assert!(refused, "{:?}", result.map(|_| ()));
    }

    #[test]
    fn requests_survive_a_round_trip() {
        let record = request().encode().unwrap();
        assert_eq!(Request::decode(&record), Ok(request()));
        for name in ["", "sixteen-bytes-xx", "a/b", "a b", "a:1", "ä"] {
            let interface = name.into();
            assert_eq!(
                Request {
                    interface,
                    ..request()
                }
                .encode(),
                None,
                "{name}"
            );
        }
    }

    #[test]
    fn truncated_and_altered_requests_are_refused() {
        let record = request().encode().unwrap();
        for len in 0..REQUEST_LEN {
            assert!(Request::decode(&record[..len]).is_err(), "{len}");
        }
        assert!(Request::decode(&[&record[..], &[0]].concat()).is_err());
        // All bytes except the length of the ring and letters of the name.
        for at in (0..8).chain(12..16).chain(20..32) {
            let mut broken = record;
            broken[at] ^= 0x80;
            assert!(Request::decode(&broken).is_err(), "{at}");
        }
        let mut newer = record;
        newer[4] = 2;
        assert_eq!(Request::decode(&newer), Err(Refusal::Version(VERSION)));
    }

    #[test]
    fn replies_survive_a_round_trip() {
        let grant = Grant {
            endpoint: 7,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            ring: RingLayout::new(1514, 4 << 20),
        };
        assert_eq!(decode_reply(&encode_reply(&Ok(grant))), Some(Ok(grant)));
        for status in 1..10 {
            let refusal = Refusal::from_parts(status, 4).unwrap();
            let reply = encode_reply(&Err(refusal));
            assert_eq!(decode_reply(&reply), Some(Err(refusal)));
            assert!(!refusal.to_string().is_empty());
        }
        assert_eq!(Refusal::from_parts(10, 4), None);
        let mut broken = encode_reply(&Ok(grant));
        broken[20] = 1;
        assert_eq!(decode_reply(&broken), None, "no such ring");
        assert_eq!(decode_reply(&broken[1..]), None);
    }

    #[test]
    fn missing_broker_is_reported() {
        let missing = acquire("@portolan-no-such-broker", &request());
        assert!(
            matches!(missing, Err(LeaseError::NoReply(_))),
            "{missing:?}"
        );
    }
}
