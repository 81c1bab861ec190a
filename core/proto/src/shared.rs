// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that a process has once for all peers. Each part enforces its own rules.

use crate::base::context::Context;
use crate::base::request::Request;
use crate::bulk::{Origin, Transfers};
use crate::matching::Matching;
use crate::matching::port::Posted;
use crate::matching::shortage::Shortage;
use crate::mem::held::HeldPool;
use crate::mem::scratch::Scratch;
use crate::mem::slot::SlotPool;
use crate::rma::Remote;
use crate::session::Entropy;
use crate::session::directory::Directory;
use crate::{Config, Dest, Event, HeldId};
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
    /// For a process outside any job: its own endpoint id and the known peers.
    pub(crate) directory: Option<Box<Directory>>,
    /// Headers and short frames that are needed for one transmit only.
    pub(crate) scratch: Scratch,
    pub(crate) remote: Box<Remote>,
    /// Peers that are held back by unexpected messages.
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
            directory: None,
            scratch: Scratch::default(),
            remote: Box::new(Remote::new()),
            shortage: Shortage::default(),
        }
    }

    /// Returns the bytes allocated for early and unexpected messages, including their tables.
    #[must_use]
    pub(crate) fn unexpected_len(&self) -> usize {
        self.held.total_len() + self.matching.table_len()
    }

    /// Returns true if the memory for early and unexpected messages is exhausted. `P3.10`
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.held.is_exhausted() || self.unexpected_len() >= self.ctx.limits().held_len_max
    }

    /// Starts the transfer of a tagged message now, or when there is room for it.
    pub(crate) fn start_tagged(&mut self, request: Request, posted: Posted) {
        let from = (request.peer, request.lane);
        self.matching.begin_in_order(from, &request.to, posted.op);
        if self.transfers.has_rx_room() {
            let transfers = &mut self.transfers;
            transfers.start(&mut self.ctx, &request, posted, Origin::Receive);
        } else {
            self.matching.push_late(posted, request);
        }
    }

    /// Frees held messages, and discards events that would place parts of the current frame in
    /// them.
    pub(crate) fn forget_held(&mut self, held: &[HeldId]) {
        if held.is_empty() {
            return;
        }
        self.ctx.retain_events(|event| match event {
            Event::Place {
                dest: Dest::Held(id, _),
                ..
            } => !held.contains(id),
            _ => true,
        });
        for &id in held {
            self.held.release(id);
        }
    }
}
