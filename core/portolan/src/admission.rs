// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission of bursts (P5.13): a sender requests precedence at a receiver for its long messages,
//! and is granted or refused it.
//!
//! ```text
//! record, 8 bytes: version u8 = 1, kind u8, zero u16, number of the request u32 (little-endian)
//!   kind 16 request   17 granted   18 refused   19 end of the burst
//! ```
//!
//! Kurmann, Rauch, Stricker: "Speculative Defragmentation", Cluster Computing 4 (2001), section 4:
//! Fast_Req, Fast_Ack and Fast_NAck. The data need not wait for the answer: a refused burst has low
//! priority instead.
//!
//! Invariant: at most one peer has precedence, and none for longer than [`LIFETIME`] if another one
//! requests it.

use portolan_proto::{Instant, PeerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which another request takes over a grant that has not ended. At 1 Gb/s, 100 MB take
/// about as long.
const LIFETIME: Duration = Duration::from_secs(1);

const VERSION: u8 = 1;
const LEN: usize = 8;

/// Answer to a requested burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BurstAnswer {
    /// The receiver has not answered.
    Pending,
    /// Long messages to the receiver have precedence over those of other senders.
    Granted,
    /// Another sender has precedence. Long messages have an eighth of the link meanwhile.
    Refused,
}

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request = 16,
    Granted = 17,
    Refused = 18,
    End = 19,
}

/// A record about a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    kind: Kind,
    id: u32,
}

impl Record {
    pub(crate) fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&[VERSION, self.kind as u8]);
        bytes[4..].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    /// Parses a record; returns `None` for other bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Record> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let [VERSION, kind, 0, 0, a, b, c, d] = *bytes else {
            return None;
        };
        let kinds = [Kind::Request, Kind::Granted, Kind::Refused, Kind::End];
        let kind = kinds.into_iter().find(|one| *one as u8 == kind)?;
        let id = u32::from_le_bytes([a, b, c, d]);
        Some(Record { kind, id })
    }
}

/// Grant of this process as a receiver.
#[derive(Clone, Copy, Debug)]
struct Holder {
    peer: PeerId,
    id: u32,
    since: Instant,
}

/// Bursts of this process: one that it has granted, and those that it has requested.
#[derive(Debug, Default)]
pub(crate) struct Admissions {
    holder: Option<Holder>,
    requested: BTreeMap<u32, (u32, BurstAnswer)>,
    last_id: u32,
    /// Requests that this process has refused.
    refused_count: u64,
}

impl Admissions {
    /// Begins to request a burst. Returns the record for the receiver.
    pub(crate) fn request(&mut self, receiver: PeerId) -> Record {
        self.last_id = self.last_id.wrapping_add(1);
        let id = self.last_id;
        self.requested
            .insert(receiver.0, (id, BurstAnswer::Pending));
        let kind = Kind::Request;
        Record { kind, id }
    }

    /// Returns the answer of the receiver; `None` if no burst to it was requested.
    pub(crate) fn answer(&self, receiver: PeerId) -> Option<BurstAnswer> {
        self.requested.get(&receiver.0).map(|(_, answer)| *answer)
    }

    /// Ends a burst. Returns the record for the receiver, if a burst was requested.
    pub(crate) fn end(&mut self, receiver: PeerId) -> Option<Record> {
        let (id, _) = self.requested.remove(&receiver.0)?;
        let kind = Kind::End;
        Some(Record { kind, id })
    }

    /// Forgets a failed peer: its precedence here, and the burst requested of it.
    pub(crate) fn on_failed(&mut self, peer: PeerId) {
        self.requested.remove(&peer.0);
        self.holder.take_if(|holder| holder.peer == peer);
    }

    /// Returns the peer that has precedence here.
    pub(crate) fn holder(&self) -> Option<PeerId> {
        self.holder.map(|holder| holder.peer)
    }

    /// Returns the number of requests that this process has refused.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// Handles a record of a peer. Returns the answer to send, if any.
    pub(crate) fn on_record(
        &mut self,
        peer: PeerId,
        record: Record,
        now: Instant,
    ) -> Option<Record> {
        let Record { kind, id } = record;
        match kind {
            Kind::Request => {
                let current = self.holder.filter(|it| now.since(it.since) < LIFETIME);
                if current.is_some_and(|it| it.peer != peer) {
                    self.refused_count += 1;
                    let kind = Kind::Refused;
                    return Some(Record { kind, id });
                }
                // A further request of the holder does not extend its time.
                let since = current.map_or(now, |it| it.since);
                self.holder = Some(Holder { peer, id, since });
                let kind = Kind::Granted;
                return Some(Record { kind, id });
            }
            Kind::Granted | Kind::Refused => {
                let requested = self.requested.get_mut(&peer.0);
                if let Some((_, answer)) = requested.filter(|(own, _)| *own == id) {
                    *answer = match kind {
                        Kind::Granted => BurstAnswer::Granted,
                        _ => BurstAnswer::Refused,
                    };
                }
            }
            Kind::End => {
                self.holder
                    .take_if(|holder| holder.peer == peer && holder.id == id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: PeerId = PeerId(1);
    const SECOND: PeerId = PeerId(2);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    fn of(kind: Kind, id: u32) -> Record {
        Record { kind, id }
    }

    #[test]
    fn records_round_trip_and_other_bytes_are_refused() {
        for kind in [Kind::Request, Kind::Granted, Kind::Refused, Kind::End] {
            let bytes = of(kind, 0x0102_0304).to_bytes();
            assert_eq!(Record::parse(&bytes), Some(of(kind, 0x0102_0304)));
            assert_eq!(Record::parse(&bytes[..7]), None);
        }
        assert_eq!(Record::parse(&[1, 6, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Record::parse(&[2, 16, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn second_sender_is_refused_until_the_burst_ends() {
        let mut own = Admissions::default();
        let granted = own.on_record(FIRST, of(Kind::Request, 7), at(0));
        assert_eq!(granted, Some(of(Kind::Granted, 7)));
        let refused = own.on_record(SECOND, of(Kind::Request, 3), at(1));
        assert_eq!(refused, Some(of(Kind::Refused, 3)));
        assert_eq!((own.holder(), own.refused_count()), (Some(FIRST), 1));
        // Neither another peer nor an outdated record ends it.
        own.on_record(SECOND, of(Kind::End, 7), at(2));
        own.on_record(FIRST, of(Kind::End, 6), at(2));
        assert_eq!(own.holder(), Some(FIRST));
        own.on_record(FIRST, of(Kind::End, 7), at(2));
        let granted = own.on_record(SECOND, of(Kind::Request, 4), at(3));
        assert_eq!(granted, Some(of(Kind::Granted, 4)));
    }

    #[test]
    fn forgotten_grant_passes_to_another_sender() {
        let mut own = Admissions::default();
        own.on_record(FIRST, of(Kind::Request, 1), at(0));
        let refused = own.on_record(SECOND, of(Kind::Request, 1), at(999));
        assert_eq!(refused, Some(of(Kind::Refused, 1)));
        let granted = own.on_record(SECOND, of(Kind::Request, 2), at(1000));
        assert_eq!(granted, Some(of(Kind::Granted, 2)));
    }

    #[test]
    fn holder_that_requests_again_and_again_is_displaced() {
        let mut own = Admissions::default();
        for ms in [0, 500, 900] {
            own.on_record(FIRST, of(Kind::Request, 1), at(ms));
        }
        let granted = own.on_record(SECOND, of(Kind::Request, 2), at(1000));
        assert_eq!(granted, Some(of(Kind::Granted, 2)));
    }

    #[test]
    fn failed_peer_is_forgotten() {
        let mut own = Admissions::default();
        own.on_record(FIRST, of(Kind::Request, 1), at(0));
        own.request(FIRST);
        own.on_failed(SECOND);
        assert_eq!(
            (own.holder(), own.answer(FIRST)),
            (Some(FIRST), Some(BurstAnswer::Pending))
        );
        own.on_failed(FIRST);
        assert_eq!((own.holder(), own.answer(FIRST)), (None, None));
    }

    #[test]
    fn only_the_answer_to_the_last_request_counts() {
        let mut own = Admissions::default();
        assert_eq!(own.answer(FIRST), None);
        let first = own.request(FIRST);
        let second = own.request(FIRST);
        own.on_record(FIRST, of(Kind::Granted, first.id), at(0));
        assert_eq!(own.answer(FIRST), Some(BurstAnswer::Pending));
        own.on_record(FIRST, of(Kind::Refused, second.id), at(0));
        assert_eq!(own.answer(FIRST), Some(BurstAnswer::Refused));
        assert_eq!(own.end(FIRST), Some(of(Kind::End, second.id)));
        assert_eq!(own.end(FIRST), None);
    }
}
