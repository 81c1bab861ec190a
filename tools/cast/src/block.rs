// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks, the messages of a cast: a payload, followed by a trailer with number and hash.
//!
//! The trailer is at the end, so the payload begins at the start of the message and a received
//! block is forwarded from the same memory.

use crate::fault::Fault;
use std::sync::Arc;

/// Bytes of the trailer: number, raw length, batch and index, kind and coding, padding to 40, hash.
pub(crate) const TRAILER_LEN: usize = 72;

/// Contents of a block's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records of entries, in the format of `postcard`.
    Entries = 1,
    /// Contents of the extents of the last entries, in order.
    Data = 2,
    /// Next contents of a stream of unknown length.
    Stream = 3,
    /// The end; the payload contains the [`Totals`](crate::entry::Totals).
    End = 4,
}

/// Coding of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Not compressed.
    Plain = 0,
    /// Compressed by zstd.
    Zstd = 1,
}

/// Fields of a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) coding: Coding,
    /// Number in the cast, from 0. It has gaps for blocks that a receiver already has.
    pub(crate) seq: u64,
    /// Bytes of the decoded payload.
    pub(crate) raw_len: u32,
    /// Number of the batch that this block describes or contains data of.
    pub(crate) batch: u32,
    /// Index among the data blocks of the batch.
    pub(crate) index: u32,
    /// BLAKE3 of the decoded payload.
    pub(crate) hash: [u8; 32],
}

/// A complete block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) head: Head,
    bytes: Arc<Vec<u8>>,
}

impl Block {
    /// Creates a block from a coded payload.
    pub(crate) fn new(head: Head, mut payload: Vec<u8>) -> Block {
        let mut trailer = [0; TRAILER_LEN];
        trailer[..8].copy_from_slice(&head.seq.to_le_bytes());
        trailer[8..12].copy_from_slice(&head.raw_len.to_le_bytes());
        trailer[12..16].copy_from_slice(&head.batch.to_le_bytes());
        trailer[16..20].copy_from_slice(&head.index.to_le_bytes());
        trailer[20] = head.kind as u8;
        trailer[21] = head.coding as u8;
        trailer[40..].copy_from_slice(&head.hash);
        payload.extend_from_slice(&trailer);
        Block {
            head,
            bytes: Arc::new(payload),
        }
    }

    /// Parses a received message.
    ///
    /// # Errors
    /// [`Fault::Protocol`] if it is not a block.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Block, Fault> {
        let malformed = || Fault::Protocol("an invalid block");
        let at = bytes.len().checked_sub(TRAILER_LEN).ok_or_else(malformed)?;
        let trailer = &bytes[at..];
        let word = |at: usize| {
            let bytes = trailer[at..].first_chunk().copied().unwrap_or_default();
            u32::from_le_bytes(bytes)
        };
        let head = Head {
            seq: u64::from(word(0)) | u64::from(word(4)) << 32,
            raw_len: word(8),
            batch: word(12),
            index: word(16),
            kind: match trailer[20] {
                1 => Kind::Entries,
                2 => Kind::Data,
                3 => Kind::Stream,
                4 => Kind::End,
                _ => return Err(malformed()),
            },
            coding: match trailer[21] {
                0 => Coding::Plain,
                1 => Coding::Zstd,
                _ => return Err(malformed()),
            },
            hash: *trailer[40..].first_chunk().ok_or_else(malformed)?,
        };
        Ok(Block {
            head,
            bytes: Arc::new(bytes),
        })
    }

    /// Returns the coded payload.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - TRAILER_LEN]
    }

    /// Returns the whole message, for forwarding.
    pub(crate) fn message(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.bytes)
    }

    /// Returns the memory if this is its only user.
    pub(crate) fn into_memory(self) -> Option<Vec<u8>> {
        Arc::into_inner(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_round_trips_and_invalid_bytes_are_rejected() {
        let head = Head {
            kind: Kind::Data,
            coding: Coding::Zstd,
            seq: 0x0102_0304_0506_0708,
            raw_len: 77,
            batch: 5,
            index: 6,
            hash: [0xa5; 32],
        };
        let block = Block::new(head, b"payload".to_vec());
        let back = Block::parse(block.message().to_vec()).unwrap();
        assert_eq!((back.head, back.payload()), (head, &b"payload"[..]));
        assert!(Block::parse(vec![0; TRAILER_LEN - 1]).is_err());
        assert!(Block::parse(vec![0; TRAILER_LEN]).is_err());
    }
}
