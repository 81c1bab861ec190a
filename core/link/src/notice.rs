// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a link reports besides frames: errors, notices, and what to wait for.

use crate::{LinkKind, PeerId};
use portolan_sys::lack::{Explained, Lack};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use thiserror::Error;

/// Why a link could not be opened or a peer not be connected.
#[derive(Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The system refused. `what` names the call and its object, `remedy` what a person can do.
    #[error("{kind} link: {what}: {}", Explained(errno, Some(remedy)))]
    System {
        /// Link concerned.
        kind: LinkKind,
        /// What was being done, with the name of the thing.
        what: String,
        /// The errno.
        errno: io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The peer's address is of another kind of link, or on another host.
    #[error("{kind} link cannot reach peer {peer}: {why}")]
    Unreachable {
        /// Link concerned.
        kind: LinkKind,
        /// Peer concerned.
        peer: PeerId,
        /// Reason.
        why: &'static str,
    },
}

impl LinkError {
    /// What has run out, if that is why.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        match self {
            LinkError::System { errno, .. } => Lack::of(errno),
            LinkError::Unreachable { .. } => None,
        }
    }
}

/// Reads as the sentence does: a program that returns the error from `main` shows it in this form.
impl fmt::Debug for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a frame was not sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TxError {
    /// Back-pressure: no room now, nothing was sent.
    #[error("no room now")]
    Full,
    /// The frame is longer than the path carries; `frame_len_max` is what the system says now.
    #[error("frame too long for the path, at most {frame_len_max} bytes")]
    TooLong {
        /// Largest frame that passes, 0 if unknown.
        frame_len_max: usize,
    },
    /// The peer was never connected, or its end is gone.
    #[error("peer {0} is not connected")]
    NotConnected(PeerId),
    /// Anything else; treated like a lost frame on lossy links.
    #[error("transmit: {0}")]
    System(#[from] io::Error),
}

/// A queue below a socket that has refused so many calls in a row, while frames leave it all the
/// time, is not full: something refuses these frames, and would for ever. A call takes a
/// microsecond or more, so a device of 1 Gb/s has sent a frame or two meanwhile.
const REFUSALS_MAX: u32 = 64;

/// Whether a call that failed with `error` will go on failing: a filter refuses the frame, or a
/// device whose MTU was lowered under way. Then the frame counts as lost. `refusals` counts such
/// failures since the last success.
#[cold]
pub(crate) fn is_refused_for_good(error: &io::Error, refusals: &mut u32) -> bool {
    if error.raw_os_error() != Some(libc::ENOBUFS) {
        // EAGAIN is the socket's own buffer, which the device empties.
        return false;
    }
    *refusals = refusals.saturating_add(1);
    *refusals > REFUSALS_MAX
}

/// Why data could not be pulled.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PullError {
    /// This link, or this system, cannot: use frames.
    #[error("not supported here")]
    Unsupported,
    /// The peer's memory is not readable there.
    #[error("pull from peer {0}: {1}")]
    Failed(PeerId, io::Error),
}

/// Something that happened outside the data path.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The peer's process closed its end or died; only links that can be sure say so.
    PeerGone(PeerId),
    /// The peer's process lives, and has closed its end of the connection.
    PeerClosed(PeerId),
    /// The peer's process says that it lacks something. Why it closes, or ends, if it soon does.
    PeerLacks {
        /// Peer concerned.
        peer: PeerId,
        /// What it lacks.
        lack: Lack,
    },
    /// This process lacks something for its connection with the peer, which is given up.
    Lacking {
        /// Peer concerned.
        peer: PeerId,
        /// What is missing.
        lack: Lack,
        /// What was tried, what is missing, and the remedy.
        what: String,
    },
    /// The system says that nobody listens at the peer's address (ICMP unreachable). It can be
    /// forged: ask the peer before believing it.
    Refused(PeerId),
    /// Frames to this peer may be at most so long from now on. It can come from a forged ICMP
    /// message: probe before believing it.
    MtuShrunk {
        /// Peer concerned.
        peer: PeerId,
        /// Bytes of the largest frame that passes.
        frame_len_max: usize,
    },
    /// The link itself does not work now: its interface is down, or gone.
    Down(io::Error),
    /// The link buffers so many bytes of bulk payload, as far as is known now.
    Capacity(usize),
    /// A stream to this peer stands.
    StreamUp(PeerId),
    /// A stream to this peer could not be opened, or has ended; others may stand.
    StreamDown {
        /// Peer concerned.
        peer: PeerId,
        /// It was closed because it carried nothing, at this end or the other.
        is_idle: bool,
    },
    /// A frame was refused; the reason is a fixed name for a counter.
    Dropped(&'static str),
}

/// Descriptors that wake a sleeping process; all are waited for readability.
#[derive(Debug, Default)]
pub struct WakeSet {
    /// Descriptors, owned by their links.
    pub fds: Vec<RawFd>,
}
