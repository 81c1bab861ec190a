// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link that wraps a link and treats its frames badly, by seed: for testing everything that
//! must survive bad networks.
//!
//! What is sent is dropped, duplicated, corrupted, delayed or reordered, each datagram of a run for
//! itself. What is received passes untouched; wrap both ends for faults in both directions.
//!
//! A frame that is held back leaves by a later call, of whatever verb, once its time has come; so
//! while frames are held, [`Link::arm`] says that the caller must not sleep.

mod plan;
mod spec;

pub use spec::{FaultSpec, FaultSpecError, parse_time};

use crate::cut::Run;
use crate::{
    Link, LinkAddr, LinkCaps, LinkError, Notice, PeerId, PullError, Receiver, RxFrame, TxError,
    TxFrame, WakeSet,
};
use plan::{Fate, Plan};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Frames held back at one time. Beyond it they are dropped: a lossy network may do that too.
const HELD_MAX: usize = 4096;

/// A reordered frame waits for the next one to overtake it, but not longer than this: the last
/// frame of an exchange must not wait for ever.
const OVERTAKE_MAX: Duration = Duration::from_millis(1);

/// What a [`Fault`] has done so far, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Given to the link by its caller.
    pub frames: u64,
    /// Not passed on.
    pub dropped: u64,
    /// Passed on twice.
    pub duplicated: u64,
    /// Passed on behind the frame that came after.
    pub reordered: u64,
    /// Passed on with a bit turned over, or as [`Fault::spoiling`] says.
    pub corrupted: u64,
    /// Passed on later.
    pub delayed: u64,
}

/// The wrapper.
pub struct Fault<L> {
    inner: L,
    caps: LinkCaps,
    plan: Plan,
    counters: FaultCounters,
    /// Turns a bit of a datagram.
    spoil: Spoil,
    connected: BTreeSet<PeerId>,
    held: VecDeque<Held>,
    fates: Vec<Fate>,
    /// A datagram that does not leave as it was given.
    scratch: Vec<u8>,
    /// Headers of the datagrams that do.
    heads: Vec<u8>,
}

/// Alters a datagram, by the number of a bit.
pub type Spoil = fn(&mut [u8], usize);

fn turn_bit(datagram: &mut [u8], bit: usize) {
    datagram[bit / 8 % datagram.len()] ^= 1 << (bit % 8);
}

struct Held {
    peer: PeerId,
    frame: Vec<u8>,
    due: Instant,
    /// Leaves as soon as another frame has passed.
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
            spoil: turn_bit,
            connected: BTreeSet::new(),
            held: VecDeque::new(),
            fates: Vec::new(),
            scratch: Vec::new(),
            heads: Vec::new(),
        }
    }

    /// Turns bits by `spoil`, which may know what a wire's own check would catch.
    #[must_use]
    pub fn spoiling(self, spoil: Spoil) -> Self {
        Fault { spoil, ..self }
    }

    /// What has been done so far.
    pub fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// Passes the frames on whose time has come. Full links keep the rest waiting.
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
                    self.inner.transmit(held.peer, &TxFrame::whole(&held.frame)),
                    Err(TxError::Full)
                );
            if full || held.due > now {
                self.held.push_back(held);
            }
        }
    }

    /// The way of a frame, or of a run, with which fate does something. What leaves undisturbed leaves
    /// in one call from where it lies, as a wire loses datagrams after the call that sent them; the
    /// others follow it, or are held back.
    fn transmit_badly(&mut self, peer: PeerId, run: &Run<'_>) -> Result<(), TxError> {
        let fates = std::mem::take(&mut self.fates);
        let mut heads = std::mem::take(&mut self.heads);
        let leaves = |index: usize| fates[index].leaves_in_run();
        let mut payload = Vec::new();
        let result = match run.only(leaves, &mut heads, &mut payload) {
            Some(frame) => self.inner.transmit(peer, &frame),
            None => Ok(()),
        };
        // Only while nothing was done with the run may the caller be told to try again.
        if result.is_ok() {
            self.counters.frames += run.count as u64;
            let last = (0..run.count).rfind(|&index| leaves(index));
            for (index, &fate) in fates.iter().enumerate() {
                if fate.is_loss() {
                    self.counters.dropped += 1;
                } else if !fate.is_good() {
                    self.meet_fate(peer, run, index, fate);
                }
                if Some(index) == last {
                    self.overtaken();
                }
            }
        }
        (self.fates, self.heads) = (fates, heads);
        result
    }

    /// Gives one datagram of a run, the others of which have left, what fate has in store for it.
    fn meet_fate(&mut self, peer: PeerId, run: &Run<'_>, index: usize, fate: Fate) {
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
            // It has left.
        } else if self.inner.transmit(peer, &TxFrame::whole(&frame)).is_ok() {
            self.overtaken();
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

    /// A frame has passed those that were waiting for one.
    fn overtaken(&mut self) {
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

    fn local_addr(&self) -> LinkAddr {
        self.inner.local_addr()
    }

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
        // What the link would refuse it must see, whatever fate says.
        let refused = run.datagram_len() > self.caps.frame_len_max
            || run.count > self.caps.segments_max
            || !self.connected.contains(&peer);
        self.plan
            .draw(run.count, run.datagram_len(), &mut self.fates);
        if !refused && !self.fates.iter().all(Fate::is_good) {
            return self.transmit_badly(peer, &run);
        }
        self.inner.transmit(peer, frame)?;
        self.counters.frames += run.count as u64;
        self.overtaken();
        Ok(())
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.release_due();
        self.inner.receive(budget, sink)
    }

    /// Faults are made where frames are sent, so what arrives may as well arrive in place.
    fn receive_placed(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.release_due();
        self.inner.receive_placed(budget, receiver)
    }

    fn pull(&mut self, peer: PeerId, remote_addr: u64, dst: &mut [u8]) -> Result<(), PullError> {
        self.inner.pull(peer, remote_addr, dst)
    }

    fn offered(&self, peer: PeerId) -> Option<u64> {
        self.inner.offered(peer)
    }

    fn help(&mut self, peer: PeerId, memory: &[u8]) -> bool {
        self.inner.help(peer, memory)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.release_due();
        self.inner.poll_notice()
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        self.release_due();
        self.inner.arm(wake) && self.held.is_empty()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

#[cfg(test)]
mod tests;
