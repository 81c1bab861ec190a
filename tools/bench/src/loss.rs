// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random packet loss in a lab, for systems that have no option to drop their own packets.
//!
//! A classic BPF program at the ingress of each interface drops packets for which a random number
//! is below a threshold (tc-bpf(8), "direct action"). At the egress it would have no effect: the
//! kernel notices that it drops its own packet, and TCP retransmits at once.
//!
//! The program handles the packets as the other host's stack sent them. With segmentation offload
//! that is a burst of up to 64 KB, which is dropped as a whole; without it, a segment.

use crate::place::Place;
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// Offset of a random number in classic BPF: SKF_AD_OFF + SKF_AD_RANDOM of
/// include/uapi/linux/filter.h, as the unsigned number that `tc` reads.
const RANDOM: u32 = (-0x1000_i32 + 56).cast_unsigned();

/// Segments per burst by default (GSO_MAX_SEGS of include/linux/netdevice.h).
const SEGMENTS_MAX: u32 = 65_535;

/// Hosts with interfaces that drop packets. The loss ends on drop.
pub(crate) struct Loss {
    hosts: Vec<(String, String)>,
    offload: bool,
}

impl Loss {
    /// Makes `hosts` drop `ppm` of a million packets that reach them. Without `offload`, segments
    /// are dropped individually.
    ///
    /// # Errors
    /// A host does not belong to a lab, or `tc` does not support the program here.
    pub(crate) fn apply(hosts: &[Place], ppm: u32, offload: bool) -> Result<Self> {
        let mut loss = Loss {
            hosts: Vec::new(),
            offload,
        };
        for host in hosts {
            let Some(netns) = host.netns.clone() else {
                bail!(
                    "random loss needs a lab: on this host's interfaces it would affect other programs"
                );
            };
            let interface = host.interface.clone();
            run(
                "tc",
                &["-n", &netns, "qdisc", "add", "dev", &interface, "clsact"],
            )?;
            loss.hosts.push((netns.clone(), interface.clone()));
            let program = loss_program(ppm);
            let filter = ["-n", &netns, "filter", "add", "dev", &interface, "ingress"];
            run(
                "tc",
                &[&filter[..], &["bpf", "da", "bytecode", &program]].concat(),
            )?;
            if !offload {
                set_segments(&netns, &interface, 1)?;
            }
        }
        Ok(loss)
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        for (netns, interface) in &self.hosts {
            let mut undone = run(
                "tc",
                &["-n", netns, "qdisc", "del", "dev", interface, "clsact"],
            );
            if !self.offload {
                undone = undone.and(set_segments(netns, interface, SEGMENTS_MAX));
            }
            // The kernel's cached metrics of a lossy path would slow the rows that follow.
            undone = undone.and(run("ip", &["-n", netns, "tcp_metrics", "flush"]));
            if let Err(error) = undone {
                eprintln!("portolan bench: {netns} still drops packets: {error:#}");
            }
        }
    }
}

fn set_segments(netns: &str, interface: &str, count: u32) -> Result<()> {
    let count = count.to_string();
    run(
        "ip",
        &[
            "-n",
            netns,
            "link",
            "set",
            "dev",
            interface,
            "gso_max_segs",
            &count,
        ],
    )
}

/// Returns a program for `tc filter … bpf da bytecode` that drops `ppm` of a million frames. It
/// loads a random number, and returns TC_ACT_SHOT (2) if the number is below the threshold,
/// otherwise TC_ACT_OK (0): include/uapi/linux/pkt_cls.h.
#[must_use]
pub fn loss_program(ppm: u32) -> String {
    const LOAD_WORD: u32 = 0x20;
    const JUMP_IF_GREATER_OR_EQUAL: u32 = 0x35;
    const RETURN: u32 = 0x06;
    // At the maximum, all random numbers but one of 2^32 drop the packet.
    let threshold = (u64::from(ppm) * (1 << 32) / 1_000_000).min(u32::MAX.into());
    format!(
        "4,{LOAD_WORD} 0 0 {RANDOM},{JUMP_IF_GREATER_OR_EQUAL} 1 0 {threshold},{RETURN} 0 0 2,\
         {RETURN} 0 0 0"
    )
}

fn run(command: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(command)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("random loss needs the command {command} of iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr)
        .trim()
        .replace('\n', "; ");
    bail!(
        "random loss is not available: {command}: {errors} (it needs a kernel with \
         NET_SCH_INGRESS and NET_CLS_BPF)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_program_drops_below_the_threshold() {
        assert_eq!(
            loss_program(10_000),
            "4,32 0 0 4294963256,53 1 0 42949672,6 0 0 2,6 0 0 0"
        );
    }

    #[test]
    fn loss_is_only_added_in_a_lab() {
        let error = Loss::apply(&[Place::loopback()], 1, true)
            .err()
            .expect("refused");
        assert!(error.to_string().contains("needs a lab"), "{error}");
    }
}
