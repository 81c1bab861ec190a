// SPDX-License-Identifier: MIT OR Apache-2.0
//! A region is closed: nothing names its memory from then on.

use crate::bulk::rendezvous::TxRole;
use crate::{Core, OpId, RemoteFault};
use portolan_wire::LaneId;

impl Core {
    /// Closes a region and returns the operation whose memory it was; `None` if there is none with
    /// this key. Transfers into it and out of it end, and those who asked for them are told. `P12.7`
    pub fn conceal(&mut self, key: u64) -> Option<OpId> {
        let op = self.sh.remote.regions.remove(&key)?.op;
        self.end_puts(op);
        self.end_gets(op);
        self.serve_unblocked();
        self.run_scheduler();
        Some(op)
    }

    fn end_puts(&mut self, op: OpId) {
        for key in self.sh.rx_transfers.keys_where(|rx| rx.posted.op == op) {
            let Some(transfer) = self.sh.rx_transfers.remove(key) else {
                continue;
            };
            self.sh.scheduler.remove(key, &transfer);
            if let Some(Some(peer)) = self.peers.get_mut(transfer.peer.index()) {
                let fault = Err(RemoteFault::Closed);
                peer.on_put_transferred(&mut self.sh, transfer.lane, key, fault);
            }
            self.touch(transfer.peer);
        }
    }

    fn end_gets(&mut self, region: OpId) {
        for key in self.sh.tx_transfers.keys_where(|tx| tx.op == region) {
            let Some(transfer) = self.sh.tx_transfers.remove(key) else {
                continue;
            };
            if let TxRole::Answer { op } = transfer.role
                && let Some(Some(peer)) = self.peers.get_mut(transfer.peer.index())
            {
                peer.push_answer(LaneId::High, op, Err(RemoteFault::Closed));
            }
            self.touch(transfer.peer);
        }
    }
}
