// SPDX-License-Identifier: MIT OR Apache-2.0
//! Position in the buffers of one call.
#![allow(unsafe_code)]

use libc::{c_void, iovec};

/// Maximum number of buffers in one system call of this library. A stream may transfer less than
/// requested.
const WINDOW: usize = 64;

/// An empty buffer.
const EMPTY: iovec = iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Position in the buffers of a call.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    vectors: *const iovec,
    count: usize,
    /// Bytes of the first buffer that have been used.
    used: usize,
    remaining: usize,
}

/// The next buffers, for one system call.
pub(crate) struct Window {
    vectors: [iovec; WINDOW],
    count: usize,
}

impl Window {
    /// Returns a message header for these buffers, which must outlive it.
    pub(crate) fn header(&mut self) -> libc::msghdr {
        // SAFETY: zero is a valid value of all fields: null pointers and lengths of 0.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = self.vectors.as_mut_ptr();
        header.msg_iovlen = self.count as _;
        header
    }
}

impl Cursor {
    /// Creates a cursor for `count` buffers of the program, which must outlive it.
    ///
    /// Returns `None` for invalid arguments, which the kernel refuses.
    pub(crate) fn new(vectors: *const iovec, count: usize) -> Option<Cursor> {
        if count > 1024 || (vectors.is_null() && count > 0) {
            return None;
        }
        let mut remaining = 0_usize;
        for index in 0..count {
            // SAFETY: the program passes `count` valid buffers.
            let len = unsafe { (*vectors.add(index)).iov_len };
            remaining = remaining.checked_add(len)?;
        }
        isize::try_from(remaining).ok()?;
        Some(Cursor {
            vectors,
            count,
            used: 0,
            remaining,
        })
    }

    /// Returns the number of bytes that have not been used.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining
    }

    /// Calls `each` with pointer and length of the next pieces, `len` bytes in total, and moves
    /// past them.
    pub(crate) fn take(&mut self, len: usize, mut each: impl FnMut(*mut u8, usize)) {
        let mut left = len.min(self.remaining);
        self.remaining -= left;
        while left > 0 {
            // SAFETY: `remaining` was larger than 0, so a buffer is left.
            let vector = unsafe { *self.vectors };
            let piece = left.min(vector.iov_len - self.used);
            if piece > 0 {
                // SAFETY: the piece is inside the buffer.
                each(
                    unsafe { vector.iov_base.cast::<u8>().add(self.used) },
                    piece,
                );
            }
            self.used += piece;
            left -= piece;
            if self.used == vector.iov_len {
                // SAFETY: `count` is at least 1; the result is at most one past the end.
                self.vectors = unsafe { self.vectors.add(1) };
                self.count -= 1;
                self.used = 0;
            }
        }
    }

    /// Returns the next buffers, at most `most` bytes.
    pub(crate) fn window(&self, most: usize) -> Window {
        let mut window = Window {
            vectors: [EMPTY; WINDOW],
            count: 0,
        };
        let (mut ahead, mut left) = (*self, most.min(self.remaining));
        while left > 0 && window.count < WINDOW {
            // SAFETY: bytes remain, so a buffer is left.
            let len = unsafe { (*ahead.vectors).iov_len } - ahead.used;
            let piece = left.min(len);
            ahead.take(piece, |start, len| {
                window.vectors[window.count] = iovec {
                    iov_base: start.cast::<c_void>(),
                    iov_len: len,
                };
                window.count += 1;
            });
            if piece == 0 {
                // SAFETY: as above; an empty buffer is skipped.
                ahead.vectors = unsafe { ahead.vectors.add(1) };
                ahead.count -= 1;
                ahead.used = 0;
            }
            left -= piece;
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(bytes: &mut [u8]) -> iovec {
        iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        }
    }

    #[test]
    fn pieces_cross_buffers_and_skip_empty_ones() {
        let (mut first, mut second) = (*b"abc", *b"defgh");
        let vectors = [vector(&mut first), EMPTY, vector(&mut second)];
        let mut cursor = Cursor::new(vectors.as_ptr(), 3).unwrap();
        assert_eq!(cursor.remaining(), 8);
        let mut lens = Vec::new();
        cursor.take(2, |_, len| lens.push(len));
        cursor.take(3, |_, len| lens.push(len));
        assert_eq!(
            (lens.as_slice(), cursor.remaining()),
            ([2, 1, 2].as_slice(), 3)
        );
        let window = cursor.window(usize::MAX);
        assert_eq!((window.count, window.vectors[0].iov_len), (1, 3));
        let bounded = Cursor::new(vectors.as_ptr(), 3).unwrap().window(4);
        assert_eq!((bounded.count, bounded.vectors[1].iov_len), (2, 1));
    }

    #[test]
    fn lengths_beyond_the_address_space_are_left_to_the_kernel() {
        let vectors = [iovec {
            iov_base: std::ptr::dangling_mut(),
            iov_len: usize::MAX,
        }; 2];
        assert!(Cursor::new(vectors.as_ptr(), 2).is_none());
    }
}
