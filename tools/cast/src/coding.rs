// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coding of blocks: the source compresses them while that makes the cast faster, and each host
//! decompresses them.
//!
//! Received data is not trusted. The decoded length is checked before memory is used for it.

use crate::block::{Block, Coding, TRAILER_LEN};
use crate::compression::CompressionPolicy;
use crate::fault::Fault;
use crate::spec::BLOCK_LEN;
use std::time::{Duration, Instant};

/// zstd's fastest regular level, because a source must keep up with its link.
const LEVEL: i32 = 1;

/// Maximum ratio of coded to raw length for a block to be sent compressed.
const CODED_RATIO_MAX: f64 = 0.95;

/// Compressor of blocks.
pub(crate) struct Encoder {
    zstd: zstd::bulk::Compressor<'static>,
    pub(crate) policy: CompressionPolicy,
}

impl Encoder {
    /// Creates a compressor.
    ///
    /// # Errors
    /// [`Fault::System`] if there is no memory for it.
    pub(crate) fn new() -> Result<Encoder, Fault> {
        let zstd = zstd::bulk::Compressor::new(LEVEL).map_err(|errno| Fault::System {
            what: "allocating memory for compression",
            errno,
        })?;
        Ok(Encoder {
            zstd,
            policy: CompressionPolicy::default(),
        })
    }

    /// Compresses `payload` into `coded` if compression currently pays. Returns true if the result
    /// is shorter, and the time taken.
    pub(crate) fn encode(&mut self, payload: &[u8], coded: &mut Vec<u8>) -> (bool, Duration) {
        if !self.policy.should_compress() {
            return (false, Duration::ZERO);
        }
        let begin = Instant::now();
        coded.clear();
        coded.resize(zstd::zstd_safe::compress_bound(payload.len()), 0);
        let len = self.zstd.compress_to_buffer(payload, &mut coded[..]);
        let len = len.unwrap_or(payload.len()).min(coded.len());
        coded.truncate(len);
        let took = begin.elapsed();
        self.policy.on_compressed(payload.len(), len, took);
        ((len as f64) < CODED_RATIO_MAX * payload.len() as f64, took)
    }
}

/// Decompressor of blocks, with its own output buffer.
#[derive(Default)]
pub(crate) struct Decoder {
    zstd: zstd::bulk::Decompressor<'static>,
    bytes: Vec<u8>,
}

impl Decoder {
    /// Returns the decoded payload of a block.
    ///
    /// # Errors
    /// [`Fault::Protocol`] if the payload is longer than a block or is not zstd data.
    pub(crate) fn decode<'a>(&'a mut self, block: &'a Block) -> Result<&'a [u8], Fault> {
        let len = block.head.raw_len as usize;
        if len > BLOCK_LEN as usize {
            return Err(Fault::Protocol("a block with an excessive length"));
        }
        if block.head.coding == Coding::Plain {
            return match block.payload().len() == len {
                true => Ok(block.payload()),
                false => Err(Fault::Protocol("a block with a wrong length")),
            };
        }
        self.bytes.resize(len, 0);
        match self
            .zstd
            .decompress_to_buffer(block.payload(), &mut self.bytes[..])
        {
            Ok(found) if found == len => Ok(&self.bytes),
            _ => Err(Fault::Protocol("a block that cannot be decompressed")),
        }
    }
}

/// Returns the maximum bytes of a coded payload with its trailer.
pub(crate) fn coded_len_max() -> usize {
    zstd::zstd_safe::compress_bound(BLOCK_LEN as usize).max(BLOCK_LEN as usize) + TRAILER_LEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Head, Kind};

    fn block(raw_len: u32, coding: Coding, payload: Vec<u8>) -> Block {
        let head = Head {
            kind: Kind::Data,
            coding,
            seq: 0,
            raw_len,
            batch: 0,
            index: 0,
            hash: [0; 32],
        };
        Block::new(head, payload)
    }

    fn zstd_of(bytes: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(bytes, LEVEL).unwrap()
    }

    #[test]
    fn blocks_round_trip() {
        let mut decoder = Decoder::default();
        for len in [0, 1, 100_000, BLOCK_LEN] {
            let bytes = vec![7; len as usize];
            let coded = block(len, Coding::Zstd, zstd_of(&bytes));
            assert_eq!(decoder.decode(&coded).unwrap(), bytes);
            let plain = block(len, Coding::Plain, bytes.clone());
            assert_eq!(decoder.decode(&plain).unwrap(), bytes);
        }
    }

    #[test]
    fn oversized_lengths_do_not_allocate() {
        let mut decoder = Decoder::default();
        let bomb = zstd_of(&vec![0; 64 << 20]);
        let mut refused = |raw_len, coding, payload: &[u8]| {
            assert!(
                decoder
                    .decode(&block(raw_len, coding, payload.to_vec()))
                    .is_err()
            );
            assert!(decoder.bytes.capacity() <= BLOCK_LEN as usize);
        };
        refused(u32::MAX, Coding::Zstd, &bomb);
        refused(BLOCK_LEN + 1, Coding::Zstd, &bomb);
        refused(BLOCK_LEN, Coding::Zstd, &bomb);
        refused(BLOCK_LEN, Coding::Plain, b"short");
        refused(10, Coding::Zstd, &zstd_of(b"other"));
        refused(10, Coding::Zstd, b"not zstd at all");
        refused(10, Coding::Zstd, b"");
        let mut cut = zstd_of(&[3; 5000]);
        cut.pop();
        refused(5000, Coding::Zstd, &cut);
    }
}
