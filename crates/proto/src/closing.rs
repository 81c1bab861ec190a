// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that closes has no use for messages: what nobody has asked for is discarded, now and
//! when it comes, so that credit goes back and its senders can end (`P2.14`).

use crate::event::{OpId, PeerId};
use crate::peer::{Control, Peer};
use crate::port::{Posted, Waiting};
use crate::{Core, LaneId};
use portolan_wire::{Done, DoneStatus};

/// The receive of a message that nobody wants: of no length, and of no operation.
pub(crate) const NOBODY: Posted = Posted {
    op: OpId(0),
    base: 0,
    len: 0,
    source: None,
};

/// A message that waited for a receive.
pub(crate) struct Discarded {
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    /// It counts as credit of its lane.
    pub(crate) keeps_credit: bool,
    /// Bytes, where they do not lie here.
    pub(crate) len: u64,
    pub(crate) what: Waiting,
}

impl Core {
    /// Discards the messages that wait and, from now on, those that come. Ports with handlers go on
    /// taking theirs.
    pub fn discard_unread(&mut self) {
        self.sh.closing = true;
        let mut waiting = self.sh.ports.discard();
        self.sh.at_ports -= waiting.len();
        waiting.extend(self.sh.matching.discard());
        for item in waiting {
            let mut len = item.len;
            match item.what {
                Waiting::Held(held) => {
                    len = self.sh.held.bytes(held).len() as u64;
                    self.sh.held.release(held);
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

impl Peer {
    /// Tells the peer that its message will not be asked for.
    pub(crate) fn refuse(&mut self, transfer: u32) {
        let status = DoneStatus::Refused;
        self.control
            .push_back(Control::Done(Done { status, transfer }));
    }
}
