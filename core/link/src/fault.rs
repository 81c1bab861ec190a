// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link that wraps a link and injects faults by seed, for tests of everything that must survive
//! bad networks.
//!
//! Each datagram that is sent may be dropped, duplicated, corrupted, delayed or reordered,
//! independently of the others in its run. Received frames are not changed; wrap both ends for
//! faults in both directions.
//!
//! A held frame leaves in a later call of any verb, once it is due. [`Link::arm`] therefore returns
//! `false` while frames are held.

mod plan;
mod spec;

pub use spec::{FaultSpec, FaultSpecError, parse_time};

use crate::boxed::forward;
use crate::cut::Run;
use crate::{
    Link, LinkAddr, LinkCaps, LinkError, Notice, PeerId, Receiver, RxFrame, TxError, TxFrame,
    WakeSet,
};
use plan::{Fate, Plan};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Frames held at one time. Further frames are dropped, as a lossy network may do.
const HELD_MAX: usize = 4096;

/// Longest time that a reordered frame waits for the next frame to overtake it, so that the last
/// frame of an exchange does not wait forever.
const OVERTAKE_MAX: Duration = Duration::from_millis(1);

/// Counters of a [`Fault`], in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Datagrams submitted by the caller.
    pub frames: u64,
    /// Datagrams dropped.
    pub dropped: u64,
    /// Datagrams sent twice.
    pub duplicated: u64,
    /// Datagrams sent after their successor.
    pub reordered: u64,
    /// Datagrams sent with a flipped bit, or altered by [`Fault::spoiling`].
    pub corrupted: u64,
    /// Datagrams sent late.
    pub delayed: u64,
}

/// A link that injects faults.
pub struct Fault<L> {
    inner: L,
    caps: LinkCaps,
    plan: Plan,
    counters: FaultCounters,
    /// Flips a bit of a datagram.
    spoil: Spoil,
    connected: BTreeSet<PeerId>,
    held: VecDeque<Held>,
    fates: Vec<Fate>,
    /// Copy of a datagram that is altered or held.
    scratch: Vec<u8>,
    /// Headers of the datagrams that leave unaltered.
    heads: Vec<u8>,
}

/// Function that alters a datagram, given the number of a bit.
pub type Spoil = fn(&mut [u8], usize);

fn flip_bit(datagram: &mut [u8], bit: usize) {
    datagram[bit / 8 % datagram.len()] ^= 1 << (bit % 8);
}

struct Held {
    peer: PeerId,
    frame: Vec<u8>,
    due: Instant,
    /// Set if the frame leaves as soon as another frame has passed.
    overtakable: bool,
}

impl<L: Link> Fault<L> {
    /// Wraps `inner`.
    pub fn new(inner: L, spec: FaultSpec) -> Self {
        let caps = LinkCaps {
            lossless: false,
            ..inner.caps().clone()
        };
        Fault {
            inner,
            caps,
            plan: Plan::new(spec),
            counters: FaultCounters::default(),
            spoil: flip_bit,
            connected: BTreeSet::new(),
            held: VecDeque::new(),
            fates: Vec::new(),
            scratch: Vec::new(),
            heads: Vec::new(),
        }
    }

    /// Corrupts datagrams with `spoil`, which may take the wire's own checksum into account.
    #[must_use]
    pub fn spoiling(self, spoil: Spoil) -> Self {
        Fault { spoil, ..self }
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// Sends held frames that are due. If the link is full, the rest keep waiting.
    fn release_due(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now = Instant::now();
        for _ in 0..self.held.len() {
            let Some(held) = self.held.pop_front() else {
                break;
            };
            let full = held.due <= now
                && matches!(
                    self.inner
                        .transmit(held.peer, &TxFrame::contiguous(&held.frame)),
                    Err(TxError::Full)
                );
            if full || held.due > now {
                self.held.push_back(held);
            }
        }
    }

    /// Sends a frame or run of which at least one datagram suffers a fault. Unaltered datagrams
    /// leave in one call, without a copy, because a wire loses datagrams after the call that sent
    /// them. The other datagrams follow, or are held.
    fn transmit_badly(&mut self, peer: PeerId, run: &Run<'_>) -> Result<(), TxError> {
        let fates = std::mem::take(&mut self.fates);
        let mut heads = std::mem::take(&mut self.heads);
        let leaves = |index: usize| fates[index].leaves_in_run();
        let mut payload = Vec::new();
        let result = match run.only(leaves, &mut heads, &mut payload) {
            Some(frame) => self.inner.transmit(peer, &frame),
            None => Ok(()),
        };
        // The caller may retry only if no part of the run was processed.
        if result.is_ok() {
            self.counters.frames += run.count as u64;
            let last = (0..run.count).rfind(|&index| leaves(index));
            for (index, &fate) in fates.iter().enumerate() {
                if fate.is_loss() {
                    self.counters.dropped += 1;
                } else if !fate.is_unaltered() {
                    self.apply_fate(peer, run, index, fate);
                }
                if Some(index) == last {
                    self.release_overtaken();
                }
            }
        }
        (self.fates, self.heads) = (fates, heads);
        result
    }

    /// Applies the fault of one datagram, after the unaltered datagrams of its run have left.
    fn apply_fate(&mut self, peer: PeerId, run: &Run<'_>, index: usize, fate: Fate) {
        let mut frame = std::mem::take(&mut self.scratch);
        run.copy_datagram(index, &mut frame);
        if let Some(bit) = fate.corrupt_bit {
            (self.spoil)(&mut frame, bit);
            self.counters.corrupted += 1;
        }
        if fate.drop {
            self.counters.dropped += 1;
        } else if let Some(delay) = fate.delay {
            self.hold(peer, &frame, delay, false);
            self.counters.delayed += 1;
        } else if fate.reorder {
            self.hold(peer, &frame, OVERTAKE_MAX, true);
            self.counters.reordered += 1;
        } else if fate.leaves_in_run() {
            // Already sent with the run.
        } else if self
            .inner
            .transmit(peer, &TxFrame::contiguous(&frame))
            .is_ok()
        {
            self.release_overtaken();
        } else {
            self.hold(peer, &frame, Duration::ZERO, false);
        }
        if fate.duplicate {
            self.hold(peer, &frame, Duration::ZERO, false);
            self.counters.duplicated += 1;
        }
        self.scratch = frame;
    }

    fn hold(&mut self, peer: PeerId, frame: &[u8], delay: Duration, overtakable: bool) {
        if self.held.len() == HELD_MAX {
            self.counters.dropped += 1;
            return;
        }
        let due = Instant::now() + delay;
        self.held.push_back(Held {
            peer,
            frame: frame.to_vec(),
            due,
            overtakable,
        });
    }

    /// Makes reordered frames due, because a frame has passed them.
    fn release_overtaken(&mut self) {
        if self.held.iter().any(|held| held.overtakable) {
            let now = Instant::now();
            for held in self.held.iter_mut().filter(|held| held.overtakable) {
                held.due = now;
                held.overtakable = false;
            }
            self.release_due();
        }
    }
}

impl<L: Link> Link for Fault<L> {
    fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    forward!(self => self.inner; local_addr, pull, disarm);

    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        self.inner.connect(peer, addr)?;
        self.connected.insert(peer);
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.held.retain(|held| held.peer != peer);
        self.connected.remove(&peer);
        self.inner.disconnect(peer);
    }

    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.release_due();
        let run = Run::new(frame);
        // The link must see runs that it would refuse, whatever faults were drawn.
        let refused = run.datagram_len() > self.caps.frame_len_max
            || run.count > self.caps.segments_max
            || !self.connected.contains(&peer);
        self.plan
            .draw(run.count, run.datagram_len(), &mut self.fates);
        if !refused && !self.fates.iter().all(Fate::is_unaltered) {
            return self.transmit_badly(peer, &run);
        }
        self.inner.transmit(peer, frame)?;
        self.counters.frames += run.count as u64;
        self.release_overtaken();
        Ok(())
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.release_due();
        self.inner.receive(budget, sink)
    }

    /// Faults are injected on the sending side, so received frames may be placed.
    fn receive_placed(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.release_due();
        self.inner.receive_placed(budget, receiver)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.release_due();
        self.inner.poll_notice()
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        self.release_due();
        self.inner.arm(wake) && self.held.is_empty()
    }
}

#[cfg(test)]
mod tests;
