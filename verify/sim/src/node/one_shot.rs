// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-shot regions: a region is registered for one operation of a peer, and deregistered and freed
//! when that operation completes. MPI libraries use remote memory this way.
//!
//! Programs agree on a region by messages. Here the target is notified at once, which is stricter:
//! the region closes in the moment of the completion.

use super::{Node, Op};
use crate::context::Context;
use crate::ledger::Note;
use crate::payload;
use crate::plan::OneShotFlow;
use crate::program::Outgoing;
use portolan_proto::{
    Access, LaneId, OpError, OpId, PeerId, PortId, Refused, RegionSpec, RemoteSpec,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// First key of one-shot regions. Other regions have lower keys.
const FIRST_KEY: u64 = 1 << 32;

/// Minimum length in bytes of reads that need a transfer in every plan.
const LONG_LEN: u64 = 70_000;

/// Call that the world makes at the target of a one-shot region.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RegionCall {
    Register {
        target: u32,
        one_shot: OneShot,
    },
    /// The operation has completed, with success if `is_done`.
    Deregister {
        target: u32,
        one_shot: OneShot,
        is_done: bool,
    },
}

/// One operation, with the region that exists for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneShot {
    /// Payload number of the bytes.
    id: u64,
    len: usize,
    /// Set if the initiator writes the region; otherwise it reads it.
    fills: bool,
}

impl OneShot {
    fn key(&self) -> u64 {
        FIRST_KEY + self.id
    }
}

/// Progress of one [`OneShotFlow`].
#[derive(Debug)]
pub(crate) struct Initiator {
    flow: OneShotFlow,
    rng: ChaCha8Rng,
    /// Operations that are not in the outbox yet.
    left: u32,
    under_way: usize,
    next_ns: u64,
}

impl Initiator {
    fn new(cx: &Context, index: usize) -> Initiator {
        let flow = cx.plan.one_shots[index];
        let mut rng = ChaCha8Rng::seed_from_u64(cx.plan.seed);
        rng.set_stream(u64::from(crate::plan::NODES_MAX) * 3 + index as u64);
        Initiator {
            flow,
            rng,
            left: flow.count,
            under_way: 0,
            next_ns: flow.start_ns,
        }
    }

    fn draw(&mut self, id: u64) -> OneShot {
        OneShot {
            id,
            len: self.rng.random_range(1..=self.flow.len_max),
            fills: self.rng.random_bool(0.3),
        }
    }
}

impl Node {
    /// Starts or restarts a process, without the regions and operations of its last incarnation.
    pub(super) fn begin_one_shots(&mut self, cx: &Context) {
        self.one_shot_regions.clear();
        self.one_shots_failed = 0;
        if self.initiators.is_empty() {
            let flows = cx.plan.one_shots.iter().enumerate();
            let own = flows.filter(|(_, flow)| flow.initiator == self.id);
            self.initiators = own.map(|(index, _)| Initiator::new(cx, index)).collect();
        }
        for initiator in &mut self.initiators {
            initiator.under_way = 0;
            initiator.next_ns = cx.now.max(initiator.flow.start_ns);
        }
    }

    /// Queues the operations that are due in the outbox of their lane.
    pub(super) fn start_one_shots(&mut self, cx: &Context) {
        if self.program.is_leaving() {
            return;
        }
        for (index, initiator) in self.initiators.iter_mut().enumerate() {
            if cx.ending {
                initiator.left = 0;
            }
            if initiator.left == 0 || initiator.next_ns > cx.now {
                continue;
            }
            let flow = initiator.flow;
            let outbox = &mut self.peers[flow.target as usize].outbox[flow.lane.index()];
            let is_its = |out: &&Outgoing| out.note == Note::OneShot(index);
            let mut count = initiator.under_way + outbox.iter().filter(is_its).count();
            while initiator.left > 0 && count < flow.at_once {
                outbox.push_back(Outgoing {
                    port: PortId::user(0),
                    best_effort: false,
                    rendezvous: false,
                    len: 0,
                    note: Note::OneShot(index),
                });
                count += 1;
                initiator.left -= 1;
                self.with_outbox.insert(flow.target);
            }
            // A completion makes the next ones due.
            initiator.next_ns = u64::MAX;
        }
    }

    /// Returns the time of the next operation.
    pub(super) fn next_one_shot_ns(&self) -> u64 {
        let makes = |initiator: &&Initiator| initiator.left > 0 && !self.program.is_leaving();
        let due = self.initiators.iter().filter(makes);
        due.map(|initiator| initiator.next_ns)
            .min()
            .unwrap_or(u64::MAX)
    }

    pub(super) fn has_one_shots_left(&self) -> bool {
        self.initiators.iter().any(|initiator| initiator.left > 0)
    }

    /// Makes the operations on a failed peer due again.
    pub(super) fn retry_one_shots(&mut self, now: u64, peer: u32) {
        let there = self.initiators.iter_mut();
        for initiator in there.filter(|initiator| initiator.flow.target == peer) {
            initiator.next_ns = now;
        }
    }

    pub(super) fn submit_one_shot(
        &mut self,
        cx: &mut Context,
        peer: u32,
        lane: LaneId,
        index: usize,
    ) -> Result<(), Refused> {
        let id = cx.ledger.take_id();
        let one_shot = self.initiators[index].draw(id);
        let bytes = match one_shot.fills {
            true => payload::make(id, one_shot.len, false),
            false => vec![0xa5; one_shot.len],
        };
        let op = self.make_op(Op::OneShot {
            bytes: bytes.clone(),
            peer,
            initiator: index,
            one_shot,
        });
        let result = self.request_one_shot(PeerId(peer), lane, (op, &one_shot), &bytes);
        match &result {
            Ok(()) => {
                self.initiators[index].under_way += 1;
                self.peers[peer as usize].send_count += 1;
                cx.region_calls.push(RegionCall::Register {
                    target: peer,
                    one_shot,
                });
            }
            Err(_) => drop(self.memory.remove(&op.0)),
        }
        result
    }

    fn request_one_shot(
        &mut self,
        peer: PeerId,
        lane: LaneId,
        (op, one_shot): (OpId, &OneShot),
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let spec = RemoteSpec {
            lane,
            key: one_shot.key(),
            addr: 0,
            imm: None,
        };
        let len = one_shot.len as u64;
        if !one_shot.fills {
            return self.core.get(peer, &spec, op, len);
        }
        // The operation's number stands for the buffer's address.
        if let Some(mut staging) = self.core.put(peer, &spec, op, len, op.0)? {
            staging.push(bytes);
        }
        Ok(())
    }

    /// Checks a completed operation; returns `false` if it was not on a one-shot region.
    pub(super) fn on_one_shot_done(
        &mut self,
        cx: &mut Context,
        op: OpId,
        result: Result<(), OpError>,
    ) -> bool {
        if !matches!(self.memory.get(&op.0), Some(Op::OneShot { .. })) {
            return false;
        }
        let Some(Op::OneShot {
            bytes,
            peer,
            initiator,
            one_shot,
        }) = self.memory.remove(&op.0)
        else {
            return false;
        };
        self.peers[peer as usize].send_count -= 1;
        let initiator = &mut self.initiators[initiator];
        initiator.under_way -= 1;
        initiator.next_ns = cx.now;
        cx.region_calls.push(RegionCall::Deregister {
            target: peer,
            one_shot,
            is_done: result.is_ok(),
        });
        let Err(error) = result else {
            let differs = payload::first_difference(one_shot.id, &bytes, false);
            if let Some(at) = differs.filter(|_| !one_shot.fills) {
                let (id, len) = (self.id, one_shot.len);
                cx.violate(format!(
                    "node {id} at {peer}: one-shot get of {len} bytes differs from byte {at} on"
                ));
            }
            return true;
        };
        self.failed_count += 1;
        self.check_error(cx, error, "failed a one-shot operation of");
        true
    }

    /// Registers a region for one operation.
    pub(crate) fn register_one_shot(&mut self, one_shot: &OneShot) {
        let bytes = match one_shot.fills {
            true => vec![0xa5; one_shot.len],
            false => payload::make(one_shot.id, one_shot.len, false),
        };
        let op = self.make_op(Op::OneShotRegion { bytes });
        let spec = RegionSpec {
            key: Some(one_shot.key()),
            base: 0,
            len: one_shot.len as u64,
            access: match one_shot.fills {
                true => Access::WRITE,
                false => Access::READ,
            },
        };
        self.core.register(op, &spec);
        self.one_shot_regions.insert(one_shot.key(), op);
    }

    /// Deregisters the region of a completed operation and frees its memory.
    pub(crate) fn deregister_one_shot(
        &mut self,
        cx: &mut Context,
        one_shot: &OneShot,
        is_done: bool,
    ) {
        let Some(op) = self.one_shot_regions.remove(&one_shot.key()) else {
            return;
        };
        let id = self.id;
        self.one_shots_failed += u64::from(!is_done);
        let memory = self.memory.remove(&op.0);
        if self.core.deregister(one_shot.key()) != Some(op) {
            cx.violate(format!(
                "node {id}: the region of {one_shot:?} was already deregistered"
            ));
        }
        if let Some(Op::OneShotRegion { bytes }) = memory
            && is_done
            && one_shot.fills
            && let Some(at) = payload::first_difference(one_shot.id, &bytes, false)
        {
            cx.violate(format!(
                "node {id}: one-shot put of {} bytes differs from byte {at} on",
                one_shot.len
            ));
        }
        self.drain(cx, &[]);
        self.on_wake(cx);
    }

    /// Returns the key of a one-shot region that is read by a transfer.
    pub(super) fn long_one_shot_key(&self, region: OpId, len: u64) -> Option<u64> {
        let mut regions = self.one_shot_regions.iter();
        let (key, _) = regions.find(|(_, op)| **op == region)?;
        (len > LONG_LEN).then_some(*key)
    }

    /// Deregisters all one-shot regions, because the process closes.
    pub(super) fn end_one_shots(&mut self) {
        for (key, op) in std::mem::take(&mut self.one_shot_regions) {
            self.core.deregister(key);
            self.memory.remove(&op.0);
        }
    }
}
