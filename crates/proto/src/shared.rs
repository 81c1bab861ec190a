// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process has once, whichever peer it is about: each part keeps its own rules.

use crate::base::context::Context;
use crate::bulk::grant::Scheduler;
use crate::bulk::prediction::Guess;
use crate::bulk::rendezvous::{RxTransfer, TxTransfer};
use crate::lane::shortage::Shortage;
use crate::matching::Matching;
use crate::mem::held::HeldPool;
use crate::mem::scratch::Scratch;
use crate::mem::slab::Slab;
use crate::mem::slot::SlotPool;
use crate::rma::Remote;
use crate::session::Entropy;
use crate::session::open::Open;
use crate::{Config, LinkId};
use alloc::boxed::Box;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ctx: Context,
    pub(crate) matching: Matching,
    pub(crate) slots: SlotPool,
    pub(crate) held: HeldPool,
    pub(crate) tx_transfers: Slab<TxTransfer>,
    pub(crate) rx_transfers: Slab<RxTransfer>,
    pub(crate) scheduler: Scheduler,
    pub(crate) guesses: [Guess; LinkId::COUNT],
    pub(crate) entropy: Entropy,
    /// For a process without a job: who it is, and whom it knows.
    pub(crate) open: Option<Box<Open>>,
    /// Headers and short frames that live for one transmit only.
    pub(crate) scratch: Scratch,
    pub(crate) remote: Box<Remote>,
    /// A request to send that was matched just now, and is refused: the sender's number.
    pub(crate) refused: Option<u32>,
    /// Peers with frames or acknowledgements left when they were last looked at.
    pub(crate) outstanding_count: usize,
    /// Peers that are held back by what waits here.
    pub(crate) shortage: Shortage,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        Shared {
            entropy: Entropy::new(config.seed, config.epoch),
            ctx: Context::new(config),
            matching: Matching::new(),
            slots: SlotPool::default(),
            held: HeldPool::default(),
            tx_transfers: Slab::new(),
            rx_transfers: Slab::new(),
            scheduler: Scheduler::default(),
            guesses: Default::default(),
            open: None,
            scratch: Scratch::default(),
            remote: Box::new(Remote::new()),
            refused: None,
            outstanding_count: 0,
            shortage: Shortage::default(),
        }
    }

    /// Bytes of messages that are early or wait for a receive, as the allocator gave them, tables
    /// included.
    #[must_use]
    pub(crate) fn unexpected_len(&self) -> usize {
        self.held.total_len() + self.matching.table_len()
    }

    /// Their memory is used up. `P3.10`
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.unexpected_len() >= self.ctx.limits().held_len_max
    }
}
