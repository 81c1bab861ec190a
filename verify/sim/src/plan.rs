// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plan of a run: all parameters, drawn from the seed before the run starts.

mod ends;
mod one_shot;
mod streams;

use crate::clock::Clock;
use crate::faults::{Fault, FaultKind, Side};
use crate::net::NetPlan;
pub(crate) use one_shot::OneShotFlow;
use portolan_proto::{
    Address, LaneId, Limits, LinkId, LinkParams, MatchBits, PortId, PortMode, Space,
};
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;
pub(crate) use streams::StreamPlan;

/// Maximum number of processes in a run.
pub(crate) const NODES_MAX: u32 = 256;

/// Length in bytes of the longest message of the traffic.
const MESSAGE_LEN_MAX: usize = 1_000_000;

/// Length in bytes of the longest best-effort message; longer ones are sent reliably (`P7.5`).
const BEST_EFFORT_LEN_MAX: usize = 64 * 1024;

/// Share of frames with altered headers, in runs that test this.
const CORRUPT_SHARE: f64 = 0.05;

const MS: u64 = 1_000_000;

/// Flow of messages from one process to a port of another.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) port: u16,
    pub(crate) lane: LaneId,
    pub(crate) best_effort: bool,
    /// Share of short messages that are sent by rendezvous nevertheless, as a caller may choose.
    pub(crate) rendezvous_share: f64,
    pub(crate) count: u32,
    pub(crate) len_min: usize,
    pub(crate) len_max: usize,
    /// Messages per turn, and time between turns.
    pub(crate) burst: u32,
    pub(crate) gap_ns: u64,
    pub(crate) start_ns: u64,
}

impl Flow {
    /// Returns a flow of reliable messages from `src` to a port of `dst`. The buffers of the port
    /// are extended to hold `len_max` bytes. The caller sets their number and times. `None` if
    /// there is no port.
    fn to_some_port(
        ports: &mut [PortPlan],
        rng: &mut ChaCha8Rng,
        (src, dst): (u32, u32),
        draw_len_max: impl FnOnce(&mut ChaCha8Rng) -> usize,
    ) -> Option<Flow> {
        let ports = ports.iter_mut();
        let port = ports.filter(|port| port.node == dst).choose(rng)?;
        let len_max = draw_len_max(rng);
        port.buffer_len = port.buffer_len.max(len_max);
        Some(Flow {
            src,
            dst,
            port: port.port,
            lane: LaneId::Low,
            best_effort: false,
            rendezvous_share: 0.0,
            count: 0,
            len_min: 0,
            len_max,
            burst: 1,
            gap_ns: 0,
            start_ns: 0,
        })
    }
}

/// Receive parameters of one port of a process.
#[derive(Clone, Debug)]
pub(crate) struct PortPlan {
    pub(crate) node: u32,
    pub(crate) port: u16,
    pub(crate) mode: PortMode,
    /// Set if messages to it carry its number as their tag, and are matched by tag.
    pub(crate) tagged: bool,
    /// Set if messages go to the plain space and must be delivered in order. A process has at most
    /// one such port.
    pub(crate) plain: bool,
    /// Set if receives name their source.
    pub(crate) sourced: bool,
    /// Number of buffers kept posted (per source, if sourced).
    pub(crate) depth: u32,
    /// Delay before it is opened and the first buffers are posted, and before each buffer is
    /// replaced.
    pub(crate) open_ns: u64,
    pub(crate) again_ns: u64,
    /// Length of each buffer in bytes.
    pub(crate) buffer_len: usize,
}

impl PortPlan {
    /// Returns the space and the tag of messages to a tagged port.
    fn label(&self) -> (Space, u64) {
        match self.plain {
            true => (Space::Plain, 0),
            false => (Space::Tagged, tag_of(PortId::user(self.port))),
        }
    }
}

/// Flow of requests for the memory of another process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteFlow {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) lane: LaneId,
    pub(crate) count: u32,
    /// Maximum length of the short requests; the long ones need a transfer.
    pub(crate) len_max: usize,
    pub(crate) long_share: f64,
    pub(crate) gap_ns: u64,
    pub(crate) start_ns: u64,
}

/// Collective operation of all processes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupPlan {
    Barrier,
    Broadcast { root: u32, len: usize },
}

/// All parameters drawn from a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) seed: u64,
    pub(crate) nodes: u32,
    /// Host of each process.
    pub(crate) hosts: Vec<u32>,
    /// Parameters of shared memory between processes of one host.
    pub(crate) shm: Option<LinkParams>,
    /// Set if small messages use the shortcuts past queues and events.
    pub(crate) shortcuts: bool,
    pub(crate) udp: LinkParams,
    pub(crate) packet: Option<LinkParams>,
    /// Set if each process has a second link of UDP, which shares bulk data.
    pub(crate) has_second: bool,
    /// Parameters of streams for long messages, if used.
    pub(crate) streams: Option<StreamPlan>,
    /// Set if bulk data is received at predicted places.
    pub(crate) predicts: bool,
    pub(crate) net: NetPlan,
    pub(crate) limits: Limits,
    pub(crate) clocks: Vec<Clock>,
    /// Processor time per received frame, and per call to transmit.
    pub(crate) frame_cost_ns: u64,
    pub(crate) call_cost_ns: u64,
    pub(crate) flows: Vec<Flow>,
    pub(crate) remote: Vec<RemoteFlow>,
    pub(crate) one_shots: Vec<OneShotFlow>,
    pub(crate) ports: Vec<PortPlan>,
    pub(crate) groups: Vec<GroupPlan>,
    pub(crate) faults: Vec<Fault>,
    /// Delay after which the launcher reports processes that ended; otherwise silence must be
    /// detected.
    pub(crate) reported_after_ns: Option<u64>,
    pub(crate) reconnect_ns: u64,
    /// Time after which the programs create no more work.
    pub(crate) traffic_ns: u64,
    /// Set if bits of headers are flipped; then only survival is checked.
    pub(crate) header_corruption: bool,
}

impl Plan {
    /// Draws the plan of `seed`; `nodes` and `traffic_ns` override the drawn values.
    #[must_use]
    pub fn draw(
        seed: u64,
        nodes: Option<u32>,
        traffic_ns: Option<u64>,
        header_corruption: bool,
    ) -> Plan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rng = &mut rng;
        let drawn = draw_nodes(rng);
        let nodes = nodes.unwrap_or(drawn).clamp(2, NODES_MAX);
        let per_host = *[1, 1, 1, 2, 4].choose(rng).unwrap_or(&1);
        let hosts: Vec<u32> = (0..nodes).map(|node| node / per_host).collect();
        let failing = rng.random_bool(0.4);
        let drawn_ns = if failing {
            rng.random_range(500..4000) * MS
        } else {
            rng.random_range(1..200) * MS
        };
        let traffic_ns = traffic_ns.unwrap_or(drawn_ns);
        let mut net = NetPlan::draw(rng, &hosts);
        if header_corruption {
            net.corrupt = net.corrupt.max(CORRUPT_SHARE);
        }
        let mut plan = Plan {
            seed,
            nodes,
            shortcuts: rng.random_bool(0.5),
            shm: rng.random_bool(0.8).then(|| draw_shm(rng)),
            udp: draw_udp(rng, &net),
            packet: rng.random_bool(0.6).then(|| draw_packet(rng, &net)),
            has_second: false,
            hosts,
            net,
            limits: draw_limits(rng),
            streams: None,
            predicts: false,
            clocks: (0..nodes).map(|_| draw_clock(rng)).collect(),
            frame_cost_ns: rng.random_range(200..3000),
            call_cost_ns: rng.random_range(500..5000),
            flows: Vec::new(),
            remote: Vec::new(),
            one_shots: Vec::new(),
            ports: Vec::new(),
            groups: Vec::new(),
            faults: Vec::new(),
            reported_after_ns: rng.random_bool(0.5).then(|| rng.random_range(1..300) * MS),
            reconnect_ns: rng.random_range(1..300) * MS,
            traffic_ns,
            header_corruption,
        };
        plan.draw_ports(rng);
        plan.draw_flows(rng);
        plan.size_buffers(rng);
        if failing {
            plan.draw_faults(rng);
        } else {
            plan.draw_groups(rng);
        }
        plan.draw_tags(seed);
        plan.draw_link_down(seed);
        plan.draw_weather(seed);
        plan.draw_remote(seed);
        plan.draw_marking(seed);
        plan.draw_leaves(seed);
        plan.draw_unread(seed);
        plan.draw_streams(seed);
        plan.draw_plain(seed);
        plan.draw_one_shots(seed);
        plan.with_second(seed)
    }

    /// Adds a second link of UDP to some runs. In half of those with a failing link, it is the one
    /// that fails.
    fn with_second(mut self, seed: u64) -> Plan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 12);
        self.has_second = rng.random_bool(0.25);
        let faults = self.faults.iter_mut();
        for fault in faults.filter(|_| self.has_second && rng.random_bool(0.5)) {
            if let FaultKind::LinkDown { link, .. } = &mut fault.kind {
                *link = LinkId::UDP2;
            }
        }
        self
    }

    /// Returns the parameters of a network link.
    pub(crate) fn network(&self, link: LinkId) -> Option<LinkParams> {
        match link {
            LinkId::UDP => Some(self.udp),
            LinkId::UDP2 => Some(self.udp).filter(|_| self.has_second),
            _ => self.packet,
        }
    }

    /// Makes some of the ports with posted buffers match by tag.
    fn draw_tags(&mut self, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 4);
        for port in &mut self.ports {
            port.tagged = port.mode == PortMode::Posted && rng.random_bool(0.5);
        }
        let ports = &self.ports;
        for flow in &mut self.flows {
            let is_tagged =
                |port: &PortPlan| (port.node, port.port) == (flow.dst, flow.port) && port.tagged;
            // There are no best-effort messages by tag.
            flow.best_effort &= !ports.iter().any(is_tagged);
        }
    }

    /// Makes one tagged port of some processes a port of the plain space. Many messages to it are
    /// sent by rendezvous although they are short, like sends with delivery notification.
    fn draw_plain(&mut self, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 10);
        for node in 0..self.nodes {
            let ports = self.ports.iter_mut();
            let mut tagged = ports.filter(|port| port.node == node && port.tagged);
            let Some(port) = tagged.next().filter(|_| rng.random_bool(0.5)) else {
                continue;
            };
            port.plain = true;
            let number = port.port;
            let flows = self.flows.iter_mut();
            for flow in flows.filter(|flow| (flow.dst, flow.port) == (node, number)) {
                flow.rendezvous_share = *[0.1, 0.5, 0.9].choose(&mut rng).unwrap_or(&0.5);
            }
        }
    }

    /// Draws a temporary failure of one link of a process. Only one fails, so another always works.
    fn draw_link_down(&mut self, seed: u64) {
        // A random stream of its own, after those of the processes.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 2);
        if self.packet.is_none() || rng.random_bool(0.5) {
            return;
        }
        let begin_ns = rng.random_range(0..self.traffic_ns);
        let long = rng.random_bool(0.3);
        self.faults.push(Fault {
            begin_ns,
            end_ns: begin_ns + rng.random_range(1..if long { 4000 } else { 300 }) * MS,
            kind: FaultKind::LinkDown {
                node: rng.random_range(0..self.nodes),
                link: *[LinkId::UDP, LinkId::PACKET]
                    .choose(&mut rng)
                    .unwrap_or(&LinkId::UDP),
                one_way: rng.random_bool(0.3),
            },
        });
    }

    /// Draws temporary changes of the network that no program may notice.
    fn draw_weather(&mut self, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 3);
        if rng.random_bool(0.6) {
            return;
        }
        for _ in 0..rng.random_range(1..=3) {
            let begin_ns = rng.random_range(0..self.traffic_ns);
            let kind = match rng.random_range(0..3) {
                0 => FaultKind::Narrow {
                    mtu: *[600, 1000, 1280, 1492].choose(&mut rng).unwrap_or(&1280),
                },
                1 => FaultKind::Storm {
                    per_mille: *[50, 200, 400].choose(&mut rng).unwrap_or(&50),
                },
                _ => FaultKind::Detour {
                    node: rng.random_range(0..self.nodes),
                    extra_ns: *[MS / 20, MS, 20 * MS].choose(&mut rng).unwrap_or(&MS),
                },
            };
            self.faults.push(Fault {
                begin_ns,
                end_ns: begin_ns + rng.random_range(1..500) * MS,
                kind,
            });
        }
    }

    fn draw_marking(&mut self, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 5);
        self.net.draw_marking(&mut rng);
    }

    /// Adds remote memory operations to half of the runs.
    fn draw_remote(&mut self, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(NODES_MAX) + 6);
        if rng.random_bool(0.5) {
            return;
        }
        // Requests that need a transfer are not ordered with others of the same bytes (P12.9).
        let limits = &self.limits;
        let len_max = limits.eager_len_max.min(limits.eager_len_max_lossless);
        for _ in 0..rng.random_range(1..=4) {
            let src = rng.random_range(0..self.nodes);
            let count = rng.random_range(1..=150_u32);
            self.remote.push(RemoteFlow {
                src,
                dst: (src + rng.random_range(1..self.nodes)) % self.nodes,
                lane: *LaneId::ALL.choose(&mut rng).unwrap_or(&LaneId::Low),
                count,
                len_max: (*[16, 400, 2000, 8000].choose(&mut rng).unwrap_or(&16)).min(len_max),
                long_share: *[0.0, 0.0, 0.02, 0.05].choose(&mut rng).unwrap_or(&0.0),
                gap_ns: rng.random_range(1000..2000 + self.traffic_ns / u64::from(count)),
                start_ns: rng.random_range(0..self.traffic_ns / 4 + 1),
            });
        }
    }

    /// Returns true if two processes communicate through shared memory.
    pub(crate) fn share_memory(&self, a: u32, b: u32) -> bool {
        self.shm.is_some() && self.hosts[a as usize] == self.hosts[b as usize]
    }

    pub(crate) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    pub(crate) fn fault_count(&self) -> usize {
        self.faults.len()
    }

    pub(crate) fn port(&self, node: u32, port: u16) -> Option<&PortPlan> {
        self.ports
            .iter()
            .find(|plan| plan.node == node && plan.port == port)
    }

    /// Returns the address of messages to a port; `imm` identifies the message.
    pub(crate) fn address(&self, node: u32, port: PortId, imm: u64) -> Address {
        let plan = self.port(node, port.number);
        match plan.filter(|plan| !port.system && plan.tagged) {
            None => port.into(),
            Some(plan) => {
                let (space, tag) = plan.label();
                let imm = Some(imm);
                Address::MatchBits(MatchBits { space, tag, imm })
            }
        }
    }

    /// Returns the space and the tag of messages to a tagged port of `node`.
    pub(crate) fn label(&self, node: u32, port: PortId) -> (Space, u64) {
        let plan = self.port(node, port.number);
        plan.map_or((Space::Tagged, tag_of(port)), PortPlan::label)
    }

    fn draw_ports(&mut self, rng: &mut ChaCha8Rng) {
        for node in 0..self.nodes {
            for port in 0..rng.random_range(1..=3) {
                let late = rng.random_bool(0.3);
                self.ports.push(PortPlan {
                    node,
                    port,
                    mode: if rng.random_bool(0.5) {
                        PortMode::InPlace
                    } else {
                        PortMode::Posted
                    },
                    tagged: false,
                    plain: false,
                    sourced: rng.random_bool(0.3),
                    depth: *[1, 2, 8, 64].choose(rng).unwrap_or(&1),
                    open_ns: if late {
                        rng.random_range(0..=self.traffic_ns)
                    } else {
                        0
                    },
                    again_ns: if rng.random_bool(0.3) {
                        rng.random_range(0..MS)
                    } else {
                        0
                    },
                    buffer_len: 0,
                });
            }
        }
    }

    fn draw_flows(&mut self, rng: &mut ChaCha8Rng) {
        let flow_count = rng.random_range(1..=12).max(self.nodes);
        // Bounds the work of one run. A test has hundreds of runs, with tens of thousands of frames
        // each.
        let mut bytes_left = rng.random_range(200_000..12_000_000usize);
        let messages = rng.random_range(50..6000u32) / flow_count + 1;
        let hot = rng
            .random_bool(0.25)
            .then(|| rng.random_range(0..self.nodes));
        for index in 0..flow_count {
            // Every process sends; one process may receive from all.
            let src = if index < self.nodes {
                index
            } else {
                rng.random_range(0..self.nodes)
            };
            let dst = hot.filter(|hot| *hot != src);
            let dst = dst.unwrap_or((src + rng.random_range(1..self.nodes)) % self.nodes);
            let ports: Vec<u16> = self
                .ports
                .iter()
                .filter(|port| port.node == dst)
                .map(|port| port.port)
                .collect();
            let Some(&port) = ports.choose(rng) else {
                continue;
            };
            let (len_min, len_max) = draw_lens(rng);
            let mean_len = (len_min + len_max) / 2;
            let affordable = u32::try_from(bytes_left / mean_len.max(1)).unwrap_or(u32::MAX);
            let count = rng.random_range(1..=messages).min(affordable / 2 + 1);
            bytes_left = bytes_left.saturating_sub(count as usize * mean_len);
            let mut flow = self.draw_flow(rng, count, (len_min, len_max));
            (flow.src, flow.dst, flow.port) = (src, dst, port);
            self.flows.push(flow);
        }
        for flow in &mut self.flows {
            flow.len_min = flow.len_min.min(flow.len_max);
        }
    }

    /// Returns a flow of `count` messages; the caller sets its processes.
    fn draw_flow(
        &self,
        rng: &mut ChaCha8Rng,
        count: u32,
        (len_min, len_max): (usize, usize),
    ) -> Flow {
        let best_effort = rng.random_bool(0.1);
        let burst = *[1, 1, 4, 32].choose(rng).unwrap_or(&1);
        let turns = u64::from(count.div_ceil(burst));
        let pressed = rng.random_bool(0.4);
        let gap_max = (self.traffic_ns / turns).max(1);
        Flow {
            src: 0,
            dst: 0,
            port: 0,
            lane: if rng.random_bool(0.3) {
                LaneId::High
            } else {
                LaneId::Low
            },
            best_effort,
            rendezvous_share: if rng.random_bool(0.2) { 0.2 } else { 0.0 },
            count,
            len_min: if best_effort {
                len_min.max(crate::payload::NUMBER_LEN)
            } else {
                len_min
            },
            len_max: if best_effort {
                len_max.clamp(16, BEST_EFFORT_LEN_MAX)
            } else {
                len_max
            },
            burst,
            gap_ns: if pressed {
                1000
            } else {
                rng.random_range(0..gap_max)
            },
            start_ns: rng.random_range(0..self.traffic_ns / 4 + 1),
        }
    }

    /// Makes buffers long enough for their messages, except a few that are to truncate messages.
    fn size_buffers(&mut self, rng: &mut ChaCha8Rng) {
        for port in &mut self.ports {
            let flows = &self.flows;
            let here = flows
                .iter()
                .filter(|f| f.dst == port.node && f.port == port.port);
            let longest = here.map(|flow| flow.len_max).max().unwrap_or(0);
            let short = rng.random_bool(0.1) && port.mode == PortMode::Posted;
            // A truncated message still contains its number, if it has one.
            port.buffer_len = if short {
                (longest / 3).max(16)
            } else {
                longest
            };
        }
    }

    fn draw_groups(&mut self, rng: &mut ChaCha8Rng) {
        if rng.random_bool(0.5) {
            return;
        }
        for _ in 0..rng.random_range(1..8) {
            self.groups.push(if rng.random_bool(0.5) {
                GroupPlan::Barrier
            } else {
                let longest = *[100, 10_000, 100_000].choose(rng).unwrap_or(&100);
                GroupPlan::Broadcast {
                    root: rng.random_range(0..self.nodes),
                    len: rng.random_range(0..longest),
                }
            });
        }
    }

    fn draw_faults(&mut self, rng: &mut ChaCha8Rng) {
        for _ in 0..rng.random_range(1..=4) {
            let begin_ns = rng.random_range(0..self.traffic_ns);
            let node = rng.random_range(0..self.nodes);
            let kind = match rng.random_range(0..10) {
                0..3 => FaultKind::Pause { node },
                3..7 => FaultKind::Crash {
                    node,
                    forever: rng.random_bool(0.2),
                },
                _ => FaultKind::Partition {
                    side: Side::draw(rng, node),
                    one_way: rng.random_bool(0.2),
                },
            };
            let long = rng.random_range(0..3) == 0;
            let end_ns = begin_ns + rng.random_range(1..if long { 4000 } else { 500 }) * MS;
            self.faults.push(Fault {
                begin_ns,
                end_ns,
                kind,
            });
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.hosts.last().map_or(0, |last| last + 1);
        write!(f, "{} processes on {hosts} hosts, ", self.nodes)?;
        f.write_str(if self.shm.is_some() && hosts < self.nodes {
            "shm, "
        } else {
            ""
        })?;
        write!(
            f,
            "udp {} B × {}",
            self.udp.frame_len_max, self.udp.segments_max
        )?;
        if self.has_second {
            f.write_str(" (two)")?;
        }
        if let Some(packet) = self.packet {
            write!(f, ", packet {} B", packet.frame_len_max)?;
        }
        if let Some(streams) = self.streams {
            write!(f, ", {streams}")?;
        }
        write!(f, ", {}", self.net)?;
        write!(
            f,
            "; {} flows, {} of requests, {} of one-shots, {} group operations",
            self.flows.len(),
            self.remote.len(),
            self.one_shots.len(),
            self.groups.len()
        )?;
        for fault in &self.faults {
            write!(f, "; {fault}")?;
        }
        Ok(())
    }
}

/// Returns the tag of messages to a tagged port. Tags differ by one bit in the low half, and in the
/// high half.
fn tag_of(port: PortId) -> u64 {
    u64::from(port.number) | u64::from(port.number) << 50
}

/// Draws the number of processes. Mostly few: such runs are short and find as much. Every twelfth
/// run is large.
fn draw_nodes(rng: &mut ChaCha8Rng) -> u32 {
    match rng.random_range(0..12) {
        0..8 => rng.random_range(2..=6),
        8..11 => rng.random_range(7..=20),
        // A few have the maximum size.
        _ if rng.random_bool(0.75) => rng.random_range(21..=64),
        _ => rng.random_range(65..=NODES_MAX),
    }
}

fn draw_lens(rng: &mut ChaCha8Rng) -> (usize, usize) {
    match rng.random_range(0..10) {
        0..2 => (0, 64),
        2..4 => (0, 2000),
        4..6 => (1000, 34_000),
        6..8 => (0, 100_000),
        8 => (30_000, MESSAGE_LEN_MAX),
        _ => (0, MESSAGE_LEN_MAX),
    }
}

fn draw_shm(rng: &mut ChaCha8Rng) -> LinkParams {
    LinkParams {
        frame_len_max: 65_535,
        segments_max: 1,
        lossless: true,
        pull: rng.random_bool(0.5),
        checksum: false,
        sum: None,
        rx_buffer_len: *[65_536, 262_144, 1 << 20].choose(rng).unwrap_or(&65_536),
    }
}

fn draw_udp(rng: &mut ChaCha8Rng, net: &NetPlan) -> LinkParams {
    LinkParams {
        // The link reports the MTU of its own interface; the path may carry less.
        frame_len_max: net.mtu.max(1500) - 28,
        segments_max: *[1, 8, 44].choose(rng).unwrap_or(&1),
        lossless: false,
        pull: false,
        checksum: false,
        sum: None,
        rx_buffer_len: draw_socket(rng),
    }
}

fn draw_packet(rng: &mut ChaCha8Rng, net: &NetPlan) -> LinkParams {
    LinkParams {
        frame_len_max: net.mtu.max(1500) - 4,
        segments_max: 1,
        lossless: false,
        pull: false,
        checksum: false,
        sum: None,
        rx_buffer_len: draw_socket(rng),
    }
}

/// Draws the socket buffer: small, Linux's default (212,992 bytes), or enlarged.
fn draw_socket(rng: &mut ChaCha8Rng) -> usize {
    *[65_536, 212_992, 212_992, 4 << 20]
        .choose(rng)
        .unwrap_or(&212_992)
}

fn draw_limits(rng: &mut ChaCha8Rng) -> Limits {
    let credit_len = *[64, 256, 256].choose(rng).unwrap_or(&256) * 1024;
    Limits {
        credit_len,
        // Two of them fit the credit, including the overhead charged per message.
        eager_len_max: (*[1000, 8192, 31 * 1024, 64 * 1024]
            .choose(rng)
            .unwrap_or(&8192))
        .min(credit_len as usize / 2 - 1024),
        eager_len_max_lossless: *[4000, 16 * 1024].choose(rng).unwrap_or(&4000),
        window_frames_max: *[64, 512, 4096].choose(rng).unwrap_or(&512),
        grant_len_max: *[0, 0, 65_536].choose(rng).unwrap_or(&0),
        ..Limits::default()
    }
}

fn draw_clock(rng: &mut ChaCha8Rng) -> Clock {
    Clock {
        offset_ns: rng.random_range(1..3_600_000_000_000),
        // Quartz clocks deviate by at most a hundred parts per million; virtual machines can be
        // worse.
        drift_ppm: rng.random_range(-300..=300),
    }
}
