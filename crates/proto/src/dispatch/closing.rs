// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that closes has no use for messages: what nobody has asked for is discarded, now and
//! when it comes, so that credit goes back and its senders can end (`P2.14`).

use crate::base::request::Asked;
use crate::lane::State;
use crate::matching::port::Waiting;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Core, HeldId};
use portolan_wire::DoneStatus;

impl Core {
    /// Withdraws the receives that wait, without an event, and discards the messages that wait and,
    /// from now on, those that come. Ports that are open for delivery in place go on taking theirs;
    /// receives that messages have taken already still end.
    pub fn discard_unread(&mut self) {
        self.sh.ctx.close();
        for item in self.sh.matching.discard() {
            let mut len = item.len;
            match item.what {
                Waiting::Held(held) => {
                    len = self.sh.held.bytes(held).len() as u64;
                    self.sh.forget_held(&[held]);
                }
                Waiting::Request(asked) => {
                    if let Some(Some(peer)) = self.peers.get_mut(item.peer.index()) {
                        peer.refuse(asked.sender_transfer);
                    }
                }
            }
            if let Some(Some(peer)) = self.peers.get_mut(item.peer.index()) {
                let charge = item.what.charge(len);
                peer.on_taken(&mut self.sh, item.lane, item.keeps_credit, charge);
            }
            self.touch(item.peer);
        }
    }
}

impl Shared {
    /// Discards a whole message in its turn.
    #[cold]
    pub(crate) fn discard_held(&mut self, held: HeldId) -> State {
        self.forget_held(&[held]);
        State::Gone
    }

    /// Discards a request to send in its turn; its sender is told after that.
    #[cold]
    pub(crate) fn discard_request(&mut self, asked: Asked) -> State {
        self.refused = Some(asked.sender_transfer);
        State::Gone
    }
}

impl Peer {
    /// Tells the peer that its message will not be asked for.
    pub(crate) fn refuse(&mut self, transfer: u32) {
        self.control.push_done(transfer, DoneStatus::Refused);
    }
}
