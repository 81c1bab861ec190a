// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults with a beginning and an end, and the failures that they excuse.

use portolan_proto::LinkId;
use rand::Rng;
use std::fmt;

/// Number of words in a [`Side`].
const WORDS: usize = crate::plan::NODES_MAX as usize / 64;

/// Set of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side([u64; WORDS]);

impl Side {
    /// Draws a random half of all processes, plus `node`.
    pub(crate) fn draw(rng: &mut impl Rng, node: u32) -> Side {
        let mut side = Side(std::array::from_fn(|_| rng.random()));
        side.0[node as usize / 64] |= 1 << (node % 64);
        side
    }

    fn has(&self, node: u32) -> bool {
        self.0[node as usize / 64] >> (node % 64) & 1 == 1
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FaultKind {
    /// The process does not run.
    Pause { node: u32 },
    /// The process is killed, and restarts when the fault ends, unless `forever`.
    Crash { node: u32, forever: bool },
    /// The program creates no more work and closes; its process exits when everything it sent has
    /// arrived. The fault begins with the close: from then on the process refuses requests to send.
    /// After its exit, its peers are notified if `reported_after_ns` is set, and it restarts, which
    /// ends the fault, if `again_after_ns` is set.
    Leave {
        node: u32,
        reported_after_ns: Option<u64>,
        again_after_ns: Option<u64>,
    },
    /// Frames between the processes in `side` and all other processes are lost; with `one_way`,
    /// only those from `side`.
    Partition { side: Side, one_way: bool },
    /// Frames on one link from and to the process are lost; with `one_way`, only those to it.
    /// Another link works, so the fault excuses nothing.
    LinkDown {
        node: u32,
        link: LinkId,
        one_way: bool,
    },
    /// The path between the hosts carries only packets of up to this length. Excuses nothing.
    Narrow { mtu: usize },
    /// Additional loss in frames per thousand. Excuses nothing.
    Storm { per_mille: u32 },
    /// Frames to the host of the process are delayed by this time. Excuses nothing.
    Detour { node: u32, extra_ns: u64 },
    /// Bug of the simulation itself: no link of the process works, and no process is notified.
    Mute { node: u32 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) kind: FaultKind,
}

/// Time after the end of a fault within which its consequences must appear. It covers one second of
/// silence before a peer is given up, the path to the other side, and the engine's own intervals.
const AFTERMATH_NS: u64 = 2_500_000_000;

/// Time of an end or a beginning that is not known yet.
pub(crate) const NEVER: u64 = u64::MAX;

impl Fault {
    /// Returns the time when its process, or its network, is restored, as far as the plan
    /// determines it.
    pub(crate) fn planned_end_ns(&self) -> u64 {
        match self.kind {
            FaultKind::Leave { .. } => self.begin_ns,
            _ => self.end_ns,
        }
    }

    /// Returns true if it can disturb two processes.
    pub(crate) fn touches(&self, a: u32, b: u32) -> bool {
        match self.kind {
            FaultKind::Pause { node }
            | FaultKind::Crash { node, .. }
            | FaultKind::Leave { node, .. } => node == a || node == b,
            FaultKind::Partition { side, .. } => side.has(a) != side.has(b),
            FaultKind::LinkDown { .. }
            | FaultKind::Narrow { .. }
            | FaultKind::Storm { .. }
            | FaultKind::Detour { .. }
            | FaultKind::Mute { .. } => false,
        }
    }

    /// Returns true if it has no end.
    pub(crate) fn is_forever(&self) -> bool {
        let dies = matches!(self.kind, FaultKind::Crash { forever: true, .. });
        dies || self.end_ns == NEVER
    }

    /// Returns true if it may have caused a failure between two processes.
    pub(crate) fn excuses(&self, now: u64, a: u32, b: u32) -> bool {
        let end_ns = if self.is_forever() {
            u64::MAX
        } else {
            self.end_ns.saturating_add(AFTERMATH_NS)
        };
        self.touches(a, b) && now >= self.begin_ns && now <= end_ns
    }

    /// Returns true if it drops frames from `from` to `to` on `link` while active.
    pub(crate) fn cuts_link(&self, from: u32, to: u32, link: LinkId) -> bool {
        match self.kind {
            FaultKind::LinkDown {
                node,
                link: down,
                one_way,
            } => down == link && (to == node || from == node && !one_way),
            _ => self.cuts(from, to),
        }
    }

    /// Returns true if it drops all frames from `from` to `to` while active.
    pub(crate) fn cuts(&self, from: u32, to: u32) -> bool {
        match self.kind {
            FaultKind::Partition { side, one_way } => {
                let (from, to) = (side.has(from), side.has(to));
                from != to && (from || !one_way)
            }
            FaultKind::Mute { node } => from == node || to == node,
            _ => false,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            FaultKind::Pause { .. } => "pause",
            FaultKind::Crash { .. } => "crash",
            FaultKind::Leave { .. } => "leave",
            FaultKind::Partition { .. } => "partition",
            FaultKind::LinkDown { .. } => "link down",
            FaultKind::Narrow { .. } => "narrow path",
            FaultKind::Storm { .. } => "storm",
            FaultKind::Detour { .. } => "detour",
            FaultKind::Mute { .. } => "mute",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FaultKind::Pause { node } => write!(f, "{node} pauses")?,
            FaultKind::Crash {
                node,
                forever: false,
            } => write!(f, "{node} crashes")?,
            FaultKind::Crash {
                node,
                forever: true,
            } => write!(f, "{node} dies")?,
            FaultKind::Leave {
                node,
                again_after_ns,
                ..
            } => {
                let what = match again_after_ns {
                    Some(_) => "leaves and comes back",
                    None => "leaves",
                };
                return write!(f, "{node} {what} from {} ms", self.begin_ns / 1_000_000);
            }
            FaultKind::Partition { side, one_way } => {
                let how = if one_way {
                    "one way"
                } else {
                    "both directions"
                };
                let nodes = (0..crate::plan::NODES_MAX).filter(|node| side.has(*node));
                write!(f, "partition {how}, {} on one side", nodes.count())?;
            }
            FaultKind::LinkDown {
                node,
                link,
                one_way,
            } => {
                let how = if one_way {
                    "one way"
                } else {
                    "both directions"
                };
                write!(f, "{link} of {node} down {how}")?;
            }
            FaultKind::Narrow { mtu } => write!(f, "path MTU {mtu}")?,
            FaultKind::Storm { per_mille } => write!(f, "storm of {per_mille} ‰")?,
            FaultKind::Detour { node, extra_ns } => {
                write!(f, "{node} is {} µs farther", extra_ns / 1000)?;
            }
            FaultKind::Mute { node } => write!(f, "{node} mute")?,
        }
        write!(
            f,
            " {}-{} ms",
            self.begin_ns / 1_000_000,
            self.end_ns / 1_000_000
        )
    }
}
