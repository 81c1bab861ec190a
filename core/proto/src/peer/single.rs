// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single messages: with nothing queued before them, they leave at once in frames of their own.

use super::Peer;
use super::eager_stream::as_fragment;
use crate::base::credit::charge;
use crate::base::narrow::narrow;
use crate::base::poll_gap::PollGap;
use crate::mem::copy::copy;
use crate::mem::slot::SlotPool;
use crate::path::Path;
use crate::path::ack::ACK_ROOM;
use crate::path::outgoing::{Outgoing, RECORDS_AT};
use crate::shared::Shared;
use crate::{Instant, LinkId, PendingWork, Refused, SendSpec, SingleFrame};
use portolan_wire::{CHECK_LEN, Fragment};

impl Peer {
    /// Returns true if nothing of the peer waits before a message: its session is open, and neither
    /// credit, control records nor refused submissions wait. `P4.10`
    #[inline]
    fn is_clear(&self) -> bool {
        self.session.is_up()
            && !self.session.has_handshakes()
            && self.control.is_empty()
            && !(self.lanes.has_credit_due() | self.lanes.is_starved())
    }

    /// Sends a message in a frame of its own, with the pending acknowledgements; see
    /// [`Core::submit`](crate::Core::submit).
    #[inline]
    pub(crate) fn send_frame<'a>(
        &mut self,
        now: Instant,
        (poll_gap, slots): (&PollGap, &'a mut SlotPool),
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<SingleFrame<'a>, Refused> {
        if spec.best_effort || !self.is_clear() {
            return Err(self.refuse_frame(spec, bytes.len()));
        }
        let path = self.paths.small_mut().ok_or(Refused::NotUp)?;
        let header_len = spec.header_len();
        if !path.fits_shared(header_len + bytes.len()) {
            return Err(Refused::TooLong);
        }
        if !path.is_free() {
            return Err(Refused::Busy);
        }
        let limit = CHECK_LEN + path.frame_len();
        let len: u16 = narrow(bytes.len());
        let seq = self.lanes.tx(spec.lane).reserve(charge(len.into()));
        let seq = seq.ok_or(Refused::Busy)?;
        let payload_at = RECORDS_AT + header_len;
        let mut end = payload_at + bytes.len();
        let (slot, out) = slots.take_bytes(end + ACK_ROOM);
        spec.message(len, seq).emit(&mut out[RECORDS_AT..]);
        copy(&mut out[payload_at..end], bytes);
        if self.paths.has_acks() {
            let limit = out.len().min(limit);
            let room = out.get_mut(end..limit).unwrap_or_default();
            end += self.paths.emit_acks(now, poll_gap, room);
        }
        self.ack_waited = false;
        let session = self.session.token_theirs();
        let path = self.paths.small_mut().ok_or(Refused::NotUp)?;
        Ok(path.seal_single(now, session, slot, &mut out[..end]))
    }

    /// Returns the reason why a message cannot leave in a frame of its own now. Credit that is due
    /// does not hold up a message of several frames: it leaves with it by stream.
    #[cold]
    fn refuse_frame(&self, spec: &SendSpec, len: usize) -> Refused {
        let record_len = spec.header_len() + len;
        let fits = |path: &Path| path.fits_shared(record_len);
        match self.paths.small_path() {
            Some(path) if !path.is_lossless() && !fits(path) => Refused::TooLong,
            _ => Refused::Busy,
        }
    }

    /// Sends a message of several frames. They leave in one call, as far as the window allows; see
    /// [`Core::submit_run`](crate::Core::submit_run). `P4.5`
    pub(crate) fn send_run(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<Outgoing, Refused> {
        let len = bytes.len();
        if len > sh.ctx.eager_len_max(false) {
            return Err(Refused::TooLong);
        }
        if !spec.best_effort && self.is_for_stream(now, &mut sh.ctx, len) {
            return self.send_by_stream(sh, spec, bytes);
        }
        let is_clear = self.is_clear() && !spec.best_effort;
        let path = self.paths.run_path_mut(&sh.ctx, len);
        let path = path.ok_or(Refused::NotUp)?;
        if !is_clear || !path.is_free() {
            return Err(Refused::Busy);
        }
        let link = path.link();
        let division = path.division(&sh.ctx, len);
        let seq = self.lanes.tx(spec.lane).reserve(charge(len));
        let seq = seq.ok_or(Refused::Busy)?;
        let fragment = Fragment {
            // Each of them has its own length.
            message: spec.message(0, seq),
            message_len: narrow(len),
            offset: 0,
        };
        let layout = path.layout(fragment.header_len(), len, division);
        if !path.takes_at_once(&layout, division.batch_len()) {
            path.stage_run(&mut sh.slots, &fragment, len, division)
                .push(bytes);
            let batch = self.next_batch(now, sh, link);
            return Ok(batch.expect("only this run waits, and the window has room"));
        }
        let mut tail = [0; ACK_ROOM];
        let room = layout.room_in_last().min(tail.len());
        let tail_len = self
            .paths
            .emit_acks(now, sh.ctx.poll_gap(), &mut tail[..room]);
        self.ack_waited = self.paths.ack_is_due(now);
        let session = self.session.token_theirs();
        let path = self.paths.get_mut(link).ok_or(Refused::NotUp)?;
        Ok(path.seal_single_run(
            now,
            &mut sh.slots,
            session,
            (&fragment, layout),
            (bytes, &tail[..tail_len]),
        ))
    }

    /// Sends a message of several frames by the stream, past the queues. Credit that is due leaves
    /// with it. The caller must call [`Peer::keep_message`] next. `P15.9`
    fn send_by_stream(
        &mut self,
        sh: &mut Shared,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<Outgoing, Refused> {
        let is_clear = self.session.is_up()
            && self.control.is_empty()
            && !self.lanes.is_starved()
            && !self.stream.eager().has_unsent()
            && self.stream.takes_parts();
        if !is_clear {
            return Err(Refused::Busy);
        }
        let seq = self.lanes.tx(spec.lane).reserve(charge(bytes.len()));
        let seq = seq.ok_or(Refused::Busy)?;
        let fragment = as_fragment(spec.message(0, seq), bytes.len());
        // The caller fills the buffer once the message has left.
        let _ = self.stage_for_stream(&mut sh.slots, fragment);
        self.next_for_stream(sh).ok_or(Refused::Busy)
    }

    /// Returns true if anything waits to be sent on `link`, or did not fit the frames just sent.
    #[inline]
    pub(crate) fn has_left(&self, link: LinkId) -> bool {
        self.ack_waited
            || self.paths.get(link).is_some_and(Path::has_waiting)
            || link == LinkId::STREAM && self.has_tx()
    }

    /// Raises the work left to [`PendingWork::Unacknowledged`] after a frame was sent or received.
    /// Returns the old and the new value if it changed.
    #[inline]
    pub(crate) fn note_unacknowledged(&mut self) -> Option<(PendingWork, PendingWork)> {
        let was = self.pending_work;
        self.pending_work = was.max(PendingWork::Unacknowledged);
        (was != self.pending_work).then_some((was, self.pending_work))
    }

    /// Returns true if polling for frames now would send anything; excludes acknowledgements that
    /// are not due.
    #[inline]
    pub(crate) fn has_tx(&self) -> bool {
        self.session.failure().is_some()
            || self.session.has_handshakes()
            || self.has_control()
            || !self.send_queue.is_empty()
            || self.paths.iter().any(Path::has_urgent)
    }
}
