// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults that have a beginning and an end, and what they excuse.

use portolan_proto::LinkId;
use std::fmt;

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FaultKind {
    /// The process does not run.
    Pause { node: u32 },
    /// The process ends, and starts again when the fault ends, unless it stays away.
    Crash { node: u32, forever: bool },
    /// Frames between the processes in `side` (a bit each) and the others vanish; one way: only
    /// those from `side`.
    Partition { side: u64, one_way: bool },
    /// Frames by one link from and to the process vanish; one way: only those to it. There is
    /// another link, so it excuses nothing.
    LinkDown {
        node: u32,
        link: LinkId,
        one_way: bool,
    },
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

impl Fault {
    /// Whether it can disturb two processes.
    pub(crate) fn touches(&self, a: u32, b: u32) -> bool {
        match self.kind {
            FaultKind::Pause { node } | FaultKind::Crash { node, .. } => node == a || node == b,
            FaultKind::Partition { side, .. } => (side >> a ^ side >> b) & 1 == 1,
            FaultKind::LinkDown { .. } | FaultKind::Mute { .. } => false,
        }
    }

    /// Whether a failure between two processes may be its consequence.
    pub(crate) fn excuses(&self, now: u64, a: u32, b: u32) -> bool {
        let end_ns = match self.kind {
            FaultKind::Crash { forever: true, .. } => u64::MAX,
            _ => self.end_ns.saturating_add(AFTERMATH_NS),
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
                let (from, to) = (side >> from & 1 == 1, side >> to & 1 == 1);
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
            FaultKind::Partition { .. } => "partition",
            FaultKind::LinkDown { .. } => "link down",
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
            FaultKind::Partition { side, one_way } => {
                let how = if one_way { "one way" } else { "both ways" };
                write!(f, "partition {side:#x} {how}")?;
            }
            FaultKind::LinkDown {
                node,
                link,
                one_way,
            } => {
                let how = if one_way { "one way" } else { "both ways" };
                write!(f, "{link} of {node} down {how}")?;
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
