// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes what this process waits for, for users with a job that hangs.
//!
//! Everything is computed when the launcher requests it, nothing before.

use super::{Engine, Inner};
use crate::collective::CollectiveCall;
use crate::launch::wire::Waits;
use crate::ops::OpKind;
use portolan_proto::{Instant, OpId, PeerId, PeerStatus};

/// Maximum number of operations that are described, so that the line stays readable.
const DESCRIBED_MAX: usize = 4;

/// Condition that a blocking call waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// Completion of an operation.
    Op(OpId),
    /// Departure of a copy, which is limited by the credit granted by its receiver.
    Credit(OpId),
    /// Delivery to the peers of everything that was sent.
    Close,
    /// The end of one of so many operations.
    Any(usize),
    /// A notice of a put.
    Notice,
    /// A condition of the program.
    Condition,
    /// Member of a group in operation `seq` of that group.
    Member {
        /// Number of the group; 0 is the job.
        group: u16,
        call: CollectiveCall,
        seq: u64,
        /// `None` for a broadcast by multicast.
        peer: Option<PeerId>,
    },
}

impl Engine {
    /// Reports to the launcher what this process waits for, if the launcher has requested that.
    pub(super) fn explain_if_requested(&mut self) {
        if let Some(launch) = &mut self.launch
            && launch.poll_explain()
        {
            launch.report_waits(self.inner.waits());
        }
    }
}

impl Inner {
    pub(super) fn waits(&self) -> Waits {
        let Some((awaited, since)) = self.awaited else {
            return self.waits_of_a_poll();
        };
        let seconds = self.now.since(since).as_secs_f64();
        let (what, on) = self.describe_awaited(awaited, since);
        Waits {
            text: format!("has waited {seconds:.1} s: {what}"),
            on: on.iter().map(|peer| peer.0).collect(),
        }
    }

    /// Describes the pending operations of a process that is not in a blocking call, and may poll.
    fn waits_of_a_poll(&self) -> Waits {
        if self.ops.pending().next().is_none() {
            let text = "is in no blocking call and has no pending operation".to_owned();
            return Waits { text, on: vec![] };
        }
        let (text, peers) = self.describe_pending();
        Waits {
            text: format!("is in no blocking call; pending: {text}"),
            on: peers.iter().map(|peer| peer.0).collect(),
        }
    }

    /// Describes the pending operations, and the peers that alone can complete one of them.
    fn describe_pending(&self) -> (String, Vec<PeerId>) {
        let pending: Vec<OpId> = self.ops.pending().collect();
        let described = pending.iter().take(DESCRIBED_MAX);
        let (mut texts, peers): (Vec<String>, Vec<Option<PeerId>>) =
            described.map(|op| self.describe_op(*op)).unzip();
        if pending.len() > DESCRIBED_MAX {
            texts.push(format!("{} more", pending.len() - DESCRIBED_MAX));
        }
        (texts.join("; "), peers.into_iter().flatten().collect())
    }

    /// Describes a wait that began at `since`, and returns the peers that can end the wait.
    fn describe_awaited(&self, awaited: Awaited, since: Instant) -> (String, Vec<PeerId>) {
        match awaited {
            Awaited::Op(op) | Awaited::Credit(op) => {
                let (text, peer) = self.describe_op(op);
                (text, peer.into_iter().collect())
            }
            Awaited::Close => {
                let peers = self.undelivered_peers(since);
                let ranks: Vec<String> = peers.iter().map(|peer| peer.0.to_string()).collect();
                let text = format!(
                    "close: rank {} has not received all messages",
                    ranks.join(", ")
                );
                (text, peers)
            }
            Awaited::Any(count) => {
                let (text, peers) = self.describe_pending();
                (format!("one of {count} operations: {text}"), peers)
            }
            Awaited::Notice => ("a notice of a put, from any rank".to_owned(), vec![]),
            Awaited::Condition => ("a condition of the program".to_owned(), vec![]),
            Awaited::Member {
                group,
                call,
                seq,
                peer,
            } => {
                let of = match group {
                    0 => "the job".to_owned(),
                    group => format!("group {group}"),
                };
                let from = match peer {
                    Some(peer) => format!("rank {}", peer.0),
                    None => "members".to_owned(),
                };
                let text = format!("{call}, operation {seq} of {of}: waits for {from}");
                (text, peer.into_iter().collect())
            }
        }
    }

    /// Describes an operation, and returns its peer if no other peer can complete it.
    fn describe_op(&self, op: OpId) -> (String, Option<PeerId>) {
        let len = self.ops.len(op);
        let Some(kind) = self.ops.kind(op) else {
            return ("a completed operation".to_owned(), None);
        };
        let text = match kind {
            OpKind::Send(peer) => {
                let state = self.describe_send(peer, op);
                format!("send of {len} bytes to rank {}: {state}", peer.0)
            }
            OpKind::Remote(peer) => {
                format!("transfer of {len} bytes with memory of rank {}", peer.0)
            }
            OpKind::Region => "registered memory".to_owned(),
            OpKind::Call(peer) => format!("reply of rank {} to a call", peer.0),
            OpKind::Probe { source } => format!("a message from {}", rank_or_any(source)),
            OpKind::Collective { group: 0 } => "collective operation of the job".to_owned(),
            OpKind::Collective { group } => format!("collective operation of group {group}"),
            OpKind::Recv { port, source } => {
                format!(
                    "receive at port {} from {}",
                    port.number,
                    rank_or_any(source)
                )
            }
            OpKind::RecvTagged { source } => {
                format!("tagged receive from {}", rank_or_any(source))
            }
        };
        (text, kind.awaited_peer())
    }

    fn describe_send(&self, peer: PeerId, op: OpId) -> &'static str {
        if self.core.peer_status(peer) == PeerStatus::Connecting {
            return "no connection yet";
        }
        if self.pending.holds(peer, op) {
            return "the receiver has not received earlier messages";
        }
        let mut transfers = self.core.unfinished_transfers();
        match transfers.find(|(to, of, _)| *to == peer && self.ops.real(*of) == op) {
            Some((.., false)) => "the receiver has posted no receive",
            _ => "in flight",
        }
    }
}

fn rank_or_any(source: Option<PeerId>) -> String {
    source.map_or_else(|| "any rank".to_owned(), |peer| format!("rank {}", peer.0))
}
