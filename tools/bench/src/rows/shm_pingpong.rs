// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache line bounced between two cores, followed by more lines for messages longer than a line.
//!
//! A message of up to 64 bytes is one line: the word that announces it carries the rest of the line
//! at no extra cost. Longer messages are copied in before the word is written, and copied out after
//! it is read.

use crate::control::Offer;
use crate::end::End;
use crate::measure::{Pass, SHM_BATCH, Sample};
use crate::pattern::{Flags, stamp, verify};
use crate::spec::Lines;
use crate::spin_wait::SpinWait;
use crate::sys::SharedMap;
use anyhow::{Result, ensure};
use std::sync::atomic::Ordering;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Distance between the areas of the two ends in bytes, too large for prefetchers to join them.
const AREA: usize = 4096;

/// Flag in the word of the last message.
const LAST: u64 = 1 << 63;

/// Returns the bytes of shared memory for messages of `size` bytes.
pub(crate) fn shared_len(size: usize) -> usize {
    2 * (AREA + size).next_multiple_of(AREA)
}

/// Runs this end.
///
/// # Errors
/// A word or a payload was wrong, or nothing arrived.
pub(crate) fn run(end: &mut End, lines: Lines) -> Result<Option<Sample>> {
    let map = end.shared()?;
    end.exchange(&Offer::default())?;
    let bodies = if end.spec.size > LINE {
        end.spec.size
    } else {
        0
    };
    let mut channel = LineChannel::new(&map, bodies, lines, end.drives());
    let spin_wait = end.spin_wait();
    if end.drives() {
        serve(end, &mut channel, spin_wait)
    } else {
        answer(&mut channel, spin_wait)
    }
}

fn serve(
    end: &End,
    channel: &mut LineChannel<'_>,
    mut spin_wait: SpinWait,
) -> Result<Option<Sample>> {
    let mut seq = 0;
    let shape = Pass::round_trips(SHM_BATCH);
    end.measure(shape, |last| {
        for index in 0..SHM_BATCH {
            seq += 1;
            let flags = match seq {
                1 => Flags::FIRST,
                _ => Flags {
                    last: last && index == SHM_BATCH - 1,
                    ..Flags::NONE
                },
            };
            let flags = if flags.last { Flags::LAST } else { flags };
            channel.send(2 * seq - 1, flags);
            channel.receive(2 * seq, &mut spin_wait)?;
        }
        Ok(())
    })
}

fn answer(channel: &mut LineChannel<'_>, mut spin_wait: SpinWait) -> Result<Option<Sample>> {
    let mut seq = 0;
    loop {
        seq += 1;
        let last = channel.receive(2 * seq - 1, &mut spin_wait)?;
        let flags = match (seq, last) {
            (_, true) => Flags::LAST,
            (1, false) => Flags::FIRST,
            _ => Flags::NONE,
        };
        channel.send(2 * seq, flags);
        if last {
            return Ok(None);
        }
    }
}

struct LineChannel<'a> {
    map: &'a SharedMap,
    /// Offset of the word that this end writes. Its body follows at `LINE`.
    mine: usize,
    /// Offset of the word that the other end writes.
    theirs: usize,
    /// Offset of this end's body.
    my_body: usize,
    their_body: usize,
    message: Vec<u8>,
}

impl<'a> LineChannel<'a> {
    fn new(map: &'a SharedMap, body_len: usize, lines: Lines, drives: bool) -> Self {
        let second = (AREA + body_len).next_multiple_of(AREA);
        let (mine, theirs) = if drives { (0, second) } else { (second, 0) };
        let (my_word, their_word) = match lines {
            Lines::One => (0, 0),
            Lines::Two => (mine, theirs),
        };
        LineChannel {
            map,
            mine: my_word,
            theirs: their_word,
            my_body: mine + LINE,
            their_body: theirs + LINE,
            message: vec![0; body_len],
        }
    }

    /// Sends message `number`.
    #[inline]
    fn send(&mut self, number: u64, flags: Flags) {
        if !self.message.is_empty() {
            stamp(&mut self.message, number, flags);
            self.map.write(self.my_body, &self.message);
        }
        let word = number | if flags.last { LAST } else { 0 };
        // SYNC: line-word; publishes the body.
        self.map.word(self.mine).store(word, Ordering::Release);
    }

    /// Waits for message `number`. Returns true if it is the last.
    #[inline]
    fn receive(&mut self, number: u64, spin_wait: &mut SpinWait) -> Result<bool> {
        loop {
            // SYNC: line-word; pairs with the store in `send`.
            let word = self.map.word(self.theirs).load(Ordering::Acquire);
            if word & !LAST == number {
                spin_wait.reset();
                return self.open(word, number);
            }
            ensure!(
                word & !LAST < number,
                "received word {word:#x} before {number:#x}"
            );
            spin_wait.wait()?;
        }
    }

    #[inline]
    fn open(&mut self, word: u64, number: u64) -> Result<bool> {
        let last = word & LAST != 0;
        if !self.message.is_empty() {
            self.map.read(self.their_body, &mut self.message);
            let flags = verify(&self.message, number)?;
            ensure!(
                flags.last == last,
                "payload and word differ in the last flag"
            );
        }
        Ok(last)
    }
}
