// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring's memory for loom's model checker: the same methods over loom's atomics. Frames are
//! stored word by word with relaxed order, so that a missing acquire or release shows as stale
//! data. Each word has a cell in which loom detects unordered accesses by both ends.
#![allow(unsafe_code, reason = "shares cells that loom watches")]

use super::layout;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

/// A ring shared by the threads of a model.
#[derive(Clone, Debug)]
pub(super) struct RingMemory(Arc<Model>);

#[derive(Debug)]
struct Model {
    head: AtomicU64,
    receiver_state: AtomicU64,
    sender_waiting: AtomicU64,
    offer: AtomicU64,
    offer_fields: [AtomicU64; 4],
    offer_done: AtomicU64,
    words: Vec<AtomicU64>,
    /// Accessed together with the word of the same index by copies, which are not atomic in
    /// reality.
    watched: Vec<UnsafeCell<()>>,
}

// SAFETY: everything except the cells is atomic, and the cells hold nothing; loom panics when two
// threads access one concurrently, which is their purpose.
unsafe impl Sync for Model {}
// SAFETY: no part of it belongs to a thread.
unsafe impl Send for Model {}

impl RingMemory {
    /// Returns a ring of `ring_len` zero bytes.
    pub(super) fn model(ring_len: usize) -> Self {
        RingMemory(Arc::new(Model {
            head: AtomicU64::new(0),
            receiver_state: AtomicU64::new(0),
            sender_waiting: AtomicU64::new(0),
            offer: AtomicU64::new(0),
            offer_fields: std::array::from_fn(|_| AtomicU64::new(0)),
            offer_done: AtomicU64::new(0),
            words: (0..ring_len / 8).map(|_| AtomicU64::new(0)).collect(),
            watched: (0..ring_len / 8).map(|_| UnsafeCell::new(())).collect(),
        }))
    }

    pub(super) fn ring_len(&self) -> usize {
        self.0.words.len() * 8
    }

    pub(super) fn head(&self) -> &AtomicU64 {
        &self.0.head
    }

    pub(super) fn receiver_state(&self) -> &AtomicU64 {
        &self.0.receiver_state
    }

    pub(super) fn sender_waiting(&self) -> &AtomicU64 {
        &self.0.sender_waiting
    }

    pub(super) fn offer(&self) -> &AtomicU64 {
        &self.0.offer
    }

    pub(super) fn offer_fields(&self) -> [&AtomicU64; 4] {
        self.0.offer_fields.each_ref()
    }

    pub(super) fn offer_done(&self) -> &AtomicU64 {
        &self.0.offer_done
    }

    pub(super) fn expect_read(&self, _index: u64) {}

    pub(super) fn word(&self, index: u64) -> &AtomicU64 {
        &self.0.words[layout::to_usize(index) / 8 % self.0.words.len()]
    }

    fn watched(&self, index: u64) -> &UnsafeCell<()> {
        &self.0.watched[layout::to_usize(index) / 8 % self.0.words.len()]
    }

    pub(super) fn copy_in(&self, index: u64, src: &[u8]) {
        for (step, chunk) in (0..).step_by(8).zip(src.chunks(8)) {
            self.watched(index + step).with_mut(|_| ());
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            self.word(index + step)
                .store(u64::from_ne_bytes(raw), Ordering::Relaxed);
        }
    }

    /// See [`super::memory`].
    pub(super) fn copy_two_in<const N: usize>(&self, index: u64, first: &[u8; N], second: &[u8]) {
        self.copy_in(index, first);
        self.copy_in(index + N as u64, second);
    }

    pub(super) fn copy_out(&self, index: u64, dst: &mut [u8]) {
        for (step, chunk) in (0..).step_by(8).zip(dst.chunks_mut(8)) {
            self.watched(index + step).with(|_| ());
            let raw = self
                .word(index + step)
                .load(Ordering::Relaxed)
                .to_ne_bytes();
            chunk.copy_from_slice(&raw[..chunk.len()]);
        }
    }
}
