// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the library except the node: NICs, VIs, completion queues, registered memory,
//! connection requests, and pending work for the node.
//!
//! It is changed by calls of the program and by the handler of incoming messages, which runs in
//! calls of the node. It is therefore not borrowed while the node is called.

use crate::code::*;
use crate::cq::Cq;
use crate::fault::Faults;
use crate::handshake::{Handshakes, Offer};
use crate::long::Longs;
use crate::memory::Regions;
use crate::nic::{Nic, PTAGS_MAX};
use crate::slots::{Kind, Slots};
use crate::types::VIP_ERROR_DESCRIPTOR;
use crate::vi::Vi;
use crate::wire::{Header, LEN_MAX};
use portolan::Request;
use std::collections::VecDeque;

/// Maximum number of open NIC handles. Each VipOpenNic() returns a new one, and programs need few.
const NICS_MAX: usize = 64;
/// Maximum number of VIs of a process: one for each direction to 1,024 other processes, and as many
/// again.
pub(crate) const VIS_MAX: usize = 4096;
/// Maximum number of completion queues of a process: one for each VI.
pub(crate) const CQS_MAX: usize = VIS_MAX;
/// Maximum number of requests that were reported to the program and are unanswered: one for each
/// VI.
const CONNS_MAX: usize = VIS_MAX;

/// Maximum number of units in flight to one process. With 4 KiB each, they fill three quarters of
/// the memory that Portolan holds for unexpected messages. A send therefore never blocks in a call.
pub(crate) const UNITS_MAX: u32 = 96;

/// Another process.
#[derive(Default)]
pub(crate) struct Peer {
    /// Number of units that it has not acknowledged.
    pub(crate) in_flight: u32,
    /// Indices of VIs that wait until fewer units are in flight.
    pub(crate) waiting: VecDeque<u32>,
    /// A receive that fails when the process has failed or exited. It is posted when this process
    /// first waits for it.
    pub(crate) canary: Option<Request>,
    pub(crate) has_failed: bool,
}

/// The state; see the module documentation.
pub(crate) struct World {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) nics: Slots<Nic>,
    /// Index of the NIC of each protection tag.
    pub(crate) ptags: Slots<u32>,
    pub(crate) regions: Regions,
    pub(crate) vis: Slots<Vi>,
    pub(crate) cqs: Slots<Cq>,
    pub(crate) conns: Slots<Offer>,
    pub(crate) handshakes: Handshakes,
    pub(crate) faults: Faults,
    pub(crate) longs: Longs,
    peers: Vec<Peer>,
    /// Messages of the library, each with the rank of its receiver.
    pub(crate) out: Vec<(u32, Vec<u8>)>,
    /// Indices of VIs that may have something to send.
    pub(crate) ready: Vec<u32>,
    /// Indices of VIs that must acknowledge now.
    pub(crate) acks_due: Vec<u32>,
    /// Indices of VIs that acknowledge when no other work is pending.
    pub(crate) due: Vec<u32>,
    /// Set if a program's function may have to be called.
    pub(crate) has_calls: bool,
    /// Number of incoming messages that were dropped.
    pub(crate) dropped_count: u64,
}

impl World {
    pub(crate) const fn new() -> World {
        World {
            rank: 0,
            size: 0,
            nics: Slots::new(Kind::Nic, NICS_MAX),
            ptags: Slots::new(Kind::Ptag, PTAGS_MAX),
            regions: Regions::new(),
            vis: Slots::new(Kind::Vi, VIS_MAX),
            cqs: Slots::new(Kind::Cq, CQS_MAX),
            conns: Slots::new(Kind::Conn, CONNS_MAX),
            handshakes: Handshakes::new(),
            faults: Faults::new(),
            longs: Longs::new(),
            peers: Vec::new(),
            out: Vec::new(),
            ready: Vec::new(),
            acks_due: Vec::new(),
            due: Vec::new(),
            has_calls: false,
            dropped_count: 0,
        }
    }

    #[inline]
    pub(crate) fn peer(&mut self, rank: u32) -> &mut Peer {
        let index = rank as usize;
        if index >= self.peers.len() {
            self.peers.resize_with(index + 1, Peer::default);
        }
        &mut self.peers[index]
    }

    /// Queues a message of the library.
    pub(crate) fn queue_message(&mut self, rank: u32, header: &Header, body: &[u8]) {
        let mut head = [0; LEN_MAX];
        let len = header.write(&mut head);
        self.out.push((rank, [&head[..len], body].concat()));
    }

    /// Reduces the number of units in flight to a process, so that waiting VIs may send.
    #[inline]
    pub(crate) fn land(&mut self, rank: u32, count: u32) {
        let peer = self.peer(rank);
        peer.in_flight = peer.in_flight.saturating_sub(count);
        if !peer.waiting.is_empty() {
            let waiting = std::mem::take(&mut peer.waiting);
            self.ready.extend(waiting);
        }
    }

    /// Completes a descriptor of a VI, and notifies its completion queue.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        index: u32,
        is_recv: bool,
        number: u64,
        status: u32,
        len: Option<u32>,
    ) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        let queue = if is_recv { &mut vi.recv } else { &mut vi.send };
        let count = queue.finish(number, status, len);
        self.has_calls |= count > 0 && !queue.handlers.is_empty();
        if let Some(cq) = queue.cq {
            self.complete(cq, index, is_recv, count);
        }
    }

    #[inline]
    fn complete(&mut self, cq: u32, vi: u32, is_recv: bool, count: u32) {
        let Some(queue) = self.cqs.get_mut(cq) else {
            return;
        };
        let mut is_full = false;
        for _ in 0..count {
            is_full |= !queue.push(vi, is_recv);
        }
        self.has_calls |= count > 0 && !queue.handlers.is_empty();
        if is_full {
            let nic = queue.nic;
            self.fault(
                nic,
                VIP_RESOURCE_CQ,
                VIP_ERROR_VI_OVERRUN,
                |world, fault| VIP_ERROR_DESCRIPTOR {
                    ViHandle: world.vis.handle(vi),
                    CQHandle: world.cqs.handle(cq),
                    ..fault
                },
            );
        }
    }

    /// Returns true if work for the node is pending.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !(self.out.is_empty() && self.ready.is_empty() && self.acks_due.is_empty())
    }

    /// Returns the ranks of the processes that VIs wait for.
    pub(crate) fn awaited(&mut self) -> Vec<u32> {
        let own = self.rank;
        let connected = self.vis.iter().filter_map(|(_, vi)| vi.awaited());
        let mut ranks: Vec<u32> = connected.filter(|rank| *rank != own).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.retain(|rank| !self.peer(*rank).has_failed);
        ranks
    }
}
