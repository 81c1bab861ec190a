// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages with unique contents, in which any lost, moved or mixed up byte is detected.

/// Mixes the bits of a word (the finalizer of SplitMix64, Steele et al. 2014).
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns a message of `len` bytes that is unique to (`from`, `kind`, `index`).
pub(crate) fn payload(from: u32, kind: u32, index: u32, len: usize) -> Vec<u8> {
    let seed = mix(u64::from(from) << 32 | u64::from(kind)) ^ mix(u64::from(index) + 1);
    let mut bytes = vec![0; len];
    for (at, chunk) in (0_u64..).zip(bytes.chunks_mut(8)) {
        let word = mix(seed.wrapping_add(at)).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    bytes
}

/// Asserts that `got` is the message of (`from`, `kind`, `index`) with `len` bytes.
pub(crate) fn check(got: &[u8], from: u32, kind: u32, index: u32, len: usize) {
    let name = format!("message {index} of kind {kind} from rank {from}");
    assert_eq!(got.len(), len, "length of {name}");
    let wanted = payload(from, kind, index, len);
    if let Some(at) = got
        .iter()
        .zip(&wanted)
        .position(|(got, wanted)| got != wanted)
    {
        panic!("{name} differs from byte {at} of {len} on");
    }
}

/// Returns the length of message `index`: mostly short, some in fragments, few by rendezvous. All
/// callers get the same length.
pub(crate) fn mixed_len(index: u32) -> usize {
    let word = mix(u64::from(index) + 77);
    let most = match word % 16 {
        0..9 => 64,
        9..13 => 2_000,
        13..15 => 30_000,
        _ => 120_000,
    };
    usize::try_from((word >> 8) % most).unwrap()
}
