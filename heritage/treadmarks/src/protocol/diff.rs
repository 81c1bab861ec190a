// SPDX-License-Identifier: MIT OR Apache-2.0
//! Diffs: the bytes of a page that differ from its twin.
//!
//! A diff is a sequence of runs: offset and length − 1 (16 bits each, little-endian), then the
//! bytes. It contains only bytes that differ, because another process may have changed the bytes
//! between them.

use super::wire::Malformed;

const HEAD_LEN: usize = 4;
/// Bytes that are compared at once.
const STEP: usize = 8;
/// Longest page: the offset of its last byte has 16 bits.
pub(crate) const PAGE_LEN_MAX: usize = 1 << 16;

/// Returns the diff from `twin` to `page`, which have the same length.
pub(crate) fn make(twin: &[u8], page: &[u8]) -> Vec<u8> {
    assert!(twin.len() == page.len() && page.len() <= PAGE_LEN_MAX);
    let mut diff = Vec::new();
    let mut at = 0;
    while let Some(start) = next(twin, page, at, false) {
        let end = next(twin, page, start, true).unwrap_or(page.len());
        put_u16(&mut diff, start);
        put_u16(&mut diff, end - start - 1);
        diff.extend_from_slice(&page[start..end]);
        at = end;
    }
    diff
}

/// Returns the position from `at` of the first byte that is equal, or that differs.
fn next(twin: &[u8], page: &[u8], mut at: usize, equal: bool) -> Option<usize> {
    while at < page.len() {
        if !equal && at.is_multiple_of(STEP) {
            // Skips whole words that are equal.
            let pairs = twin[at..]
                .chunks_exact(STEP)
                .zip(page[at..].chunks_exact(STEP));
            at += STEP * pairs.take_while(|(old, new)| old == new).count();
            if at >= page.len() {
                return None;
            }
        }
        if (twin[at] == page[at]) == equal {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[allow(clippy::cast_possible_truncation, reason = "pages have at most 64 KiB")]
fn put_u16(diff: &mut Vec<u8>, value: usize) {
    diff.extend_from_slice(&(value as u16).to_le_bytes());
}

/// Writes the bytes of a diff to `page`.
///
/// # Errors
/// [`Malformed`], for a diff that exceeds the page. Nothing is written beyond it.
pub(crate) fn apply(mut diff: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    while !diff.is_empty() {
        let (head, rest) = diff.split_at_checked(HEAD_LEN).ok_or(Malformed::Short)?;
        let start = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let len = usize::from(u16::from_le_bytes([head[2], head[3]])) + 1;
        let (bytes, rest) = rest.split_at_checked(len).ok_or(Malformed::Short)?;
        let target = page.get_mut(start..start + len);
        target.ok_or(Malformed::Range)?.copy_from_slice(bytes);
        diff = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn diff_contains_exactly_the_changed_bytes() {
        let twin = [0xa5_u8; 64];
        let mut page = twin;
        page[3] = 1;
        page[4] = 2;
        page[6] = 3;
        page[63] = 4;
        let diff = make(&twin, &page);
        assert_eq!(diff, [3, 0, 1, 0, 1, 2, 6, 0, 0, 0, 3, 63, 0, 0, 0, 4]);
        let mut other = [0_u8; 64];
        apply(&diff, &mut other).unwrap();
        assert_eq!((other[3], other[4], other[5], other[6]), (1, 2, 0, 3));
    }

    #[test]
    fn random_diffs_restore_the_page() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        for _ in 0..2000 {
            let len = 8 * random.random_range(1..64);
            let twin: Vec<u8> = (0..len).map(|_| random.random()).collect();
            let mut page = twin.clone();
            for _ in 0..random.random_range(0..40) {
                page[random.random_range(0..len)] = random.random();
            }
            let mut restored = twin.clone();
            apply(&make(&twin, &page), &mut restored).unwrap();
            assert_eq!(restored, page);
        }
    }

    #[test]
    fn longest_page_fits() {
        let diff = make(&[0; PAGE_LEN_MAX], &[1; PAGE_LEN_MAX]);
        let mut page = vec![0; PAGE_LEN_MAX];
        apply(&diff, &mut page).unwrap();
        assert!(page.iter().all(|&byte| byte == 1));
    }

    #[test]
    fn invalid_diffs_are_refused() {
        let mut page = [0; 16];
        for diff in [
            &[1, 0, 0][..],
            &[1, 0, 1, 0, 7],
            &[15, 0, 1, 0, 7, 7],
            &[255, 255, 0, 0, 7],
        ] {
            assert!(apply(diff, &mut page).is_err(), "{diff:?}");
        }
    }
}
