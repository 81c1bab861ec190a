// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one process holds and whom it sends it to: the part of a cast that survives deaths.
//!
//! No descriptors, no threads, no clock: a caller tells what happened by the `on_` functions, then
//! drains [`Relay::poll_action`]. A process keeps each block until it has stored it and everybody
//! behind it has, so whoever loses its parent finds all that it lacks with the nearest ancestor that
//! lives, in memory, whatever the source was.
//!
//! The one invariant: no block is let go that somebody behind this process, whom it does not know to
//! be gone, has not stored.

use crate::block::{Block, Kind};
use crate::control::{Control, Progress};
use crate::shape::Shape;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Blocks under way to one child: while one is on the wire, the next is announced and granted.
const SENDING_MAX: u32 = 4;

/// What the caller is to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send a block, and say [`Relay::on_sent`] when its send has ended.
    Send { to: u32, block: Block },
    /// Send a short message.
    Tell { to: u32, control: Control },
    /// Notice when this process is gone, and say [`Relay::on_gone`].
    Watch(u32),
    /// For people: this process was given up, and why.
    Bypassed { rank: u32, why: String },
    /// This process cannot go on: all that could send to it are gone.
    Orphaned,
    /// This process cannot go on: the others have given it up.
    Dismissed(String),
}

#[derive(Debug)]
struct Child {
    rank: u32,
    /// It takes blocks from here; one that was behind a dead process says when.
    is_attached: bool,
    /// The next block to send.
    next: u64,
    /// One past the last that was sent.
    sent: u64,
    sending: u32,
    progress: Progress,
    /// Data blocks that it, or somebody behind it, lacks, by batch, where it does not need all.
    needs: BTreeMap<u32, Vec<u8>>,
    /// When it last stored something, or had nothing to store.
    moved: Instant,
}

impl Child {
    /// It has stored everything below this, or had it before.
    fn acked(&self) -> u64 {
        match self.is_attached && self.progress.acked >= self.sent {
            true => self.next.max(self.progress.acked),
            false => self.progress.acked,
        }
    }

    fn wants(&self, block: &Block) -> bool {
        let head = &block.head;
        match self.needs.get(&head.batch) {
            Some(bits) if head.kind == Kind::Data => has_bit(bits, head.index),
            _ => true,
        }
    }
}

/// Whether bit `index` is set.
pub(crate) fn has_bit(bits: &[u8], index: u32) -> bool {
    let byte = bits.get(index as usize / 8);
    byte.is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

/// The state of one process.
#[derive(Debug)]
pub(crate) struct Relay {
    rank: u32,
    shape: Shape,
    /// Blocks that this process may hold.
    window: usize,
    /// Time without progress after which a child is given up.
    stall: Duration,
    gone: BTreeSet<u32>,
    ring: VecDeque<Block>,
    /// One past the last block that has come.
    received: u64,
    /// The first blocks of the ring that are verified.
    verified: u64,
    stored: u64,
    /// One past the last block of all.
    end: Option<u64>,
    parent: Option<u32>,
    children: Vec<Child>,
    /// Its disk or its processor is busy nearly all the time.
    is_busy: bool,
    /// What the parent was told last.
    told: Progress,
    /// Own needs by batch, until the children's are there too.
    needs: BTreeMap<u32, Vec<u8>>,
    /// Needs that were told to the parent, of batches whose data may still come.
    told_needs: BTreeMap<u32, Vec<u8>>,
    actions: VecDeque<Action>,
    /// The caller sends blocks to all children at once.
    is_multicast: bool,
}

impl Relay {
    /// The state of process `rank` at the beginning.
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
            gone: BTreeSet::new(),
            ring: VecDeque::new(),
            received: 0,
            verified: 0,
            stored: 0,
            end: None,
            parent: shape.parent(rank),
            children: Vec::new(),
            is_busy: false,
            told: Progress::default(),
            needs: BTreeMap::new(),
            told_needs: BTreeMap::new(),
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

    /// From now on the caller sends blocks to all children at once, and says [`Relay::on_cast`].
    pub(crate) fn begin_multicast(&mut self) {
        self.is_multicast = true;
    }

    /// A block that may be sent.
    pub(crate) fn block(&self, seq: u64) -> Option<&Block> {
        let from = self.ring.partition_point(|block| block.head.seq < seq);
        let block = self.ring.get(from)?;
        (block.head.seq == seq && seq < self.verified).then_some(block)
    }

    /// Some of a block was sent to all children.
    pub(crate) fn on_cast(&mut self, seq: u64) {
        for child in &mut self.children {
            child.next = child.next.max(seq + 1);
            child.sent = child.next;
        }
    }

    /// One past the last block for which there is room.
    pub(crate) fn limit(&self) -> u64 {
        self.stored + self.window as u64
    }

    /// Whom it knows to be gone.
    pub(crate) fn gone(&self) -> &BTreeSet<u32> {
        &self.gone
    }

    /// Blocks for which there is room.
    pub(crate) fn room(&self) -> usize {
        self.window.saturating_sub(self.ring.len())
    }

    /// Whether all others are gone, and so is the reason to go on.
    pub(crate) fn is_alone(&self) -> bool {
        self.gone.len() + 1 >= self.shape.size as usize
    }

    /// Whether this process's disk or processor is busy nearly all the time.
    pub(crate) fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// Whether those of somebody behind it are.
    pub(crate) fn are_others_busy(&self) -> bool {
        self.children.iter().any(|child| child.progress.is_busy)
    }

    /// Who sends to this process now.
    pub(crate) fn parent(&self) -> Option<u32> {
        self.parent
    }

    /// Whether everything has been stored here and behind.
    pub(crate) fn is_finished(&self) -> bool {
        self.end.is_some_and(|end| self.acked() >= end)
    }

    /// Whether everything has been stored here.
    pub(crate) fn has_stored_all(&self) -> bool {
        self.end.is_some_and(|end| self.stored >= end)
    }

    /// Whether everything has come.
    pub(crate) fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.received >= end)
    }

    /// The nearest before this process in its tree whom it does not know to be gone.
    fn ancestor(&self) -> Option<u32> {
        let mut rank = self.shape.parent(self.rank);
        while let Some(parent) = rank.filter(|rank| self.gone.contains(rank)) {
            rank = self.shape.parent(parent);
        }
        rank
    }

    /// A block has come, or was read at the source. `false` for one that is here already.
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

    /// The blocks below `seq` are verified, and may be passed on.
    pub(crate) fn on_verified(&mut self, seq: u64) {
        self.verified = self.verified.max(seq);
        self.send_more();
    }

    /// The blocks below `seq` are stored.
    pub(crate) fn on_stored(&mut self, seq: u64, memory: &mut Vec<Vec<u8>>) {
        self.stored = self.stored.max(seq);
        self.let_go(memory);
    }

    /// The send of a block to `rank` has ended.
    pub(crate) fn on_sent(&mut self, rank: u32, memory: &mut Vec<Vec<u8>>) {
        if let Some(child) = self.child(rank) {
            child.sending = child.sending.saturating_sub(1);
        }
        self.send_more();
        self.let_go(memory);
    }

    /// A short message from `rank` has come.
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
                // It may tell before this process knows that the one between is gone.
                if self.child(rank).is_none() && !self.gone.contains(&rank) {
                    self.add_child(rank, false, &Progress::default(), BTreeMap::new(), now);
                }
                if let Some(child) = self.child(rank) {
                    child.needs.insert(batch, bits);
                }
                self.tell_needs();
            }
            // One that was given up by mistake, and has another parent, lives on.
            Control::Dismiss { why } if self.parent == Some(rank) => {
                self.actions.push_back(Action::Dismissed(why));
            }
            Control::Dismiss { .. } => {}
            Control::Adopt { old } => {
                self.on_gone(now, old, "it was given up", memory);
            }
            // The caller's.
            Control::Multicast(_) => {}
        }
        self.let_go(memory);
    }

    /// Process `rank` is gone, and `why`.
    pub(crate) fn on_gone(
        &mut self,
        now: Instant,
        rank: u32,
        why: &str,
        memory: &mut Vec<Vec<u8>>,
    ) {
        if !self.gone.insert(rank) {
            return;
        }
        if let Some(index) = self.children.iter().position(|child| child.rank == rank) {
            let child = self.children.swap_remove(index);
            if self.end.is_none_or(|end| child.acked() < end) {
                let why = why.to_owned();
                self.actions.push_back(Action::Bypassed { rank, why });
            }
            self.adopt_children_of(now, &child);
            self.tell_needs();
        }
        if self.parent == Some(rank) {
            self.parent = self.ancestor();
            match self.parent {
                None if self.is_complete() => {}
                None => self.actions.push_back(Action::Orphaned),
                Some(parent) => self.attach_to(parent),
            }
        }
        self.let_go(memory);
    }

    /// What of a batch this process lacks itself; known once for each batch with hashes.
    pub(crate) fn on_own_needs(&mut self, batch: u32, bits: Vec<u8>) {
        self.needs.insert(batch, bits);
        self.tell_needs();
    }

    /// At the source: what of a batch somebody lacks, once everybody has said it.
    pub(crate) fn take_needs(&mut self, batch: u32) -> Option<Vec<u8>> {
        self.told_needs.remove(&batch)
    }

    /// Looks for children that store nothing although they could; to be called now and then.
    pub(crate) fn on_time(&mut self, now: Instant, memory: &mut Vec<Vec<u8>>) {
        let end = self.end;
        for child in &mut self.children {
            // What is left to do at the end, such as writing through to the disk, takes what it takes.
            let is_idle = child.progress.stored >= child.sent || end == Some(child.sent);
            if is_idle || child.progress.is_held_up || !child.is_attached {
                child.moved = now;
            }
        }
        let is_stalled = |child: &&Child| now.duration_since(child.moved) >= self.stall;
        let Some(rank) = self
            .children
            .iter()
            .find(is_stalled)
            .map(|child| child.rank)
        else {
            return;
        };
        let why = format!("it stored nothing for {} s", self.stall.as_secs_f64());
        let tell = |to, control| Action::Tell { to, control };
        self.actions
            .push_back(tell(rank, Control::Dismiss { why: why.clone() }));
        self.on_gone(now, rank, &why, memory);
        for child in self.shape.children(rank) {
            if !self.gone.contains(&child) {
                self.actions
                    .push_back(tell(child, Control::Adopt { old: rank }));
            }
        }
    }

    /// The next thing to do.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.tell_progress();
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
            moved: now,
        });
        self.actions.push_back(Action::Watch(rank));
    }

    /// Expects those behind a child that is gone, with what it had said for them.
    fn adopt_children_of(&mut self, now: Instant, lost: &Child) {
        let mut behind: Vec<u32> = self.shape.children(lost.rank).collect();
        while let Some(rank) = behind.pop() {
            if self.gone.contains(&rank) {
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
        self.told = self.progress();
        let control = Control::Attach {
            next: self.received,
            progress: self.told,
        };
        let tell = |control| Action::Tell {
            to: parent,
            control,
        };
        self.actions.push_back(Action::Watch(parent));
        // Before the blocks are asked for: the parent must know which not to send.
        for (batch, bits) in &self.told_needs {
            self.actions.push_back(tell(Control::Needs {
                batch: *batch,
                bits: bits.clone(),
            }));
        }
        self.actions.push_back(tell(control));
    }

    fn on_attach(&mut self, now: Instant, rank: u32, next: u64, progress: Progress) {
        if self.gone.contains(&rank) {
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
            child.moved = now;
        }
        self.send_more();
    }

    fn on_progress(&mut self, now: Instant, rank: u32, progress: Progress) {
        if let Some(child) = self.child(rank) {
            if progress.stored > child.progress.stored {
                child.moved = now;
            }
            child.progress = progress;
        }
    }

    /// Everybody here and behind has stored all below.
    pub(crate) fn acked(&self) -> u64 {
        let behind = self.children.iter().map(Child::acked).min();
        self.stored.min(behind.unwrap_or(u64::MAX))
    }

    fn progress(&self) -> Progress {
        Progress {
            acked: self.acked(),
            stored: self.stored,
            is_held_up: self.room() == 0 && self.stored > self.acked(),
            is_busy: self.is_busy || self.are_others_busy(),
        }
    }

    fn tell_progress(&mut self) {
        let progress = self.progress();
        if let Some(parent) = self.parent.filter(|_| progress != self.told) {
            self.told = progress;
            let control = Control::Progress(progress);
            self.actions.push_back(Action::Tell {
                to: parent,
                control,
            });
        }
    }

    /// Tells the parent of each batch whose needs are known here and from all behind.
    fn tell_needs(&mut self) {
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
            self.told_needs.insert(batch, bits.clone());
            if let Some(parent) = self.parent {
                let control = Control::Needs { batch, bits };
                self.actions.push_back(Action::Tell {
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
                if child.wants(block) {
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

    /// Drops blocks that nobody needs any more; their memory is for those that come.
    fn let_go(&mut self, memory: &mut Vec<Vec<u8>>) {
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
                self.told_needs.retain(|told, _| *told >= batch);
                for child in &mut self.children {
                    child.needs.retain(|told, _| *told >= batch);
                }
            }
            memory.extend(block.into_memory());
        }
    }
}

#[cfg(test)]
mod tests;
