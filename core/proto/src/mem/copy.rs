// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of many bytes, fast for any relative alignment.

/// Number of bytes copied by one call of the C library. Above about 2 KiB, glibc uses the
/// processor's string instruction. On an AMD EPYC it is 12 to 20 times slower if the destination
/// begins 1 to 31 bytes after the source, modulo 4 KiB. Pieces of 1 KiB cost nothing in all other
/// cases.
const COPY_PIECE_LEN: usize = 1024;

/// Number of bytes copied without a call: two words, which may overlap.
const COPY_INLINE_LEN: usize = 16;

/// Copies all of `src` into `dst`.
///
/// # Panics
/// Panics if their lengths differ.
#[inline(always)]
pub fn copy(dst: &mut [u8], src: &[u8]) {
    assert!(dst.len() == src.len(), "the lengths of a copy differ");
    if src.len() > COPY_INLINE_LEN || !(copy_ends::<8>(dst, src) || copy_ends::<4>(dst, src)) {
        copy_by_calls(dst, src);
    }
}

/// Copies the first and the last `N` bytes; returns `false` if there are fewer.
#[inline]
fn copy_ends<const N: usize>(dst: &mut [u8], src: &[u8]) -> bool {
    let (Some(first), Some(last)) = (src.first_chunk::<N>(), src.last_chunk::<N>()) else {
        return false;
    };
    if let Some(dst) = dst.first_chunk_mut::<N>() {
        *dst = *first;
    }
    if let Some(dst) = dst.last_chunk_mut::<N>() {
        *dst = *last;
    }
    true
}

fn copy_by_calls(dst: &mut [u8], src: &[u8]) {
    if src.len() <= COPY_PIECE_LEN {
        return dst.copy_from_slice(src);
    }
    let pieces = src.chunks(COPY_PIECE_LEN);
    for (dst, src) in dst.chunks_mut(COPY_PIECE_LEN).zip(pieces) {
        dst.copy_from_slice(src);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn copies_of_any_length_are_complete() {
        for len in (0..=20).chain([1023, 1024, 1025, 5000]) {
            let src: Vec<u8> = (0..=255).cycle().take(len).collect();
            let mut dst = vec![0xa5; len];
            copy(&mut dst, &src);
            assert_eq!(dst, src);
        }
    }
}
