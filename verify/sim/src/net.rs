// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network: each host has one wire to one switch. The switch ports have small
//! buffers and drop the excess.

use crate::faults::{Fault, FaultKind};
use crate::queue::{Flight, Happening, Queue};
use crate::trace::{Item, Trace};
use portolan_proto::LinkId;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// Bytes in addition to a frame on the wire: preamble, Ethernet header, checksum, gap, IP and UDP.
const OVERHEAD_LEN: usize = 66;

/// Bytes that a host queues for its wire before a link reports that it has no room.
const EGRESS_LEN: u64 = 300_000;

/// Bytes of headers in which a flipped bit may go undetected.
const HEADER_LEN: usize = 48;

/// Wire with its queue, which drops frames that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Bandwidth in bytes per second.
    pub(crate) bandwidth: u64,
    pub(crate) latency_ns: u64,
    pub(crate) buffer_len: u64,
}

/// Drawn network. Each host has a wire to the switch of its rack and one back. If there are several
/// racks, each has a wire to the central switch and one back.
#[derive(Clone, Debug)]
pub(crate) struct NetPlan {
    /// Wires of the hosts: to their switch (its buffer is the host's own, see [`EGRESS_LEN`]) and
    /// back.
    pub(crate) hosts: Vec<Hop>,
    /// Number of hosts per rack, and wires of the racks.
    pub(crate) rack_hosts: usize,
    pub(crate) racks: Vec<Hop>,
    pub(crate) mtu: usize,
    /// MTU of the path between the hosts, if it is less than their interfaces report.
    pub(crate) path_mtu: usize,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    pub(crate) reorder_ns: u64,
    pub(crate) corrupt: f64,
    /// Number of queued bytes from which a switch port marks datagrams; `None` disables marking.
    pub(crate) mark_len: Option<u64>,
}

/// Returns 0, or with probability `share` one of `values`.
fn chance(rng: &mut ChaCha8Rng, share: f64, values: &[f64]) -> f64 {
    if rng.random_bool(share) {
        *values.choose(rng).unwrap_or(&0.0)
    } else {
        0.0
    }
}

impl NetPlan {
    pub(crate) fn draw(rng: &mut ChaCha8Rng, hosts: &[u32]) -> NetPlan {
        let host_count = hosts.last().map_or(0, |last| *last as usize + 1);
        let mtu = *[1500, 1500, 9000].choose(rng).unwrap_or(&1500);
        let hops = draw_hosts(rng, host_count);
        let rack_hosts = match rng.random_range(0..3) {
            0 => *[2, 4, 16].choose(rng).unwrap_or(&2),
            _ => usize::MAX,
        };
        let racks = draw_racks(rng, &hops, rack_hosts);
        NetPlan {
            hosts: hops,
            rack_hosts,
            racks,
            mtu,
            path_mtu: if rng.random_bool(0.2) {
                *[1280, 1450, 1500].choose(rng).unwrap_or(&1280)
            } else {
                mtu
            },
            loss: chance(rng, 0.5, &[0.001, 0.01, 0.05, 0.2]),
            duplicate: chance(rng, 0.3, &[0.01, 0.1]),
            reorder: chance(rng, 0.3, &[0.01, 0.1, 0.5]),
            reorder_ns: *[10_000, 100_000, 2_000_000].choose(rng).unwrap_or(&10_000),
            corrupt: chance(rng, 0.2, &[0.001, 0.02]),
            mark_len: None,
        }
    }

    /// Draws marking for half of the networks: from the first queued byte, from DCTCP's threshold
    /// at 10 Gb/s (RFC 8257, section 3.1), or later.
    pub(crate) fn draw_marking(&mut self, rng: &mut ChaCha8Rng) {
        let thresholds = [1, 20 << 10, 100 << 10, 1 << 20];
        self.mark_len = rng
            .random_bool(0.5)
            .then(|| *thresholds.choose(rng).unwrap_or(&1));
    }
}

/// Draws hosts with 1, 10 or 100 Gb/s; some clusters are mixed.
fn draw_hosts(rng: &mut ChaCha8Rng, count: usize) -> Vec<Hop> {
    const RATES: [u64; 3] = [125_000_000, 1_250_000_000, 12_500_000_000];
    let longest = *[2_000, 20_000, 200_000].choose(rng).unwrap_or(&2_000);
    let common = *RATES.choose(rng).unwrap_or(&1);
    let mixed = rng.random_bool(0.2);
    let buffer_len = *[32 << 10, 256 << 10, 4 << 20].choose(rng).unwrap_or(&1);
    let draw = |_| Hop {
        bandwidth: if mixed {
            *RATES.choose(rng).unwrap_or(&1)
        } else {
            common
        },
        latency_ns: rng.random_range(300..longest),
        buffer_len,
    };
    (0..count).map(draw).collect()
}

/// Draws the wires of racks, which carry less than those of their hosts together, as in real
/// machine rooms.
fn draw_racks(rng: &mut ChaCha8Rng, hosts: &[Hop], rack_hosts: usize) -> Vec<Hop> {
    let share = *[1, 2, 4].choose(rng).unwrap_or(&1);
    let racks = hosts.chunks(rack_hosts);
    let draw = |hosts: &[Hop]| Hop {
        bandwidth: hosts.iter().map(|hop| hop.bandwidth).sum::<u64>() / share,
        latency_ns: rng.random_range(300..20_000),
        buffer_len: *[256 << 10, 4 << 20].choose(rng).unwrap_or(&1),
    };
    racks.map(draw).collect()
}

impl fmt::Display for NetPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gbits = self
            .hosts
            .iter()
            .map(|hop| hop.bandwidth * 8 / 1_000_000_000);
        let slowest = gbits.clone().min().unwrap_or(0);
        let fastest = gbits.max().unwrap_or(0);
        let buffer = self.hosts.first().map_or(0, |hop| hop.buffer_len >> 10);
        write!(f, "{} racks, {slowest}-{fastest} Gb/s, ", self.racks.len())?;
        write!(f, "{buffer} KiB per port, path MTU {}, ", self.path_mtu)?;
        write!(f, "loss {}, duplicates {}, ", self.loss, self.duplicate)?;
        write!(
            f,
            "reordered {} by {} µs, ",
            self.reorder,
            self.reorder_ns / 1000
        )?;
        write!(f, "corrupt {}", self.corrupt)?;
        match self.mark_len {
            Some(len) => write!(f, ", marked from {len} B"),
            None => Ok(()),
        }
    }
}

/// Network of one run.
#[derive(Debug)]
pub(crate) struct Net {
    plan: NetPlan,
    hosts: Vec<u32>,
    header_corruption: bool,
    rng: ChaCha8Rng,
    /// Time when each wire is free again: hosts up and down, racks up and down.
    host_free: [Vec<u64>; 2],
    rack_free: [Vec<u64>; 2],
    pub(crate) active: Vec<Fault>,
    pub(crate) frame_count: u64,
    pub(crate) byte_count: u64,
    /// Times of frame losses at full switch ports, and the longest queue at one, in bytes.
    pub(crate) switch_losses: Vec<std::time::Duration>,
    pub(crate) switch_queue_len_max: u64,
    /// Queue lengths that frames found at switch ports: sum in bytes, and number of frames.
    queue_sum: (u64, u64),
    /// Number of datagrams that switches have marked.
    pub(crate) marked_count: u64,
}

impl Net {
    pub(crate) fn new(plan: &crate::Plan) -> Net {
        let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
        rng.set_stream(1);
        let free = |hops: &[Hop]| [vec![0; hops.len()], vec![0; hops.len()]];
        Net {
            host_free: free(&plan.net.hosts),
            rack_free: free(&plan.net.racks),
            plan: plan.net.clone(),
            hosts: plan.hosts.clone(),
            header_corruption: plan.header_corruption,
            rng,
            active: Vec::new(),
            frame_count: 0,
            byte_count: 0,
            switch_losses: Vec::new(),
            switch_queue_len_max: 0,
            queue_sum: (0, 0),
            marked_count: 0,
        }
    }

    /// Returns the time when `node`'s host accepts frames again; `None` if it does now.
    pub(crate) fn full_until(&self, now: u64, node: u32) -> Option<u64> {
        let host = self.hosts[node as usize] as usize;
        let free = self.host_free[UP][host];
        let queued_ns = self.plan.hosts[host].wire_ns(EGRESS_LEN);
        (free > now + queued_ns).then(|| free - queued_ns / 2)
    }

    /// Puts a frame on the wire of its sender.
    pub(crate) fn send(
        &mut self,
        (queue, trace): (&mut Queue, &mut Trace),
        now: u64,
        (from, to): (u32, u32),
        link: LinkId,
        frame: Vec<u8>,
    ) {
        self.frame_count += 1;
        self.byte_count += frame.len() as u64;
        trace.push_frame(now, (from, to), link, &frame);
        let flight = Flight {
            from,
            to,
            link,
            frame,
            marked: false,
        };
        match self.pass(now, &flight) {
            Ok(at) => queue.push(at, Happening::Switch { leg: 0, flight }),
            Err(why) => lose(trace, now, &flight, why),
        }
    }

    /// Handles a frame at a switch: the next wire takes it, or has no room for it.
    pub(crate) fn forward(
        &mut self,
        (queue, trace): (&mut Queue, &mut Trace),
        now: u64,
        leg: usize,
        mut flight: Flight,
    ) {
        let on_wire = (flight.frame.len() + OVERHEAD_LEN) as u64;
        let (src, dst) = (self.host(flight.from), self.host(flight.to));
        let (src_rack, dst_rack) = (src / self.plan.rack_hosts, dst / self.plan.rack_hosts);
        let legs = if src_rack == dst_rack { 1 } else { 3 };
        let (hop, free) = match (legs - leg, leg) {
            (1, _) => (&self.plan.hosts[dst], &mut self.host_free[DOWN][dst]),
            (_, 0) => (
                &self.plan.racks[src_rack],
                &mut self.rack_free[UP][src_rack],
            ),
            _ => (
                &self.plan.racks[dst_rack],
                &mut self.rack_free[DOWN][dst_rack],
            ),
        };
        let Some((at, queue_len)) = hop.pass(now, free, on_wire) else {
            self.switch_losses
                .push(std::time::Duration::from_nanos(now));
            return lose(trace, now, &flight, "switch buffer full");
        };
        self.switch_queue_len_max = self.switch_queue_len_max.max(queue_len);
        self.queue_sum.0 += queue_len;
        self.queue_sum.1 += 1;
        // A frame without an IP header has no room for a mark.
        let takes_marks = flight.link != LinkId::PACKET && !flight.marked;
        if takes_marks && self.plan.mark_len.is_some_and(|from| queue_len >= from) {
            flight.marked = true;
            self.marked_count += 1;
        }
        if leg + 1 < legs {
            let leg = leg + 1;
            return queue.push(at, Happening::Switch { leg, flight });
        }
        self.arrive((queue, trace), now, at, flight);
    }

    /// Handles a frame that has passed all switches; it may still be corrupted, duplicated or
    /// delayed.
    fn arrive(
        &mut self,
        (queue, trace): (&mut Queue, &mut Trace),
        now: u64,
        at: u64,
        mut flight: Flight,
    ) {
        let at = at + self.detour(flight.from) + self.detour(flight.to);
        if self.roll(self.plan.corrupt) {
            if !self.header_corruption {
                return lose(trace, now, &flight, "corrupt");
            }
            let frame = &mut flight.frame;
            let bit = self.rng.random_range(0..frame.len().min(HEADER_LEN) * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        if self.roll(self.plan.duplicate) {
            let later = at + self.rng.random_range(0..=self.plan.reorder_ns);
            queue.push(later, Happening::Arrive(flight.clone()));
        }
        let late = self.roll(self.plan.reorder);
        let extra = if late {
            self.rng.random_range(0..=self.plan.reorder_ns)
        } else {
            0
        };
        queue.push(at + extra, Happening::Arrive(flight));
    }

    /// Returns the mean number of bytes that a frame found queued at a switch port.
    pub(crate) fn switch_queue_len_mean(&self) -> u64 {
        self.queue_sum.0 / self.queue_sum.1.max(1)
    }

    fn host(&self, node: u32) -> usize {
        self.hosts[node as usize] as usize
    }

    fn roll(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random_bool(share)
    }

    /// Returns the time when a frame reaches the first switch, if the path accepts it.
    fn pass(&mut self, now: u64, flight: &Flight) -> Result<u64, &'static str> {
        let Flight {
            from,
            to,
            link,
            ref frame,
            marked: _,
        } = *flight;
        let src = self.host(from);
        let wire = self.plan.hosts[src];
        let free = &mut self.host_free[UP][src];
        *free = (*free).max(now) + wire.wire_ns((frame.len() + OVERHEAD_LEN) as u64);
        let at = *free + wire.latency_ns;
        let headers_len = if link == LinkId::PACKET { 4 } else { 28 };
        if frame.len() + headers_len > self.path_mtu() {
            return Err("exceeds the path MTU");
        }
        if self
            .active
            .iter()
            .any(|fault| fault.cuts_link(from, to, link))
        {
            return Err("partition");
        }
        if self.roll(self.loss()) {
            return Err("loss");
        }
        Ok(at)
    }

    fn path_mtu(&self) -> usize {
        let narrow = self.active.iter().filter_map(|fault| match fault.kind {
            FaultKind::Narrow { mtu } => Some(mtu),
            _ => None,
        });
        narrow.min().unwrap_or(usize::MAX).min(self.plan.path_mtu)
    }

    fn loss(&self) -> f64 {
        let storms = self.active.iter().filter_map(|fault| match fault.kind {
            FaultKind::Storm { per_mille } => Some(f64::from(per_mille) / 1000.0),
            _ => None,
        });
        storms.fold(self.plan.loss, f64::max)
    }

    fn detour(&self, node: u32) -> u64 {
        let detours = self.active.iter().filter_map(|fault| match fault.kind {
            FaultKind::Detour {
                node: far,
                extra_ns,
            } if far == node => Some(extra_ns),
            _ => None,
        });
        detours.sum()
    }
}

fn lose(trace: &mut Trace, now: u64, flight: &Flight, why: &'static str) {
    let (to, link) = (flight.to, flight.link);
    trace.push(now, flight.from, Item::Lost { to, link, why });
}

/// Direction of a wire: towards the middle of the network, and back.
const UP: usize = 0;
const DOWN: usize = 1;

impl Hop {
    fn wire_ns(&self, len: u64) -> u64 {
        len * 1_000_000_000 / self.bandwidth
    }

    /// Returns the time when a frame that reaches the queue at `at` has crossed, and the number of
    /// bytes it found there; `None` if the queue is full.
    fn pass(&self, at: u64, free: &mut u64, len: u64) -> Option<(u64, u64)> {
        let backlog_ns = free.saturating_sub(at);
        if backlog_ns > self.wire_ns(self.buffer_len) {
            return None;
        }
        let queue_len = u128::from(backlog_ns) * u128::from(self.bandwidth) / 1_000_000_000;
        *free = (*free).max(at) + self.wire_ns(len);
        Some((
            *free + self.latency_ns,
            u64::try_from(queue_len).unwrap_or(0),
        ))
    }
}
