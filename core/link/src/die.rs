// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link that wraps a link and kills its process with SIGKILL at a chosen frame, to test what a
//! process leaves behind when it dies in the middle of an operation.
//!
//! Every state that another process can observe lies between two frames. The frames of a short job
//! therefore enumerate all points at which a death can matter.

use crate::boxed::forward;
use crate::cut::Run;
use crate::{Link, LinkCaps, PeerId, Receiver, RxFrame, TxError, TxFrame};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// Direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Killed before the call that would send the frame.
    Sent,
    /// Killed after the frame arrived, before it is processed.
    Received,
}

/// Process to kill and the frame that triggers it. As text: `1:sent:17` kills rank 1 in place of
/// sending its 17th frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieSpec {
    /// Rank of the process.
    pub rank: u32,
    /// Direction of the frames that are counted.
    pub direction: Direction,
    /// Number of the frame, from 1, over all links of the process.
    pub frame: u64,
}

/// Syntax error in the text of a [`DieSpec`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("write RANK:sent:N or RANK:received:N, with N from 1, such as 1:sent:17")]
pub struct DieSpecError;

impl FromStr for DieSpec {
    type Err = DieSpecError;

    fn from_str(text: &str) -> Result<Self, DieSpecError> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or(DieSpecError);
        let rank = next()?.parse().map_err(|_| DieSpecError)?;
        let direction = match next()? {
            "sent" => Direction::Sent,
            "received" => Direction::Received,
            _ => return Err(DieSpecError),
        };
        let frame = next()?.parse().map_err(|_| DieSpecError)?;
        if frame == 0 || parts.next().is_some() {
            return Err(DieSpecError);
        }
        Ok(DieSpec {
            rank,
            direction,
            frame,
        })
    }
}

impl fmt::Display for DieSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Sent => "sent",
            Direction::Received => "received",
        };
        write!(f, "{}:{direction}:{}", self.rank, self.frame)
    }
}

/// A link that kills its process.
pub struct Die<L> {
    inner: L,
    caps: LinkCaps,
    direction: Direction,
    /// Remaining frames, shared by all links of the process.
    left: Arc<AtomicU64>,
}

impl DieSpec {
    /// Returns the counter that all links of the process share.
    #[must_use]
    pub fn countdown(&self) -> Arc<AtomicU64> {
        Arc::new(AtomicU64::new(self.frame))
    }
}

impl<L: Link> Die<L> {
    /// Wraps `inner`; `left` comes from [`DieSpec::countdown`].
    pub fn new(inner: L, spec: &DieSpec, left: Arc<AtomicU64>) -> Self {
        Die {
            caps: LinkCaps {
                // Each received frame must be counted.
                placement: false,
                ..inner.caps().clone()
            },
            inner,
            direction: spec.direction,
            left,
        }
    }
}

/// Counts `count` frames and kills the process if the chosen one is among them.
fn count_down(left: &AtomicU64, count: u64) {
    let before = left.load(Ordering::Relaxed);
    if before <= count {
        portolan_sys::process::kill_self();
    }
    left.store(before - count, Ordering::Relaxed);
}

impl<L: Link> Link for Die<L> {
    fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    forward!(self => self.inner; local_addr, connect, disconnect, pull, poll_notice, arm, disarm);

    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        if self.direction == Direction::Sent {
            count_down(&self.left, Run::new(frame).count as u64);
        }
        self.inner.transmit(peer, frame)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let (direction, left) = (self.direction, &self.left);
        self.inner.receive(budget, &mut |frame| {
            if direction == Direction::Received {
                count_down(left, 1);
            }
            sink(frame);
        })
    }

    fn receive_placed(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.receive(budget, &mut |frame| receiver.frame(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_survives_a_round_trip() {
        for text in ["1:sent:17", "0:received:1"] {
            assert_eq!(text.parse::<DieSpec>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "1",
            "1:sent",
            "1:sent:0",
            "x:sent:1",
            "1:lost:1",
            "1:sent:1:2",
        ] {
            assert_eq!(text.parse::<DieSpec>(), Err(DieSpecError), "{text}");
        }
    }
}
