// SPDX-License-Identifier: MIT OR Apache-2.0
//! Search for blocks of a batch that this host already has, in an unfinished copy or in an older
//! one.
//!
//! A block is a list of pieces of files, by name. It is present if these pieces have its hash,
//! whatever the block boundaries of the older copy were.

use super::Sink;
use crate::entry::{Batch, Record};

/// Place where a block was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nowhere,
    /// In the unfinished copy, in its final place.
    Part,
    /// In the older copy.
    Old,
}

#[derive(Debug)]
struct Piece {
    path: Vec<u8>,
    offset: u64,
    len: u64,
}

#[derive(Debug)]
struct PlannedBlock {
    pieces: Vec<Piece>,
    hash: [u8; 32],
    found: Found,
}

impl PlannedBlock {
    fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }
}

/// Data blocks of one batch. Without hashes the plan is empty, and each received block is stored.
#[derive(Debug, Default)]
pub(super) struct Plan {
    blocks: Vec<PlannedBlock>,
    /// First block that is neither stored nor skipped.
    pub(super) next: usize,
}

impl Plan {
    /// Searches for the blocks of `batch`, which continues the file `current`.
    pub(super) fn make(batch: &Batch, current: &[u8], sink: &mut dyn Sink) -> Plan {
        let mut blocks = cut(batch, current);
        let mut bytes = Vec::new();
        for block in &mut blocks {
            let hash = block.hash;
            let mut is_in = |read: &mut dyn FnMut(&Piece, &mut Vec<u8>) -> bool| {
                bytes.clear();
                let is_whole = block.pieces.iter().all(|piece| read(piece, &mut bytes));
                is_whole && *blake3::hash(&bytes).as_bytes() == hash
            };
            let mut part = |piece: &Piece, to: &mut Vec<u8>| {
                sink.read_part(&piece.path, piece.offset, piece.len, to)
            };
            if is_in(&mut part) {
                block.found = Found::Part;
                continue;
            }
            let mut old = |piece: &Piece, to: &mut Vec<u8>| {
                sink.read_old(&piece.path, piece.offset, piece.len, to)
            };
            if is_in(&mut old) {
                block.found = Found::Old;
            }
        }
        Plan { blocks, next: 0 }
    }

    /// Returns one bit for each missing block, lowest first.
    pub(super) fn needs(&self) -> Vec<u8> {
        let mut bits = vec![0; self.blocks.len().div_ceil(8)];
        for (index, block) in self.blocks.iter().enumerate() {
            bits[index / 8] |= u8::from(block.found == Found::Nowhere) << (index % 8);
        }
        bits
    }

    /// Returns true if block `index` was present and has been skipped.
    pub(super) fn is_past(&self, index: u32) -> bool {
        !self.blocks.is_empty() && (index as usize) < self.next
    }

    /// Returns the next block if it is present: place, hash and length.
    pub(super) fn next_present(&self) -> Option<(Found, [u8; 32], u64)> {
        let block = self.blocks.get(self.next)?;
        (block.found != Found::Nowhere).then(|| (block.found, block.hash, block.len()))
    }

    /// Reads the next block from the older copy. Returns fewer bytes if that copy has changed.
    pub(super) fn read_old(&self, sink: &mut dyn Sink) -> Vec<u8> {
        let mut bytes = Vec::new();
        let pieces = self.blocks.get(self.next).map(|block| &block.pieces);
        for piece in pieces.into_iter().flatten() {
            if !sink.read_old(&piece.path, piece.offset, piece.len, &mut bytes) {
                break;
            }
        }
        bytes
    }
}

/// Returns the pieces of each block, cut as in the source.
fn cut(batch: &Batch, current: &[u8]) -> Vec<PlannedBlock> {
    let mut hashes = batch.hashes.iter();
    let mut blocks: Vec<PlannedBlock> = Vec::new();
    let mut capacity = 0;
    let mut path = current.to_vec();
    for record in &batch.records {
        let (mut offset, mut left) = match record {
            Record::Entry(entry) => {
                path.clone_from(&entry.path);
                continue;
            }
            Record::End => continue,
            Record::Extent { offset, len } => (*offset, *len),
        };
        while left > 0 {
            if capacity == 0 {
                // Excess data is detected when it arrives.
                let Some(hash) = hashes.next() else {
                    return blocks;
                };
                blocks.push(PlannedBlock {
                    pieces: Vec::new(),
                    hash: *hash,
                    found: Found::Nowhere,
                });
                capacity = u64::from(batch.block_len).max(1);
            }
            let len = left.min(capacity);
            if let Some(block) = blocks.last_mut() {
                let path = path.clone();
                block.pieces.push(Piece { path, offset, len });
            }
            (offset, left, capacity) = (offset + len, left - len, capacity - len);
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, Meta, What};

    #[test]
    fn blocks_are_cut_across_files() {
        let file = |name: &str, len| {
            let what = What::File { len };
            let path = name.into();
            let meta = Meta::default();
            [
                Record::Entry(Entry { path, what, meta }),
                Record::Extent { offset: 0, len },
                Record::End,
            ]
        };
        let mut records = vec![Record::Extent { offset: 64, len: 7 }, Record::End];
        records.extend(file("a", 2));
        records.extend(file("b", 12));
        let batch = Batch {
            records,
            block_len: 10,
            hashes: vec![[1; 32], [2; 32], [3; 32]],
        };
        let blocks = cut(&batch, b"before");
        let pieces = |index: usize| {
            let pieces = blocks[index].pieces.iter();
            pieces
                .map(|piece| {
                    (
                        String::from_utf8_lossy(&piece.path).into_owned(),
                        piece.offset,
                        piece.len,
                    )
                })
                .collect::<Vec<_>>()
        };
        let piece = |name: &str, offset, len| (name.to_owned(), offset, len);
        assert_eq!(
            pieces(0),
            [piece("before", 64, 7), piece("a", 0, 2), piece("b", 0, 1)]
        );
        assert_eq!(pieces(1), [piece("b", 1, 10)]);
        assert_eq!(pieces(2), [piece("b", 11, 1)]);
        assert_eq!(blocks.len(), 3);
    }
}
