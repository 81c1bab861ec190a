// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that C programs pass as an address and a length.

use std::slice;

/// Reason why a pair of address and length is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The length is not zero, and the address is null.
    Null,
    /// The length exceeds that of any object.
    TooLong,
}

/// Returns the `len` bytes at `at`, which may be null if `len` is 0.
///
/// # Errors
/// [`Unusable`].
///
/// # Safety
/// The bytes are valid, and do not change while the slice is in use.
#[inline]
pub unsafe fn bytes<'a>(at: *const u8, len: usize) -> Result<&'a [u8], Unusable> {
    check(at, len)?;
    match len {
        0 => Ok(&[]),
        // SAFETY: not null, not too long; the caller guarantees the rest.
        _ => Ok(unsafe { slice::from_raw_parts(at, len) }),
    }
}

/// Like [`bytes`], for writing.
///
/// # Errors
/// [`Unusable`].
///
/// # Safety
/// The bytes are valid, and not accessed in any other way while the slice is in use.
#[inline]
pub unsafe fn bytes_mut<'a>(at: *mut u8, len: usize) -> Result<&'a mut [u8], Unusable> {
    check(at, len)?;
    match len {
        0 => Ok(&mut []),
        // SAFETY: as in `bytes`.
        _ => Ok(unsafe { slice::from_raw_parts_mut(at, len) }),
    }
}

#[inline]
fn check(at: *const u8, len: usize) -> Result<(), Unusable> {
    if len > isize::MAX.unsigned_abs() {
        return Err(Unusable::TooLong);
    }
    match at.is_null() && len > 0 {
        true => Err(Unusable::Null),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn empty_slice_may_have_null_address() {
        // SAFETY: there are no bytes.
        let none = unsafe { (bytes(ptr::null(), 0), bytes_mut(ptr::null_mut(), 0)) };
        assert_eq!(
            (none.0, none.1.map(|bytes| bytes.len())),
            (Ok(&[][..]), Ok(0))
        );
    }

    #[test]
    fn invalid_slices_are_refused() {
        let mut own = [1_u8, 2];
        // SAFETY: refused before any access, or valid.
        unsafe {
            assert_eq!(bytes(ptr::null(), 1), Err(Unusable::Null));
            assert_eq!(bytes(own.as_ptr(), usize::MAX), Err(Unusable::TooLong));
            assert_eq!(bytes_mut(ptr::null_mut(), 1), Err(Unusable::Null));
            assert_eq!(bytes_mut(own.as_mut_ptr(), 2), Ok(&mut [1, 2][..]));
        }
    }
}
