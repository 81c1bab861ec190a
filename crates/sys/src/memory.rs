// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory whose length a program, or a peer, has chosen: where there is not so much, that is told,
//! and nobody is aborted.
#![allow(unsafe_code, reason = "zeroed memory that may be refused")]

use crate::lack::Lack;
use std::alloc::{Layout, alloc_zeroed};

/// A vector of `len` zero bytes, whose pages are not touched yet.
///
/// # Errors
/// There is not so much memory.
pub fn zeroed(len: usize) -> Result<Vec<u8>, Lack> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(len).map_err(|_| Lack::memory())?;
    // SAFETY: the layout has a length, which is not 0.
    let bytes = unsafe { alloc_zeroed(layout) };
    if bytes.is_null() {
        return Err(Lack::memory());
    }
    // SAFETY: just allocated by the global allocator with the layout of `len` bytes, all of them
    // initialised; nobody else has it.
    Ok(unsafe { Vec::from_raw_parts(bytes, len, len) })
}

/// The pieces, one behind another.
///
/// # Errors
/// There is not so much memory.
pub fn gathered(pieces: &[&[u8]]) -> Result<Vec<u8>, Lack> {
    let len = pieces.iter().map(|piece| piece.len()).sum();
    let mut whole = Vec::new();
    whole.try_reserve_exact(len).map_err(|_| Lack::memory())?;
    pieces
        .iter()
        .for_each(|piece| whole.extend_from_slice(piece));
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_zero_and_what_there_is_not_is_refused() {
        for len in [0, 1, 100_000] {
            assert_eq!(zeroed(len).unwrap(), vec![0; len]);
        }
        assert!(zeroed(usize::MAX).is_err());
        assert!(zeroed(usize::MAX / 2 - 7).is_err());
        assert_eq!(gathered(&[b"ab", b"", b"c"]).unwrap(), b"abc");
    }
}
