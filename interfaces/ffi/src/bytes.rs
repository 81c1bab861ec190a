// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that C programs name by address and length.

use std::slice;

/// Why a piece of memory cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It has bytes, and no address.
    Null,
    /// It is longer than memory can be.
    TooLong,
}

/// The `len` bytes at `at`, which may be null when there are none.
///
/// # Errors
/// [`Unusable`].
///
/// # Safety
/// The bytes are there, and stay as they are while the slice is used.
#[inline]
pub unsafe fn bytes<'a>(at: *const u8, len: usize) -> Result<&'a [u8], Unusable> {
    check(at, len)?;
    match len {
        0 => Ok(&[]),
        // SAFETY: not null, not too long; the rest is the caller's promise.
        _ => Ok(unsafe { slice::from_raw_parts(at, len) }),
    }
}

/// The same for writing.
///
/// # Errors
/// [`Unusable`].
///
/// # Safety
/// The bytes are there, and nobody else uses them while the slice is used.
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
    fn no_bytes_need_no_address() {
        // SAFETY: there are no bytes.
        let none = unsafe { (bytes(ptr::null(), 0), bytes_mut(ptr::null_mut(), 0)) };
        assert_eq!(
            (none.0, none.1.map(|bytes| bytes.len())),
            (Ok(&[][..]), Ok(0))
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut own = [1_u8, 2];
        // SAFETY: refused before they are touched, or there.
        unsafe {
            assert_eq!(bytes(ptr::null(), 1), Err(Unusable::Null));
            assert_eq!(bytes(own.as_ptr(), usize::MAX), Err(Unusable::TooLong));
            assert_eq!(bytes_mut(ptr::null_mut(), 1), Err(Unusable::Null));
            assert_eq!(bytes_mut(own.as_mut_ptr(), 2), Ok(&mut [1, 2][..]));
        }
    }
}
