// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long messages ask first, and their bytes go straight from the sender's memory to the receiver's
//! buffer (`P5`): announced, granted, sent and received here.

mod grant;
pub(crate) mod part;
pub(crate) mod prediction;
mod receive;
mod repair;
pub(crate) mod send;
pub(crate) mod trial;

use crate::base::context::Context;
use crate::base::coverage::Coverage;
use crate::matching::port::Posted;
use crate::mem::slab::{SLAB_LEN_MAX, Slab};
use crate::{Address, Event, Instant, LinkId, OpError, OpId, PeerId};
use grant::Scheduler;
use portolan_wire::LaneId;
use prediction::Prediction;
use trial::Way;

/// Where the end of a transfer must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// To its lane: it was matched in its turn.
    Lane,
    /// To its port: its buffer came late.
    Port,
    /// To its receive alone: it has match bits. `P11.4`
    Receive,
    /// To its lane: it fills a region.
    Region,
    /// To the request for remote memory with this number.
    Get(u32),
}

/// What a transfer from this process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxRole {
    /// A message; its end is that of the send.
    Send,
    /// A put, which ends when it is answered.
    Put,
    /// The answer to a get, which the peer knows by this number.
    Answer { op: u32 },
}

/// A transfer to this process.
#[derive(Debug)]
pub(crate) struct RxTransfer {
    peer: PeerId,
    link: LinkId,
    lossless: bool,
    sender_transfer: u32,
    posted: Posted,
    len: u64,
    received: u64,
    /// End of the highest byte that has arrived: what lies below is here, or was overtaken.
    frontier: u64,
    /// Which bytes; on a network only.
    arrived: Coverage,
    granted: u64,
    /// Place in the order of grants: when the last was made, or the transfer began.
    served_at: u64,
    /// The transfer whose fragments came in the batch after the last one of this.
    followed_by: u32,
    fragment_len: u16,
    /// Some of it has come by a stream: its sender waits to be told of the end. `P15.6`
    streamed: bool,
    /// Bytes of a part may lie at their place that do not count yet: nothing else is received there.
    takes_parts: bool,
    /// Fragments of it have come: its sender has left the stream, and nothing is taken from that. `P15.7`
    has_left_stream: bool,
    origin: Origin,
    to: Address,
    lane: LaneId,
}

/// A transfer from this process.
#[derive(Debug)]
pub(crate) struct TxTransfer {
    peer: PeerId,
    op: OpId,
    role: TxRole,
    /// First byte in the memory of `op`.
    base: u64,
    /// By which its bytes go, whichever path is best by then: its fragments fit this one's frames.
    link: Option<LinkId>,
    len: u64,
    receiver_transfer: u32,
    granted: u64,
    /// First byte that has not been handed to a link.
    next_off: u64,
    acked: u64,
    fragment_len: u16,
    /// Stands in the peer's queue of transfers to send.
    queued: bool,
    /// Chosen when it is first granted.
    way: Option<Way>,
    granted_at: Instant,
    /// All bytes below have arrived, as the receiver has said.
    confirmed: u64,
}

/// A transfer to this process that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedRx {
    pub(crate) key: u32,
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    pub(crate) to: Address,
    pub(crate) op: OpId,
    pub(crate) len: u64,
    pub(crate) origin: Origin,
    /// The buffer was too short.
    pub(crate) error: Option<OpError>,
    /// The sender's number, if it is to be told.
    pub(crate) owed_done: Option<u32>,
}

/// All transfers of the process.
#[derive(Debug)]
pub(crate) struct Transfers {
    tx: Slab<TxTransfer>,
    rx: Slab<RxTransfer>,
    scheduler: Scheduler,
    predictions: [Prediction; LinkId::COUNT],
}

impl Transfers {
    pub(crate) fn new() -> Self {
        Transfers {
            tx: Slab::new(),
            rx: Slab::new(),
            scheduler: Scheduler::default(),
            predictions: Default::default(),
        }
    }

    /// Another transfer from this process can begin.
    pub(crate) fn has_tx_room(&self) -> bool {
        self.tx.len() < SLAB_LEN_MAX
    }

    /// Another transfer to this process can begin.
    #[inline]
    pub(crate) fn has_rx_room(&self) -> bool {
        self.rx.len() < SLAB_LEN_MAX
    }

    /// Transfers to this process are under way.
    #[inline]
    pub(crate) fn has_rx(&self) -> bool {
        self.rx.len() > 0
    }

    /// Transfers that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.tx.len() + self.rx.len()
    }

    /// Whether any transfer with `peer` has not ended.
    pub(crate) fn has_any_with(&self, peer: PeerId) -> bool {
        self.tx.iter().any(|one| one.peer == peer) || self.rx.iter().any(|one| one.peer == peer)
    }

    /// Ends every transfer with a peer that is gone.
    pub(crate) fn abandon(&mut self, ctx: &mut Context, peer: PeerId, error: OpError) {
        for key in self.tx.keys_where(|transfer| transfer.peer == peer) {
            self.end_send(ctx, key, Err(error));
        }
        for key in self.rx.keys_where(|transfer| transfer.peer == peer) {
            let Some(transfer) = self.end_rx(key) else {
                continue;
            };
            let op = transfer.op;
            // Of remote memory, the operation is told elsewhere.
            match transfer.origin {
                Origin::Lane | Origin::Port | Origin::Receive => {
                    ctx.emit(Event::RecvFailed { op, error });
                }
                Origin::Region | Origin::Get(_) => {}
            }
        }
    }
}
