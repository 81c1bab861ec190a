// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers of long messages. A long message is announced, granted, sent and received here. Its
//! bytes go directly from the sender's memory to the receiver's buffer (`P5`).

mod grant;
pub(crate) mod part;
pub(crate) mod prediction;
pub(crate) mod push;
mod receive;
mod repair;
pub(crate) mod send;
pub(crate) mod trial;

use crate::base::context::Context;
use crate::base::coverage::Coverage;
use crate::matching::port::Posted;
use crate::mem::slab::{SLAB_LEN_MAX, Slab};
use crate::{Address, Event, Instant, LinkId, OpError, OpId, PeerId};
use alloc::vec::Vec;
use grant::Scheduler;
use portolan_wire::{Done, LaneId};
use prediction::Prediction;
use push::{Push, PushRequest};
use trial::Carrier;

/// Recipient of a transfer's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Lane; the message was matched in order.
    Lane,
    /// Port; the buffer was posted after the request.
    Port,
    /// Receive with match bits. `P11.4`
    Receive,
    /// Lane; the transfer fills a region.
    Region,
    /// Request for remote memory with this number.
    Get(u32),
}

/// Purpose of a transfer from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxRole {
    /// Message; its send completes with the transfer.
    Send,
    /// Put; completes when it is answered.
    Put,
    /// Reply to a get with this number of the peer's.
    Reply { op: u32 },
}

/// Transfer to this process.
#[derive(Debug)]
pub(crate) struct RxTransfer {
    peer: PeerId,
    link: LinkId,
    lossless: bool,
    sender_transfer: u32,
    posted: Posted,
    len: u64,
    received: u64,
    /// End of the highest byte that has arrived. Bytes below it have arrived or were overtaken.
    frontier: u64,
    /// Set of bytes that have arrived; used on networks only.
    arrived: Coverage,
    granted: u64,
    /// Position in the order of grants: time of the last grant, or of the start.
    served_at: u64,
    /// Transfer of the fragments that arrived in the batch after the last one of this transfer.
    followed_by: u32,
    fragment_len: u16,
    /// Set if a part arrived by a stream; the sender then waits for a `Done`. `P15.6`
    streamed: bool,
    /// Set if a part's bytes may be in place without being counted yet. Nothing else is received
    /// there.
    takes_parts: bool,
    /// Set if its `Done` may wait for the program's next call. `P15.16`
    late_done: bool,
    /// Set once fragments have arrived. The sender has then left the stream, and parts from the
    /// stream are discarded. `P15.7`
    has_left_stream: bool,
    origin: Origin,
    to: Address,
    lane: LaneId,
}

/// Transfer from this process.
#[derive(Debug)]
pub(crate) struct TxTransfer {
    peer: PeerId,
    op: OpId,
    role: TxRole,
    /// Offset of the first byte in the memory of `op`.
    base: u64,
    /// Link for its bytes, even if another path becomes better: its fragments fit this link's
    /// frames.
    link: Option<LinkId>,
    len: u64,
    receiver_transfer: u32,
    granted: u64,
    /// Offset of the first byte that has not been passed to a link.
    next_off: u64,
    acked: u64,
    fragment_len: u16,
    /// Set while in the peer's queue of transfers to send.
    queued: bool,
    /// Chosen at the first grant, or for a transfer that is alone when it is announced.
    carrier: Option<Carrier>,
    /// Time of the first grant; of the announcement if the transfer was alone.
    granted_at: Instant,
    /// Set if no other transfer was in progress when it was announced.
    is_alone: bool,
    /// Set if it was pushed while other transfers were in progress. Its time then includes theirs
    /// and is not used by the trial.
    is_untimed: bool,
    /// Request that leaves with the first part, until the receiver has answered. `P15.13`
    pushed: Option<PushRequest>,
    /// Completion of another transfer, which left with that request. `P15.16`
    carried: Option<Done>,
    /// End of the prefix that the receiver has reported as arrived.
    confirmed: u64,
}

/// Transfer to this process that has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedRx {
    pub(crate) key: u32,
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    pub(crate) to: Address,
    pub(crate) op: OpId,
    pub(crate) len: u64,
    pub(crate) origin: Origin,
    /// Error, if the buffer was too short.
    pub(crate) error: Option<OpError>,
    /// Sender's number for the transfer, if a `Done` must be sent.
    pub(crate) pending_done: Option<u32>,
    /// Set if the `Done` may wait for the program's next call. `P15.16`
    pub(crate) late_done: bool,
}

/// All transfers of the process.
#[derive(Debug)]
pub(crate) struct Transfers {
    tx: Slab<TxTransfer>,
    rx: Slab<RxTransfer>,
    scheduler: Scheduler,
    predictions: [Prediction; LinkId::COUNT],
    /// Pushed parts that are being received, at most one per peer. `P15.14`
    pushes: Vec<Push>,
    /// Last transfer of a trial. Its time helps to choose the carrier.
    timed: Option<u32>,
}

impl Transfers {
    pub(crate) fn new() -> Self {
        Transfers {
            tx: Slab::new(),
            rx: Slab::new(),
            scheduler: Scheduler::default(),
            predictions: Default::default(),
            pushes: Vec::new(),
            timed: None,
        }
    }

    /// Returns true if another transfer from this process can start.
    pub(crate) fn has_tx_room(&self) -> bool {
        self.tx.len() < SLAB_LEN_MAX
    }

    /// Returns true if no transfer from this process is in progress, to any peer.
    pub(crate) fn is_sending_nothing(&self) -> bool {
        self.tx.len() == 0
    }

    /// Returns true if another transfer to this process can start.
    #[inline]
    pub(crate) fn has_rx_room(&self) -> bool {
        self.rx.len() < SLAB_LEN_MAX
    }

    /// Returns true while the time of a transfer decides on its carrier.
    #[inline]
    pub(crate) fn is_timing(&self) -> bool {
        self.timed.is_some_and(|key| self.tx.get(key).is_some())
    }

    /// Returns true if transfers to this process are in progress.
    #[inline]
    pub(crate) fn has_rx(&self) -> bool {
        self.rx.len() > 0
    }

    /// Returns true if more than `count` transfers to `peer` are incomplete.
    pub(crate) fn sends_more_than(&self, count: usize, peer: PeerId) -> bool {
        self.tx.len() > count
            && self
                .tx
                .iter()
                .filter(|tx| tx.peer == peer)
                .nth(count)
                .is_some()
    }

    /// Returns the number of incomplete transfers.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.tx.len() + self.rx.len()
    }

    /// Returns true if any transfer with `peer` is incomplete.
    pub(crate) fn has_any_with(&self, peer: PeerId) -> bool {
        self.tx.iter().any(|one| one.peer == peer) || self.rx.iter().any(|one| one.peer == peer)
    }

    /// Fails every transfer with a failed peer.
    pub(crate) fn abandon(&mut self, ctx: &mut Context, peer: PeerId, error: OpError) {
        self.end_push(peer);
        for key in self.tx.keys_where(|transfer| transfer.peer == peer) {
            self.end_send(ctx, key, Err(error));
        }
        for key in self.rx.keys_where(|transfer| transfer.peer == peer) {
            let Some(transfer) = self.end_rx(key) else {
                continue;
            };
            let op = transfer.op;
            // Operations on remote memory are failed by their own module.
            match transfer.origin {
                Origin::Lane | Origin::Port | Origin::Receive => {
                    ctx.emit(Event::RecvFailed { op, error });
                }
                Origin::Region | Origin::Get(_) => {}
            }
        }
    }
}
