// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of one process in a cast: the blocks that it holds and the children that it sends them to.
//! This module handles failures.
//!
//! It uses no descriptors, threads or clock. The caller reports events through the `on_` functions,
//! then drains [`Relay::poll_action`]. A process keeps each block until it and all downstream
//! processes have stored it. A process that loses its parent therefore finds all missing blocks in
//! the memory of its nearest live ancestor, whatever the source is.
//!
//! Invariant: a block is never released before all downstream processes that are not known to have
//! failed have stored it.

use crate::block::{Block, Kind};
use crate::control::{Control, Progress};
use crate::shape::Shape;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Blocks in flight to one child: while one is on the wire, the next is announced and granted.
const SENDING_MAX: u32 = 4;

/// Action for the caller.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send a block, and call [`Relay::on_sent`] when the send has completed.
    Send { to: u32, block: Block },
    /// Send a control message.
    SendControl { to: u32, control: Control },
    /// Watch this process, and call [`Relay::on_failed`] when it has failed.
    Watch(u32),
    /// Report to the user that this process was given up.
    Bypassed { rank: u32, why: String },
    /// Stop: all possible senders have failed.
    Orphaned,
    /// Stop: the other processes have given this one up.
    Dismissed(String),
}

#[derive(Debug)]
struct Child {
    rank: u32,
    /// Set if it receives blocks from this process. An adopted child attaches itself by a message.
    is_attached: bool,
    /// Next block to send.
    next: u64,
    /// One past the last block that was sent.
    sent: u64,
    sending: u32,
    progress: Progress,
    /// Data blocks that it or its downstream processes lack, by batch. Batches that are needed in
    /// full have no entry.
    needs: BTreeMap<u32, Vec<u8>>,
    /// Time of its last progress, or when it last had nothing to store.
    progressed_at: Instant,
}

impl Child {
    /// Returns the number below which it has stored every block or already had it.
    fn acked(&self) -> u64 {
        match self.is_attached && self.progress.acked >= self.sent {
            true => self.next.max(self.progress.acked),
            false => self.progress.acked,
        }
    }

    fn is_missing(&self, block: &Block) -> bool {
        let head = &block.head;
        match self.needs.get(&head.batch) {
            Some(bits) if head.kind == Kind::Data => has_bit(bits, head.index),
            _ => true,
        }
    }
}

pub(crate) fn has_bit(bits: &[u8], index: u32) -> bool {
    let byte = bits.get(index as usize / 8);
    byte.is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

/// State of one process.
#[derive(Debug)]
pub(crate) struct Relay {
    rank: u32,
    shape: Shape,
    /// Maximum number of blocks held.
    window: usize,
    /// Time without progress after which a child is given up.
    stall: Duration,
    failed: BTreeSet<u32>,
    ring: VecDeque<Block>,
    /// One past the last received block.
    received: u64,
    /// One past the last verified block.
    verified: u64,
    stored: u64,
    /// One past the last block of the cast, once known.
    end: Option<u64>,
    parent: Option<u32>,
    children: Vec<Child>,
    /// Set if its disk or processor is nearly always busy.
    is_busy: bool,
    /// Progress last reported to the parent.
    reported: Progress,
    /// Own missing blocks by batch, until those of the children are known as well.
    needs: BTreeMap<u32, Vec<u8>>,
    /// Missing blocks reported to the parent, for batches with data that may still arrive.
    reported_needs: BTreeMap<u32, Vec<u8>>,
    actions: VecDeque<Action>,
    /// Set if the caller sends blocks to all children by multicast.
    is_multicast: bool,
}

impl Relay {
    /// Creates the initial state of process `rank`.
    pub(crate) fn new(
        rank: u32,
        shape: Shape,
        window: usize,
        stall: Duration,
        now: Instant,
    ) -> Relay {
        let mut relay = Relay {
            rank,
            shape,
            window,
            stall,
            failed: BTreeSet::new(),
            ring: VecDeque::new(),
            received: 0,
            verified: 0,
            stored: 0,
            end: None,
            parent: shape.parent(rank),
            children: Vec::new(),
            is_busy: false,
            reported: Progress::default(),
            needs: BTreeMap::new(),
            reported_needs: BTreeMap::new(),
            actions: VecDeque::new(),
            is_multicast: false,
        };
        for child in shape.children(rank) {
            relay.add_child(child, true, &Progress::default(), BTreeMap::new(), now);
        }
        if let Some(parent) = relay.parent {
            relay.actions.push_back(Action::Watch(parent));
        }
        relay
    }

    /// Switches to multicast: the caller sends blocks to all children and calls [`Relay::on_cast`].
    pub(crate) fn begin_multicast(&mut self) {
        self.is_multicast = true;
    }

    /// Returns a block if it is verified and may be sent.
    pub(crate) fn block(&self, seq: u64) -> Option<&Block> {
        let from = self.ring.partition_point(|block| block.head.seq < seq);
        let block = self.ring.get(from)?;
        (block.head.seq == seq && seq < self.verified).then_some(block)
    }

    /// Records that a part of a block was sent to all children.
    pub(crate) fn on_cast(&mut self, seq: u64) {
        for child in &mut self.children {
            child.next = child.next.max(seq + 1);
            child.sent = child.next;
        }
    }

    /// Returns one past the last block that fits the window.
    pub(crate) fn limit(&self) -> u64 {
        self.stored + self.window as u64
    }

    /// Returns the processes that are known to have failed.
    pub(crate) fn failed(&self) -> &BTreeSet<u32> {
        &self.failed
    }

    /// Returns the number of further blocks that may be held.
    pub(crate) fn free_slots(&self) -> usize {
        self.window.saturating_sub(self.ring.len())
    }

    /// Returns true if all other processes have failed.
    pub(crate) fn is_alone(&self) -> bool {
        self.failed.len() + 1 >= self.shape.size as usize
    }

    /// Records that this process's disk or processor is nearly always busy, or no longer is.
    pub(crate) fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// Returns true if the disk or processor of a downstream process is nearly always busy.
    pub(crate) fn is_downstream_busy(&self) -> bool {
        self.children.iter().any(|child| child.progress.is_busy)
    }

    /// Returns the current parent.
    pub(crate) fn parent(&self) -> Option<u32> {
        self.parent
    }

    /// Returns true if everything has been stored here and downstream.
    pub(crate) fn is_finished(&self) -> bool {
        self.end.is_some_and(|end| self.acked() >= end)
    }

    /// Returns true if everything has been stored here.
    pub(crate) fn has_stored_all(&self) -> bool {
        self.end.is_some_and(|end| self.stored >= end)
    }

    /// Returns true if everything has been received.
    pub(crate) fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.received >= end)
    }

    /// Returns the nearest ancestor in the tree that is not known to have failed.
    fn ancestor(&self) -> Option<u32> {
        let mut rank = self.shape.parent(self.rank);
        while let Some(parent) = rank.filter(|rank| self.failed.contains(rank)) {
            rank = self.shape.parent(parent);
        }
        rank
    }

    /// Adds a block that was received, or read at the source. Returns `false` for a duplicate.
    pub(crate) fn on_block(&mut self, block: Block) -> bool {
        let seq = block.head.seq;
        if seq < self.received {
            return false;
        }
        self.received = seq + 1;
        if block.head.kind == Kind::End {
            self.end = Some(seq + 1);
        }
        self.ring.push_back(block);
        true
    }

    /// Marks the blocks below `seq` as verified, so that they may be forwarded.
    pub(crate) fn on_verified(&mut self, seq: u64) {
        self.verified = self.verified.max(seq);
        self.send_more();
    }

    /// Marks the blocks below `seq` as stored.
    pub(crate) fn on_stored(&mut self, seq: u64, memory: &mut Vec<Vec<u8>>) {
        self.stored = self.stored.max(seq);
        self.release_stored(memory);
    }

    /// Records that the send of a block to `rank` has completed.
    pub(crate) fn on_sent(&mut self, rank: u32, memory: &mut Vec<Vec<u8>>) {
        if let Some(child) = self.child(rank) {
            child.sending = child.sending.saturating_sub(1);
        }
        self.send_more();
        self.release_stored(memory);
    }

    /// Handles a control message from `rank`.
    pub(crate) fn on_control(
        &mut self,
        now: Instant,
        rank: u32,
        control: Control,
        memory: &mut Vec<Vec<u8>>,
    ) {
        match control {
            Control::Progress(progress) => self.on_progress(now, rank, progress),
            Control::Attach { next, progress } => {
                self.on_attach(now, rank, next, progress);
            }
            Control::Needs { batch, bits } => {
                // The message may arrive before the failure of the process between them is known.
                if self.child(rank).is_none() && !self.failed.contains(&rank) {
                    self.add_child(rank, false, &Progress::default(), BTreeMap::new(), now);
                }
                if let Some(child) = self.child(rank) {
                    child.needs.insert(batch, bits);
                }
                self.report_needs();
            }
            // A process that was given up by mistake, and has another parent, continues.
            Control::Dismiss { why } if self.parent == Some(rank) => {
                self.actions.push_back(Action::Dismissed(why));
            }
            Control::Dismiss { .. } => {}
            Control::Adopt { old } => {
                self.on_failed(now, old, "it was given up", memory);
            }
            // The caller handles these.
            Control::Multicast(_) => {}
        }
        self.release_stored(memory);
    }

    /// Handles the failure of process `rank`.
    pub(crate) fn on_failed(
        &mut self,
        now: Instant,
        rank: u32,
        why: &str,
        memory: &mut Vec<Vec<u8>>,
    ) {
        if !self.failed.insert(rank) {
            return;
        }
        if let Some(index) = self.children.iter().position(|child| child.rank == rank) {
            let child = self.children.swap_remove(index);
            if self.end.is_none_or(|end| child.acked() < end) {
                let why = why.to_owned();
                self.actions.push_back(Action::Bypassed { rank, why });
            }
            self.adopt_children_of(now, &child);
            self.report_needs();
        }
        if self.parent == Some(rank) {
            self.parent = self.ancestor();
            match self.parent {
                None if self.is_complete() => {}
                None => self.actions.push_back(Action::Orphaned),
                Some(parent) => self.attach_to(parent),
            }
        }
        self.release_stored(memory);
    }

    /// Records the blocks of a batch that this process lacks. It is called once per batch with
    /// hashes.
    pub(crate) fn on_own_needs(&mut self, batch: u32, bits: Vec<u8>) {
        self.needs.insert(batch, bits);
        self.report_needs();
    }

    /// At the source: returns the missing blocks of a batch once all processes have reported
    /// theirs.
    pub(crate) fn take_needs(&mut self, batch: u32) -> Option<Vec<u8>> {
        self.reported_needs.remove(&batch)
    }

    /// Gives up a child that does not store blocks although it could. It must be called
    /// periodically.
    pub(crate) fn on_time(&mut self, now: Instant, memory: &mut Vec<Vec<u8>>) {
        let end = self.end;
        for child in &mut self.children {
            // The work at the end, such as flushing to the disk, has no time limit.
            let is_idle = child.progress.stored >= child.sent || end == Some(child.sent);
            if is_idle || child.progress.is_held_up || !child.is_attached {
                child.progressed_at = now;
            }
        }
        let is_stalled = |child: &&Child| now.duration_since(child.progressed_at) >= self.stall;
        let Some(rank) = self
            .children
            .iter()
            .find(is_stalled)
            .map(|child| child.rank)
        else {
            return;
        };
        let why = format!("it stored nothing for {} s", self.stall.as_secs_f64());
        let send = |to, control| Action::SendControl { to, control };
        self.actions
            .push_back(send(rank, Control::Dismiss { why: why.clone() }));
        self.on_failed(now, rank, &why, memory);
        for child in self.shape.children(rank) {
            if !self.failed.contains(&child) {
                self.actions
                    .push_back(send(child, Control::Adopt { old: rank }));
            }
        }
    }

    /// Returns the next action.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.report_progress();
        self.actions.pop_front()
    }

    fn child(&mut self, rank: u32) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.rank == rank)
    }

    fn add_child(
        &mut self,
        rank: u32,
        is_attached: bool,
        progress: &Progress,
        needs: BTreeMap<u32, Vec<u8>>,
        now: Instant,
    ) {
        self.children.push(Child {
            rank,
            is_attached,
            next: progress.acked,
            sent: progress.acked,
            sending: 0,
            progress: *progress,
            needs,
            progressed_at: now,
        });
        self.actions.push_back(Action::Watch(rank));
    }

    /// Adopts the children of a failed child, with the needs and progress that it had reported for
    /// them.
    fn adopt_children_of(&mut self, now: Instant, lost: &Child) {
        let mut behind: Vec<u32> = self.shape.children(lost.rank).collect();
        while let Some(rank) = behind.pop() {
            if self.failed.contains(&rank) {
                behind.extend(self.shape.children(rank));
            } else if self.child(rank).is_none() {
                let progress = Progress {
                    acked: lost.acked(),
                    ..Progress::default()
                };
                self.add_child(rank, false, &progress, lost.needs.clone(), now);
            }
        }
    }

    fn attach_to(&mut self, parent: u32) {
        self.reported = self.progress();
        let control = Control::Attach {
            next: self.received,
            progress: self.reported,
        };
        let send = |control| Action::SendControl {
            to: parent,
            control,
        };
        self.actions.push_back(Action::Watch(parent));
        // Before the request for blocks, because the parent must know which to skip.
        for (batch, bits) in &self.reported_needs {
            self.actions.push_back(send(Control::Needs {
                batch: *batch,
                bits: bits.clone(),
            }));
        }
        self.actions.push_back(send(control));
    }

    fn on_attach(&mut self, now: Instant, rank: u32, next: u64, progress: Progress) {
        if self.failed.contains(&rank) {
            return;
        }
        if self.child(rank).is_none() {
            self.add_child(rank, false, &progress, BTreeMap::new(), now);
        }
        if let Some(child) = self.child(rank) {
            child.is_attached = true;
            child.progress = progress;
            child.next = next;
            child.sent = next;
            child.progressed_at = now;
        }
        self.send_more();
    }

    fn on_progress(&mut self, now: Instant, rank: u32, progress: Progress) {
        if let Some(child) = self.child(rank) {
            if progress.stored > child.progress.stored {
                child.progressed_at = now;
            }
            child.progress = progress;
        }
    }

    /// Returns the number below which this process and all downstream processes have stored every
    /// block.
    pub(crate) fn acked(&self) -> u64 {
        let behind = self.children.iter().map(Child::acked).min();
        self.stored.min(behind.unwrap_or(u64::MAX))
    }

    fn progress(&self) -> Progress {
        Progress {
            acked: self.acked(),
            stored: self.stored,
            is_held_up: self.free_slots() == 0 && self.stored > self.acked(),
            is_busy: self.is_busy || self.is_downstream_busy(),
        }
    }

    fn report_progress(&mut self) {
        let progress = self.progress();
        if let Some(parent) = self.parent.filter(|_| progress != self.reported) {
            self.reported = progress;
            let control = Control::Progress(progress);
            self.actions.push_back(Action::SendControl {
                to: parent,
                control,
            });
        }
    }

    /// Reports each batch to the parent once its missing blocks are known here and from all
    /// children.
    fn report_needs(&mut self) {
        let known = |relay: &Relay, batch| {
            let mut children = relay.children.iter();
            children.all(|child| child.needs.contains_key(&batch))
        };
        let batches: Vec<u32> = self.needs.keys().copied().collect();
        for batch in batches {
            if !known(self, batch) {
                continue;
            }
            let mut bits = self.needs.remove(&batch).unwrap_or_default();
            for child in &self.children {
                let theirs = child.needs.get(&batch).into_iter().flatten();
                bits.iter_mut()
                    .zip(theirs)
                    .for_each(|(mine, theirs)| *mine |= theirs);
            }
            self.reported_needs.insert(batch, bits.clone());
            if let Some(parent) = self.parent {
                let control = Control::Needs { batch, bits };
                self.actions.push_back(Action::SendControl {
                    to: parent,
                    control,
                });
            }
        }
    }

    fn send_more(&mut self) {
        let verified = self.verified;
        if self.is_multicast {
            return;
        }
        for child in self.children.iter_mut().filter(|child| child.is_attached) {
            let from = self
                .ring
                .partition_point(|block| block.head.seq < child.next);
            for block in self.ring.iter().skip(from) {
                let seq = block.head.seq;
                if seq >= verified || child.sending >= SENDING_MAX {
                    break;
                }
                child.next = seq + 1;
                if child.is_missing(block) {
                    child.sent = seq + 1;
                    child.sending += 1;
                    self.actions.push_back(Action::Send {
                        to: child.rank,
                        block: block.clone(),
                    });
                }
            }
        }
    }

    /// Releases blocks that all have stored, and returns their memory for reuse.
    fn release_stored(&mut self, memory: &mut Vec<Vec<u8>>) {
        let acked = self.acked();
        while self
            .ring
            .front()
            .is_some_and(|block| block.head.seq < acked)
        {
            let Some(block) = self.ring.pop_front() else {
                break;
            };
            let batch = block.head.batch;
            if block.head.kind == Kind::Entries {
                self.reported_needs.retain(|reported, _| *reported >= batch);
                for child in &mut self.children {
                    child.needs.retain(|reported, _| *reported >= batch);
                }
            }
            memory.extend(block.into_memory());
        }
    }
}

#[cfg(test)]
mod tests;
