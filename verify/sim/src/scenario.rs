// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans made by hand: bulk transfers over one switch, for experiments that measure a figure.

use crate::Plan;
use crate::clock::Clock;
use crate::net::{Hop, NetPlan};
use crate::plan::{Flow as Stream, PortPlan};
use portolan_proto::{LaneId, Limits, LinkParams, PortMode};

/// Destination port of all flows.
const PORT: u16 = 1;

/// Length in bytes of the message that opens a session; the figures of a run exclude it.
pub const OPENING_LEN: usize = 8;

/// Consecutive messages from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Number of messages.
    pub count: u32,
    /// Length of each message in bytes.
    pub len: usize,
    /// Nanoseconds between two messages, and before the first.
    pub gap_ns: u64,
    /// Nanoseconds before the first message.
    pub start_ns: u64,
}

/// Network, and the traffic on it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed for the choice of lost frames.
    pub seed: u64,
    /// Host of each process.
    pub hosts: Vec<u32>,
    /// Bandwidth of each host's wire in bytes per second.
    pub bandwidth: u64,
    /// Nanoseconds from a host to the switch.
    pub latency_ns: u64,
    /// Buffer of a switch port in bytes.
    pub port_len: u64,
    /// Payload bytes that a process's socket holds.
    pub socket_len: usize,
    /// Number of queued bytes from which a port marks datagrams; `None` disables marking.
    pub mark_len: Option<u64>,
    /// Share of frames lost at random.
    pub loss: f64,
    /// Processor time of the receiver per frame, in nanoseconds.
    pub frame_cost_ns: u64,
    /// Processor time of the sender per call, in nanoseconds.
    pub call_cost_ns: u64,
    /// Limits of every process.
    pub limits: Limits,
    /// Traffic.
    pub flows: Vec<Flow>,
}

impl Scenario {
    /// Returns processes on hosts of their own with 10 Gb/s Ethernet, MTU 1500. The switch has 256
    /// KiB per port. The receive buffer is the default of Linux, 212,992 bytes, of which
    /// `portolan-link` uses half for payload.
    #[must_use]
    pub fn ethernet(nodes: u32, flows: Vec<Flow>) -> Scenario {
        Scenario {
            seed: 1,
            hosts: (0..nodes).collect(),
            bandwidth: 1_250_000_000,
            latency_ns: 5_000,
            port_len: 256 << 10,
            socket_len: 212_992 / 2,
            mark_len: None,
            loss: 0.0,
            // Datagrams of a run that the kernel has coalesced cost a fraction of this each.
            frame_cost_ns: 500,
            call_cost_ns: 5_000,
            limits: Limits::default(),
            flows,
        }
    }

    /// Returns the plan for this scenario.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let nodes = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let host_count = self.hosts.iter().max().map_or(0, |last| *last as usize + 1);
        let wire = Hop {
            bandwidth: self.bandwidth,
            latency_ns: self.latency_ns,
            buffer_len: self.port_len,
        };
        Plan {
            seed: self.seed,
            nodes,
            hosts: self.hosts.clone(),
            shm: None,
            shortcuts: false,
            streams: None,
            predicts: false,
            udp: LinkParams {
                frame_len_max: 1472,
                segments_max: 44,
                lossless: false,
                pull: false,
                checksum: false,
                sum: None,
                rx_buffer_len: self.socket_len,
            },
            packet: None,
            has_second: false,
            net: NetPlan {
                hosts: vec![wire; host_count],
                rack_hosts: usize::MAX,
                racks: Vec::new(),
                mtu: 1500,
                path_mtu: 1500,
                loss: self.loss,
                duplicate: 0.0,
                reorder: 0.0,
                reorder_ns: 1,
                corrupt: 0.0,
                mark_len: self.mark_len,
            },
            limits: self.limits.clone(),
            clocks: vec![
                Clock {
                    offset_ns: 1,
                    drift_ppm: 0
                };
                self.hosts.len()
            ],
            frame_cost_ns: self.frame_cost_ns,
            call_cost_ns: self.call_cost_ns,
            flows: self.flows.iter().flat_map(streams).collect(),
            remote: Vec::new(),
            one_shots: Vec::new(),
            ports: self.ports(),
            groups: Vec::new(),
            faults: Vec::new(),
            reported_after_ns: None,
            reconnect_ns: 1_000_000,
            traffic_ns: 1_000_000,
            header_corruption: false,
        }
    }

    fn ports(&self) -> Vec<PortPlan> {
        let mut receivers: Vec<u32> = self.flows.iter().map(|flow| flow.to).collect();
        receivers.sort_unstable();
        receivers.dedup();
        let longest = self.flows.iter().map(|flow| flow.len).max();
        let port = |node| PortPlan {
            node,
            port: PORT,
            mode: PortMode::Posted,
            tagged: false,
            plain: false,
            sourced: true,
            depth: 2,
            open_ns: 0,
            again_ns: 0,
            buffer_len: longest.unwrap_or(0),
        };
        receivers.into_iter().map(port).collect()
    }
}

/// Returns a short message that opens the session, and then the bulk data, which finds it open and
/// measured.
fn streams(flow: &Flow) -> [Stream; 2] {
    let stream = Stream {
        src: flow.from,
        dst: flow.to,
        port: PORT,
        lane: LaneId::Low,
        best_effort: false,
        rendezvous_share: 0.0,
        count: flow.count,
        len_min: flow.len,
        len_max: flow.len,
        burst: 1,
        gap_ns: flow.gap_ns,
        start_ns: flow.start_ns,
    };
    let opening = Stream {
        count: 1,
        len_min: OPENING_LEN,
        len_max: OPENING_LEN,
        start_ns: 0,
        ..stream.clone()
    };
    [opening, stream]
}
