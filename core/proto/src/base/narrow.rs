// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion to narrower integers of values that this side guarantees to fit. Values from the
//! network are checked, counted and dropped instead.

/// Converts `value` to a narrower type.
///
/// # Panics
/// Panics if it does not fit: an internal invariant is broken, and a wrong number must not be sent.
#[inline]
#[track_caller]
pub(crate) fn narrow<W, N: TryFrom<W>>(value: W) -> N {
    match N::try_from(value) {
        Ok(narrow) => narrow,
        Err(_) => out_of_range(),
    }
}

#[cold]
#[track_caller]
fn out_of_range() -> ! {
    panic!("a value exceeds the range of its field")
}
