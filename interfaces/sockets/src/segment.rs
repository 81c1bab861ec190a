// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory of one connection: for each direction a ring, and the state that orders its bytes
//! with those of the kernel's connection.
//!
//! The word of a direction has the number of bytes that were ever put into the ring, and two bits:
//!
//! - `ARMED`, set by the reader: it may sleep in the kernel, so further bytes use the kernel.
//! - `CLOSED`, set by the writer: it sent bytes by the kernel after the ring's.
//!
//! While a bit is set, nothing is put into the ring. Only the reader clears the bits, and only when
//! the ring is empty. So the kernel's bytes come after the ring's while a bit is set. After the
//! bits were cleared, `mark` is the number of kernel bytes before the ring continues.
//!
//! Invariant: the ring's bytes are copied through raw pointers, and lengths are bounded by its
//! size, whatever the other process writes.
#![allow(unsafe_code)]

use crate::cursor::Cursor;
use crate::lock::Lock;
use portolan_sys::memfd;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of one ring. Both rings and their reader's buffers fit into a second-level cache.
pub(crate) const RING: usize = 256 * 1024;

/// Bytes before the rings.
const FRONT: usize = 4096;

/// Bytes of a segment.
const LEN: usize = FRONT + 2 * RING;

/// Version of the layout.
const VERSION: u32 = 0x504f_5304;

/// The reader may sleep in the kernel.
pub(crate) const ARMED: u64 = 1;

/// The writer sent bytes by the kernel after the ring's.
pub(crate) const CLOSED: u64 = 2;

/// Both bits.
pub(crate) const KERNEL: u64 = ARMED | CLOSED;

/// One direction; fields are grouped by the end that writes them.
#[repr(C, align(64))]
pub(crate) struct Direction {
    word: AtomicU64,
    writer: WriterState,
    reader: ReaderState,
}

/// State that the writing end's processes share.
#[repr(C, align(64))]
pub(crate) struct WriterState {
    pub(crate) lock: Lock,
    /// Threads inside the kernel's send call.
    pub(crate) in_kernel: AtomicU32,
    /// Bytes ever sent by the kernel.
    pub(crate) kernel_sent: AtomicU64,
    /// Kernel bytes before the bytes in the ring.
    mark: AtomicU64,
    /// Value of `head` at the last put. A later change proves that the reader is alive.
    pub(crate) head_seen: AtomicU64,
    /// 1 when `kernel_sent` is valid.
    pub(crate) ready: AtomicU32,
    /// 1 after the end's `shutdown` of its sending.
    pub(crate) shut: AtomicU32,
    /// 1 if the end's kernel delays short segments until earlier ones are acknowledged (Nagle).
    pub(crate) delays: AtomicU32,
    /// The kernel's number of the end's socket (`SO_COOKIE`).
    pub(crate) cookie: AtomicU64,
    /// Process of the last put, and its descriptor.
    pid: AtomicU32,
    fd: AtomicU32,
}

impl WriterState {
    /// Stores the process and the descriptor by which the end writes.
    pub(crate) fn set_owner(&self, pid: i32, fd: i32) {
        self.pid.store(pid.unsigned_abs(), Ordering::Relaxed);
        self.fd.store(fd.unsigned_abs(), Ordering::Relaxed);
    }

    /// Returns the process and the descriptor of the last put.
    pub(crate) fn owner(&self) -> (u32, u32) {
        let load = |field: &AtomicU32| field.load(Ordering::Relaxed);
        (load(&self.pid), load(&self.fd))
    }
}

/// State that the reading end's processes share.
#[repr(C, align(64))]
pub(crate) struct ReaderState {
    pub(crate) lock: Lock,
    /// Threads that sleep or read in the kernel.
    pub(crate) in_kernel: AtomicU32,
    /// Bytes ever taken from the kernel.
    pub(crate) received: AtomicU64,
    /// Bytes ever taken from the ring.
    head: AtomicU64,
    /// Thread that returns the ring's bytes to the kernel, or 0. The writer must not shut its
    /// direction meanwhile.
    pub(crate) returning: AtomicU32,
}

#[repr(C, align(4096))]
struct Front {
    version: AtomicU32,
    directions: [Direction; 2],
}

const _: () = assert!(size_of::<Front>() <= FRONT && RING.is_power_of_two());

/// Mapping of a segment.
///
/// It is `Copy`: the connection that owns it unmaps it after its last user.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    base: *mut u8,
}

impl Segment {
    /// Creates a segment with both directions armed.
    ///
    /// # Errors
    /// Memory or descriptors are exhausted.
    pub(crate) fn create() -> io::Result<(Segment, OwnedFd)> {
        let file = memfd::create_sealed("portolan-sockets", LEN as u64)?;
        let segment = Segment::map(file.as_raw_fd())?;
        for direction in &segment.front().directions {
            direction.word.store(ARMED, Ordering::Relaxed);
        }
        segment.front().version.store(VERSION, Ordering::Release);
        Ok((segment, file))
    }

    /// Maps the segment that another process created; `None` if it is not one.
    pub(crate) fn open(file: &OwnedFd) -> Option<Segment> {
        memfd::check(file, LEN as u64).ok()?;
        let segment = Segment::map(file.as_raw_fd()).ok()?;
        if segment.front().version.load(Ordering::Acquire) == VERSION {
            return Some(segment);
        }
        segment.unmap();
        None
    }

    fn map(fd: i32) -> io::Result<Segment> {
        // SAFETY: `fd` is open during this call.
        let _open = unsafe { BorrowedFd::borrow_raw(fd) };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping replaces no memory of this process.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), LEN, access, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Segment { base: base.cast() })
    }

    /// Returns the segment at an address that `address` returned.
    pub(crate) fn from_address(address: *mut u8) -> Segment {
        Segment { base: address }
    }

    /// Returns the address of the mapping.
    pub(crate) fn address(self) -> *mut u8 {
        self.base
    }

    /// Unmaps the segment; no thread uses it now.
    pub(crate) fn unmap(self) {
        // SAFETY: the mapping has this length; the caller is its last user.
        unsafe { libc::munmap(self.base.cast(), LEN) };
    }

    fn front(&self) -> &Front {
        // SAFETY: the mapping is at least this long and aligned to a page. All fields are atomics,
        // for which every value is valid.
        unsafe { &*self.base.cast::<Front>() }
    }

    /// Returns the direction that end `writer` (0 or 1) writes.
    pub(crate) fn half(&self, writer: usize) -> Half<'_> {
        let writer = writer & 1;
        Half {
            direction: &self.front().directions[writer],
            // SAFETY: the rings follow the front, inside the mapping.
            ring: unsafe { self.base.add(FRONT + writer * RING) },
        }
    }
}

/// One direction with its ring.
#[derive(Clone, Copy)]
pub(crate) struct Half<'a> {
    direction: &'a Direction,
    ring: *mut u8,
}

/// State of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// Returns the bytes that were ever put into the ring.
    pub(crate) fn tail(self) -> u64 {
        self.0 >> 2
    }

    /// Returns true if further bytes use the kernel.
    pub(crate) fn is_kernel(self) -> bool {
        self.0 & KERNEL != 0
    }

    /// Returns true if the reader may sleep in the kernel.
    pub(crate) fn is_armed(self) -> bool {
        self.0 & ARMED != 0
    }
}

impl<'a> Half<'a> {
    /// Returns the state of the writing end.
    pub(crate) fn writer(self) -> &'a WriterState {
        &self.direction.writer
    }

    /// Returns the state of the reading end.
    pub(crate) fn reader(self) -> &'a ReaderState {
        &self.direction.reader
    }

    pub(crate) fn word(self) -> Word {
        // SYNC: ring.put
        Word(self.direction.word.load(Ordering::SeqCst))
    }

    /// Returns the bytes that were ever taken from the ring.
    pub(crate) fn head(self) -> u64 {
        // SYNC: ring.take
        self.direction.reader.head.load(Ordering::Acquire)
    }

    /// Returns the number of bytes in the ring.
    pub(crate) fn len(self) -> usize {
        self.len_at(self.word())
    }

    /// Returns the number of bytes in the ring at the time of `word`.
    pub(crate) fn len_at(self, word: Word) -> usize {
        let len = word.tail().wrapping_sub(self.head());
        // Only a corrupt peer exceeds the ring.
        usize::try_from(len).unwrap_or(RING).min(RING)
    }

    /// Returns the number of kernel bytes before the bytes in the ring.
    pub(crate) fn mark(self) -> u64 {
        self.direction.writer.mark.load(Ordering::Acquire)
    }

    /// Arms the direction, for its reader. Returns the new word.
    pub(crate) fn arm(self) -> Word {
        let word = self.word();
        if word.is_armed() {
            return word;
        }
        Word(self.direction.word.fetch_or(ARMED, Ordering::SeqCst) | ARMED)
    }

    /// Closes the ring, for its writer, if no bit is set.
    pub(crate) fn close(self) {
        if !self.word().is_kernel() {
            self.direction.word.fetch_or(CLOSED, Ordering::SeqCst);
        }
    }

    /// Clears both bits, for the reader; only valid while the ring is empty.
    pub(crate) fn open_ring(self) {
        if self.word().is_kernel() {
            self.direction.word.fetch_and(!KERNEL, Ordering::SeqCst);
        }
    }

    /// Puts bytes of `from` into the ring, for the writer that holds the lock and has read `word`.
    /// Closes the ring if some do not fit. Returns their number, or `None` without any if the
    /// reader has armed the direction meanwhile.
    pub(crate) fn put(self, word: Word, from: &mut Cursor) -> Option<usize> {
        let wanted = from.remaining();
        let len = wanted.min(RING - self.len_at(word));
        let mut next = *from;
        let mut at = position(word.tail());
        next.take(len, |start, len| {
            let first = len.min(RING - at);
            // SAFETY: both pieces are inside the ring, in the part that the reader does not read
            // (`len` is at most the free space); `start` has `len` bytes of the program.
            unsafe {
                std::ptr::copy_nonoverlapping(start, self.ring.add(at), first);
                std::ptr::copy_nonoverlapping(start.add(first), self.ring, len - first);
            }
            at = (at + len) & (RING - 1);
        });
        let writer = self.writer();
        let kernel_sent = writer.kernel_sent.load(Ordering::Relaxed);
        if writer.mark.load(Ordering::Relaxed) != kernel_sent {
            writer.mark.store(kernel_sent, Ordering::Release);
        }
        let bit = if len < wanted { CLOSED } else { 0 };
        let after = (word.tail().wrapping_add(len as u64) << 2) | bit;
        // SYNC: ring.put
        let put = self.direction.word.compare_exchange(
            word.0,
            after,
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        put.ok()?;
        *from = next;
        Some(len)
    }

    /// Copies up to `most` bytes from the ring to `into`, for the reader that holds the lock.
    /// Leaves them in the ring if `peek`. Returns their number.
    pub(crate) fn take(self, into: &mut Cursor, most: usize, peek: bool) -> usize {
        let len = most.min(into.remaining()).min(self.len());
        let mut at = position(self.head());
        into.take(len, |start, len| {
            let first = len.min(RING - at);
            // SAFETY: both pieces are inside the ring; `start` has room for `len` bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(self.ring.add(at), start, first);
                std::ptr::copy_nonoverlapping(self.ring, start.add(first), len - first);
            }
            at = (at + len) & (RING - 1);
        });
        if !peek {
            self.skip(len);
        }
        len
    }

    /// Returns address and length of the contiguous bytes at the ring's start, at most `most`.
    pub(crate) fn first_piece(self, most: usize) -> (*const u8, usize) {
        let at = position(self.head());
        let len = self.len().min(most).min(RING - at);
        // SAFETY: the position is inside the ring.
        (unsafe { self.ring.add(at) }, len)
    }

    /// Fills the empty ring with `len` bytes that follow all kernel bytes. The caller holds both
    /// locks. `len` is at most [`RING`].
    pub(crate) fn put_back(self, start: *const u8, len: usize) {
        let len = len.min(RING);
        let head = self.word().tail().wrapping_sub(len as u64);
        let at = position(head);
        let first = len.min(RING - at);
        // SAFETY: both pieces are inside the ring, which is empty; `start` has `len` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(start, self.ring.add(at), first);
            std::ptr::copy_nonoverlapping(start.add(first), self.ring, len - first);
        }
        let kernel_sent = self.writer().kernel_sent.load(Ordering::SeqCst);
        self.writer().mark.store(kernel_sent, Ordering::Release);
        // SYNC: ring.take
        self.direction.reader.head.store(head, Ordering::Release);
    }

    /// Drops the first `len` bytes of the ring.
    pub(crate) fn skip(self, len: usize) {
        let head = self.head().wrapping_add(len as u64);
        // SYNC: ring.take
        self.direction.reader.head.store(head, Ordering::Release);
    }
}

/// Returns the place of a byte in the ring.
fn position(count: u64) -> usize {
    usize::try_from(count & (RING as u64 - 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::iovec;

    struct Bytes(Vec<u8>);

    impl Bytes {
        fn with<R>(&mut self, call: impl FnOnce(&mut Cursor) -> R) -> R {
            let vector = iovec {
                iov_base: self.0.as_mut_ptr().cast(),
                iov_len: self.0.len(),
            };
            call(&mut Cursor::new(&raw const vector, 1).unwrap())
        }
    }

    fn put(half: Half<'_>, bytes: &[u8]) -> Option<usize> {
        Bytes(bytes.to_vec()).with(|cursor| half.put(half.word(), cursor))
    }

    fn take(half: Half<'_>, len: usize, peek: bool) -> Vec<u8> {
        let mut bytes = Bytes(vec![0xa5; len]);
        let got = bytes.with(|cursor| half.take(cursor, len, peek));
        bytes.0.truncate(got);
        bytes.0
    }

    #[test]
    fn new_segment_is_armed_and_refuses_other_files() {
        let (segment, file) = Segment::create().unwrap();
        assert!(segment.half(0).word().is_armed() && segment.half(1).word().is_armed());
        let second = Segment::open(&file).unwrap();
        segment
            .half(1)
            .writer()
            .kernel_sent
            .store(7, Ordering::Relaxed);
        assert_eq!(
            second.half(1).writer().kernel_sent.load(Ordering::Relaxed),
            7
        );
        let other = memfd::create_sealed("other", LEN as u64).unwrap();
        assert!(Segment::open(&other).is_none());
        second.unmap();
        segment.unmap();
    }

    #[test]
    fn bytes_wrap_and_a_put_that_does_not_fit_closes_the_ring() {
        let (segment, _file) = Segment::create().unwrap();
        let half = segment.half(0);
        half.open_ring();
        let bytes: Vec<u8> = (0..=250).cycle().take(RING - 3).collect();
        assert_eq!(put(half, &bytes), Some(bytes.len()));
        assert_eq!(take(half, 10, true), bytes[..10]);
        assert_eq!(take(half, RING, false), bytes);
        assert_eq!(put(half, b"across the end"), Some(14));
        assert_eq!(take(half, 100, false), b"across the end");
        assert!(!half.word().is_kernel());
        assert_eq!(put(half, &vec![1; RING + 1]), Some(RING));
        assert!(half.word().is_kernel() && !half.word().is_armed());
        segment.unmap();
    }

    #[test]
    fn bytes_put_back_are_read_before_and_behind_the_end_of_the_ring() {
        let (segment, _file) = Segment::create().unwrap();
        let half = segment.half(0);
        half.open_ring();
        assert_eq!(put(half, b"abc"), Some(3));
        assert_eq!(take(half, 3, false), b"abc");
        // More than was ever put: the rest begins before the ring's first byte.
        half.writer().kernel_sent.store(9, Ordering::Relaxed);
        half.put_back(b"0123456789".as_ptr(), 10);
        assert_eq!((half.len(), half.mark()), (10, 9));
        assert_eq!(put(half, b"x"), Some(1));
        assert_eq!(take(half, 100, false), b"0123456789x");
        segment.unmap();
    }

    #[test]
    fn put_after_arming_puts_nothing() {
        let (segment, _file) = Segment::create().unwrap();
        let half = segment.half(0);
        half.open_ring();
        let before = half.word();
        half.arm();
        let put = Bytes(vec![1; 3]).with(|cursor| (half.put(before, cursor), cursor.remaining()));
        assert_eq!((put, half.len()), ((None, 3), 0));
        segment.unmap();
    }
}
