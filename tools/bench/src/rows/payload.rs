// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents of the units of a flow, and the check of their arrival.

use crate::pattern::{Flags, stamp, verify};
use crate::spec::window;
use anyhow::{Result, ensure};

/// Flag in the number of a message of the last pass.
const LAST: u64 = 1 << 63;

/// Bytes of a small message.
const MESSAGE: usize = 8;
/// Bytes of a small message with a header.
const RECORD: usize = 16;
/// Header bytes in front of a fragment of a large message.
const HEADER: usize = 24;

/// Fills units at one end and consumes them at the other.
pub(crate) trait Load {
    /// Returns the units of a pass, if the load determines them.
    fn pass_units(&self) -> Option<u64>;
    fn pass_messages(&self, units: u64) -> u64;
    /// Begins a pass, possibly the last.
    fn begin_pass(&mut self, last: bool);
    /// Writes the next unit and returns its length.
    fn fill(&mut self, unit: &mut [u8]) -> usize;
    /// Checks the next unit. Returns true if its pass is the last.
    fn take(&mut self, unit: &[u8]) -> Result<bool>;
}

/// Small numbered messages.
pub(crate) struct Marks {
    /// Records in a unit; 0 for one message without a header.
    records: usize,
    number: u64,
    last: u64,
}

impl Marks {
    /// Creates a load with one message per unit, without a header.
    pub(crate) fn single() -> Self {
        Marks {
            records: 0,
            number: 0,
            last: 0,
        }
    }

    /// Creates a load with `records` messages per unit, each with its length in front.
    pub(crate) fn records(records: usize) -> Self {
        Marks {
            records,
            number: 0,
            last: 0,
        }
    }

    #[inline]
    fn next(&mut self) -> [u8; 8] {
        self.number += 1;
        (self.number | self.last).to_le_bytes()
    }

    #[inline]
    fn check(&mut self, message: &[u8]) -> Result<bool> {
        self.number += 1;
        let mark = word(message);
        ensure!(
            mark & !LAST == self.number,
            "received message {mark:#x} instead of {:#x}",
            self.number
        );
        Ok(mark & LAST != 0)
    }
}

impl Load for Marks {
    fn pass_units(&self) -> Option<u64> {
        None
    }

    fn pass_messages(&self, units: u64) -> u64 {
        units * self.records.max(1) as u64
    }

    fn begin_pass(&mut self, last: bool) {
        self.last = if last { LAST } else { 0 };
    }

    #[inline]
    fn fill(&mut self, unit: &mut [u8]) -> usize {
        if self.records == 0 {
            unit[..MESSAGE].copy_from_slice(&self.next());
            return MESSAGE;
        }
        for record in unit.chunks_exact_mut(RECORD).take(self.records) {
            record[..8].copy_from_slice(&(MESSAGE as u64).to_le_bytes());
            record[8..].copy_from_slice(&self.next());
        }
        self.records * RECORD
    }

    #[inline]
    fn take(&mut self, unit: &[u8]) -> Result<bool> {
        if self.records == 0 {
            ensure!(unit.len() == MESSAGE, "a unit of {} bytes", unit.len());
            return self.check(unit);
        }
        ensure!(
            unit.len() == self.records * RECORD,
            "a unit of {} bytes",
            unit.len()
        );
        let mut last = false;
        for record in unit.chunks_exact(RECORD) {
            ensure!(
                word(record) == MESSAGE as u64,
                "a record's length is {}",
                word(record)
            );
            last = self.check(&record[8..])?;
        }
        Ok(last)
    }
}

/// Fragments of large messages, each with its position in the stream in front.
pub(crate) struct Pieces {
    message: Vec<u8>,
    /// Bytes of a full fragment.
    piece: usize,
    /// Completed bytes of the current message.
    filled: usize,
    /// Completed messages of the current pass.
    done: u64,
    pass: u64,
    position: u64,
    last: bool,
}

impl Pieces {
    /// Creates a load of messages of `size` bytes in units of at most `unit_len` bytes.
    pub(crate) fn new(size: usize, unit_len: usize) -> Self {
        Pieces {
            message: vec![0; size],
            piece: unit_len - HEADER,
            filled: 0,
            done: 0,
            pass: 0,
            position: 0,
            last: false,
        }
    }

    fn advance(&mut self, len: usize) -> bool {
        self.position += len as u64;
        self.filled += len;
        let complete = self.filled == self.message.len();
        if complete {
            self.filled = 0;
        }
        complete
    }
}

impl Load for Pieces {
    fn pass_units(&self) -> Option<u64> {
        Some(window(self.message.len()) * self.message.len().div_ceil(self.piece) as u64)
    }

    fn pass_messages(&self, _units: u64) -> u64 {
        window(self.message.len())
    }

    fn begin_pass(&mut self, last: bool) {
        stamp(
            &mut self.message,
            self.pass,
            super::pass_flags(self.pass, last),
        );
        self.pass += 1;
    }

    #[inline]
    fn fill(&mut self, unit: &mut [u8]) -> usize {
        let len = self.piece.min(self.message.len() - self.filled);
        unit[..8].copy_from_slice(&self.position.to_le_bytes());
        unit[HEADER..][..len].copy_from_slice(&self.message[self.filled..][..len]);
        self.advance(len);
        HEADER + len
    }

    #[inline]
    fn take(&mut self, unit: &[u8]) -> Result<bool> {
        ensure!(unit.len() > HEADER, "a unit of {} bytes", unit.len());
        let begins = word(unit);
        ensure!(
            begins == self.position,
            "byte {} was lost: received byte {begins}",
            self.position
        );
        let piece = &unit[HEADER..];
        ensure!(
            piece.len() <= self.message.len() - self.filled,
            "a piece crosses a message's end"
        );
        self.message[self.filled..][..piece.len()].copy_from_slice(piece);
        if self.advance(piece.len()) {
            let flags: Flags = verify(&self.message, self.pass)?;
            self.last = flags.last;
            self.done += 1;
            if self.done == window(self.message.len()) {
                self.done = 0;
                self.pass += 1;
            }
        }
        Ok(self.last)
    }
}

/// Returns the first eight bytes as a number.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carry(mut sender: impl Load, mut receiver: impl Load, unit_len: usize, units: u64) -> bool {
        let mut last = false;
        for pass_is_last in [false, true] {
            sender.begin_pass(pass_is_last);
            for _ in 0..units {
                let mut unit = vec![0xa5; unit_len];
                let len = sender.fill(&mut unit);
                last = receiver.take(&unit[..len]).expect("intact");
            }
            assert_eq!(last, pass_is_last);
        }
        last
    }

    #[test]
    fn marks_arrive_and_mark_the_last_pass() {
        assert!(carry(Marks::single(), Marks::single(), 8, 5));
        assert!(carry(Marks::records(3), Marks::records(3), 50, 5));
    }

    #[test]
    fn pieces_arrive_and_mark_the_last_pass() {
        let (sender, receiver) = (Pieces::new(5000, 1500), Pieces::new(5000, 1500));
        let units = sender.pass_units().expect("its own");
        assert_eq!(units, 64 * 4);
        assert!(carry(sender, receiver, 1500, units));
    }

    #[test]
    fn lost_unit_is_detected() {
        let (mut sender, mut receiver) = (Marks::records(2), Marks::records(2));
        sender.begin_pass(false);
        let mut unit = [0; 32];
        sender.fill(&mut unit);
        sender.fill(&mut unit);
        assert!(receiver.take(&unit).is_err());
        assert!(Pieces::new(100, 1500).take(&[7; 124]).is_err());
    }
}
