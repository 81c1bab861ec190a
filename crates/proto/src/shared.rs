// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process has once, whichever peer it is about: each part keeps its own rules.

use crate::Config;
use crate::base::context::Context;
use crate::base::request::Request;
use crate::bulk::{Origin, Transfers};
use crate::lane::shortage::Shortage;
use crate::matching::Matching;
use crate::matching::port::Posted;
use crate::mem::held::HeldPool;
use crate::mem::scratch::Scratch;
use crate::mem::slot::SlotPool;
use crate::rma::Remote;
use crate::session::Entropy;
use crate::session::open::Open;
use alloc::boxed::Box;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ctx: Context,
    pub(crate) matching: Matching,
    pub(crate) slots: SlotPool,
    pub(crate) held: HeldPool,
    pub(crate) transfers: Transfers,
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
            transfers: Transfers::new(),
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

    /// Begins the transfer of a message with a label, now or when there is room for it.
    pub(crate) fn start_labelled(&mut self, request: Request, posted: Posted) {
        if self.transfers.has_rx_room() {
            let transfers = &mut self.transfers;
            transfers.start(&mut self.ctx, &request, posted, Origin::Receive);
        } else {
            self.matching.push_late(posted, request);
        }
    }
}
