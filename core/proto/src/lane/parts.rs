// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that arrive in fragments. The fragments gather in held memory, or in the buffer that
//! was found for the first one.

use super::{Entry, Env, Lanes, State};
use crate::base::coverage::Coverage;
use crate::base::credit::charge;
use crate::mem::slot::FRAGMENTED_LEN_MAX;
use crate::{Address, Data, Dest, DropReason, Event, OpError};
use core::ops::Range;
use portolan_wire::{Fragment, LaneId};

impl Lanes {
    /// Handles a fragment of an eager message.
    pub(crate) fn on_fragment(
        &mut self,
        env: &mut Env<'_>,
        fragment: &Fragment,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let lane = fragment.message.lane;
        let (index, entry) = self.gathering(env, fragment)?;
        // P15.12: the stream no longer brings it.
        entry.by_stream = false;
        let at = u64::from(fragment.offset);
        let len = payload.len() as u64;
        let (known, dest) = match &mut entry.state {
            State::Gathering { held, received } => {
                (received, Dest::Held(*held, fragment.offset as usize))
            }
            State::Placing { posted, received } => (received, Dest::Op(posted.op, 0)),
            // P3.12: already complete, and waiting to be delivered in order.
            State::Held(_) | State::Ready { .. } | State::Unexpected | State::Detached => {
                return Err(DropReason::Duplicate);
            }
            State::Request(_) | State::Transferring { .. } | State::Remote(_) => {
                return Err(DropReason::BadFragment);
            }
        };
        if known.insert(at, at + len) == 0 && entry.len > 0 {
            return Err(DropReason::Duplicate);
        }
        match (&entry.state, dest) {
            (State::Placing { posted, .. }, _) => {
                if let Some(event) = posted.place(at, payload) {
                    env.sh.ctx.emit(event);
                }
            }
            (_, dest) => env.sh.ctx.emit(Event::Place { dest, src: payload }),
        }
        self.finish_if_complete(env, lane, index);
        Ok(())
    }

    /// Accepts consecutive fragments with `len` bytes of payload, from the offset of `first`.
    /// Returns where to copy them, before the following events are handled. Returns `None`, and
    /// none has been accepted, if they must be handled one by one.
    pub(crate) fn on_fragments(
        &mut self,
        env: &mut Env<'_>,
        first: &Fragment,
        len: u64,
    ) -> Option<Dest> {
        let lane = first.message.lane;
        let (index, entry) = self.gathering(env, first).ok()?;
        entry.by_stream = false;
        let at = u64::from(first.offset);
        let (known, dest) = match &mut entry.state {
            State::Gathering { held, received } => {
                (received, Dest::Held(*held, first.offset as usize))
            }
            State::Placing { posted, received } if entry.len <= posted.len => {
                (received, Dest::Op(posted.op, posted.base + at))
            }
            _ => return None,
        };
        // Some bytes may have arrived, or pending events of the buffer must be handled first.
        if at < known.end() || env.sh.ctx.has_event() {
            return None;
        }
        known.insert(at, at + len);
        self.finish_if_complete(env, lane, index);
        Some(dest)
    }

    /// Accepts all fragments of a message, `len` bytes in one piece, if it is the next message of
    /// its lane and fits the first receive for it. It is then delivered like a message in one
    /// frame. Returns where to copy the bytes, before the following events are handled. Returns
    /// `None`, with no state changed, if the fragments must gather.
    pub(crate) fn take_complete_run(
        &mut self,
        env: &mut Env<'_>,
        first: &Fragment,
        len: u64,
    ) -> Option<Dest> {
        let Fragment {
            message,
            message_len,
            offset,
        } = first;
        let is_complete = *offset == 0
            && u64::from(*message_len) == len
            && *message_len as usize <= FRAGMENTED_LEN_MAX;
        // Pending events of the buffer must be handled first.
        if !is_complete || env.sh.ctx.has_event() {
            return None;
        }
        let (lane, charge) = (message.lane, charge(*message_len as usize));
        if !self.may_take(lane, message.seq, charge) {
            return None;
        }
        let to = Address::of(message);
        let posted = env.sh.matching.take_fitting(env.peer, &to, len)?;
        self.take(lane, charge, env.sh.ctx.credit_len());
        self.deliver(env, lane, &to, Some(posted.op), len, Data::Placed, None);
        Some(Dest::Op(posted.op, posted.base))
    }

    /// Returns the index and the entry of the message that `fragment` belongs to. Creates and
    /// matches it for its first part. The message may be complete already.
    pub(super) fn gathering(
        &mut self,
        env: &mut Env<'_>,
        fragment: &Fragment,
    ) -> Result<(usize, &mut Entry), DropReason> {
        let lane = fragment.message.lane;
        let to = Address::of(&fragment.message);
        let len = fragment.message_len as usize;
        // P3.12: longer than any message that this side would send eagerly. A message that fits one
        // long frame is eager regardless of its length, and may have to be cut for a shorter frame.
        if len > FRAGMENTED_LEN_MAX {
            return Err(DropReason::BadFragment);
        }
        let rx = &mut self.rx[lane.index()];
        let index = rx.index(fragment.message.seq)?;
        if rx.is_vacant(index) {
            rx.admit(charge(len))?;
            let held = env.sh.held.take(len);
            let received = Coverage::default();
            let state = State::Gathering { held, received };
            *rx.place(index) = Some(Entry {
                to,
                len: len as u64,
                charge: charge(len),
                state,
                by_stream: false,
            });
            self.advance(env, lane);
        }
        let rx = &mut self.rx[lane.index()];
        let entry = rx.entries.get_mut(index).and_then(Option::as_mut);
        entry
            .filter(|entry| entry.len == len as u64 && entry.to == to)
            .map(|entry| (index, entry))
            .ok_or(DropReason::BadFragment)
    }

    /// Completes the message at `index` if all its parts have arrived.
    pub(super) fn finish_if_complete(&mut self, env: &mut Env<'_>, lane: LaneId, index: usize) {
        let rx = &mut self.rx[lane.index()];
        if let Some(Some(entry)) = rx.entries.get_mut(index) {
            let len = entry.len;
            match &entry.state {
                State::Gathering { held, received } if received.reaches(len) => {
                    entry.state = State::Held(*held);
                }
                State::Placing { posted, received } if received.reaches(len) => {
                    entry.state = State::Ready {
                        op: Some(posted.op),
                        data: Data::Placed,
                        error: OpError::truncated(len, posted.len),
                    };
                }
                _ => {}
            }
        }
        self.advance(env, lane);
    }
}
