// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trace of events: a hash over all of them, a text of the last ones, and all of them on request.

use crate::capture::Capture;
use portolan_proto::{Cause, LaneId, LinkId};
use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Number of events kept for the report of a violation.
const TRACE_LEN: usize = 60;

/// Traced event.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum Item {
    Sent {
        to: u32,
        link: LinkId,
        len: usize,
    },
    Arrived {
        from: u32,
        link: LinkId,
        len: usize,
    },
    Lost {
        to: u32,
        link: LinkId,
        why: &'static str,
    },
    Submitted {
        to: u32,
        lane: LaneId,
        port: u16,
        id: u64,
        len: usize,
    },
    Delivered {
        from: u32,
        lane: LaneId,
        port: u16,
        id: u64,
        len: usize,
    },
    Up {
        peer: u32,
        session: u64,
    },
    Failed {
        peer: u32,
        cause: Cause,
    },
    Suspect {
        peer: u32,
        link: LinkId,
    },
    Connect {
        peer: u32,
    },
    StreamUp {
        peer: u32,
    },
    StreamDown {
        peer: u32,
        by_fault: bool,
    },
    /// A part was passed to a stream without a copy.
    InPlace {
        to: u32,
        op: u64,
        off: usize,
        len: usize,
    },
    /// A piece of a part that was passed without a copy was received.
    Taken {
        from: u32,
        off: u64,
        len: usize,
    },
    Fault {
        index: usize,
        what: &'static str,
    },
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Item::Sent { to, link, len } => write!(f, "sends {len} bytes to {to} by {link}"),
            Item::Arrived { from, link, len } => {
                write!(f, "receives {len} bytes from {from} on {link}")
            }
            Item::Lost { to, link, why } => write!(f, "loses a frame to {to} by {link}: {why}"),
            Item::Submitted {
                to,
                lane,
                port,
                id,
                len,
            } => {
                write!(
                    f,
                    "submits message {id} ({len} bytes) to {to} port {port} {lane:?}"
                )
            }
            Item::Delivered {
                from,
                lane,
                port,
                id,
                len,
            } => {
                write!(
                    f,
                    "delivers message {id} ({len} bytes) from {from} port {port} {lane:?}"
                )
            }
            Item::Up { peer, session } => write!(f, "has session {session} with {peer}"),
            Item::Failed { peer, cause } => write!(f, "declares {peer} failed: {cause}"),
            Item::Suspect { peer, link } => write!(f, "suspects {peer}, silent on {link}"),
            Item::Connect { peer } => write!(f, "connects to {peer}"),
            Item::StreamUp { peer } => write!(f, "has a stream with {peer}"),
            Item::StreamDown { peer, by_fault } => {
                let how = if by_fault { "by a fault" } else { "unused" };
                write!(f, "lost its stream with {peer}, {how}")
            }
            Item::InPlace { to, op, off, len } => {
                write!(
                    f,
                    "passes {len} bytes from {off} of {op} to a stream to {to}"
                )
            }
            Item::Taken { from, off, len } => {
                write!(
                    f,
                    "takes {len} bytes, to be at {off}, from a stream from {from}"
                )
            }
            Item::Fault { index, what } => write!(f, "fault {index}: {what}"),
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Trace {
    hasher: DefaultHasher,
    last: VecDeque<(u64, u32, Item)>,
    print: bool,
    capture: Option<Capture>,
}

impl Trace {
    pub(crate) fn new(print: bool, capture: Option<Capture>) -> Self {
        Trace {
            capture,
            hasher: DefaultHasher::new(),
            last: VecDeque::with_capacity(TRACE_LEN),
            print,
        }
    }

    /// Records a sent frame, and stores its bytes if there is a capture file.
    pub(crate) fn push_frame(
        &mut self,
        now: u64,
        (from, to): (u32, u32),
        link: LinkId,
        frame: &[u8],
    ) {
        let len = frame.len();
        self.push(now, from, Item::Sent { to, link, len });
        if let Some(capture) = &mut self.capture
            && let Err(error) = capture.record(now, (from, to), link, frame)
        {
            eprintln!("the capture ends here: {error}");
            self.capture = None;
        }
    }

    pub(crate) fn push(&mut self, now: u64, node: u32, item: Item) {
        (now, node, item).hash(&mut self.hasher);
        if self.print {
            println!("{}", line(now, node, &item));
        }
        if self.last.len() == TRACE_LEN {
            self.last.pop_front();
        }
        self.last.push_back((now, node, item));
    }

    /// Returns the hash over all events.
    pub(crate) fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// Returns the last events as text.
    pub(crate) fn last(&self) -> Vec<String> {
        self.last
            .iter()
            .map(|(now, node, item)| line(*now, *node, item))
            .collect()
    }
}

fn line(now: u64, node: u32, item: &Item) -> String {
    format!(
        "{:>4}.{:09} node {node} {item}",
        now / 1_000_000_000,
        now % 1_000_000_000
    )
}
