// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing: the process needs no more messages. Unrequested messages are discarded, present and
//! future ones, so that credit returns and their senders can complete (`P2.14`). Requests for its
//! memory are served until only their answers keep the process from exiting (`P2.15`).

use crate::Core;
use crate::matching::port::Waiting;
use portolan_wire::DoneStatus;

impl Core {
    /// Cancels the waiting receives without events, and discards the waiting messages and, from now
    /// on, arriving ones. Ports that deliver in place continue to do so. Receives that have already
    /// matched a message still complete.
    pub fn discard_unread(&mut self) {
        self.sh.ctx.close();
        for item in self.sh.matching.discard() {
            let mut len = item.len;
            match item.what {
                Waiting::Held(held) => {
                    len = self.sh.held.bytes(held).len() as u64;
                    self.sh.forget_held(&[held]);
                }
                Waiting::Request(announced) => {
                    if let Some(Some(peer)) = self.peers.get_mut(item.peer.index()) {
                        peer.control()
                            .push_done(announced.sender_transfer, DoneStatus::Refused);
                    }
                }
            }
            if let Some(Some(peer)) = self.peers.get_mut(item.peer.index()) {
                let charge = item.what.charge(len);
                let (lanes, env) = &mut peer.lanes(&mut self.sh);
                lanes.on_taken(env, item.lane, item.holds_credit, charge);
            }
            self.touch(item.peer);
        }
    }

    /// Stops serving requests for remote memory. Later requests are dropped without an answer, and
    /// their operations fail when this process has exited. `P2.15`
    pub fn stop_serving(&mut self) {
        self.sh.ctx.leave();
    }
}
