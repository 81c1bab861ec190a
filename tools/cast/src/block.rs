// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks: what travels, one message each: a payload, and behind it a trailer with number and hash.
//!
//! The trailer stands last so that the payload begins where the message does, and a block that was
//! received is passed on from the same memory.

use crate::fault::Fault;
use std::sync::Arc;

/// Bytes of the trailer: number, raw length, batch and index, kind and coding, padding to 40, hash.
pub(crate) const TRAILER_LEN: usize = 72;

/// What a block's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records of entries, in `postcard`'s form.
    Entries = 1,
    /// Contents of the extents that the last entries named, in order.
    Data = 2,
    /// Contents that follow those before, of a length that is not known.
    Stream = 3,
    /// The end; the payload is the [`Totals`](crate::entry::Totals).
    End = 4,
}

/// How the payload is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As it is.
    Plain = 0,
    /// By zstd.
    Zstd = 1,
}

/// The fields of a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) coding: Coding,
    /// Number in the cast, from 0; a receiver that has a block already sees a gap.
    pub(crate) seq: u64,
    /// Bytes of the payload, decoded.
    pub(crate) raw_len: u32,
    /// Number of the batch of entries that this is, or whose data this is.
    pub(crate) batch: u32,
    /// Number among the data blocks of the batch.
    pub(crate) index: u32,
    /// BLAKE3 of the decoded payload.
    pub(crate) hash: [u8; 32],
}

/// A whole block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) head: Head,
    bytes: Arc<Vec<u8>>,
}

impl Block {
    /// A block of a coded payload.
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

    /// A block that came as a message.
    ///
    /// # Errors
    /// [`Fault::Protocol`] for what is none.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Block, Fault> {
        let malformed = || Fault::Protocol("a message that is no block");
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

    /// The coded payload.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - TRAILER_LEN]
    }

    /// The whole message, to be passed on.
    pub(crate) fn message(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.bytes)
    }

    /// The memory, if nobody else uses it any more.
    pub(crate) fn into_memory(self) -> Option<Vec<u8>> {
        Arc::into_inner(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_survives_the_wire_and_nonsense_is_refused() {
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
