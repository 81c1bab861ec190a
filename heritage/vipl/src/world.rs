// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything but the node: NICs, VIs, completion queues, registered memory, requests for connections, and
//! what is to be done with the node next.
//!
//! It is changed by calls of the program and by the handler of arriving messages, which runs inside calls
//! of the node; so it is not borrowed while the node is called.

use crate::code::*;
use crate::cq::Cq;
use crate::fault::Faults;
use crate::meeting::{Meetings, Offer};
use crate::memory::Regions;
use crate::nic::{Nic, PTAGS_MAX};
use crate::slots::{Kind, Slots};
use crate::types::VIP_ERROR_DESCRIPTOR;
use crate::vi::Vi;
use crate::wire::{Header, LEN_MAX};
use portolan::Request;
use std::collections::VecDeque;

/// NICs that are open at a time: each VipOpenNic() gives a new handle, and programs need few.
const NICS_MAX: usize = 64;
/// VIs of a process: four times what a connection to each of 1,024 others takes in both directions would
/// be too much; one for each direction, and as many again.
pub(crate) const VIS_MAX: usize = 4096;
/// Completion queues of a process: one for each VI.
pub(crate) const CQS_MAX: usize = VIS_MAX;
/// Requests that the program was told of and has not answered: one for each VI.
const CONNS_MAX: usize = VIS_MAX;

/// Units that may be under way to one process: of 4 KiB each they fill three quarters of what Portolan lets
/// wait unread, so a send never waits for its receiver inside a call.
pub(crate) const UNITS_MAX: u32 = 96;

/// Another process.
#[derive(Default)]
pub(crate) struct Peer {
    /// Units that it has not said to have taken in.
    pub(crate) under_way: u32,
    /// VIs that wait until there are fewer.
    pub(crate) waiting: VecDeque<u32>,
    /// Ends when the process is gone; posted when something is first waited for.
    pub(crate) canary: Option<Request>,
    pub(crate) is_gone: bool,
}

/// See the module documentation.
pub(crate) struct World {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) nics: Slots<Nic>,
    /// By place: the NIC.
    pub(crate) ptags: Slots<u32>,
    pub(crate) regions: Regions,
    pub(crate) vis: Slots<Vi>,
    pub(crate) cqs: Slots<Cq>,
    pub(crate) conns: Slots<Offer>,
    pub(crate) meetings: Meetings,
    pub(crate) faults: Faults,
    peers: Vec<Peer>,
    /// Messages of the library's own, and to whom.
    pub(crate) out: Vec<(u32, Vec<u8>)>,
    /// VIs that may have something to send.
    pub(crate) ready: Vec<u32>,
    /// VIs that owe an acknowledgement now.
    pub(crate) owing: Vec<u32>,
    /// VIs that owe one when nothing else is to be done.
    pub(crate) due: Vec<u32>,
    /// Somebody wants to be called, and may be.
    pub(crate) has_calls: bool,
    /// What came and was for nobody.
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
            meetings: Meetings::new(),
            faults: Faults::new(),
            peers: Vec::new(),
            out: Vec::new(),
            ready: Vec::new(),
            owing: Vec::new(),
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

    /// Sends a message of the library's own.
    pub(crate) fn say(&mut self, rank: u32, header: &Header, body: &[u8]) {
        let mut head = [0; LEN_MAX];
        let len = header.write(&mut head);
        self.out.push((rank, [&head[..len], body].concat()));
    }

    /// Fewer units are under way to a process: others may send.
    #[inline]
    pub(crate) fn land(&mut self, rank: u32, count: u32) {
        let peer = self.peer(rank);
        peer.under_way = peer.under_way.saturating_sub(count);
        if !peer.waiting.is_empty() {
            let waiting = std::mem::take(&mut peer.waiting);
            self.ready.extend(waiting);
        }
    }

    /// Ends a descriptor of a VI, and tells who is to be told.
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
        self.has_calls |= count > 0 && !queue.wanted.is_empty();
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
        self.has_calls |= count > 0 && !queue.wanted.is_empty();
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

    /// Whether anything is to be done with the node that a turn of its own does not do.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !(self.out.is_empty() && self.ready.is_empty() && self.owing.is_empty())
    }

    /// Ranks that something is waited for from.
    pub(crate) fn awaited(&mut self) -> Vec<u32> {
        let own = self.rank;
        let connected = self.vis.iter().filter_map(|(_, vi)| vi.awaited());
        let mut ranks: Vec<u32> = connected.filter(|rank| *rank != own).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.retain(|rank| !self.peer(*rank).is_gone);
        ranks
    }
}
