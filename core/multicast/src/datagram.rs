// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams: a header, the encrypted bytes of one piece or of several combined ones, and an
//! authentication tag of both (AES-256-GCM).
//!
//! Token 8 bytes, serial 8, block 4, length of the block 3, number of pieces 1, pieces 8 times 2,
//! all little-endian. Several pieces are padded with zeros and combined by exclusive or. A host
//! that lacks one of them recovers it from the others. One datagram thus repairs losses of several
//! hosts.

use super::{Keys, piece_range};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Bytes of the header.
const HEADER_LEN: usize = 40;

/// Bytes of a datagram beyond a piece.
pub const OVERHEAD_LEN: usize = HEADER_LEN + TAG_LEN;

/// Maximum number of pieces that one datagram repairs. With random losses at more hosts than that,
/// two of them soon lack the same piece.
pub(super) const PIECES_MAX: usize = 8;

/// Bytes of the AES-GCM tag (RFC 5116).
const TAG_LEN: usize = 16;

/// Header of a datagram. A header without pieces belongs to a trial datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the datagram, from 1; never reused.
    pub serial: u64,
    /// Number of the block.
    pub block: u64,
    /// Bytes of the block.
    pub len: usize,
    /// Numbers of the pieces, in ascending order.
    pub pieces: Vec<u16>,
}

/// Encodes and decodes the datagrams of one source.
pub struct Codec {
    token: u64,
    seal: LessSafeKey,
}

impl Codec {
    /// Creates a codec. Returns `None` for a key of the wrong length, which the type excludes.
    #[must_use]
    pub fn new(keys: &Keys) -> Option<Codec> {
        let key = UnboundKey::new(&AES_256_GCM, &keys.seal).ok()?;
        Some(Codec {
            token: keys.token,
            seal: LessSafeKey::new(key),
        })
    }

    /// Appends a datagram with pieces of `message`. A trial datagram is padded to `piece_len`.
    pub fn write(&self, out: &mut Vec<u8>, header: &Header, message: &[u8], piece_len: usize) {
        let begin = out.len();
        out.extend_from_slice(&self.token.to_le_bytes());
        out.extend_from_slice(&header.serial.to_le_bytes());
        out.extend_from_slice(&header.block.to_le_bytes()[..4]);
        out.extend_from_slice(&header.len.to_le_bytes()[..3]);
        out.push(u8::try_from(header.pieces.len()).unwrap_or(0));
        for place in 0..PIECES_MAX {
            let piece = header.pieces.get(place).copied().unwrap_or(0);
            out.extend_from_slice(&piece.to_le_bytes());
        }
        let body = out.len();
        match header.pieces.as_slice() {
            [piece] => {
                out.extend_from_slice(&message[piece_range(*piece, message.len(), piece_len)]);
            }
            pieces => {
                out.resize(body + piece_len, 0);
                for piece in pieces {
                    xor_into(
                        &mut out[body..],
                        &message[piece_range(*piece, message.len(), piece_len)],
                    );
                }
            }
        }
        let (head, body) = out[begin..].split_at_mut(HEADER_LEN);
        let nonce = nonce(header.serial);
        // Fails only for bodies of gigabytes; hosts drop a datagram without a tag.
        if let Ok(tag) = self
            .seal
            .seal_in_place_separate_tag(nonce, Aad::from(head), body)
        {
            out.extend_from_slice(tag.as_ref());
        }
    }

    /// Returns `true` if a datagram may be from this source, judging by its first bytes. Only its
    /// tag proves it.
    #[must_use]
    pub fn is_from_source(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.token.to_le_bytes())
    }

    /// Decodes a datagram's header and body. Returns `None` for a datagram that is not from this
    /// source.
    pub fn read<'a>(&self, bytes: &'a mut [u8]) -> Option<(Header, &'a [u8])> {
        let (head, body) = bytes.split_at_mut_checked(HEADER_LEN)?;
        if !self.is_from_source(head) {
            return None;
        }
        let number = |from: usize, to: usize| {
            let bytes = head[from..to].iter().rev();
            bytes.fold(0, |value: u64, byte| value << 8 | u64::from(*byte))
        };
        let serial = number(8, 16);
        let count = usize::from(head[23]);
        if count > PIECES_MAX {
            return None;
        }
        let pieces = head[24..].chunks_exact(2).take(count);
        let header = Header {
            serial,
            block: number(16, 20),
            len: usize::try_from(number(20, 23)).ok()?,
            pieces: pieces
                .map(|at| u16::from_le_bytes([at[0], at[1]]))
                .collect(),
        };
        let body = self
            .seal
            .open_in_place(nonce(serial), Aad::from(head), body)
            .ok()?;
        Some((header, body))
    }
}

/// Returns the nonce of a datagram. Serials only grow and the key belongs to one source, so none is
/// used twice.
fn nonce(serial: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&serial.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Combines `over` into `under` by exclusive or, up to the shorter length.
pub(super) fn xor_into(under: &mut [u8], over: &[u8]) {
    for (under, over) in under.iter_mut().zip(over) {
        *under ^= over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec() -> Codec {
        Codec::new(&Keys::draw().unwrap()).unwrap()
    }

    fn header(pieces: &[u16]) -> Header {
        Header {
            serial: 0x0102_0304_0506_0708,
            block: 0xa1a2_a3a4,
            len: 1000,
            pieces: pieces.to_vec(),
        }
    }

    #[test]
    fn datagram_survives_a_round_trip() {
        let message: Vec<u8> = (0..1000_u32).map(|it| it.to_le_bytes()[0]).collect();
        let codec = codec();
        for (pieces, body) in [
            (&[1][..], message[300..600].to_vec()),
            (&[3], message[900..].to_vec()),
            (&[], vec![0; 300]),
        ] {
            let mut out = vec![0xa5; 3];
            codec.write(&mut out, &header(pieces), &message, 300);
            assert_eq!(out.len(), 3 + OVERHEAD_LEN + body.len());
            let (read, got) = codec.read(&mut out[3..]).unwrap();
            assert_eq!((read, got), (header(pieces), &body[..]));
        }
        let mut out = Vec::new();
        codec.write(&mut out, &header(&[0, 2, 3]), &message, 300);
        let (_, body) = codec.read(&mut out).unwrap();
        let mut body = body.to_vec();
        xor_into(&mut body, &message[..300]);
        xor_into(&mut body, &message[900..]);
        assert!(body == message[600..900]);
    }

    #[test]
    fn datagrams_of_other_sources_are_rejected() {
        let (codec, other) = (codec(), codec());
        let message = vec![7; 1000];
        let written = |codec: &Codec| {
            let mut out = Vec::new();
            codec.write(&mut out, &header(&[0]), &message, 300);
            out
        };
        assert!(codec.read(&mut written(&other)).is_none());
        assert!(codec.read(&mut written(&codec)[..HEADER_LEN - 1]).is_none());
        assert!(codec.read(&mut []).is_none());
        assert!(codec.read(&mut written(&codec)).is_some());
    }

    #[test]
    fn datagram_with_a_flipped_bit_is_rejected() {
        let codec = codec();
        let mut out = Vec::new();
        codec.write(&mut out, &header(&[1, 2]), &[7; 1000], 300);
        for bit in (0..out.len() * 8).step_by(5) {
            let mut turned = out.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            assert!(codec.read(&mut turned).is_none(), "bit {bit}");
        }
        assert!(codec.read(&mut out).is_some());
    }
}
