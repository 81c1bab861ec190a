// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eager messages: copied into a frame at submission, sent without asking, within credit (`P4.5`).

use super::{OpenFrame, Path, Run};
use crate::base::config::CALL_LEN_MAX;
use crate::base::credit::charge;
use crate::mem::slot::{RUNS_LEN, SlotId, SlotPool};
use crate::rma::stage::Parts;
use crate::{Address, Cause, Core, PeerId};
use portolan_wire::{FRAME_HEADER_LEN, Fragment, LaneId, MESSAGE_LEN, Message};

/// Where a message goes and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSpec {
    /// What it is matched by.
    pub to: Address,
    /// Priority.
    pub lane: LaneId,
    /// Not to be repaired when lost. A message longer than a frame, or with a label, is sent
    /// reliably all the same: best effort is a floor.
    pub best_effort: bool,
}

impl SendSpec {
    /// The header of a message, of a fragment of it, or of its request to send.
    #[inline]
    pub(crate) fn message(&self, len: u16, seq: u16) -> Message {
        let (port, system, label) = match self.to {
            Address::Port(port) => (port.number, port.system, None),
            Address::Label(label) => (0, false, Some(label)),
        };
        Message {
            lane: self.lane,
            best_effort: false,
            system,
            port,
            len,
            seq,
            label,
        }
    }

    /// The header of a message, if that has `N` bytes.
    #[inline]
    pub(crate) fn message_as<const N: usize>(&self, len: u16, seq: u16) -> Option<Message> {
        let is_port = matches!(self.to, Address::Port(_));
        if N == MESSAGE_LEN && is_port || N != MESSAGE_LEN && self.header_len() == N {
            Some(self.message(len, seq))
        } else {
            None
        }
    }

    /// Bytes of a message's header.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        MESSAGE_LEN + self.label_len()
    }

    #[inline]
    fn label_len(&self) -> usize {
        match &self.to {
            Address::Port(_) => 0,
            Address::Label(label) => label.wire_len(),
        }
    }
}

/// Why a message was not accepted. [`Refused::Busy`] and [`Refused::NotUp`] are back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The session is not open yet; [`crate::Event::PeerUp`] tells when.
    NotUp,
    /// No credit or no room; [`crate::Event::Writable`] tells when to try again.
    Busy,
    /// Too long to go without asking: use [`Core::rendezvous`].
    TooLong,
    /// The peer is gone.
    Gone(Cause),
    /// The peer was never connected.
    Unknown,
}

/// When the frame that a message went into should leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushHint {
    /// The frame has room for more messages.
    Open,
    /// Whole frames wait, and a call has room for more: of a burst, more may be waited for.
    Frames,
    /// A full frame waits, or as many as a call takes; nothing is gained by waiting longer.
    Full,
}

/// Memory for the payload of an accepted message; must be filled completely.
#[derive(Debug)]
#[must_use = "the message will be sent with whatever was staged"]
pub struct Staging<'a> {
    bytes: &'a mut [u8],
    at: usize,
    /// Payload runs of `run_len` bytes lie `stride` bytes apart.
    run_len: usize,
    stride: usize,
    hint: FlushHint,
}

impl<'a> Staging<'a> {
    /// Memory in one piece.
    pub(crate) fn whole(bytes: &'a mut [u8], hint: FlushHint) -> Self {
        Staging {
            bytes,
            at: 0,
            run_len: 0,
            stride: 0,
            hint,
        }
    }

    /// Memory in runs of `run_len` bytes, `stride` bytes apart: full frames.
    pub(crate) fn strided(
        bytes: &'a mut [u8],
        run_len: usize,
        stride: usize,
        hint: FlushHint,
    ) -> Self {
        Staging {
            bytes,
            at: 0,
            run_len,
            stride,
            hint,
        }
    }
}

impl Staging<'_> {
    /// Appends a piece of the payload.
    ///
    /// # Panics
    /// When the pieces exceed the length that was submitted.
    #[inline]
    pub fn push(&mut self, mut piece: &[u8]) {
        if self.stride == 0 {
            self.bytes[self.at..self.at + piece.len()].copy_from_slice(piece);
            self.at += piece.len();
            return;
        }
        while !piece.is_empty() {
            let (run, within) = (self.at / self.run_len, self.at % self.run_len);
            let len = piece.len().min(self.run_len - within);
            let start = run * self.stride + within;
            self.bytes[start..start + len].copy_from_slice(&piece[..len]);
            self.at += len;
            piece = &piece[len..];
        }
    }

    /// When the frame should leave.
    #[inline]
    #[must_use]
    pub fn hint(&self) -> FlushHint {
        self.hint
    }
}

impl Core {
    /// Accepts a message of `len` bytes and returns the memory to copy it into. Once copied, the
    /// message is complete as far as its sender is concerned: it can be recovered from here.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    #[inline]
    pub fn eager(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        len: usize,
    ) -> Result<Staging<'_>, Refused> {
        if !self.is_awake(peer) {
            return Err(Refused::Unknown);
        }
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        let state = &mut **state;
        if !state.session.up {
            let refused = state.session.failed.map_or(Refused::NotUp, Refused::Gone);
            state.session.want();
            self.touch(peer);
            return Err(refused);
        }
        let Some(small) = state.small else {
            return Err(Refused::NotUp);
        };
        let lane = spec.lane.index();
        let Some(path) = state.paths[small.index()].as_deref_mut() else {
            return Err(Refused::NotUp);
        };
        let record_len = spec.header_len() + len;
        let fits = path.header_len() + record_len <= path.shared_frame_len();
        if !fits && len > self.sh.ctx.eager_len_max(path.params.lossless) {
            return Err(Refused::TooLong);
        }
        let tx = &mut state.lanes_tx[lane];
        // P7.5, P11.1
        let best_effort = spec.best_effort && fits && matches!(spec.to, Address::Port(_));
        let charge = charge(len);
        if !best_effort && !tx.has_credit(charge) || !path.has_room(lane) {
            tx.starved = true;
            return Err(Refused::Busy);
        }
        let counter = if best_effort {
            &mut tx.best_effort_seq
        } else {
            &mut tx.next_seq
        };
        let seq = *counter;
        *counter = seq.wrapping_add(1);
        if !best_effort {
            tx.charged = tx.charged.wrapping_add(charge);
        }
        self.sh.ctx.counters_mut().messages_sent += 1;
        if !state.queued {
            state.queued = true;
            self.ready.push_back(peer);
        }
        if !state.timed {
            state.timed = true;
            self.timed.push(peer);
        }
        let message = Message {
            best_effort,
            ..spec.message(u16::try_from(len).unwrap_or(u16::MAX), seq)
        };
        if fits {
            return Ok(path.stage_shared(&mut self.sh.slots, &message));
        }
        if path.params.lossless {
            return Ok(path.stage_alone(&mut self.sh.slots, &message));
        }
        let by = match state.bulk {
            Some(bulk) if len > self.sh.ctx.choice().small_run_len_max => bulk,
            _ => small,
        };
        let Some(path) = state.paths[by.index()].as_deref_mut() else {
            return Err(Refused::NotUp);
        };
        let call_len = match path.is_quiet(self.sh.ctx.limits().ack_every) {
            true => self.sh.ctx.choice().lone_call_len(len as u64),
            false => CALL_LEN_MAX,
        };
        let fragment = Fragment {
            message,
            message_len: u32::try_from(len).unwrap_or(u32::MAX),
            offset: 0,
        };
        Ok(path.stage_run(&mut self.sh.slots, &fragment, len, call_len))
    }
}

impl Path {
    /// Puts a message into the lane's open frame, or into a new one. `P4.6`
    #[inline]
    fn stage_shared<'a>(&mut self, slots: &'a mut SlotPool, message: &Message) -> Staging<'a> {
        let lane = message.lane.index();
        let header_len = message.header_len();
        let need = header_len + usize::from(message.len);
        let capacity = self.shared_frame_len();
        let mut hint = FlushHint::Open;
        if let Some(open) = self.open[lane]
            && open.len + need > open.len_max
        {
            self.close(lane);
            hint = FlushHint::Full;
        }
        let frame_header_len = self.header_len();
        let open = self.open[lane].get_or_insert_with(|| OpenFrame {
            slot: slots.take(capacity + ACK_ROOM),
            len: frame_header_len,
            len_max: capacity,
            numbered: false,
        });
        // P7.2, P3.11
        open.numbered |= !message.best_effort;
        let start = open.len;
        open.len += need;
        let bytes = &mut slots.bytes_mut(open.slot)[start..start + need];
        message.emit(bytes);
        Staging {
            bytes: &mut bytes[header_len..],
            at: 0,
            run_len: 0,
            stride: 0,
            hint,
        }
    }

    /// Puts a message that fills a lossless link's frame into a frame of its own.
    fn stage_alone<'a>(&mut self, slots: &'a mut SlotPool, message: &Message) -> Staging<'a> {
        let lane = message.lane.index();
        self.close(lane);
        let len = message.header_len() + usize::from(message.len);
        let slot = slots.take(len);
        self.closed[lane].push_back(OpenFrame {
            slot,
            len,
            len_max: len,
            numbered: true,
        });
        let bytes = &mut slots.bytes_mut(slot)[..len];
        message.emit(bytes);
        let hint = FlushHint::Full;
        Staging {
            bytes: &mut bytes[message.header_len()..],
            at: 0,
            run_len: 0,
            stride: 0,
            hint,
        }
    }

    /// Cuts `len` bytes of a message, those from the offset of `whole` on, into frames of one
    /// fragment each, behind one another in one buffer.
    pub(crate) fn stage_run<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        whole: &Fragment,
        len: usize,
        call_len: usize,
    ) -> Staging<'a> {
        let emit = |offset: usize, part: usize, out: &mut [u8]| {
            let fragment = Fragment {
                message: Message {
                    len: u16::try_from(part).unwrap_or(u16::MAX),
                    ..whole.message
                },
                message_len: whole.message_len,
                offset: whole.offset + u32::try_from(offset).unwrap_or(u32::MAX),
            };
            fragment.emit(out);
        };
        let parts = Parts {
            lane: whole.message.lane,
            header_len: whole.header_len(),
            len,
            emit: &emit,
        };
        self.stage_run_of(slots, &parts, call_len)
    }

    /// The same for any record that says where its part belongs. There is at least one byte.
    pub(crate) fn stage_run_of<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        parts: &Parts<'_>,
        call_len: usize,
    ) -> Staging<'a> {
        let header_len = FRAME_HEADER_LEN + parts.header_len;
        let len = parts.len;
        let (count, payload_len) = self.cut_evenly(header_len, len);
        let segment_len = header_len + payload_len;
        let total_len = len + count * header_len;
        let (slot, start) = self.place_run(slots, count, segment_len, total_len, call_len);
        let hint = match self.has_call_to_fill(count) {
            true => FlushHint::Frames,
            false => FlushHint::Full,
        };
        let bytes = &mut slots.bytes_mut(slot)[start..start + total_len];
        for index in 0..count {
            let offset = index * payload_len;
            let part = payload_len.min(len - offset);
            let out = &mut bytes[index * segment_len + FRAME_HEADER_LEN..];
            (parts.emit)(offset, part, out);
        }
        Staging::strided(&mut bytes[header_len..], payload_len, segment_len, hint)
    }

    /// Into how many frames a message of `len` bytes is cut, and the bytes of each but the last, which
    /// has room for what rides along. As many as must be, of one length: messages of one length fit
    /// into one call, behind one another, and few bytes are padding. `P4.12`
    fn cut_evenly(&self, header_len: usize, len: usize) -> (usize, usize) {
        // A fragment's length is a 16-bit field and the run must fit one buffer.
        let most = self.frame_len.min(16 * 1024) - header_len;
        let count = len.div_ceil(most);
        (count, (len + RIDE_RESERVE).div_ceil(count).min(most))
    }

    /// Queues a run of `count` frames and says where it lies: behind the one before, if that has
    /// frames as long and its buffer room; its last frame is then made as long as the others. `P4.12`
    fn place_run(
        &mut self,
        slots: &mut SlotPool,
        count: usize,
        segment_len: usize,
        len: usize,
        call_len: usize,
    ) -> (SlotId, usize) {
        if let Some(run) = self
            .runs
            .back_mut()
            .filter(|run| run.segment_len == segment_len)
        {
            let start = run.off + run.len + run.room_in_last();
            run.call_len = CALL_LEN_MAX;
            if start + count * segment_len <= slots.bytes(run.slot).len() {
                run.fill_last(slots);
                run.len += len;
                return (run.slot, start);
            }
        }
        // The last frame may carry acknowledgements, up to the length of the others. Behind a run that
        // waits, others may be expected.
        let slot = slots.take(match self.runs.is_empty() {
            true => count * segment_len,
            false => RUNS_LEN,
        });
        self.runs.push_back(Run {
            slot,
            off: 0,
            len,
            segment_len,
            call_len,
        });
        (slot, 0)
    }

    /// Ends the lane's open frame: it waits for transmission, and the next message starts another.
    pub(crate) fn close(&mut self, lane: usize) {
        if let Some(open) = self.open[lane].take() {
            self.closed[lane].push_back(open);
        }
    }
}

/// Room for an acknowledgement and credit in the last frame of a run.
const RIDE_RESERVE: usize = portolan_wire::ACK_FIXED_LEN + portolan_wire::CREDIT_LEN;

/// Buffers of shared frames have room for the acknowledgement that may be appended.
const ACK_ROOM: usize = crate::path::ack::ACK_LEN_MAX;
