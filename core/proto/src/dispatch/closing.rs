// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that closes has no use for messages: what nobody has asked for is discarded, now and
//! when it comes, so that credit goes back and its senders can end (`P2.14`). Requests for its memory
//! are served until nothing but the answers keeps it (`P2.15`).

use crate::Core;
use crate::matching::port::Waiting;
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
                        peer.control()
                            .push_done(asked.sender_transfer, DoneStatus::Refused);
                    }
                }
            }
            if let Some(Some(peer)) = self.peers.get_mut(item.peer.index()) {
                let charge = item.what.charge(len);
                let (lanes, env) = &mut peer.lanes(&mut self.sh);
                lanes.on_taken(env, item.lane, item.keeps_credit, charge);
            }
            self.touch(item.peer);
        }
    }

    /// Stops serving requests for remote memory. Later requests are dropped without an answer, and their
    /// operations fail when this process has ended. `P2.15`
    pub fn stop_serving(&mut self) {
        self.sh.ctx.leave();
    }
}
