// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing: into the ring while the reader permits it, otherwise through the kernel.

use crate::conn::{self, ConnRef, Ends, add};
use crate::cursor::Cursor;
use crate::segment::Half;
use crate::stats::Why;
use crate::{errno, join, process, ready, real};
use libc::{c_int, iovec};
use std::sync::atomic::{AtomicU32, Ordering};

/// Flags that have no meaning for bytes in the ring.
const KNOWN: c_int = libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_MORE
    | libc::MSG_DONTROUTE
    | libc::MSG_CONFIRM
    | libc::MSG_EOR;

/// A sending call of the program.
pub(crate) struct Call {
    pub(crate) fd: i32,
    pub(crate) vectors: *const iovec,
    pub(crate) count: usize,
    pub(crate) flags: c_int,
    /// Set if the call has no control messages or address.
    pub(crate) is_plain: bool,
}

/// Sends; `kernel` is the program's own call.
pub(crate) fn send(call: &Call, mut kernel: impl FnMut() -> isize) -> isize {
    let Some(conn) = conn::of(call.fd) else {
        return kernel();
    };
    join::count(&conn, call.fd);
    if let Some(_plain) = conn.enter_plain(false) {
        if call.flags & libc::MSG_OOB != 0 {
            conn.stay_on_kernel(Why::OutOfBand);
        }
        return kernel();
    }
    let (Some(ends), Some(cursor)) = (conn.joined(), Cursor::new(call.vectors, call.count)) else {
        return kernel();
    };
    if call.flags & libc::MSG_OOB != 0 {
        conn.stay_on_kernel(Why::OutOfBand);
    }
    let use_ring = call.is_plain && call.flags & !KNOWN == 0 && cursor.remaining() > 0;
    let mut writer = Writer {
        conn: &conn,
        ends,
        call,
        cursor,
    };
    writer.run(use_ring, &mut kernel)
}

/// Sends by a system call without a ring equivalent, such as `sendfile`.
pub(crate) fn by_kernel(fd: i32, mut kernel: impl FnMut() -> isize) -> isize {
    let none = Call {
        fd,
        vectors: std::ptr::null(),
        count: 0,
        flags: 0,
        is_plain: false,
    };
    send(&none, &mut kernel)
}

/// State of one call.
///
/// A kernel segment also acknowledges received bytes; bytes in the ring do not. If the peer's kernel
/// delays short segments, the acknowledgement is sent separately.
struct Writer<'a> {
    conn: &'a ConnRef,
    ends: Ends,
    call: &'a Call,
    cursor: Cursor,
}

impl Writer<'_> {
    fn run(&mut self, use_ring: bool, kernel: &mut dyn FnMut() -> isize) -> isize {
        let ends = self.ends;
        let half = ends.outgoing();
        let lock = &half.writer().lock;
        if lock.lock().is_err() {
            return errno::fail(libc::EINTR);
        }
        let put = if use_ring { self.put_ring(half) } else { 0 };
        add(&self.conn.counts.ring_out, put);
        let incoming = ends.incoming();
        let received = incoming.reader().received.load(Ordering::Relaxed);
        let acknowledges = self.conn.acknowledges(received);
        if put > 0 && self.cursor.remaining() == 0 {
            lock.unlock();
            if acknowledges && incoming.writer().delays.load(Ordering::Relaxed) == 1 {
                join::acknowledge(self.call.fd);
            }
            return put.cast_signed();
        }
        half.close();
        half.writer().in_kernel.fetch_add(1, Ordering::SeqCst);
        let inside = InKernel(&half.writer().in_kernel);
        lock.unlock();
        let result = if put == 0 { kernel() } else { self.rest() };
        let error = errno::last();
        let sent = usize::try_from(result).unwrap_or(0);
        half.writer()
            .kernel_sent
            .fetch_add(sent as u64, Ordering::SeqCst);
        drop(inside);
        add(&self.conn.counts.kernel_out, sent);
        errno::set(error);
        if put > 0 {
            return (put + sent).cast_signed();
        }
        result
    }

    /// Sends the bytes for which the ring had no room.
    fn rest(&mut self) -> isize {
        let mut total = 0_usize;
        loop {
            let mut window = self.cursor.window(usize::MAX);
            let sent = real::sendmsg(self.call.fd, &window.header(), self.call.flags);
            let Ok(len) = usize::try_from(sent) else {
                return if total == 0 {
                    sent
                } else {
                    total.cast_signed()
                };
            };
            total += len;
            self.cursor.take(len, |_, _| {});
            // A blocking call sends everything; one that does not block ends with EAGAIN.
            if self.cursor.remaining() == 0 || len == 0 {
                return total.cast_signed();
            }
        }
    }

    /// Puts bytes into the ring. Returns their number; 0 if the kernel must be used.
    fn put_ring(&mut self, half: Half<'_>) -> usize {
        let writer = half.writer();
        let word = half.word();
        let may = !word.is_kernel()
            && writer.in_kernel.load(Ordering::SeqCst) == 0
            && writer.shut.load(Ordering::Relaxed) == 0
            && self.conn.is_sole_user()
            && self.reader_is_alive(half);
        if !may {
            return 0;
        }
        writer.set_owner(process::number(), self.call.fd);
        half.put(word, &mut self.cursor).unwrap_or(0)
    }

    /// Returns false if the reader may have died: it has not read since the last put, and the
    /// kernel's connection has ended.
    fn reader_is_alive(&self, half: Half<'_>) -> bool {
        let head = half.head();
        let seen = half.writer().head_seen.swap(head, Ordering::Relaxed);
        head != seen || half.len() == 0 || !ready::has_ended(self.call.fd)
    }
}

/// Guard of a thread in the kernel's send call.
struct InKernel<'a>(&'a AtomicU32);

impl Drop for InKernel<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
