// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single messages: with nothing queued before them, they leave at once in frames of their own.

use super::Peer;
use crate::base::context::Context;
use crate::base::credit::charge;
use crate::base::narrow::narrow;
use crate::mem::copy::copy;
use crate::path::Path;
use crate::path::ack::ACK_ROOM;
use crate::path::outgoing::Outgoing;
use crate::shared::Shared;
use crate::{Instant, LinkId, PeerId, PendingWork, SendSpec};
use portolan_wire::{FRAME_HEADER_LEN, Fragment};

/// Message that may be sent immediately, as determined by [`crate::Core::single`]. Valid until that
/// peer's state changes.
#[derive(Clone, Copy, Debug)]
pub struct Single<'a> {
    peer: PeerId,
    spec: &'a SendSpec,
    bytes: &'a [u8],
    /// Set if it fills several frames.
    is_run: bool,
}

impl Single<'_> {
    /// Returns the destination.
    #[inline]
    pub(crate) fn peer(&self) -> PeerId {
        self.peer
    }
}

impl Peer {
    /// Returns a message that may be sent immediately in numbered frames: an eager message with
    /// nothing waiting before it. `P4.5`, `P4.10`
    #[inline]
    pub(crate) fn single<'a>(
        &self,
        ctx: &Context,
        spec: &'a SendSpec,
        bytes: &'a [u8],
    ) -> Option<Single<'a>> {
        let len = bytes.len();
        let path = self.paths.small_path()?;
        let is_free = |path: &Path| path.is_free() && !self.session.has_handshake(path.link());
        let is_run = !path.fits_shared(spec.header_len() + len);
        let fits = match is_run {
            false => is_free(path),
            true => {
                let run_path = self.paths.run_path(ctx, len);
                len <= ctx.eager_len_max(false) && run_path.is_some_and(is_free)
            }
        };
        let may = fits
            && self.is_open()
            && !spec.best_effort
            && !self.has_control()
            && !self.is_starved()
            && self.lanes.has_credit(spec.lane, charge(len));
        may.then_some(Single {
            peer: self.id,
            spec,
            bytes,
            is_run,
        })
    }

    /// Accepts such a message and returns the frames to send now. If it fills several frames, some
    /// may wait for the window. Acknowledgements are piggybacked.
    #[inline]
    pub(crate) fn send_single(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        single: &Single<'_>,
    ) -> Option<Outgoing> {
        debug_assert!(
            self.single(&sh.ctx, single.spec, single.bytes).is_some(),
            "the core has changed since the check"
        );
        match single.is_run {
            false => self.send_single_frame(now, sh, single),
            true => self.send_single_run(now, sh, single),
        }
    }

    /// Sends a message of several frames. They leave in one call, as far as the window allows.
    fn send_single_run(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        &Single { spec, bytes, .. }: &Single<'_>,
    ) -> Option<Outgoing> {
        let len = bytes.len();
        let path = self.paths.run_path_mut(&sh.ctx, len)?;
        let link = path.link();
        let batch_len = path.batch_len(&sh.ctx, len);
        let seq = self.lanes.tx(spec.lane).reserve(charge(len))?;
        let fragment = Fragment {
            // Each of them has its own length.
            message: spec.message(0, seq),
            message_len: narrow(len),
            offset: 0,
        };
        let cut = path.cut(fragment.header_len(), len);
        if !path.takes_at_once(&cut, batch_len) {
            path.stage_run(&mut sh.slots, &fragment, len, batch_len)
                .push(bytes);
            let batch = self.next_batch(now, sh, link);
            return Some(batch.expect("only this run waits, and the window has room"));
        }
        let mut tail = [0; ACK_ROOM];
        let room = cut.room_in_last().min(tail.len());
        let tail_len = self
            .paths
            .emit_acks(now, sh.ctx.poll_gap(), &mut tail[..room]);
        self.ack_waited = self.paths.ack_is_due(now);
        let session = self.session.token_theirs();
        let path = self.paths.get_mut(link)?;
        Some(path.seal_single_run(
            now,
            &mut sh.slots,
            session,
            (&fragment, cut),
            (bytes, &tail[..tail_len]),
        ))
    }

    /// Sends a message in a frame of its own.
    #[inline]
    fn send_single_frame(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        &Single { spec, bytes, .. }: &Single<'_>,
    ) -> Option<Outgoing> {
        let len = u16::try_from(bytes.len()).ok()?;
        let path = self.paths.small_path()?;
        let (front_len, limit) = (path.front_len(), path.frame_len());
        let seq = self.lanes.tx(spec.lane).reserve(charge(bytes.len()))?;
        let message = spec.message(len, seq);
        let start = front_len + FRAME_HEADER_LEN;
        let mut end = start + message.header_len() + bytes.len();
        let slot = sh.slots.take(end + ACK_ROOM);
        let out = sh.slots.bytes_mut(slot);
        message.emit(&mut out[start..]);
        copy(&mut out[start + message.header_len()..end], bytes);
        let limit = out.len().min(front_len + limit);
        let room = out.get_mut(end..limit).unwrap_or_default();
        end += self.paths.emit_acks(now, sh.ctx.poll_gap(), room);
        self.ack_waited = false;
        let session = self.session.token_theirs();
        let path = self.paths.small_mut()?;
        let frame = (slot, end - front_len);
        Some(path.seal_single(now, &mut sh.slots, session, frame))
    }

    /// Returns true if anything waits to be sent on `link`, or did not fit the frames just sent.
    #[inline]
    pub(crate) fn has_left(&self, link: LinkId) -> bool {
        self.ack_waited || self.paths.get(link).is_some_and(Path::has_waiting)
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
