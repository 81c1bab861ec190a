// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host side of multicast: assembles blocks from pieces, and reports missing pieces.

use super::caster::Sent;
use super::datagram::{Header, xor_into};
use super::{Front, MissingPieces, Report, Terms, piece_count, piece_range};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Reports per window. The source must receive the next report before the window is exhausted.
const REPORTS_IN_WINDOW: u64 = 4;

/// Maximum number of ranges of pieces in one report. The next report contains the rest.
const RANGES_MAX: usize = 512;

/// A partly received block.
#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    is_present: Vec<bool>,
    missing: usize,
}

/// State of a host.
#[derive(Debug)]
pub struct Listener {
    /// Valid lengths of a block in bytes.
    lens: RangeInclusive<usize>,
    piece_len: usize,
    /// Datagrams between reports.
    report_interval: u64,
    seen: u64,
    reported: u64,
    front: Front,
    /// First block that the caller has not taken.
    next: u64,
    blocks: BTreeMap<u64, Partial>,
    is_report_due: bool,
}

impl Listener {
    /// Creates a host that accepts blocks of these lengths in bytes.
    #[must_use]
    pub fn new(terms: Terms, lens: RangeInclusive<usize>) -> Listener {
        Listener {
            lens,
            piece_len: terms.piece_len.max(1),
            report_interval: report_interval(terms.window),
            seen: terms.serial,
            reported: terms.serial,
            front: Front::default(),
            next: 0,
            blocks: BTreeMap::new(),
            is_report_due: false,
        }
    }

    /// Handles a datagram. `limit` is one past the last block that fits in memory.
    pub fn on_datagram(
        &mut self,
        header: &Header,
        body: &[u8],
        limit: u64,
        memory: impl FnOnce() -> Vec<u8>,
    ) {
        let block = header.block;
        let count = piece_count(header.len, self.piece_len);
        let is_block = self.lens.contains(&header.len);
        let is_sound = is_block && header.pieces.iter().all(|piece| *piece < count);
        let Some(last) = header.pieces.iter().max().filter(|_| is_sound) else {
            return;
        };
        // A datagram with a block that does not fit is not recorded, because recording it would
        // grant further datagrams.
        if block >= limit {
            return;
        }
        self.seen = self.seen.max(header.serial);
        let pieces = last + 1;
        self.front = self.front.max(Front { block, pieces });
        if block < self.next {
            return;
        }
        let partial = self.blocks.entry(block).or_insert_with(|| {
            let mut bytes = memory();
            bytes.resize(header.len, 0);
            Partial {
                bytes,
                is_present: vec![false; usize::from(count)],
                missing: usize::from(count),
            }
        });
        partial.take(header, body, self.piece_len);
    }

    /// Handles the source's report of sent datagrams. Those that have not arrived are lost.
    pub fn on_sent(&mut self, sent: Sent) {
        self.seen = self.seen.max(sent.serial);
        self.front = self.front.max(sent.front);
        self.is_report_due = true;
    }

    /// Narrows the source's window, because another host can buffer fewer datagrams. `P17.4`
    pub fn on_window(&mut self, window: u64) {
        self.report_interval = self.report_interval.min(report_interval(window));
    }

    /// Returns the number and bytes of the next complete block, in order.
    pub fn take_block(&mut self) -> Option<(u64, Vec<u8>)> {
        let first = self.blocks.first_entry()?;
        if *first.key() != self.next || first.get().missing > 0 {
            return None;
        }
        self.next += 1;
        Some((self.next - 1, first.remove().bytes))
    }

    /// Returns a report for the source, if one is due.
    pub fn take_report(&mut self) -> Option<Report> {
        if !self.is_report_due && self.seen - self.reported < self.report_interval {
            return None;
        }
        self.is_report_due = false;
        self.reported = self.seen;
        Some(Report {
            seen: self.seen,
            next: self.next,
            missing: self.missing(),
        })
    }

    fn missing(&self) -> Vec<MissingPieces> {
        let mut missing = Vec::new();
        let mut left = RANGES_MAX;
        for block in self.next..=self.front.block {
            let sent = match block == self.front.block {
                true => self.front.pieces,
                false => u16::MAX,
            };
            let ranges = match self.blocks.get(&block) {
                // The source has the number of pieces.
                None => vec![(0, sent)],
                Some(partial) => partial.missing_ranges(sent),
            };
            let ranges: Vec<_> = ranges
                .into_iter()
                .filter(|(a, b)| a < b)
                .take(left)
                .collect();
            left -= ranges.len();
            if !ranges.is_empty() {
                missing.push(MissingPieces { block, ranges });
            }
            if left == 0 {
                break;
            }
        }
        missing
    }
}

/// Returns the number of datagrams between two reports.
fn report_interval(window: u64) -> u64 {
    (window / REPORTS_IN_WINDOW).max(1)
}

impl Partial {
    /// Stores the piece in a datagram. A datagram that combines several pieces (XOR) restores one
    /// of them, if all the rest are present.
    fn take(&mut self, header: &Header, body: &[u8], piece_len: usize) {
        let len = self.bytes.len();
        if len != header.len {
            return;
        }
        let mut missing = header
            .pieces
            .iter()
            .filter(|it| !self.is_present[usize::from(**it)]);
        let (Some(&piece), None) = (missing.next(), missing.next()) else {
            return;
        };
        let place = piece_range(piece, len, piece_len);
        let is_one = header.pieces.len() == 1;
        if body.len() != if is_one { place.len() } else { piece_len } {
            return;
        }
        self.bytes[place.clone()].copy_from_slice(&body[..place.len()]);
        for other in header.pieces.iter().filter(|other| **other != piece) {
            let range = piece_range(*other, len, piece_len);
            let (under, over) = match range.start < place.start {
                true => {
                    let (low, high) = self.bytes.split_at_mut(place.start);
                    (&mut high[..place.len()], &low[range])
                }
                false => {
                    let (low, high) = self.bytes.split_at_mut(range.start);
                    (&mut low[place.clone()], &high[..range.len()])
                }
            };
            xor_into(under, over);
        }
        self.is_present[usize::from(piece)] = true;
        self.missing -= 1;
    }

    /// Returns the ranges of missing pieces below `sent`.
    fn missing_ranges(&self, sent: u16) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        if self.missing == 0 {
            return ranges;
        }
        for (index, has) in (0..sent).zip(&self.is_present) {
            match ranges.last_mut() {
                _ if *has => {}
                Some((_, end)) if *end == index => *end = index + 1,
                _ => ranges.push((index, index + 1)),
            }
        }
        ranges
    }
}
