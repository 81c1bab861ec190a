// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network: each host has one wire to one switch, whose ports buffer a few bytes and then drop.

use crate::faults::Fault;
use crate::queue::{Happening, Queue};
use crate::trace::{Item, Trace};
use portolan_proto::LinkId;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// Bytes beside a frame on the wire: preamble, Ethernet header, checksum, gap, IP and UDP.
const OVERHEAD_LEN: usize = 66;

/// Bytes that a host queues for its wire before a link says that it has no room.
const EGRESS_LEN: u64 = 300_000;

/// Bytes of headers in which a flipped bit may slip through.
const HEADER_LEN: usize = 48;

/// What is drawn for the network.
#[derive(Clone, Debug)]
pub(crate) struct NetPlan {
    pub(crate) bandwidth: u64,
    pub(crate) latency_ns: Vec<u64>,
    pub(crate) buffer_len: u64,
    pub(crate) mtu: usize,
    /// What the way between the hosts carries, if it is less than their interfaces say.
    pub(crate) way_mtu: usize,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    pub(crate) reorder_ns: u64,
    pub(crate) corrupt: f64,
}

impl NetPlan {
    pub(crate) fn draw(rng: &mut ChaCha8Rng, hosts: &[u32]) -> NetPlan {
        let chance = |rng: &mut ChaCha8Rng, share: f64, values: &[f64]| {
            if rng.random_bool(share) {
                *values.choose(rng).unwrap_or(&0.0)
            } else {
                0.0
            }
        };
        let host_count = hosts.last().map_or(0, |last| last + 1);
        let longest = *[2_000, 20_000, 200_000].choose(rng).unwrap_or(&2_000);
        let mtu = *[1500, 1500, 9000].choose(rng).unwrap_or(&1500);
        NetPlan {
            // 1, 10 and 100 Gb/s.
            bandwidth: *[125_000_000, 1_250_000_000, 12_500_000_000]
                .choose(rng)
                .unwrap_or(&1),
            latency_ns: (0..host_count)
                .map(|_| rng.random_range(300..longest))
                .collect(),
            buffer_len: *[32 << 10, 256 << 10, 4 << 20].choose(rng).unwrap_or(&1),
            mtu,
            way_mtu: if rng.random_bool(0.2) {
                *[1280, 1450, 1500].choose(rng).unwrap_or(&1280)
            } else {
                mtu
            },
            loss: chance(rng, 0.5, &[0.001, 0.01, 0.05, 0.2]),
            duplicate: chance(rng, 0.3, &[0.01, 0.1]),
            reorder: chance(rng, 0.3, &[0.01, 0.1, 0.5]),
            reorder_ns: *[10_000, 100_000, 2_000_000].choose(rng).unwrap_or(&10_000),
            corrupt: chance(rng, 0.2, &[0.001, 0.02]),
        }
    }
}

impl fmt::Display for NetPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gbits = self.bandwidth * 8 / 1_000_000_000;
        let buffer = self.buffer_len >> 10;
        write!(
            f,
            "{gbits} Gb/s, {buffer} KiB per port, way MTU {}, ",
            self.way_mtu
        )?;
        write!(f, "loss {}, duplicates {}, ", self.loss, self.duplicate)?;
        write!(
            f,
            "reordered {} by {} µs, ",
            self.reorder,
            self.reorder_ns / 1000
        )?;
        write!(f, "corrupt {}", self.corrupt)
    }
}

/// The network of one run.
#[derive(Debug)]
pub(crate) struct Net {
    plan: NetPlan,
    hosts: Vec<u32>,
    header_corruption: bool,
    rng: ChaCha8Rng,
    /// When each host's wire and each of the switch's ports is free again.
    wire_free: Vec<u64>,
    port_free: Vec<u64>,
    pub(crate) active: Vec<Fault>,
    pub(crate) frame_count: u64,
    pub(crate) byte_count: u64,
    /// When frames found a full port of the switch, and the longest queue at one, in bytes.
    pub(crate) switch_losses: Vec<std::time::Duration>,
    pub(crate) switch_queue_len_max: u64,
}

impl Net {
    pub(crate) fn new(plan: &crate::Plan) -> Net {
        let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
        rng.set_stream(1);
        let host_count = plan.net.latency_ns.len();
        Net {
            plan: plan.net.clone(),
            hosts: plan.hosts.clone(),
            header_corruption: plan.header_corruption,
            rng,
            wire_free: vec![0; host_count],
            port_free: vec![0; host_count],
            active: Vec::new(),
            frame_count: 0,
            byte_count: 0,
            switch_losses: Vec::new(),
            switch_queue_len_max: 0,
        }
    }

    fn wire_ns(&self, len: u64) -> u64 {
        len * 1_000_000_000 / self.plan.bandwidth
    }

    /// When `node`'s host takes frames again; `None` if it does now.
    pub(crate) fn full_until(&self, now: u64, node: u32) -> Option<u64> {
        let free = self.wire_free[self.hosts[node as usize] as usize];
        let queued_ns = self.wire_ns(EGRESS_LEN);
        (free > now + queued_ns).then(|| free - queued_ns / 2)
    }

    /// Puts a frame on the wire; what becomes of it is decided here.
    pub(crate) fn send(
        &mut self,
        (queue, trace): (&mut Queue, &mut Trace),
        now: u64,
        (from, to): (u32, u32),
        link: LinkId,
        mut frame: Vec<u8>,
    ) {
        self.frame_count += 1;
        self.byte_count += frame.len() as u64;
        let len = frame.len();
        trace.push(now, from, Item::Sent { to, link, len });
        let at = match self.pass(now, (from, to), link, len) {
            Ok(at) => at,
            Err(why) => {
                trace.push(now, from, Item::Lost { to, link, why });
                return;
            }
        };
        if self.roll(self.plan.corrupt) {
            if !self.header_corruption {
                let why = "corrupt";
                trace.push(now, from, Item::Lost { to, link, why });
                return;
            }
            let bit = self.rng.random_range(0..frame.len().min(HEADER_LEN) * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        if self.roll(self.plan.duplicate) {
            let later = at + self.rng.random_range(0..=self.plan.reorder_ns);
            let frame = frame.clone();
            queue.push(
                later,
                Happening::Arrive {
                    from,
                    to,
                    link,
                    frame,
                },
            );
        }
        let late = self.roll(self.plan.reorder);
        let extra = if late {
            self.rng.random_range(0..=self.plan.reorder_ns)
        } else {
            0
        };
        queue.push(
            at + extra,
            Happening::Arrive {
                from,
                to,
                link,
                frame,
            },
        );
    }

    fn roll(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random_bool(share)
    }

    /// When a frame that takes the whole way arrives.
    fn pass(
        &mut self,
        now: u64,
        (from, to): (u32, u32),
        link: LinkId,
        len: usize,
    ) -> Result<u64, &'static str> {
        let (src, dst) = (
            self.hosts[from as usize] as usize,
            self.hosts[to as usize] as usize,
        );
        let on_wire = (len + OVERHEAD_LEN) as u64;
        let wire_ns = self.wire_ns(on_wire);
        self.wire_free[src] = self.wire_free[src].max(now) + wire_ns;
        let headers_len = if link == LinkId::UDP { 28 } else { 4 };
        if len + headers_len > self.plan.way_mtu {
            return Err("too long for the way");
        }
        if self
            .active
            .iter()
            .any(|fault| fault.cuts_link(from, to, link))
        {
            return Err("partition");
        }
        if self.roll(self.plan.loss) {
            return Err("loss");
        }
        let at_switch = self.wire_free[src] + self.plan.latency_ns[src];
        let backlog_ns = self.port_free[dst].saturating_sub(at_switch);
        if backlog_ns > self.wire_ns(self.plan.buffer_len) {
            self.switch_losses
                .push(std::time::Duration::from_nanos(now));
            return Err("switch buffer full");
        }
        let queue_len =
            u64::try_from(u128::from(backlog_ns) * u128::from(self.plan.bandwidth) / 1_000_000_000);
        self.switch_queue_len_max = self.switch_queue_len_max.max(queue_len.unwrap_or(0));
        self.port_free[dst] = self.port_free[dst].max(at_switch) + wire_ns;
        Ok(self.port_free[dst] + self.plan.latency_ns[dst])
    }
}
