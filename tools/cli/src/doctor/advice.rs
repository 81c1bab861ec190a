// SPDX-License-Identifier: MIT OR Apache-2.0
//! Proposed changes, derived from a report only.

use super::Report;
use super::nic::Nic;
use portolan_link::udp::UdpConfig;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr};

/// Number of descriptors that is too low for larger jobs: each process of the host uses two or
/// three.
const DESCRIPTORS_LOW: u64 = 1024;

/// Interrupt delay in microseconds that noticeably lengthens a round trip of a few microseconds.
const COALESCING_US_HIGH: u32 = 8;

/// Largest Ethernet payload in bytes that every switch supports (IEEE 802.3).
const PLAIN_MTU: usize = 1500;

/// A proposed change.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Advice {
    /// Benefit of the change.
    pub(super) gain: String,
    /// A command or an instruction.
    pub(super) action: String,
}

impl Advice {
    fn new(gain: impl Into<String>, action: impl Into<String>) -> Advice {
        Advice {
            gain: gain.into(),
            action: action.into(),
        }
    }
}

/// Returns all useful changes.
pub(super) fn of(report: &Report) -> Vec<Advice> {
    let mut advice = Vec::new();
    advice.extend(privileges(report));
    advice.extend(machine(report));
    advice.extend(limits(report));
    report
        .nics
        .iter()
        .filter(|nic| nic.running && nic.ethernet)
        .for_each(|nic| {
            advice.extend(interface(nic, report.privileges.net_admin));
        });
    advice
}

fn privileges(report: &Report) -> Vec<Advice> {
    let mut advice = Vec::new();
    let has_broker = report.nics.iter().any(|nic| nic.by_broker);
    if !report.features.packet_socket.works && !has_broker {
        advice.push(Advice::new(
            "raw Ethernet halves the latency of small messages, and needs a privilege that this user lacks",
            "sudo setcap cap_net_raw+ep PROGRAM, for the program that joins the job; or run \
             `portolan broker` on this host (docs/guide/broker.md)",
        ));
    }
    if !report.features.pull.works {
        advice.push(Advice::new(
            "large messages between processes of this host take two copies instead of one",
            match report.privileges.ptrace_scope {
                Some(scope @ 2..) => {
                    format!("sudo sysctl kernel.yama.ptrace_scope=1 (it is {scope})")
                }
                _ => "allow process_vm_readv in the container's seccomp filter".to_owned(),
            },
        ));
    }
    if !report.features.netns.works {
        advice.push(Advice::new(
            "labs (simulated hosts on this machine) need root",
            "run `portolan lab` and `portolan run --lab` with sudo",
        ));
    }
    advice
}

fn machine(report: &Report) -> Vec<Advice> {
    let mut advice = Vec::new();
    if let Some(governor) = report
        .machine
        .governor
        .as_deref()
        .filter(|it| *it != "performance")
    {
        advice.push(Advice::new(
            format!("the clock rate of the cores follows the load (governor {governor}), too slowly for short messages"),
            "sudo cpupower frequency-set -g performance",
        ));
    }
    if report.machine.core_count == 1 {
        advice.push(Advice::new(
            "with one core, a process that spins keeps its peer from running",
            "give this machine two cores or more",
        ));
    }
    advice
}

fn limits(report: &Report) -> Vec<Advice> {
    let mut advice = Vec::new();
    let preferred = UdpConfig::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let buffers = [
        (
            "rmem_max",
            report.limits.receive_buffer_len_max,
            preferred.receive_buffer_len,
            "receive",
        ),
        (
            "wmem_max",
            report.limits.send_buffer_len_max,
            preferred.send_buffer_len,
            "send",
        ),
    ];
    for (name, limit, preferred, what) in buffers {
        if let Some(limit) = limit.filter(|limit| *limit < preferred as u64) {
            advice.push(Advice::new(
                format!("{what} buffers have at most {limit} bytes instead of {preferred}: bursts lose frames"),
                format!("sudo sysctl -w net.core.{name}={preferred}"),
            ));
        }
    }
    if let Some(limit) = report
        .limits
        .descriptors
        .filter(|limit| *limit < DESCRIPTORS_LOW)
    {
        advice.push(Advice::new(
            format!(
                "a limit of {limit} open descriptors is low for a job with many processes per host"
            ),
            "raise `ulimit -n` to 4096",
        ));
    }
    advice
}

fn interface(nic: &Nic, may_change: bool) -> Vec<Advice> {
    let name = &nic.name;
    let sudo = if may_change { "" } else { "sudo " };
    let mut advice = Vec::new();
    let offloads = [
        ("rx-gro", "gro", "bulk data arrives one datagram per call"),
        (
            "tx-generic-segmentation",
            "gso",
            "bulk data leaves one datagram per call",
        ),
        ("tx-scatter-gather", "sg", "bulk data is copied once more"),
    ];
    for (feature, short, loss) in offloads {
        if nic.offloads.get(feature) == Some(&false) {
            advice.push(Advice::new(
                format!("{name}: {loss}"),
                format!("{sudo}ethtool -K {name} {short} on"),
            ));
        }
    }
    let delay = nic.rx_coalescing_us.unwrap_or(0);
    if delay >= COALESCING_US_HIGH || nic.adaptive_coalescing == Some(true) {
        advice.push(Advice::new(
            format!("{name}: received frames wait up to {delay} µs for an interrupt, or as long as the driver decides"),
            format!("{sudo}ethtool -C {name} adaptive-rx off rx-usecs 0"),
        ));
    }
    if nic.mtu == PLAIN_MTU && nic.kind == "device" {
        advice.push(Advice::new(
            format!(
                "{name}: larger frames cost less per byte, if the switch and all hosts support them"
            ),
            format!("{sudo}ip link set dev {name} mtu 9000, on all hosts"),
        ));
    }
    if nic.mtu < PLAIN_MTU {
        advice.push(Advice::new(
            format!(
                "{name}: an MTU of {} is less than that of plain Ethernet",
                nic.mtu
            ),
            format!("{sudo}ip link set dev {name} mtu {PLAIN_MTU}, unless a tunnel needs the rest"),
        ));
    }
    advice
}
