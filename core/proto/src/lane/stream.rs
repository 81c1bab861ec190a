// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eager messages that a stream brings (`P15.10`). A message is matched when its head has arrived,
//! and its payload is then received at its place: the buffer of the receive, or held memory.
//!
//! Invariant: bytes of a stream are written only while no fragment of the message has arrived, so
//! they never overwrite bytes that count.

use super::{Entry, Env, Lanes, State, reserve};
use crate::matching::Arrival;
use crate::{Address, DropReason, HeldId, OpId};
use portolan_wire::{Fragment, Record, Records, StreamMark};

/// Head of an eager message on a stream. `P15.9`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamMessage {
    mark: StreamMark,
    /// Credit limit of each lane that the head contains.
    credit: [Option<u32>; 2],
    /// Message as one fragment without payload.
    fragment: Fragment,
}

impl StreamMessage {
    /// Parses a head without its checksum. `payload_len` is the number of bytes that follow it.
    /// Returns `None` if the head is not one of an eager message, or contradicts the length.
    #[must_use]
    pub fn parse(head: &[u8], payload_len: usize) -> Option<StreamMessage> {
        let mut mark = None;
        let mut credit = [None; 2];
        let mut records = Records::new(head, 0, head.len());
        while let Some(Ok((record, _))) = records.next() {
            match record {
                Record::StreamMark(one) => mark = Some(one),
                Record::Credit(one) => credit[one.lane.index()] = Some(one.limit),
                Record::Fragment(fragment) => {
                    let is_whole = (fragment.message.len, fragment.offset) == (0, 0)
                        && fragment.message_len as usize == payload_len
                        && payload_len > 0
                        && !fragment.message.best_effort;
                    let is_last = records.next().is_none();
                    return (is_whole && is_last).then_some(StreamMessage {
                        mark: mark?,
                        credit,
                        fragment,
                    });
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns the length of the message in bytes.
    #[inline]
    #[must_use]
    pub fn message_len(&self) -> u64 {
        self.fragment.message_len.into()
    }

    #[inline]
    pub(crate) fn mark(&self) -> StreamMark {
        self.mark
    }

    #[inline]
    pub(crate) fn credit(&self) -> [Option<u32>; 2] {
        self.credit
    }
}

/// Destination of the next bytes of an eager message on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePlace {
    /// Bytes to receive at an offset of an operation's buffer.
    Op {
        /// Operation that owns the buffer.
        op: OpId,
        /// Offset in the buffer.
        off: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Bytes to receive in held memory, from the offset of the message on.
    Held(HeldId),
    /// Discarded: the message has arrived, or arrives as fragments, or its buffer ends before.
    Nowhere,
}

impl Lanes {
    /// Returns the place for `len` bytes of a message starting at offset `off`. The message is
    /// matched with its first bytes.
    pub(crate) fn place_streamed(
        &mut self,
        env: &mut Env<'_>,
        message: &StreamMessage,
        (off, len): (u64, u64),
    ) -> Result<MessagePlace, DropReason> {
        let fragment = &message.fragment;
        let lane = fragment.message.lane;
        let rx = &self.rx[lane.index()];
        // P15.10: it has arrived.
        let Ok(index) = rx.index(fragment.message.seq) else {
            return Ok(MessagePlace::Nowhere);
        };
        if rx.is_vacant(index) {
            if off > 0 {
                return Ok(MessagePlace::Nowhere);
            }
            // P3.10
            if env.sh.is_full() && self.must_hold_streamed(env, fragment) {
                return Err(DropReason::NoMemory);
            }
            let (_, entry) = self.gathering(env, fragment)?;
            entry.by_stream = true;
        }
        let entries = &self.rx[lane.index()].entries;
        Ok(match entries.get(index).and_then(Option::as_ref) {
            Some(entry) if entry.by_stream => place_of(entry, off, len),
            _ => MessagePlace::Nowhere,
        })
    }

    /// Returns true if a message would have to be held beyond its peer's reserve.
    #[cold]
    fn must_hold_streamed(&mut self, env: &mut Env<'_>, fragment: &Fragment) -> bool {
        let message = &fragment.message;
        let rx = &self.rx[message.lane.index()];
        if rx.outstanding() < reserve(env.sh) || rx.is_due(message.seq) {
            return false;
        }
        let (to, from) = (Address::of(message), (env.peer, message.lane));
        let matching = &mut env.sh.matching;
        let finds_buffer = matching.would_take(&env.sh.ctx, from, &to, Arrival::Parts, 0);
        !rx.is_next(message.seq) || !finds_buffer
    }

    /// Handles bytes `off..off + len` of a message, now received at their place. Returns how many
    /// of them count.
    pub(crate) fn on_streamed(
        &mut self,
        env: &mut Env<'_>,
        message: &StreamMessage,
        (off, len): (u64, u64),
    ) -> u64 {
        let header = &message.fragment.message;
        let rx = &mut self.rx[header.lane.index()];
        let Ok(index) = rx.index(header.seq) else {
            return 0;
        };
        let Some(Some(entry)) = rx.entries.get_mut(index) else {
            return 0;
        };
        if !entry.by_stream {
            return 0;
        }
        let (State::Gathering { received, .. } | State::Placing { received, .. }) =
            &mut entry.state
        else {
            return 0;
        };
        let counted = received.insert(off, off + len);
        self.finish_if_complete(env, header.lane, index);
        counted
    }
}

fn place_of(entry: &Entry, off: u64, len: u64) -> MessagePlace {
    match &entry.state {
        State::Gathering { held, .. } => MessagePlace::Held(*held),
        State::Placing { posted, .. } => match posted.len.saturating_sub(off).min(len) {
            0 => MessagePlace::Nowhere,
            len => MessagePlace::Op {
                op: posted.op,
                off: posted.base + off,
                len,
            },
        },
        _ => MessagePlace::Nowhere,
    }
}
