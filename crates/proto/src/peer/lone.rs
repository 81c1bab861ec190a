// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that nothing waits before: into a frame of its own, which leaves at once.

use super::Peer;
use crate::base::credit::charge;
use crate::path::Path;
use crate::path::ack::ACK_LEN_MAX;
use crate::path::outgoing::Outgoing;
use crate::shared::Shared;
use crate::{Instant, Left, SendSpec};
use portolan_wire::FRAME_HEADER_LEN;

impl Peer {
    /// Whether a message of `len` bytes may leave this instant in a numbered frame: nothing waits that
    /// would leave before it, and it fits. `P4.10`
    #[inline]
    pub(crate) fn may_send_lone(&self, spec: &SendSpec, len: usize) -> bool {
        let Some(path) = self.paths.small_path() else {
            return false;
        };
        self.is_open()
            && path.is_free()
            && path.fits_shared(spec.header_len() + len)
            && !spec.best_effort
            && !self.session.has_handshake(path.link())
            && !self.has_control()
            && self.lanes.has_credit(spec.lane, charge(len))
    }

    /// Accepts such a message: the frame that leaves for it. Acknowledgements are piggybacked.
    #[inline]
    pub(crate) fn send_lone(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Option<Outgoing> {
        let len = u16::try_from(bytes.len()).ok()?;
        let path = self.paths.small_path()?;
        let (front_len, limit) = (path.front_len(), path.frame_len());
        let seq = self.lanes.tx(spec.lane).reserve(charge(bytes.len()))?;
        let message = spec.message(len, seq);
        let start = front_len + FRAME_HEADER_LEN;
        let mut end = start + message.header_len() + bytes.len();
        let slot = sh.slots.take(end + ACK_LEN_MAX);
        let out = sh.slots.bytes_mut(slot);
        message.emit(&mut out[start..]);
        out[start + message.header_len()..end].copy_from_slice(bytes);
        let limit = out.len().min(front_len + limit);
        let room = out.get_mut(end..limit).unwrap_or_default();
        end += self.paths.emit_acks(now, sh.ctx.poll_gap(), room);
        self.ack_waited = false;
        let session = self.session.token_theirs();
        let path = self.paths.small_mut()?;
        let frame = (slot, end - front_len);
        Some(path.seal_lone(now, &mut sh.slots, session, frame))
    }

    /// A frame is under way now: so much is left at least. Says what was and what is, if that has
    /// changed.
    #[inline]
    pub(crate) fn note_in_flight(&mut self) -> Option<(Left, Left)> {
        let was = self.left;
        self.left = was.max(Left::Unacknowledged);
        (was != self.left).then_some((was, self.left))
    }

    /// Whether anything waits that would leave if frames were asked for now: all but
    /// acknowledgements whose time has not come.
    #[inline]
    pub(crate) fn has_tx(&self) -> bool {
        self.session.failure().is_some()
            || self.session.has_handshakes()
            || self.has_control()
            || !self.send_queue.is_empty()
            || self.paths.iter().any(Path::has_urgent)
    }
}
