// SPDX-License-Identifier: MIT OR Apache-2.0
//! The short way of a single message over a lossless link (`P8.1`): from the caller's memory to the
//! link, and from the link's frame to its port, past frame buffers, queues and events.
//!
//! Everything here is a shortcut: where it does not apply it says `None` and changes nothing, and
//! the message takes the ordinary way.

use crate::eager::SendSpec;
use crate::event::{OpId, PeerId, PortId};
use crate::lane::charge;
use crate::port::Match;
use crate::{Core, Instant, LinkId};
use portolan_wire::{MESSAGE_LEN, Message, Record, Records};

/// A message that may leave at once: its header, and by which link.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// The link.
    pub link: LinkId,
    /// To stand in front of the payload.
    pub header: [u8; MESSAGE_LEN],
}

/// A message that may be delivered at once, at `off..off + len` of its frame.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// Its port.
    pub port: PortId,
    /// The posted operation that it consumes; `None` for delivery in place.
    pub op: Option<OpId>,
    /// First byte of the payload.
    pub off: usize,
    /// Bytes of payload.
    pub len: usize,
}

impl Core {
    /// Accepts a message of `len` bytes to be sent this instant, ahead of nothing.
    #[inline]
    pub fn direct(&mut self, peer: PeerId, spec: &SendSpec, len: usize) -> Option<Direct> {
        let state = self.peers.get_mut(peer.index())?.as_deref_mut()?;
        let link = state.small?;
        let lane = spec.lane.index();
        let path = state.paths[link.index()].as_deref()?;
        let idle = path.open[lane].is_none() && path.closed[lane].is_empty() && !path.blocked;
        let eager = len <= self.sh.config.limits.eager_len_max_lossless;
        let charge = charge(len);
        let tx = &mut state.lanes_tx[lane];
        if !path.params.lossless || !idle || !eager || spec.best_effort || !tx.has_credit(charge) {
            return None;
        }
        let message = Message {
            lane: spec.lane,
            best_effort: false,
            system: spec.port.system,
            port: spec.port.number,
            len: u16::try_from(len).ok()?,
            seq: tx.next_seq,
        };
        tx.next_seq = tx.next_seq.wrapping_add(1);
        tx.charged = tx.charged.wrapping_add(charge);
        self.sh.counters.messages_sent += 1;
        let mut header = [0; MESSAGE_LEN];
        message.emit(&mut header);
        Some(Direct { link, header })
    }

    /// The link had no room for the message that [`Core::direct`] has just accepted: it was never
    /// sent.
    pub fn direct_refused(&mut self, peer: PeerId, spec: &SendSpec, len: usize) {
        if let Some(Some(state)) = self.peers.get_mut(peer.index()) {
            let tx = &mut state.lanes_tx[spec.lane.index()];
            tx.next_seq = tx.next_seq.wrapping_sub(1);
            tx.charged = tx.charged.wrapping_sub(charge(len));
            self.sh.counters.messages_sent -= 1;
        }
    }

    /// Takes the only message of a lossless frame, if it is the next of its lane and finds a
    /// buffer that holds it.
    #[inline]
    pub fn take_whole(&mut self, now: Instant, from: PeerId, frame: &[u8]) -> Option<Whole> {
        let (record, payload) = Records::new(frame, 0, frame.len()).next()?.ok()?;
        let Record::Message(message) = record else {
            return None;
        };
        if message.best_effort || payload.end != frame.len() {
            return None;
        }
        let state = self.peers.get_mut(from.index())?.as_deref_mut()?;
        let (len, charge) = (payload.len(), charge(payload.len()));
        let rx = &mut state.lanes_rx[message.lane.index()];
        if state.session.failed.is_some() || !rx.is_next(message.seq) || !rx.has_room(charge) {
            return None;
        }
        let port = PortId {
            number: message.port,
            system: message.system,
        };
        let found = self.sh.ports.get_mut(port)?;
        let op = match found.find_fitting(from, message.lane, len as u64) {
            Match::InPlace => None,
            Match::Posted(posted) => Some(posted.op),
            Match::Nothing => return None,
        };
        rx.take_next(charge);
        state.last_heard = now;
        let counters = &mut self.sh.counters;
        counters.frames_received += 1;
        counters.messages_received += 1;
        counters.bytes_received += len as u64;
        state.consume(&mut self.sh, message.lane, charge);
        if state.credit_due[message.lane.index()] {
            self.touch(from);
        }
        Some(Whole {
            port,
            op,
            off: payload.start,
            len,
        })
    }
}
