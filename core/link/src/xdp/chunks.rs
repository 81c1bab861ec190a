// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chunks of memory that hold the frames of one interface, and their owners.
//!
//! The processes of a group share one area and its two rings. From one ring the kernel takes chunks
//! to receive into; to the other it returns chunks that have been sent. Each process has a place
//! with its own chunks to send from. It also contributes as many receive chunks as its receive ring
//! holds and it may retain. A process that does not receive therefore occupies no chunks of other
//! processes.
//!
//! A process that closes returns its chunks and its place. A killed process does not: its place is
//! lost to the group, with no more chunks than it contributed.
//!
//! Invariant: the shared rings are accessed only under the lock, and their entries are complete at
//! every moment, because the lock's holder may die at any time.
//!
//! SYNC pair *xdp chunk*: release of a chunk's word as free, acquire of it. The process that took
//! the chunk off the ring has finished with it.

use portolan_sys::memfd;
use portolan_sys::net::{Area, AreaLock, ConsumerRing, ProducerRing, XdpSocket};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Maximum number of received frames that wait for a process: a burst of 2 ms of full frames.
pub(super) const RX_LEN: u32 = 1024;

/// Maximum number of frames of a process in flight: about 200 µs of frames, much longer than the
/// kernel takes to report that they have left.
pub(super) const TX_LEN: u32 = 128;

/// Chunks that a process retains before it returns them together. The lock's two system calls then
/// cost a frame about 10 ns.
const HELD_MAX: u32 = 64;

/// Chunks of a place: receive chunks, and all chunks.
const CONTRIBUTED: u32 = RX_LEN + HELD_MAX;
const PLACE_CHUNKS: u32 = CONTRIBUTED + TX_LEN;

/// Numbers of places: one per core, within limits. Each costs 2.4 MiB of memory that cannot be
/// paged out.
const PLACES_MIN: usize = 8;
const PLACES_MAX: usize = 64;

/// States of a place: never used; taken, possibly by a process that was killed; returned.
const NEW: u32 = 0;
const TAKEN: u32 = 1;
const RETURNED: u32 = 2;

/// States of a send chunk.
const FREE: u32 = 0;
const BUSY: u32 = 1;

/// Division of an area; the same for all processes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) place_count: u32,
    pub(super) chunk_len: u32,
}

impl Layout {
    /// Returns the layout for this machine.
    pub(super) fn new(chunk_len: u32) -> Layout {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let place_count = cores.clamp(PLACES_MIN, PLACES_MAX);
        Layout {
            place_count: u32::try_from(place_count).unwrap_or(1),
            chunk_len,
        }
    }

    /// Checks a layout received from another process.
    pub(super) fn is_valid(&self) -> bool {
        let places = 1..=u32::try_from(PLACES_MAX).unwrap_or(1);
        places.contains(&self.place_count) && [2048, 4096].contains(&self.chunk_len)
    }

    /// Creates a memory file for this layout.
    pub(super) fn create_file(&self) -> io::Result<OwnedFd> {
        let [words, chunk_len, chunks] = self.sizes();
        let len = Area::file_len(words, chunk_len, chunks);
        memfd::create_sealed("portolan-xdp", len as u64)
    }

    pub(super) fn map(&self, file: BorrowedFd<'_>) -> io::Result<Area> {
        let [words, chunk_len, chunks] = self.sizes();
        let len = Area::file_len(words, chunk_len, chunks);
        memfd::check(file, len as u64).map_err(io::Error::other)?;
        Area::map(file, words, chunk_len, chunks)
    }

    /// Returns the entries of the fill ring, enough for all receive chunks.
    pub(super) fn fill_len(&self) -> u32 {
        (self.place_count * CONTRIBUTED).next_power_of_two()
    }

    /// Returns the entries of the completion ring, enough for all send chunks.
    pub(super) fn completion_len(&self) -> u32 {
        (self.place_count * TX_LEN).next_power_of_two()
    }

    /// Returns the number of words, the bytes of a chunk, and the number of chunks.
    fn sizes(&self) -> [usize; 3] {
        let words = self.place_count * (1 + TX_LEN);
        let chunks = self.place_count * PLACE_CHUNKS;
        [words, self.chunk_len, chunks].map(|count| count as usize)
    }

    /// Returns the index of the word of a send chunk.
    fn word_of(&self, place: u32, index: u32) -> usize {
        (self.place_count + place * TX_LEN + index) as usize
    }

    /// Returns the offset of a chunk in the area.
    fn chunk_at(&self, place: u32, index: u32) -> u64 {
        u64::from(place * PLACE_CHUNKS + index) * u64::from(self.chunk_len)
    }

    /// Returns the word of the chunk at offset `at`, if it is a send chunk.
    fn word_at(&self, at: u64) -> Option<usize> {
        let chunk = u32::try_from(at / u64::from(self.chunk_len)).ok()?;
        let place = chunk / PLACE_CHUNKS;
        let index = (chunk % PLACE_CHUNKS).checked_sub(CONTRIBUTED)?;
        (place < self.place_count).then(|| self.word_of(place, index))
    }
}

/// Chunks of one process.
pub(super) struct Chunks {
    layout: Layout,
    pub(super) area: Area,
    lock: AreaLock,
    fill: ProducerRing<u64>,
    completion: ConsumerRing<u64>,
    place: u32,
    /// Index of the next send chunk.
    next: u32,
    /// Receive chunks to be returned.
    held: Vec<u64>,
}

impl Chunks {
    /// Takes a place in an area with a bound owner. Returns `None` if all are taken.
    pub(super) fn take_place(
        layout: Layout,
        file: BorrowedFd<'_>,
        owner: &XdpSocket,
    ) -> io::Result<Option<Chunks>> {
        let mut chunks = Chunks {
            layout,
            area: layout.map(file)?,
            lock: AreaLock::new(file)?,
            fill: owner.fill_ring(layout.fill_len())?,
            completion: owner.completion_ring(layout.completion_len())?,
            place: 0,
            next: 0,
            held: Vec::with_capacity(HELD_MAX as usize),
        };
        let (area, fill) = (&chunks.area, &mut chunks.fill);
        let place = chunks.lock.with(|| {
            let state = |place: u32| area.word(place as usize);
            let find = |wanted_state| {
                let has_state = |&place: &u32| state(place).load(Ordering::Relaxed) == wanted_state;
                (0..layout.place_count).find(has_state)
            };
            // The chunks contributed with a returned place are still in circulation.
            let (place, contributed) = match find(RETURNED) {
                Some(place) => (place, 0),
                None => (find(NEW)?, CONTRIBUTED),
            };
            state(place).store(TAKEN, Ordering::Relaxed);
            for index in 0..contributed {
                fill.push(layout.chunk_at(place, index));
            }
            Some(place)
        })?;
        Ok(place.map(|place| {
            chunks.place = place;
            chunks
        }))
    }

    /// Returns a chunk to send from, if one is free.
    #[inline]
    pub(super) fn take_tx(&mut self) -> Option<u64> {
        let word = self.layout.word_of(self.place, self.next);
        // SYNC: xdp chunk
        if self.area.word(word).load(Ordering::Acquire) != FREE {
            self.collect_sent();
            // SYNC: xdp chunk
            if self.area.word(word).load(Ordering::Acquire) != FREE {
                return None;
            }
        }
        self.area.word(word).store(BUSY, Ordering::Relaxed);
        let chunk = self.layout.chunk_at(self.place, CONTRIBUTED + self.next);
        self.next = (self.next + 1) % TX_LEN;
        Some(chunk)
    }

    /// Frees the chunks of the frames that have left, for all processes.
    #[cold]
    fn collect_sent(&mut self) {
        let Chunks {
            layout,
            area,
            lock,
            completion,
            ..
        } = self;
        let collected = lock.with(|| {
            while let Some(at) = completion.take() {
                if let Some(word) = layout.word_at(at) {
                    // SYNC: xdp chunk
                    area.word(word).store(FREE, Ordering::Release);
                }
            }
        });
        if let Err(error) = collected {
            log::warn!("xdp link: cannot lock the frame area: {error}");
        }
    }

    /// Takes back the chunk of a received frame. Returns `true` if the kernel needs a wake-up.
    #[inline]
    pub(super) fn return_chunk(&mut self, at: u64) -> bool {
        let chunk_len = u64::from(self.layout.chunk_len);
        self.held.push(at - at % chunk_len);
        self.held.len() >= HELD_MAX as usize && self.refill()
    }

    /// Gives all retained chunks to the kernel. Returns `true` if it needs a wake-up.
    #[cold]
    pub(super) fn refill(&mut self) -> bool {
        let (fill, held) = (&mut self.fill, &mut self.held);
        let filled = self.lock.with(|| {
            // The ring fits all chunks of the area.
            held.drain(..).all(|at| fill.push(at));
        });
        if let Err(error) = filled {
            log::warn!("xdp link: cannot lock the frame area: {error}");
        }
        self.fill.needs_wakeup()
    }

    /// Returns the place, after receiving has ended.
    pub(super) fn leave(&mut self) {
        self.refill();
        let state = self.area.word(self.place as usize);
        state.store(RETURNED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_send_chunks_have_a_word() {
        let layout = Layout {
            place_count: 3,
            chunk_len: 2048,
        };
        let mut words = Vec::new();
        for place in 0..layout.place_count {
            for index in 0..CONTRIBUTED {
                assert_eq!(layout.word_at(layout.chunk_at(place, index)), None);
            }
            for index in 0..TX_LEN {
                let at = layout.chunk_at(place, CONTRIBUTED + index);
                words.extend(layout.word_at(at + 2047));
                assert_eq!(layout.word_at(at), words.last().copied());
            }
        }
        let [count, ..] = layout.sizes();
        assert_eq!(words, (3..count).collect::<Vec<_>>());
        assert_eq!(layout.word_at(layout.chunk_at(3, CONTRIBUTED)), None);
    }

    #[test]
    fn rings_hold_all_chunks() {
        let layout = Layout::new(2048);
        assert!(layout.is_valid());
        assert!(layout.fill_len() >= layout.place_count * CONTRIBUTED);
        assert!(layout.completion_len() >= layout.place_count * TX_LEN);
        for chunk_len in [0, 1024, 8192] {
            assert!(
                !Layout {
                    chunk_len,
                    ..layout
                }
                .is_valid()
            );
        }
    }
}
