// SPDX-License-Identifier: MIT OR Apache-2.0
//! 16-byte records (a commit word and 8 bytes of message) through a bare ring.

use crate::control::Offer;
use crate::end::End;
use crate::measure::{Pass, Sample};
use crate::spec::Publish;
use crate::spin_wait::SpinWait;
use crate::sys::SharedMap;
use anyhow::{Result, ensure};
use std::sync::atomic::Ordering;

/// Bytes of a message in these rows.
pub(crate) const MESSAGE: usize = 8;
/// Bytes of a record.
const RECORD: usize = 16;
/// Records in the ring: 64 KB, so that the ends rarely access the same lines.
const RECORDS: u64 = 4096;
/// Records per batch, as many as the windows of other systems.
const BATCH: u64 = 64;
/// Records of a pass. They take hundreds of microseconds, so that the acknowledgement is
/// negligible.
const PASS_RECORDS: u64 = 16 * 1024;
/// Flag in the last message.
const LAST: u64 = 1 << 63;

/// Offsets of the counters, each in its own pair of cache lines, and of the records.
const WRITTEN: usize = 0;
const CONSUMED: usize = 128;
const DATA: usize = 4096;

/// Bytes of shared memory.
#[allow(clippy::cast_possible_truncation, reason = "4096")]
pub(crate) const SHARED_LEN: usize = DATA + RECORD * RECORDS as usize;

/// Runs this end.
///
/// # Errors
/// A message was wrong, or nothing arrived.
pub(crate) fn run(end: &mut End, publish: Publish) -> Result<Option<Sample>> {
    let map = end.shared()?;
    end.exchange(&Offer::default())?;
    let mut ring = Ring {
        map: &map,
        spin_wait: end.spin_wait(),
        count: 0,
        peer_count: 0,
    };
    if end.drives() {
        return end.measure(Pass::one_way(PASS_RECORDS), |last| match publish {
            Publish::Each => ring.produce_each(last),
            Publish::Batch => ring.produce_batches(last),
        });
    }
    match publish {
        Publish::Each => ring.consume_each()?,
        Publish::Batch => ring.consume_batches()?,
    }
    Ok(None)
}

struct Ring<'a> {
    map: &'a SharedMap,
    spin_wait: SpinWait,
    /// Records that this end has written or consumed so far.
    count: u64,
    /// Last value read from the other end's counter.
    peer_count: u64,
}

impl Ring<'_> {
    /// Writes the records of a pass. Each has its own commit word, the number of the record.
    fn produce_each(&mut self, last: bool) -> Result<()> {
        for index in 0..PASS_RECORDS {
            self.await_space()?;
            let off = offset(self.count);
            self.count += 1;
            let message = mark(self.count, last && index == PASS_RECORDS - 1);
            self.map.word(off + 8).store(message, Ordering::Relaxed);
            // SYNC: record-commit; publishes the message.
            self.map.word(off).store(self.count, Ordering::Release);
        }
        self.drain()
    }

    fn consume_each(&mut self) -> Result<()> {
        loop {
            let off = offset(self.count);
            // SYNC: record-commit; pairs with the store in `produce_each`.
            while self.map.word(off).load(Ordering::Acquire) != self.count + 1 {
                self.spin_wait.wait()?;
            }
            self.spin_wait.reset();
            self.count += 1;
            let last = self.take(off)?;
            // Freed after a quarter of the ring, long before the producer runs out of space.
            if self.count.is_multiple_of(RECORDS / 4) || self.count.is_multiple_of(PASS_RECORDS) {
                self.give_back();
            }
            if last {
                return Ok(());
            }
        }
    }

    /// Writes the records of a pass. The first word is only the length; a counter publishes whole
    /// batches.
    fn produce_batches(&mut self, last: bool) -> Result<()> {
        for batch in 0..PASS_RECORDS / BATCH {
            self.await_space()?;
            for index in 0..BATCH {
                let off = offset(self.count);
                self.count += 1;
                let final_one = last && batch == PASS_RECORDS / BATCH - 1 && index == BATCH - 1;
                self.map.word(off).store(MESSAGE as u64, Ordering::Relaxed);
                self.map
                    .word(off + 8)
                    .store(mark(self.count, final_one), Ordering::Relaxed);
            }
            // SYNC: batch-commit; publishes the records.
            self.map.word(WRITTEN).store(self.count, Ordering::Release);
        }
        self.drain()
    }

    fn consume_batches(&mut self) -> Result<()> {
        loop {
            // SYNC: batch-commit; pairs with the store in `produce_batches`.
            while self.peer_count == self.count {
                self.peer_count = self.map.word(WRITTEN).load(Ordering::Acquire);
                if self.peer_count == self.count {
                    self.spin_wait.wait()?;
                }
            }
            self.spin_wait.reset();
            let mut last = false;
            while self.count < self.peer_count {
                let off = offset(self.count);
                self.count += 1;
                ensure!(
                    self.map.word(off).load(Ordering::Relaxed) == MESSAGE as u64,
                    "length"
                );
                last = self.take(off)?;
            }
            self.give_back();
            if last {
                return Ok(());
            }
        }
    }

    /// Reads message number `count` from the record at `off`.
    fn take(&mut self, off: usize) -> Result<bool> {
        let message = self.map.word(off + 8).load(Ordering::Relaxed);
        ensure!(
            message & !LAST == self.count,
            "received message {message:#x} instead of {:#x}",
            self.count
        );
        Ok(message & LAST != 0)
    }

    /// Waits for space for a whole batch.
    fn await_space(&mut self) -> Result<()> {
        while self.count + BATCH > self.peer_count + RECORDS {
            // SYNC: ring-consumed; pairs with the store in `give_back`.
            self.peer_count = self.map.word(CONSUMED).load(Ordering::Acquire);
            if self.count + BATCH > self.peer_count + RECORDS {
                self.spin_wait.wait()?;
            }
        }
        self.spin_wait.reset();
        Ok(())
    }

    fn give_back(&mut self) {
        // SYNC: ring-consumed; the records are read before the producer may write them again.
        self.map.word(CONSUMED).store(self.count, Ordering::Release);
    }

    /// Waits until the consumer has consumed all records.
    fn drain(&mut self) -> Result<()> {
        while self.peer_count < self.count {
            self.peer_count = self.map.word(CONSUMED).load(Ordering::Acquire);
            if self.peer_count < self.count {
                self.spin_wait.wait()?;
            }
        }
        self.spin_wait.reset();
        Ok(())
    }
}

fn mark(number: u64, last: bool) -> u64 {
    number | if last { LAST } else { 0 }
}

fn offset(count: u64) -> usize {
    #[allow(clippy::cast_possible_truncation, reason = "below RECORDS")]
    let index = (count % RECORDS) as usize;
    DATA + index * RECORD
}
