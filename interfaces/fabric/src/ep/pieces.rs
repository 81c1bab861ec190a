// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a message, as the application lists it.

use std::ffi::c_void;

use libc::iovec;
use portolan::binding::RawPiece;

use crate::abi::Ioc;
use crate::errno::Errno;
use crate::offer::PIECES_MAX;

/// Maximum length of memory, in bytes.
const LEN_MAX: usize = isize::MAX as usize;

const NOTHING: RawPiece = RawPiece {
    ptr: std::ptr::null_mut(),
    len: 0,
};

/// Up to [`PIECES_MAX`] pieces, stored on the stack.
pub(super) struct Pieces {
    pieces: [RawPiece; PIECES_MAX],
    count: usize,
}

impl Pieces {
    /// Converts a list of buffers.
    ///
    /// # Errors
    /// The list has more pieces than the provider supports.
    ///
    /// # Safety
    /// `iov` has `count` entries.
    unsafe fn of_iov(iov: *const iovec, count: usize) -> Result<Pieces, Errno> {
        let mut all = Pieces::with_count(count)?;
        for at in 0..count {
            // SAFETY: `at` is below the caller's count.
            let entry = unsafe { *iov.add(at) };
            all.pieces[at] = RawPiece {
                ptr: entry.iov_base.cast(),
                len: entry.iov_len,
            };
        }
        all.checked()
    }

    /// Converts a list of arrays whose elements have `element_len` bytes.
    ///
    /// # Errors
    /// As for [`Pieces::of_iov`], or a length overflows.
    ///
    /// # Safety
    /// `ioc` has `count` entries.
    pub(super) unsafe fn of_ioc(
        ioc: *const Ioc,
        count: usize,
        element_len: usize,
    ) -> Result<Pieces, Errno> {
        let mut all = Pieces::with_count(count)?;
        for at in 0..count {
            // SAFETY: `at` is below the caller's count.
            let entry = unsafe { *ioc.add(at) };
            let len = entry.count.checked_mul(element_len).ok_or(Errno::INVAL)?;
            all.pieces[at] = RawPiece {
                ptr: entry.addr.cast(),
                len,
            };
        }
        all.checked()
    }

    /// Returns the pieces, or an error if no memory can be as long as they are together.
    fn checked(self) -> Result<Pieces, Errno> {
        match total_len(self.as_ref()) > LEN_MAX {
            true => Err(Errno::INVAL),
            false => Ok(self),
        }
    }

    fn with_count(count: usize) -> Result<Pieces, Errno> {
        if count > PIECES_MAX {
            return Err(Errno::INVAL);
        }
        Ok(Pieces {
            pieces: [NOTHING; PIECES_MAX],
            count,
        })
    }
}

impl AsRef<[RawPiece]> for Pieces {
    fn as_ref(&self) -> &[RawPiece] {
        &self.pieces[..self.count]
    }
}

/// The memory of a call, as C passes it.
pub(super) trait Memory {
    type Pieces: AsRef<[RawPiece]>;

    /// Converts the memory to pieces.
    ///
    /// # Errors
    /// The list has more pieces than the provider supports.
    ///
    /// # Safety
    /// A list has the length it states.
    unsafe fn pieces(self) -> Result<Self::Pieces, Errno>;
}

/// A buffer and its length.
#[derive(Clone, Copy)]
pub(super) struct Buffer(pub(super) *const c_void, pub(super) usize);

impl Buffer {
    /// Returns the length, in bytes.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.1
    }

    /// Returns the bytes, which a call may read until it returns.
    ///
    /// # Safety
    /// The buffer is readable and has the length it states.
    #[inline]
    pub(super) unsafe fn bytes<'a>(self) -> &'a [u8] {
        let Buffer(buf, len) = self;
        if len == 0 {
            return &[];
        }
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(buf.cast(), len) }
    }
}

impl Memory for Buffer {
    type Pieces = [RawPiece; 1];

    #[inline]
    unsafe fn pieces(self) -> Result<[RawPiece; 1], Errno> {
        let Buffer(buf, len) = self;
        if len > LEN_MAX {
            return Err(Errno::INVAL);
        }
        let ptr = buf.cast_mut().cast();
        Ok([RawPiece { ptr, len }])
    }
}

/// A list of buffers and their count.
#[derive(Clone, Copy)]
pub(super) struct List(pub(super) *const iovec, pub(super) usize);

impl Memory for List {
    type Pieces = Pieces;

    #[inline]
    unsafe fn pieces(self) -> Result<Pieces, Errno> {
        // SAFETY: guaranteed by the caller.
        unsafe { Pieces::of_iov(self.0, self.1) }
    }
}

/// Copies the bytes of the pieces.
///
/// # Safety
/// Each piece is readable.
pub(super) unsafe fn gather(pieces: &[RawPiece]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pieces.iter().map(|piece| piece.len).sum());
    for piece in pieces.iter().filter(|piece| piece.len > 0) {
        // SAFETY: guaranteed by the caller.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.ptr, piece.len) });
    }
    bytes
}

/// Returns the length of all pieces together.
pub(super) fn total_len(pieces: &[RawPiece]) -> usize {
    pieces
        .iter()
        .fold(0, |sum, piece| sum.saturating_add(piece.len))
}
