// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that two standalone processes exchange over TCP (`P18.2`). All integers are little-endian.
//!
//! ```text
//! hello:   0 magic, 14 bytes   14 version u16   16 public key, 32 bytes
//! record:  0 type u8: 1 sealed, 2 refusal   1 sealed body, or refusal u8 and zeros
//! body:    0 kind u8   1 authentication u8   2 relation u64   10 address, 64 bytes
//! ```
//! Every record has the same length, and fields that a kind does not use are zero.

use super::keys::PUBLIC_LEN;
use crate::directory::EndpointAddress;

const MAGIC: &[u8; 14] = b"portolan meets";
const VERSION: u16 = 1;

pub(super) const HELLO_LEN: usize = 16 + PUBLIC_LEN;
pub(super) const BODY_LEN: usize = 10 + EndpointAddress::LEN;
pub(super) const SEALED_LEN: usize = BODY_LEN + TAG_LEN;
pub(super) const RECORD_LEN: usize = 1 + SEALED_LEN;
const TAG_LEN: usize = 16;

const SEALED: u8 = 1;
const REFUSAL: u8 = 2;

/// Reason for which a process refuses another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The secrets differ.
    WrongSecret,
    /// The versions of the exchange differ.
    OtherVersion,
    /// The settings `auth` differ.
    OtherAuth,
    /// The process can have no further peer.
    Full,
    /// The two processes connect to each other at once; the refused one tries again.
    Busy,
    /// The bytes are not those of this exchange.
    Malformed,
}

impl Refusal {
    const ALL: [Refusal; 6] = [
        Refusal::WrongSecret,
        Refusal::OtherVersion,
        Refusal::OtherAuth,
        Refusal::Full,
        Refusal::Busy,
        Refusal::Malformed,
    ];

    fn code(self) -> u8 {
        match self {
            Refusal::WrongSecret => 1,
            Refusal::OtherVersion => 2,
            Refusal::OtherAuth => 3,
            Refusal::Full => 4,
            Refusal::Busy => 5,
            Refusal::Malformed => 6,
        }
    }

    fn from_code(code: u8) -> Refusal {
        let found = Refusal::ALL.into_iter().find(|one| one.code() == code);
        found.unwrap_or(Refusal::Malformed)
    }

    /// Describes the cause and the remedy for users.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Refusal::WrongSecret => "it has another secret; give both processes the same one",
            Refusal::OtherVersion => "it has another version; use one version on all hosts",
            Refusal::OtherAuth => {
                "it has another setting auth (PORTOLAN_AUTH); use the same one in both processes"
            }
            Refusal::Full => "it can have no further peer; disconnect some there",
            Refusal::Busy => "it is connecting to this process at the same time",
            Refusal::Malformed => "it is not a listening process of this library",
        }
    }
}

/// Kind of a sealed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Address of the sender. From a server, also the relation with the client, or 0.
    Introduce,
    /// Number of the new relation, from the client.
    Begin,
    /// The server agrees.
    Welcome,
    /// The sender ends the relation in order.
    Bye,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Introduce, Kind::Begin, Kind::Welcome, Kind::Bye];

    fn code(self) -> u8 {
        match self {
            Kind::Introduce => 1,
            Kind::Begin => 2,
            Kind::Welcome => 3,
            Kind::Bye => 4,
        }
    }
}

/// Content of a sealed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) kind: Kind,
    pub(super) auth: u8,
    pub(super) relation: u64,
    pub(super) address: [u8; EndpointAddress::LEN],
}

impl Body {
    /// Returns a body without further fields.
    pub(super) fn plain(kind: Kind) -> Body {
        Body {
            kind,
            auth: 0,
            relation: 0,
            address: [0; EndpointAddress::LEN],
        }
    }

    pub(super) fn encode(&self) -> [u8; BODY_LEN] {
        let mut bytes = [0; BODY_LEN];
        bytes[0] = self.kind.code();
        bytes[1] = self.auth;
        bytes[2..10].copy_from_slice(&self.relation.to_le_bytes());
        bytes[10..].copy_from_slice(&self.address);
        bytes
    }

    pub(super) fn parse(bytes: &[u8; BODY_LEN]) -> Result<Body, Refusal> {
        let mut kinds = Kind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.code() == bytes[0]);
        let (head, address) = bytes.split_at(10);
        let relation = head[2..].try_into().map(u64::from_le_bytes);
        Ok(Body {
            kind: kind.ok_or(Refusal::Malformed)?,
            auth: bytes[1],
            relation: relation.map_err(|_| Refusal::Malformed)?,
            address: address.try_into().map_err(|_| Refusal::Malformed)?,
        })
    }
}

/// A record as received.
pub(super) enum Record {
    Sealed([u8; SEALED_LEN]),
    Refused(Refusal),
}

impl Record {
    pub(super) fn sealed(bytes: &[u8; SEALED_LEN]) -> [u8; RECORD_LEN] {
        let mut record = [0; RECORD_LEN];
        record[0] = SEALED;
        record[1..].copy_from_slice(bytes);
        record
    }

    pub(super) fn refusal(refusal: Refusal) -> [u8; RECORD_LEN] {
        let mut record = [0; RECORD_LEN];
        (record[0], record[1]) = (REFUSAL, refusal.code());
        record
    }

    pub(super) fn parse(record: &[u8; RECORD_LEN]) -> Result<Record, Refusal> {
        match (record[0], record[1..].try_into()) {
            (SEALED, Ok(bytes)) => Ok(Record::Sealed(bytes)),
            (REFUSAL, _) => Ok(Record::Refused(Refusal::from_code(record[1]))),
            _ => Err(Refusal::Malformed),
        }
    }
}

pub(super) fn hello(public: [u8; PUBLIC_LEN]) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    bytes[..14].copy_from_slice(MAGIC);
    bytes[14..16].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..].copy_from_slice(&public);
    bytes
}

/// Returns the public key in a hello.
pub(super) fn parse_hello(bytes: &[u8; HELLO_LEN]) -> Result<[u8; PUBLIC_LEN], Refusal> {
    if bytes[..14] != *MAGIC {
        return Err(Refusal::Malformed);
    }
    if bytes[14..16] != VERSION.to_le_bytes() {
        return Err(Refusal::OtherVersion);
    }
    bytes[16..].try_into().map_err(|_| Refusal::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_round_trips_and_unknown_kind_is_refused() {
        for kind in Kind::ALL {
            let body = Body {
                kind,
                auth: 3,
                relation: 0x0123_4567_89ab_cdef,
                address: [0xa5; EndpointAddress::LEN],
            };
            assert_eq!(Body::parse(&body.encode()), Ok(body));
        }
        let mut bytes = Body::plain(Kind::Bye).encode();
        bytes[0] = 9;
        assert_eq!(Body::parse(&bytes), Err(Refusal::Malformed));
    }

    #[test]
    fn refusals_round_trip_and_unknown_ones_are_malformed() {
        for refusal in Refusal::ALL {
            let Ok(Record::Refused(read)) = Record::parse(&Record::refusal(refusal)) else {
                panic!("{refusal:?} is no refusal");
            };
            assert_eq!(read, refusal);
        }
        assert_eq!(Refusal::from_code(99), Refusal::Malformed);
        assert!(Record::parse(&[7; RECORD_LEN]).is_err());
    }

    #[test]
    fn hello_of_another_version_is_named() {
        let mut bytes = hello([7; PUBLIC_LEN]);
        assert_eq!(parse_hello(&bytes), Ok([7; PUBLIC_LEN]));
        bytes[14] = 2;
        assert_eq!(parse_hello(&bytes), Err(Refusal::OtherVersion));
        bytes[0] = 0;
        assert_eq!(parse_hello(&bytes), Err(Refusal::Malformed));
    }
}
