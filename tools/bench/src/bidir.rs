// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams in both directions at once: Portolan's row, and the end-of-row protocol of all rows.
//!
//! In a pass each end sends a window and receives one. The answerer sends its window before it has
//! received the driver's, so it cannot detect the last pass by itself. The driver announces it one
//! pass ahead and ends with a pass of two windows.
//!
//! A stream of alternating directions is a ping-pong. Its throughput is the size over half the
//! round trip.

use crate::measure::{Pass, Sample, drive};
use crate::pattern::{Flags, stamp, verify};
use crate::portolan_rows::region_of;
use crate::rows::pass_flags;
use crate::spec::{Spec, window};
use anyhow::{Context, Result, ensure};
use portolan::{Buffer, Node, PortConfig, Region, Request, Target};
use std::collections::VecDeque;
use std::sync::Arc;

/// Port of the messages at both ranks.
const DATA: u16 = 6;

/// Receives posted at a time, as in the one-way stream.
const POSTED: usize = 2;

/// Announces that the next window is the last.
const ANNOUNCE: Flags = Flags {
    last: true,
    check: false,
};

/// Runs the driver until the time is up. `exchange` sends a window with the given flags and returns
/// the flags of the received window.
///
/// # Errors
/// The first error of an exchange.
pub(crate) fn drive_windows(
    spec: &Spec,
    mut exchange: impl FnMut(u64, Flags) -> Result<Flags>,
) -> Result<Sample> {
    let mut seq = 0;
    let mut next = |flags| {
        seq += 1;
        exchange(seq - 1, flags)
    };
    let mut begun = false;
    drive(spec.pace, Pass::one_way(2 * window(spec.size)), |last| {
        if !last {
            let flags = pass_flags(u64::from(begun), false);
            begun = true;
            return next(flags).map(drop);
        }
        next(ANNOUNCE)?;
        let flags = next(Flags::LAST)?;
        ensure!(flags == Flags::LAST, "the other end did not stop");
        Ok(())
    })
}

/// Runs the answerer until the driver's last window. `on_pass` is called after every window except
/// the last.
///
/// # Errors
/// The first error of an exchange.
pub(crate) fn answer_windows(
    mut exchange: impl FnMut(u64, Flags) -> Result<Flags>,
    mut on_pass: impl FnMut(),
) -> Result<()> {
    let mut flags = Flags::FIRST;
    for seq in 0.. {
        let received = exchange(seq, flags)?;
        if received == Flags::LAST {
            break;
        }
        on_pass();
        flags = if received == ANNOUNCE {
            Flags::LAST
        } else {
            Flags::NONE
        };
    }
    Ok(())
}

/// Runs rank 0.
///
/// # Errors
/// A payload was wrong, or the other rank has failed.
pub(crate) fn measure(node: &mut Node, spec: &Spec) -> Result<Sample> {
    let mut end = End::open(node, spec)?;
    drive_windows(spec, |seq, flags| end.exchange(seq, flags))
}

/// Runs rank 1.
///
/// # Errors
/// A payload was wrong, or the other rank has failed.
pub(crate) fn answer(node: &mut Node, spec: &Spec, on_pass: impl FnMut()) -> Result<()> {
    let mut end = End::open(node, spec)?;
    answer_windows(|seq, flags| end.exchange(seq, flags), on_pass)
}

struct End<'a> {
    node: &'a mut Node,
    peer: Target,
    messages: u64,
    /// Buffer of all sends of a window. It is written only between windows, when no send is
    /// pending.
    message: Arc<Region>,
    posted: VecDeque<Request>,
    sends: Vec<Request>,
}

impl<'a> End<'a> {
    fn open(node: &'a mut Node, spec: &Spec) -> Result<Self> {
        node.open(DATA, PortConfig::default())?;
        let mut posted = VecDeque::new();
        for _ in 0..POSTED {
            posted.push_back(node.post_recv(DATA, Region::new(spec.size)?)?);
        }
        node.barrier()?;
        Ok(End {
            peer: Target::new(1 - node.rank(), DATA),
            node,
            messages: window(spec.size),
            message: Arc::new(Region::new(spec.size)?),
            posted,
            sends: Vec::new(),
        })
    }

    fn exchange(&mut self, seq: u64, flags: Flags) -> Result<Flags> {
        let bytes =
            Arc::get_mut(&mut self.message).context("a completed send still holds its buffer")?;
        stamp(bytes, seq, flags);
        for _ in 0..self.messages {
            let message = Buffer::shared_region(Arc::clone(&self.message));
            self.sends.push(self.node.isend(self.peer, message)?);
        }
        let mut received = Flags::NONE;
        for _ in 0..self.messages {
            let request = self
                .posted
                .pop_front()
                .context("a receive is always posted")?;
            let completion = self.node.wait(request)?;
            let len = completion.len;
            ensure!(len == self.message.len(), "a message of {len} bytes");
            let message = region_of(completion)?;
            received = verify(&message, seq)?;
            self.posted.push_back(self.node.post_recv(DATA, message)?);
        }
        for request in self.sends.drain(..) {
            self.node.wait(request)?;
        }
        Ok(received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Pace;
    use std::cell::RefCell;

    #[test]
    fn both_ends_send_their_last_window_in_the_same_pass() {
        let spec = Spec {
            pace: Pace::Iterations(3),
            ..crate::tests::spec(crate::spec::Program::TcpPingpong, 1 << 30)
        };
        let driven = RefCell::new(Vec::new());
        drive_windows(&spec, |seq, flags| {
            driven.borrow_mut().push((seq, flags));
            Ok(flags)
        })
        .expect("works");
        let driven = driven.into_inner();
        let mut answered = Vec::new();
        answer_windows(
            |seq, flags| {
                answered.push((seq, flags));
                Ok(driven[usize::try_from(seq)?].1)
            },
            || {},
        )
        .expect("works");
        assert_eq!(answered.len(), driven.len());
        assert_eq!(answered.last().map(|last| last.1), Some(Flags::LAST));
        assert_eq!(answered[0].1, Flags::FIRST);
    }
}
