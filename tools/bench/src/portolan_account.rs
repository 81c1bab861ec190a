// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of the ranks of a Portolan row, and their transfer to rank 0.

use crate::costs::Costs;
use crate::cpu::Meter;
use crate::extra::Account;
use anyhow::{Context, Result};
use portolan::{Node, Target};
use std::collections::BTreeMap;
use std::fs;

/// Maximum bytes of an account as JSON: fifty names of fifty bytes with their numbers.
const ACCOUNT_LEN_MAX: usize = 8 << 10;

/// Column of `/proc/net/snmp` with the datagrams lost because a socket's buffer was full. RFC 4113
/// includes them in udpInErrors; Linux counts this cause separately.
const RECEIVE_BUFFER_ERRORS: &str = "RcvbufErrors";

/// Name of the counter for losses to full socket buffers.
pub(crate) const FULL_BUFFERS: &str = "lost to full socket buffers";

/// Returns this rank's account. `meter` has values if it received bulk data.
pub(crate) fn of(node: &Node, meter: &Meter) -> Account {
    Account {
        cpu_s_per_gb: meter.s_per_gb(),
        costs: Costs::default(),
        counters: counters(node),
    }
}

/// Returns the nonzero counters of this rank's library and of its host's kernel.
fn counters(node: &Node) -> BTreeMap<String, u64> {
    let counted = node.counters();
    let of_protocol = [
        ("transmits", counted.frames_sent),
        ("messages sent", counted.messages_sent),
        ("frames placed", counted.placement_hits),
        ("frames misplaced", counted.placement_misses),
        ("retransmits", counted.retransmits),
        ("timeouts", counted.timeouts),
        ("link full", counted.link_full),
        ("frames marked", counted.frames_marked),
        ("marks heard", counted.marks_heard),
        ("messages held", counted.messages_held),
        ("bytes by streams", counted.stream_bytes),
        ("pushes placed", counted.pushes_placed),
        ("pushes missed", counted.pushes_missed),
    ];
    let of_host = [(FULL_BUFFERS, full_buffer_losses())];
    let mut counters: BTreeMap<String, u64> = of_protocol
        .into_iter()
        .chain(of_host)
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    counters.extend(
        node.drops()
            .into_iter()
            .map(|(name, count)| (format!("dropped: {name}"), count)),
    );
    // No losses to full buffers is useful information, so a zero is retained.
    counters.retain(|name, count| *count > 0 || name == FULL_BUFFERS);
    counters
}

/// Returns the datagrams that this host (network namespace) has lost to full socket buffers so far;
/// 0 if the kernel does not report them.
pub(crate) fn full_buffer_losses() -> u64 {
    fs::read_to_string("/proc/self/net/snmp")
        .map_or(0, |text| udp_column(&text, RECEIVE_BUFFER_ERRORS))
}

/// Returns the number under `name` in the two lines that begin with `Udp:`.
fn udp_column(snmp: &str, name: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let mut columns = names.split_whitespace().zip(numbers.split_whitespace());
    let number = columns.find_map(|(column, number)| (column == name).then_some(number));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Sends `account` to the rank and port of `to`.
///
/// # Errors
/// The other rank has failed.
pub(crate) fn send(node: &mut Node, to: Target, account: &Account) -> Result<()> {
    Ok(node.send(to, &serde_json::to_vec(account)?)?)
}

/// Receives the account of `rank`.
///
/// # Errors
/// The other rank has failed, or the message is not an account.
pub(crate) fn receive(node: &mut Node, rank: u32, port: u16) -> Result<Account> {
    let mut bytes = vec![0; ACCOUNT_LEN_MAX];
    let received = node.recv_from(rank, port, &mut bytes)?;
    serde_json::from_slice(&bytes[..received.len]).context("not an account")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_column_is_found_by_name() {
        let snmp = "Tcp: RcvbufErrors\nTcp: 9\nUdp: InDatagrams RcvbufErrors SndbufErrors\n\
                    Udp: 5 17 3\nUdpLite: RcvbufErrors\nUdpLite: 8\n";
        assert_eq!(udp_column(snmp, RECEIVE_BUFFER_ERRORS), 17);
        assert_eq!(udp_column("Udp: A\n", RECEIVE_BUFFER_ERRORS), 0);
        assert_eq!(udp_column("", RECEIVE_BUFFER_ERRORS), 0);
    }
}
