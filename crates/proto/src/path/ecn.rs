// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explicit congestion notification: what the network has marked, from the link that saw it to the
//! sender whose window it is (`P3.14`). How that window follows is `congestion`'s matter.
//!
//! The one invariant: frames that nobody has marked cost nothing here.

use crate::peer::Peer;
use crate::session::token_index;
use crate::shared::Shared;
use crate::{Core, DropReason, LinkId};
use portolan_wire::{FrameHeader, Marks};

impl Core {
    /// Notes that the network has marked `count` frames as having met congestion: they came by
    /// `link` in one run with `frame`, which may be sealed, and were accepted.
    #[cold]
    pub fn note_marked(&mut self, link: LinkId, frame: &[u8], count: u32) {
        let Some(session) = FrameHeader::session_of_numbered(frame) else {
            return;
        };
        if let Some(Some(peer)) = self.peers.get_mut(token_index(session))
            && peer.session.token_mine == session
            && let Some(path) = peer.path_mut(link)
        {
            path.rx.on_marked(count);
            self.sh.ctx.counters_mut().frames_marked += u64::from(count);
        }
    }
}

impl Peer {
    /// The peer says how many frames of this side were marked. `P3.14`
    #[cold]
    pub(crate) fn on_marks(&mut self, sh: &mut Shared, marks: &Marks) -> Result<(), DropReason> {
        let link = LinkId::from_u8(marks.path).ok_or(DropReason::BadAck)?;
        let path = self.path_mut(link).ok_or(DropReason::BadAck)?;
        if let Some(congestion) = &mut path.congestion {
            sh.ctx.counters_mut().marks_heard += u64::from(congestion.on_marks(marks.count));
        }
        Ok(())
    }
}
