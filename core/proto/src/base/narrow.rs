// SPDX-License-Identifier: MIT OR Apache-2.0
//! Narrower integers for values that fit them by a rule of this side. What comes from a wire is checked,
//! counted and dropped instead.

/// `value` in a narrower type.
///
/// # Panics
/// When it does not fit: a rule of ours is broken, and a wrong number must not leave.
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
    panic!("a value is beyond what its field holds")
}
