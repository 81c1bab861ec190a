// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults that have a beginning and an end, and what they excuse.

use portolan_proto::LinkId;
use rand::Rng;
use std::fmt;

/// Words of a [`Side`].
const WORDS: usize = crate::plan::NODES_MAX as usize / 64;

/// A set of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side([u64; WORDS]);

impl Side {
    /// Half of all processes by chance, and `node`.
    pub(crate) fn draw(rng: &mut impl Rng, node: u32) -> Side {
        let mut side = Side(std::array::from_fn(|_| rng.random()));
        side.0[node as usize / 64] |= 1 << (node % 64);
        side
    }

    fn has(&self, node: u32) -> bool {
        self.0[node as usize / 64] >> (node % 64) & 1 == 1
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FaultKind {
    /// The process does not run.
    Pause { node: u32 },
    /// The process ends, and starts again when the fault ends, unless it stays away.
    Crash { node: u32, forever: bool },
    /// The program makes no more work and closes: its process ends when what it has sent has
    /// arrived. The fault begins when it closes: from then on it refuses what others ask to send.
    /// When it has ended, its peers are told, if anybody tells them; and it starts again, which ends
    /// the fault, unless it stays away.
    Leave {
        node: u32,
        told_after_ns: Option<u64>,
        again_after_ns: Option<u64>,
    },
    /// Frames between the processes in `side` and the others vanish; one way: only those from
    /// `side`.
    Partition { side: Side, one_way: bool },
    /// Frames by one link from and to the process vanish; one way: only those to it. There is
    /// another link, so it excuses nothing.
    LinkDown {
        node: u32,
        link: LinkId,
        one_way: bool,
    },
    /// The way between the hosts carries no longer packets than these. Excuses nothing.
    Narrow { mtu: usize },
    /// More frames are lost than usual, by these shares in a thousand. Excuses nothing.
    Storm { per_mille: u32 },
    /// The host of the process gets its frames this much later. Excuses nothing.
    Detour { node: u32, extra_ns: u64 },
    /// A bug of the simulation's own: no link of the process works, and nobody is told.
    Mute { node: u32 },
}

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) kind: FaultKind,
}

/// After the end of a fault, its consequences must have come out within this time: a second of
/// silence before a peer is given up, the way to the other side, and the engine's own rhythm.
const AFTERMATH_NS: u64 = 2_500_000_000;

/// When a fault ends, or begins, as long as nobody knows.
pub(crate) const NEVER: u64 = u64::MAX;

impl Fault {
    /// When its process, or its network, is what it was, as far as the plan knows.
    pub(crate) fn planned_end_ns(&self) -> u64 {
        match self.kind {
            FaultKind::Leave { .. } => self.begin_ns,
            _ => self.end_ns,
        }
    }

    /// Whether it can disturb two processes.
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

    /// Whether it has no end.
    pub(crate) fn is_forever(&self) -> bool {
        let dies = matches!(self.kind, FaultKind::Crash { forever: true, .. });
        dies || self.end_ns == NEVER
    }

    /// Whether a failure between two processes may be its consequence.
    pub(crate) fn excuses(&self, now: u64, a: u32, b: u32) -> bool {
        let end_ns = if self.is_forever() {
            u64::MAX
        } else {
            self.end_ns.saturating_add(AFTERMATH_NS)
        };
        self.touches(a, b) && now >= self.begin_ns && now <= end_ns
    }

    /// Whether it swallows frames from `from` to `to` by `link` while it lasts.
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

    /// Whether nothing gets from `from` to `to` while it lasts.
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
            FaultKind::Narrow { .. } => "narrow way",
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
                let how = if one_way { "one way" } else { "both ways" };
                let nodes = (0..crate::plan::NODES_MAX).filter(|node| side.has(*node));
                write!(f, "partition {how}, {} on one side", nodes.count())?;
            }
            FaultKind::LinkDown {
                node,
                link,
                one_way,
            } => {
                let how = if one_way { "one way" } else { "both ways" };
                write!(f, "{link} of {node} down {how}")?;
            }
            FaultKind::Narrow { mtu } => write!(f, "way MTU {mtu}")?,
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
