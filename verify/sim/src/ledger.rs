// SPDX-License-Identifier: MIT OR Apache-2.0
//! Oracle: the messages that were sent and must arrive once and in order.
//!
//! Each session that a process opens has a number here. The first message of each lane is a
//! greeting with that number, which binds the receiver's session to the sender's. Within a bound
//! pair, messages of one (lane, port) must be delivered in order and without a gap.

use crate::payload;
use portolan_proto::{LaneId, PortId};
use std::collections::{BTreeMap, VecDeque};

pub(crate) const GREETING_PORT: PortId = PortId::system(0);
/// Port of collective operations.
pub(crate) const GROUP_PORT: PortId = PortId::system(2);

/// Purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Nothing,
    /// Greeting of this session.
    Greeting(u64),
    /// Request for remote memory, of the flow with this number.
    Request(usize),
    /// Operation on a one-shot region, of the initiator with this index.
    OneShot(usize),
    /// Collective operation and round.
    Group {
        op: usize,
        round: u32,
    },
}

/// Message that was accepted for sending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) len: usize,
    pub(crate) note: Note,
    pub(crate) at_ns: u64,
    pub(crate) best_effort: bool,
}

#[derive(Debug)]
struct Session {
    src: u32,
    dst: u32,
    /// Reliable messages not delivered yet, per (lane, port).
    sent: BTreeMap<(LaneId, PortId), VecDeque<Entry>>,
    ended: bool,
    /// Incarnation of the receiver at the beginning.
    dst_life: u32,
    /// Highest number up to which messages have arrived, as known to their sender.
    settled: u64,
}

#[derive(Debug)]
struct BestEffort {
    session: u64,
    port: PortId,
    lane: LaneId,
    len: usize,
    delivered: bool,
}

/// Message in transit that is matched by its tag.
#[derive(Clone, Copy, Debug)]
struct Tagged {
    session: u64,
    lane: LaneId,
    port: PortId,
    entry: Entry,
}

/// Delivered message that was matched by its tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaggedDelivery<'a> {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    /// Port of the buffer.
    pub(crate) port: PortId,
    /// Number of the receive. Receives are posted in the order of their numbers.
    pub(crate) op: u64,
    /// Immediate data, which identifies the message.
    pub(crate) id: u64,
    pub(crate) len: usize,
    pub(crate) bytes: &'a [u8],
    /// Set if the message is of the plain space.
    pub(crate) is_plain: bool,
}

/// Delivered message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery<'a> {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) lane: LaneId,
    pub(crate) port: PortId,
    /// Sender's session of the message: the one that the receiver's session is bound to in this
    /// lane, or an earlier one with leftover messages.
    pub(crate) bound: Option<u64>,
    /// Length of the message in bytes, possibly truncated by the buffer.
    pub(crate) len: usize,
    pub(crate) bytes: &'a [u8],
}

/// Undelivered messages: their number, and the lane, port and entry of the oldest.
pub(crate) type Undelivered = (usize, LaneId, PortId, Entry);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sessions: Vec<Session>,
    best_effort: BTreeMap<u64, BestEffort>,
    /// Messages to be delivered, by number.
    tagged: BTreeMap<u64, Tagged>,
    /// Message that each receive has taken, per session, lane and port.
    taken: BTreeMap<(u64, LaneId, PortId), BTreeMap<u64, u64>>,
    /// Last delivered message of the plain space, per session and lane.
    plain_latest: BTreeMap<(u64, LaneId), u64>,
    next_id: u64,
    pub(crate) message_count: u64,
}

impl Ledger {
    /// Records a session that `src` has opened with `dst`.
    pub(crate) fn open(&mut self, src: u32, dst: u32, dst_life: u32) -> u64 {
        self.sessions.push(Session {
            src,
            dst,
            sent: BTreeMap::new(),
            ended: false,
            dst_life,
            settled: 0,
        });
        self.sessions.len() as u64 - 1
    }

    /// Records that the session's owner has given it up or has exited.
    pub(crate) fn end(&mut self, session: u64) {
        self.sessions[index(session)].ended = true;
    }

    /// Records that all messages of the session so far have arrived, as known to its owner. They
    /// will be delivered whatever happens to the owner.
    pub(crate) fn settle(&mut self, session: u64) {
        self.sessions[index(session)].settled = self.next_id;
    }

    /// Returns the sessions with arrived but undelivered messages and a receiving incarnation that
    /// is still alive: number, sender, receiver and messages.
    pub(crate) fn withheld(
        &self,
        life_of: impl Fn(u32) -> Option<u32>,
    ) -> impl Iterator<Item = (u64, u32, u32, Undelivered)> {
        let all = self.sessions.iter().zip(0..);
        let there = all.filter(move |(s, _)| life_of(s.dst) == Some(s.dst_life));
        there.filter_map(|(s, session)| {
            let found = self.undelivered_until(session, s.settled)?;
            Some((session, s.src, s.dst, found))
        })
    }

    pub(crate) fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Records a message accepted in `session`.
    pub(crate) fn accept(&mut self, session: u64, lane: LaneId, port: PortId, entry: Entry) {
        let sent = &mut self.sessions[index(session)].sent;
        sent.entry((lane, port)).or_default().push_back(entry);
    }

    /// Records a message accepted in `session` that is matched by its tag.
    pub(crate) fn accept_tagged(&mut self, session: u64, lane: LaneId, port: PortId, entry: Entry) {
        let tagged = Tagged {
            session,
            lane,
            port,
            entry,
        };
        self.tagged.insert(entry.id, tagged);
    }

    /// Checks such a delivery: once, complete, and matched in the order of sending with receives in
    /// the order of posting. It may complete before a message that was matched earlier.
    pub(crate) fn deliver_tagged(&mut self, got: &TaggedDelivery<'_>) -> Result<LaneId, String> {
        let TaggedDelivery {
            src, dst, id, op, ..
        } = *got;
        let Some(sent) = self.tagged.remove(&id) else {
            return Err(format!(
                "tagged message {id} from {src} to {dst} was never sent, or arrived twice"
            ));
        };
        self.message_count += 1;
        let session = &self.sessions[index(sent.session)];
        if (session.src, session.dst, sent.port, sent.entry.len) != (src, dst, got.port, got.len)
            || payload::first_difference(id, got.bytes, false).is_some()
        {
            return Err(format!(
                "tagged message {sent:?} came as {} bytes from {src} to {dst} {:?}, or changed",
                got.len, got.port
            ));
        }
        let key = (sent.session, sent.lane, sent.port);
        let taken = self.taken.entry(key).or_default();
        let before = taken.range(..op).next_back().map(|(_, id)| *id);
        let after = taken.range(op..).next().map(|(_, id)| *id);
        if before.is_some_and(|before| before > id) || after.is_some_and(|after| after < id) {
            return Err(format!(
                "receive {op} of {dst} has taken tagged message {id} from {src}, those beside it \
                 {before:?} and {after:?}"
            ));
        }
        taken.insert(op, id);
        if got.is_plain {
            self.check_plain_order(&sent)?;
        }
        Ok(sent.lane)
    }

    /// Checks that messages of the plain space are delivered in the order of sending. `P11.10`
    fn check_plain_order(&mut self, sent: &Tagged) -> Result<(), String> {
        let latest = self.plain_latest.entry((sent.session, sent.lane));
        let latest = latest.or_default();
        if *latest > sent.entry.id {
            return Err(format!(
                "plain message {sent:?} was overtaken by message {latest}"
            ));
        }
        *latest = sent.entry.id;
        Ok(())
    }

    /// Records an accepted best-effort message.
    pub(crate) fn accept_best_effort(
        &mut self,
        session: u64,
        (lane, port): (LaneId, PortId),
        entry: Entry,
    ) {
        let best_effort = BestEffort {
            session,
            port,
            lane,
            len: entry.len,
            delivered: false,
        };
        self.best_effort.insert(entry.id, best_effort);
    }

    /// Checks a delivery and returns the message's entry.
    pub(crate) fn deliver(&mut self, got: &Delivery<'_>) -> Result<Entry, String> {
        if let Some(entry) = self.deliver_best_effort(got)? {
            return Ok(entry);
        }
        let Delivery {
            src,
            dst,
            lane,
            port,
            ..
        } = *got;
        let place = || format!("from {src} to {dst} {lane:?} {port:?}");
        let session = if port == GREETING_PORT {
            self.greeted(got)?
        } else {
            got.bound.ok_or_else(|| {
                format!("a message {} came before the session's greeting", place())
            })?
        };
        let sent = &mut self.sessions[index(session)].sent;
        let Some(entry) = sent.get_mut(&(lane, port)).and_then(VecDeque::pop_front) else {
            return Err(format!(
                "session {session}: a message of {} bytes {} that was never sent, or twice",
                got.len,
                place()
            ));
        };
        self.message_count += 1;
        if entry.len != got.len {
            return Err(format!(
                "session {session}: message {} of {} bytes {} was due, {} bytes came",
                entry.id,
                entry.len,
                place(),
                got.len
            ));
        }
        match payload::first_difference(entry.id, got.bytes, false) {
            Some(at) if port != GREETING_PORT => Err(format!(
                "session {session}: message {} of {} bytes {} was due; what came differs \
                 from byte {at} on",
                entry.id,
                entry.len,
                place()
            )),
            _ => Ok(entry),
        }
    }

    /// Returns the sender's session that a greeting identifies.
    fn greeted(&self, got: &Delivery<'_>) -> Result<u64, String> {
        let session = payload::number(got.bytes);
        let known = session.and_then(|session| self.sessions.get(index(session)));
        match (session, known) {
            (Some(session), Some(known)) if (known.src, known.dst) == (got.src, got.dst) => {
                Ok(session)
            }
            _ => Err(format!(
                "node {} was greeted by {} with a wrong session",
                got.dst, got.src
            )),
        }
    }

    fn deliver_best_effort(&mut self, got: &Delivery<'_>) -> Result<Option<Entry>, String> {
        let number = payload::number(got.bytes).filter(|_| !got.port.system);
        let Some(id) = number else {
            return Ok(None);
        };
        let Some(sent) = self.best_effort.get_mut(&id) else {
            return Ok(None);
        };
        let session = &self.sessions[index(sent.session)];
        // Only its content identifies it: a reliable message may begin with the same bytes.
        if payload::first_difference(id, got.bytes, true).is_some() || session.dst != got.dst {
            return Ok(None);
        }
        if sent.delivered || sent.port != got.port || sent.lane != got.lane || sent.len != got.len {
            let when = if sent.delivered { "again" } else { "at last" };
            return Err(format!(
                "best-effort message {id} of {} bytes to {:?} {:?} came {when} with {} bytes to \
                 {:?} {:?}",
                sent.len, sent.port, sent.lane, got.len, got.port, got.lane
            ));
        }
        sent.delivered = true;
        self.message_count += 1;
        Ok(Some(Entry {
            id,
            len: got.len,
            note: Note::Nothing,
            at_ns: 0,
            best_effort: true,
        }))
    }

    /// Returns the number of best-effort messages that were not delivered.
    pub(crate) fn best_effort_missing(&self) -> u64 {
        let missing = self.best_effort.values().filter(|sent| !sent.delivered);
        missing.count() as u64
    }

    /// Returns the session in which best-effort message `id` was sent.
    pub(crate) fn session_of_best_effort(&self, id: u64) -> Option<u64> {
        self.best_effort.get(&id).map(|sent| sent.session)
    }

    /// Returns true if the session is open at its owner.
    pub(crate) fn is_open(&self, session: u64) -> bool {
        !self.sessions[index(session)].ended
    }

    /// Returns the undelivered messages of a session: their number, and the oldest.
    pub(crate) fn undelivered(&self, session: u64) -> Option<Undelivered> {
        self.undelivered_until(session, u64::MAX)
    }

    /// Returns the undelivered messages of a session with numbers up to `last`.
    fn undelivered_until(&self, session: u64, last: u64) -> Option<Undelivered> {
        let sent = self.sessions[index(session)].sent.iter();
        let in_order = sent.flat_map(|(&(lane, port), queue)| {
            let entries = queue.iter();
            entries.map(move |entry| (lane, port, *entry))
        });
        let tagged = self.tagged.values().filter(|sent| sent.session == session);
        let by_tag = tagged.map(|sent| (sent.lane, sent.port, sent.entry));
        let all = in_order.chain(by_tag);
        let due: Vec<_> = all.filter(|(_, _, entry)| entry.id <= last).collect();
        let oldest = due.iter().min_by_key(|(_, _, entry)| entry.id);
        oldest.map(|&(lane, port, entry)| (due.len(), lane, port, entry))
    }

    /// Returns the number of sessions opened so far by `src` with `dst`.
    pub(crate) fn session_count(&self, src: u32, dst: u32) -> usize {
        self.sessions
            .iter()
            .filter(|s| (s.src, s.dst) == (src, dst))
            .count()
    }

    /// Returns the sessions that their owners have not closed: number, owner, peer.
    pub(crate) fn open_sessions(&self) -> impl Iterator<Item = (u64, u32, u32)> + '_ {
        let all = self.sessions.iter().enumerate();
        all.filter(|(_, s)| !s.ended)
            .map(|(n, s)| (n as u64, s.src, s.dst))
    }
}

/// Returns the index of a session in the ledger.
fn index(session: u64) -> usize {
    usize::try_from(session).unwrap_or(usize::MAX)
}
