// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading: from the ring, or from the kernel up to the byte at which the ring continues.

use crate::conn::{self, ConnRef, Ends, add};
use crate::cursor::Cursor;
use crate::segment::Half;
use crate::{epoll, errno, join, ready, real, settings};
use libc::{c_int, iovec};
use std::sync::atomic::Ordering;

/// Flags that this module implements for the ring's bytes.
const KNOWN: c_int = libc::MSG_PEEK
    | libc::MSG_WAITALL
    | libc::MSG_DONTWAIT
    | libc::MSG_TRUNC
    | libc::MSG_NOSIGNAL
    | libc::MSG_CMSG_CLOEXEC;

/// Kernel bytes of one call from which on a stream is expected to continue.
const STREAM: usize = 16 * 1024;

/// A receiving call of the program.
pub(crate) struct Call {
    pub(crate) fd: i32,
    pub(crate) vectors: *const iovec,
    pub(crate) count: usize,
    pub(crate) flags: c_int,
}

/// Result of a call.
pub(crate) enum Received {
    /// The call is complete, with a system call's result.
    Done(isize),
    /// The call received these bytes from the ring: the kernel has set no other results.
    FromRing(isize),
}

impl Received {
    /// Returns the result of the call.
    pub(crate) fn result(self) -> isize {
        match self {
            Received::Done(result) | Received::FromRing(result) => result,
        }
    }
}

/// Result of one attempt.
enum Step {
    Got(isize),
    /// The kernel's connection is next, with any number of bytes.
    Kernel,
    /// Bytes that were sent by the kernel have not arrived yet.
    InFlight,
    Interrupted,
}

/// Receives; `kernel` is the program's own call.
pub(crate) fn receive(call: &Call, mut kernel: impl FnMut() -> isize) -> Received {
    let Some(conn) = conn::of(call.fd) else {
        return Received::Done(kernel());
    };
    join::count(&conn, call.fd);
    if let Some(_plain) = conn.enter_plain(true) {
        return Received::Done(kernel());
    }
    let (Some(ends), Some(cursor)) = (conn.joined(), Cursor::new(call.vectors, call.count)) else {
        return Received::Done(kernel());
    };
    if call.flags & !KNOWN != 0 || cursor.remaining() == 0 {
        // Error queue and out-of-band data do not consume the stream.
        return Received::Done(kernel());
    }
    Reader {
        conn: &conn,
        ends,
        call,
        cursor,
        total: 0,
    }
    .run(&mut kernel)
}

/// Source of the next byte.
enum Source {
    /// The kernel, with any number of bytes while the direction is armed or closed.
    Kernel,
    /// The kernel, with this many bytes before those in the ring.
    KernelUntil(usize),
    Ring,
}

impl Source {
    /// Returns the source for a reader that holds the lock.
    fn of(half: Half<'_>) -> Source {
        // Read before the word: later kernel bytes may follow bytes of the ring.
        let sent = half.writer().kernel_sent.load(Ordering::SeqCst);
        let word = half.word();
        let is_empty = half.len_at(word) == 0;
        let until = if is_empty { sent } else { half.mark() };
        let before_ring = until.wrapping_sub(half.reader().received.load(Ordering::Relaxed));
        let before_ring = usize::try_from(before_ring.cast_signed()).unwrap_or(0);
        if is_empty && (word.is_kernel() || before_ring == 0) {
            return Source::Kernel;
        }
        if before_ring > 0 {
            return Source::KernelUntil(before_ring);
        }
        Source::Ring
    }
}

/// `splice` from a connection into a pipe: `kernel` is the program's own call.
pub(crate) fn splice(
    fd: i32,
    out: i32,
    len: usize,
    flags: u32,
    mut kernel: impl FnMut() -> isize,
) -> isize {
    let Some(conn) = conn::of(fd) else {
        return kernel();
    };
    join::count(&conn, fd);
    if let Some(_plain) = conn.enter_plain(true) {
        return kernel();
    }
    let Some(ends) = conn.joined() else {
        return kernel();
    };
    let half = ends.incoming();
    let moved = loop {
        if half.reader().lock.lock().is_err() {
            return errno::fail(libc::EINTR);
        }
        let source = Source::of(half);
        let stay = InKernel::enter_locked(half);
        half.reader().lock.unlock();
        let moved = match source {
            Source::Ring => {
                drop(stay);
                match ring_to_pipe(&conn, half, out, len, flags) {
                    // The writer returned the bytes to the kernel.
                    Some(0) => continue,
                    Some(moved) => return moved,
                    None => return -1,
                }
            }
            Source::Kernel => kernel(),
            Source::KernelUntil(most) => {
                let none = std::ptr::null_mut();
                real::splice(fd, none, out, none, len.min(most), flags)
            }
        };
        // A writer that ended its direction may have put bytes back into the ring.
        if moved != 0 || len == 0 || half.len() == 0 {
            break moved;
        }
    };
    let received = usize::try_from(moved).unwrap_or(0);
    half.reader()
        .received
        .fetch_add(received as u64, Ordering::AcqRel);
    add(&conn.counts.kernel_in, received);
    moved
}

/// Moves bytes of the ring into a pipe while it has room. Returns 0 if the ring is empty, and
/// `None` after an error.
fn ring_to_pipe(conn: &ConnRef, half: Half<'_>, out: i32, len: usize, flags: u32) -> Option<isize> {
    /// Bytes that a pipe takes without blocking once it is writable.
    const PIECE: usize = libc::PIPE_BUF;
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && ready::is_blocking(out);
    if !ready::wait_writable(out, waits) {
        return None;
    }
    if half.reader().lock.lock().is_err() {
        errno::set(libc::EINTR);
        return None;
    }
    let was_empty = half.len() == 0;
    let mut moved = 0;
    while moved < len && half.len() > 0 && (moved == 0 || ready::wait_writable(out, false)) {
        let (start, piece) = half.first_piece(PIECE.min(len - moved));
        let Ok(written) = usize::try_from(real::write(out, start.cast(), piece)) else {
            break;
        };
        half.skip(written);
        moved += written;
    }
    half.reader().lock.unlock();
    add(&conn.counts.ring_in, moved);
    (was_empty || moved > 0).then_some(moved.cast_signed())
}

/// State of one call.
struct Reader<'a> {
    conn: &'a ConnRef,
    ends: Ends,
    call: &'a Call,
    cursor: Cursor,
    total: usize,
}

impl Reader<'_> {
    fn run(&mut self, kernel: &mut dyn FnMut() -> isize) -> Received {
        let mut may_spin = settings::spin_ns() > 0 && self.total == 0;
        loop {
            match self.step() {
                Step::Got(len) if len <= 0 => return Received::FromRing(self.sum_or(len)),
                Step::Got(len) => {
                    self.total += len.unsigned_abs();
                    if !self.wants_more() && !self.has_more() {
                        return Received::FromRing(self.sum());
                    }
                }
                Step::Kernel if may_spin && self.is_blocking() => {
                    may_spin = false;
                    ready::spin(&self.ends);
                }
                Step::Kernel => {
                    let Some(result) = self.take_kernel(kernel) else {
                        continue;
                    };
                    if self.total == 0 {
                        return Received::Done(result);
                    }
                    return Received::FromRing(self.sum_or(result));
                }
                Step::InFlight if self.total > 0 || !self.is_blocking() => {
                    return Received::FromRing(self.sum_or(errno::fail(libc::EAGAIN)));
                }
                Step::InFlight => {
                    if !ready::wait_readable(self.call.fd) {
                        return Received::FromRing(self.sum_or(-1));
                    }
                }
                Step::Interrupted => return Received::Done(errno::fail(libc::EINTR)),
            }
        }
    }

    fn sum(&self) -> isize {
        isize::try_from(self.total).unwrap_or(isize::MAX)
    }

    /// Returns the bytes received so far, or `last` if there are none.
    fn sum_or(&self, last: isize) -> isize {
        match (self.total, last) {
            (0, last) => last,
            (_, last) => self.sum() + last.max(0),
        }
    }

    fn has(&self, flag: c_int) -> bool {
        self.call.flags & flag != 0
    }

    fn is_blocking(&self) -> bool {
        !self.has(libc::MSG_DONTWAIT) && ready::is_blocking(self.call.fd)
    }

    /// Returns true if the call waits for all of its bytes.
    fn wants_more(&self) -> bool {
        self.cursor.remaining() > 0
            && self.has(libc::MSG_WAITALL)
            && !self.has(libc::MSG_PEEK)
            && self.is_blocking()
    }

    /// Returns true if more bytes are available for a call that has room. After a short result, a
    /// program may wait for the next edge of `epoll`, which would never occur.
    fn has_more(&self) -> bool {
        if self.cursor.remaining() == 0 || self.has(libc::MSG_PEEK) {
            return false;
        }
        let ends = self.ends;
        let half = ends.incoming();
        let writer = half.writer();
        // Read in this order: a writer counts its bytes before it leaves the kernel.
        let is_sending = writer.in_kernel.load(Ordering::SeqCst) > 0;
        let sent = writer.kernel_sent.load(Ordering::SeqCst);
        is_sending || half.len() > 0 || sent != half.reader().received.load(Ordering::Relaxed)
    }

    /// Takes available bytes from the current source.
    fn step(&mut self) -> Step {
        let ends = self.ends;
        let half = ends.incoming();
        if half.reader().lock.lock().is_err() {
            return Step::Interrupted;
        }
        let step = self.step_locked(half);
        half.reader().lock.unlock();
        step
    }

    fn step_locked(&mut self, half: Half<'_>) -> Step {
        match Source::of(half) {
            Source::Kernel => Step::Kernel,
            Source::KernelUntil(most) => self.bounded_kernel(half, most),
            Source::Ring => self.take_ring(half),
        }
    }

    fn take_ring(&mut self, half: Half<'_>) -> Step {
        let len = if self.has(libc::MSG_TRUNC) {
            let len = half.len().min(self.cursor.remaining());
            if !self.has(libc::MSG_PEEK) {
                half.skip(len);
            }
            self.cursor.take(len, |_, _| {});
            len
        } else {
            let peek = self.has(libc::MSG_PEEK);
            half.take(&mut self.cursor, usize::MAX, peek)
        };
        add(&self.conn.counts.ring_in, len);
        self.disarm(half);
        Step::Got(len.cast_signed())
    }

    /// Reads from the kernel no further than the ring's first byte.
    fn bounded_kernel(&mut self, half: Half<'_>, most: usize) -> Step {
        let mut window = self.cursor.window(most);
        let flags = (self.call.flags & !libc::MSG_WAITALL) | libc::MSG_DONTWAIT;
        let got = real::recvmsg(self.call.fd, &mut window.header(), flags);
        if got < 0 && errno::last() == libc::EAGAIN {
            return Step::InFlight;
        }
        if let Ok(len) = usize::try_from(got) {
            self.count_kernel(half, len);
            self.cursor.take(len, |_, _| {});
            self.disarm(half);
        }
        Step::Got(got)
    }

    fn count_kernel(&self, half: Half<'_>, len: usize) {
        if !self.has(libc::MSG_PEEK) {
            let received = &half.reader().received;
            received.fetch_add(len as u64, Ordering::AcqRel);
            add(&self.conn.counts.kernel_in, len);
        }
    }

    /// Reads from the kernel while the direction is armed. Returns `None` if the ring got bytes.
    fn take_kernel(&mut self, kernel: &mut dyn FnMut() -> isize) -> Option<isize> {
        let ends = self.ends;
        let half = ends.incoming();
        let stay = InKernel::enter(half)?;
        if half.len() > 0 {
            return None;
        }
        let wanted = self.cursor.remaining();
        let result = if self.total == 0 {
            kernel()
        } else {
            let mut window = self.cursor.window(usize::MAX);
            let wait = if self.wants_more() {
                0
            } else {
                libc::MSG_DONTWAIT
            };
            real::recvmsg(self.call.fd, &mut window.header(), self.call.flags | wait)
        };
        let error = errno::last();
        let is_locked = half.reader().lock.lock().is_ok();
        // A writer that ended its direction may have put bytes back into the ring.
        let is_early = result == 0 && half.len() > 0;
        if let Ok(len) = usize::try_from(result) {
            self.count_kernel(half, len);
        }
        drop(stay);
        if is_locked {
            // A long stream: the writer continues while this end processes the bytes.
            let is_stream = result > 0 && result.unsigned_abs() >= wanted.min(STREAM);
            if is_stream || settings::spin_ns() > 0 {
                self.disarm(half);
            }
            half.reader().lock.unlock();
        }
        errno::set(error);
        if is_early {
            return None;
        }
        if result == 0 && self.peer_lost_bytes() && self.conn.report_reset() {
            return Some(errno::fail(libc::ECONNRESET));
        }
        Some(result)
    }

    /// Returns true if the peer closed with unread bytes in its ring. TCP resets such a connection.
    fn peer_lost_bytes(&self) -> bool {
        let was_shut = self.ends.incoming().writer().shut.load(Ordering::Acquire) != 0;
        !was_shut && self.ends.outgoing().len() > 0
    }

    /// Lets the writer use the ring, if this process expects to read soon. The caller holds the
    /// reader's lock.
    fn disarm(&self, half: Half<'_>) {
        let reader = half.reader();
        let may = half.word().is_kernel()
            && half.len() == 0
            && reader.in_kernel.load(Ordering::SeqCst) == 0
            && half.writer().ready.load(Ordering::Acquire) == 1
            && !self.has(libc::MSG_PEEK)
            && self.conn.is_sole_user();
        if may {
            epoll::with_consent(self.conn, || half.open_ring());
        }
    }
}

/// Guard of a thread in the kernel, which keeps the direction armed.
pub(crate) struct InKernel<'a>(Half<'a>);

impl<'a> InKernel<'a> {
    /// Arms the direction. Returns `None` in a signal handler that interrupted the holder of the
    /// lock.
    pub(crate) fn enter(half: Half<'a>) -> Option<InKernel<'a>> {
        half.reader().lock.lock().ok()?;
        let inside = InKernel::enter_locked(half);
        half.reader().lock.unlock();
        Some(inside)
    }

    /// Arms the direction, for a caller that holds the reader's lock.
    fn enter_locked(half: Half<'a>) -> InKernel<'a> {
        half.reader().in_kernel.fetch_add(1, Ordering::SeqCst);
        half.arm();
        InKernel(half)
    }
}

impl Drop for InKernel<'_> {
    fn drop(&mut self) {
        self.0.reader().in_kernel.fetch_sub(1, Ordering::SeqCst);
    }
}
