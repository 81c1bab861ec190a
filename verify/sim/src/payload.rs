// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads that identify their message: each byte follows from the message's number and its
//! offset.

/// Length in bytes of the number that begins a best-effort message, since no order identifies it.
pub(crate) const NUMBER_LEN: usize = 8;

fn word(id: u64, index: u64) -> [u8; 8] {
    // Mixing of SplitMix64 (Steele, Lea and Flood, 2014): neighbours differ in half of their bits.
    let mut z = id.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// Returns the payload of message `id`; it begins with the number itself if `numbered`.
pub(crate) fn make(id: u64, len: usize, numbered: bool) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (index, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&word(id, index as u64)[..chunk.len()]);
    }
    if numbered {
        bytes[..NUMBER_LEN].copy_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Returns the first offset at which `bytes` differ from the payload of message `id`.
pub(crate) fn first_difference(id: u64, bytes: &[u8], numbered: bool) -> Option<usize> {
    let skip = if numbered { 1 } else { 0 };
    for (index, chunk) in bytes.chunks(8).enumerate().skip(skip) {
        let want = word(id, index as u64);
        if chunk != &want[..chunk.len()] {
            let within = chunk.iter().zip(want).position(|(got, want)| *got != want);
            return Some(index * 8 + within.unwrap_or(0));
        }
    }
    None
}

/// Returns the number at the front of a best-effort message.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(..NUMBER_LEN)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_byte_is_located() {
        for len in [0, 1, 7, 8, 9, 1000] {
            assert_eq!(first_difference(5, &make(5, len, false), false), None);
        }
        let mut bytes = make(6, 100, true);
        assert_eq!(number(&bytes), Some(6));
        assert_eq!(first_difference(6, &bytes, true), None);
        bytes[77] ^= 1;
        assert_eq!(first_difference(6, &bytes, true), Some(77));
        assert!(first_difference(7, &make(6, 100, false), false).is_some());
    }
}
