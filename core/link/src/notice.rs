// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors, notices, and wake descriptors of links.

use crate::{LinkKind, PeerId};
use portolan_sys::shortage::{Explained, Shortage};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use thiserror::Error;

/// Reason why a link could not be opened or a peer could not be connected.
#[derive(Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The system refused a call. `what` names the call and its object; `remedy` is advice for the
    /// user.
    #[error("{kind} link: {what}: {}", Explained(errno, Some(remedy)))]
    System {
        /// Link concerned.
        kind: LinkKind,
        /// Attempted action, with the name of the object.
        what: String,
        /// The errno.
        errno: io::Error,
        /// Advice for the user.
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
    /// Returns the exhausted resource, if that caused the error.
    #[must_use]
    pub fn shortage(&self) -> Option<Shortage> {
        match self {
            LinkError::System { errno, .. } => Shortage::of(errno),
            LinkError::Unreachable { .. } => None,
        }
    }
}

/// Formats like `Display`, because a program that returns the error from `main` prints this form.
impl fmt::Debug for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reason why a frame was not sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TxError {
    /// Back-pressure: nothing was sent; retry after progress.
    #[error("link is full; retry later")]
    Full,
    /// The frame is longer than the path carries. `frame_len_max` is the system's current value.
    #[error("frame is longer than the path carries, at most {frame_len_max} bytes")]
    TooLong {
        /// Largest frame that passes, 0 if unknown.
        frame_len_max: usize,
    },
    /// The peer was never connected, or its end was closed.
    #[error("peer {0} is not connected")]
    NotConnected(PeerId),
    /// Any other error. Lossy links treat it as a lost frame.
    #[error("cannot transmit: {0}")]
    System(#[from] io::Error),
}

/// Refused calls in a row after which the queue below the socket is not considered full. A full
/// queue drains between calls, so a filter or device is refusing these frames permanently. A call
/// takes 1 µs or more; a device of 1 Gb/s sends a frame or two in that time.
const REFUSALS_MAX: u32 = 64;

/// Returns `true` if a call that failed with `error` will keep failing, because a filter refuses
/// the frame or the device's MTU was lowered. The frame then counts as lost. `refusals` counts such
/// failures since the last success.
#[cold]
pub(crate) fn is_refused_permanently(error: &io::Error, refusals: &mut u32) -> bool {
    if error.raw_os_error() != Some(libc::ENOBUFS) {
        // EAGAIN is the socket's own buffer, which the device drains.
        return false;
    }
    *refusals = refusals.saturating_add(1);
    *refusals > REFUSALS_MAX
}

/// Reason why data could not be pulled.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PullError {
    /// This link or system cannot pull; use frames.
    #[error("reading a peer's memory is not supported")]
    Unsupported,
    /// The peer's memory is not readable at that address.
    #[error("cannot read memory of peer {0}: {1}")]
    Failed(PeerId, io::Error),
}

/// An event outside the data path.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The peer's process closed its end or died. Reported only by links that can be certain.
    PeerDied(PeerId),
    /// The peer's process is alive and closed its end of the connection.
    PeerClosed(PeerId),
    /// The peer's process reports that it lacks a resource. This explains why it closes or exits
    /// soon after.
    PeerShortage {
        /// Peer concerned.
        peer: PeerId,
        /// Exhausted resource.
        shortage: Shortage,
    },
    /// This process lacks a resource for its connection with the peer; the connection is abandoned.
    Shortage {
        /// Peer concerned.
        peer: PeerId,
        /// Exhausted resource.
        shortage: Shortage,
        /// Attempted action, exhausted resource, and remedy.
        what: String,
    },
    /// The system reports that no process listens at the peer's address (ICMP unreachable). The
    /// message may be forged: probe the peer before relying on it.
    Refused(PeerId),
    /// Frames to this peer may have at most this length from now on. The ICMP message may be
    /// forged: probe before relying on it.
    MtuShrunk {
        /// Peer concerned.
        peer: PeerId,
        /// Bytes of the largest frame that passes.
        frame_len_max: usize,
    },
    /// The link does not work at present: its interface is down or was removed.
    Down(io::Error),
    /// Bytes of bulk payload that the link buffers, as far as currently known.
    Capacity(usize),
    /// A stream to this peer is established.
    StreamUp(PeerId),
    /// A stream to this peer could not be opened, or has ended. Other streams to the peer may be
    /// established.
    StreamDown {
        /// Peer concerned.
        peer: PeerId,
        /// Set if either end closed it because it carried no data.
        is_idle: bool,
    },
    /// A frame was refused. The reason is a fixed name for a counter.
    Dropped(&'static str),
}

/// Descriptors that wake a sleeping process; each is polled for readability.
#[derive(Debug, Default)]
pub struct WakeSet {
    /// Descriptors, owned by their links.
    pub fds: Vec<RawFd>,
}
