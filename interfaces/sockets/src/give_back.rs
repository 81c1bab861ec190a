// SPDX-License-Identifier: MIT OR Apache-2.0
//! Return of unread ring bytes to the kernel's connection, for a reader that will not have this
//! library, or before the writer ends its direction.
//!
//! Only the writer's socket can put bytes into the reader's. A reader duplicates the socket from
//! the writer's process for the time of the return (`pidfd_getfd(2)`, which needs the permission
//! to trace it). The socket's cookie proves that it is the right one.
//!
//! Kernel bytes behind the ring's are received first, and sent again behind them. Both locks of the
//! direction are held, so neither end sees a stream with a gap. If the return is not possible, the
//! bytes stay in the ring: for example, the writer waits in the kernel for room. Bytes taken from the
//! kernel would make this room, and then no longer fit.
#![allow(unsafe_code)]

use crate::conn::{ConnRef, Ends};
use crate::segment::{Half, RING};
use crate::stats::Why;
use crate::{errno, join, lock, ready, real};
use libc::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes that a return can hold. Memory is only used for bytes that occur.
const ROOM: usize = 1 << 30;

/// Attempts to take a lock, with a yield for most of them. A stopped process may hold it.
const ATTEMPTS: u32 = 20_000;

/// Longest wait for progress, in milliseconds.
const PATIENCE_MS: c_int = 1000;

/// Waits without progress, after which bytes that fit nowhere are given up.
const WAITS: u32 = 10;

/// Pause between two checks of the other end's state.
const PAUSE: Duration = Duration::from_micros(50);

/// Returns the connection to the kernel permanently, with the unread bytes of its ring, because a
/// program without the library may read it.
pub(crate) fn hand_over(conn: &ConnRef, fd: i32, why: Why) {
    conn.stay_on_kernel(why);
    if let Some(ends) = conn.joined() {
        let error = errno::last();
        incoming(ends, fd);
        errno::set(error);
    }
}

/// Returns the unread bytes of the direction that this end writes, before this end sends FIN.
pub(crate) fn outgoing(conn: &ConnRef, fd: i32) {
    let Some(ends) = conn.joined() else {
        return;
    };
    let half = ends.outgoing();
    if half.len() == 0 || !conn.is_sole_user() {
        return;
    }
    let error = errno::last();
    if let Some(_locks) = Locks::of(half) {
        // The bytes would not be in front of those that the kernel already has.
        let is_last = half.mark() == half.writer().kernel_sent.load(Ordering::SeqCst)
            && half.writer().in_kernel.load(Ordering::SeqCst) == 0;
        let mut bytes = is_last.then(Bytes::new).flatten();
        if let Some(bytes) = &mut bytes {
            half.close();
            bytes.add_ring(half);
            // The reader goes on reading the bytes for which the kernel has no room.
            bytes.send(half, fd, false);
        }
    }
    errno::set(error);
}

fn incoming(ends: Ends, fd: i32) {
    let half = ends.incoming();
    if half.len() == 0 {
        return;
    }
    let (Some(socket), Some(_locks)) = (writers_socket(half), Locks::of(half)) else {
        return;
    };
    // No thread can enter the kernel's send call now, and a call for which there is room soon ends.
    if !becomes_true(|| half.writer().in_kernel.load(Ordering::SeqCst) == 0) {
        return;
    }
    let _returning = Returning::begin(half);
    let is_shut = half.writer().shut.load(Ordering::SeqCst) != 0;
    if half.len() == 0 || is_shut || ready::has_ended(fd) {
        return;
    }
    let Some(mut bytes) = Bytes::new() else {
        return;
    };
    let (before_ring, behind) = kernel_bytes(half);
    if behind > 0 {
        if !can_place(socket.as_raw_fd(), before_ring + half.len() + behind) {
            return;
        }
        bytes.drain(half, fd, before_ring);
    }
    bytes.add_ring(half);
    bytes.drain(half, fd, behind);
    bytes.send(half, socket.as_raw_fd(), true);
}

/// Notice that the reader returns bytes, which keeps the writer from shutting its direction.
struct Returning<'a>(Half<'a>);

impl<'a> Returning<'a> {
    fn begin(half: Half<'a>) -> Returning<'a> {
        // SYNC: give_back.shut
        let returning = &half.reader().returning;
        returning.store(lock::own_id(), Ordering::SeqCst);
        Returning(half)
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.0.reader().returning.store(0, Ordering::SeqCst);
    }
}

/// Waits until the reader has returned its bytes, before this end shuts the direction. The reader's
/// thread may have been killed or stopped meanwhile. A close needs no wait: the reader's duplicate
/// of the socket keeps the direction open.
pub(crate) fn await_reader(half: Half<'_>) {
    let error = errno::last();
    becomes_true(|| {
        // SYNC: give_back.shut
        let id = half.reader().returning.load(Ordering::SeqCst);
        id == 0 || id == lock::own_id() || !lock::exists(id)
    });
    errno::set(error);
}

/// Waits until `is_true` returns true. Returns false if it does not within the longest wait.
fn becomes_true(is_true: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_true() {
        if start.elapsed().as_millis() >= PATIENCE_MS.unsigned_abs().into() {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Returns the number of unread bytes that the kernel has before those in the ring, and behind them.
/// No writer is in the kernel.
fn kernel_bytes(half: Half<'_>) -> (usize, usize) {
    let sent = half.writer().kernel_sent.load(Ordering::SeqCst);
    let received = half.reader().received.load(Ordering::Acquire);
    let unread = |from: u64, to: u64| {
        let count = to.wrapping_sub(from).cast_signed();
        usize::try_from(count).unwrap_or(0).min(ROOM)
    };
    let mark = half.mark();
    (unread(received, mark), unread(mark.max(received), sent))
}

/// Returns true if the socket's send buffer and the ring have room for `len` bytes. Enlarges the
/// buffer for them, as far as the host permits.
fn can_place(socket: i32, len: usize) -> bool {
    let has_room = || {
        let buffer = join::option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF);
        let buffer = buffer.and_then(|buffer| usize::try_from(buffer).ok());
        len <= (RING + buffer.unwrap_or(0)).min(ROOM - RING)
    };
    if !has_room() {
        enlarge(socket, len - RING);
    }
    has_room()
}

/// Duplicates the writer's socket from its process.
fn writers_socket(half: Half<'_>) -> Option<OwnedFd> {
    let (pid, fd) = half.writer().owner();
    // SAFETY: the call has no preconditions.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let process = process.as_raw_fd();
    // SAFETY: as above.
    let socket = owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, fd, 0) })?;
    let cookie = half.writer().cookie.load(Ordering::Relaxed);
    let is_writers = cookie != 0 && join::cookie(socket.as_raw_fd()) == Some(cookie);
    is_writers.then_some(socket)
}

fn owned(fd: libc::c_long) -> Option<OwnedFd> {
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the caller just received this new descriptor.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Both locks of a direction.
struct Locks<'a>(Half<'a>);

impl<'a> Locks<'a> {
    /// Takes the locks, the reader's first, as all functions do.
    fn of(half: Half<'a>) -> Option<Locks<'a>> {
        let (reader, writer) = (&half.reader().lock, &half.writer().lock);
        reader.lock_within(ATTEMPTS).ok()?;
        if writer.lock_within(ATTEMPTS).is_err() {
            reader.unlock();
            return None;
        }
        Some(Locks(half))
    }
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        self.0.writer().lock.unlock();
        self.0.reader().lock.unlock();
    }
}

/// Bytes of the stream in their order, outside of ring and kernel.
struct Bytes {
    base: *mut u8,
    len: usize,
}

impl Bytes {
    fn new() -> Option<Bytes> {
        let base = crate::table::zeroed(ROOM, false);
        (!base.is_null()).then_some(Bytes { base, len: 0 })
    }

    /// Receives up to `most` bytes that the kernel has or receives soon.
    fn drain(&mut self, half: Half<'_>, fd: i32, most: usize) {
        let mut left = most.min((ROOM - RING).saturating_sub(self.len));
        while left > 0 {
            // SAFETY: the place is inside the mapping, and has room for `left` bytes.
            let place = unsafe { self.base.add(self.len) };
            let got = real::recv(fd, place.cast(), left, libc::MSG_DONTWAIT);
            let Some(got) = usize::try_from(got).ok().filter(|got| *got > 0) else {
                if errno::last() != libc::EAGAIN || !waits_for(fd, libc::POLLIN) {
                    break;
                }
                continue;
            };
            self.len += got;
            left -= got;
            let sum = &half.reader().received;
            sum.fetch_add(got as u64, Ordering::AcqRel);
        }
    }

    /// Takes all bytes of the ring.
    fn add_ring(&mut self, half: Half<'_>) {
        while half.len() > 0 && self.len < ROOM {
            let (start, len) = half.first_piece(ROOM - self.len);
            // SAFETY: both pieces are inside their memory, and do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(start, self.base.add(self.len), len) };
            self.len += len;
            half.skip(len);
        }
    }

    /// Sends all bytes by the writer's socket. Puts the rest back into the ring if the kernel has
    /// no room for them, which `may_wait` enlarges before. If neither has room, resets the
    /// connection, because its stream would have a gap.
    fn send(&mut self, half: Half<'_>, socket: i32, mut may_wait: bool) {
        let (mut sent, mut waits) = (0, 0);
        while sent < self.len {
            // SAFETY: the place is inside the mapping.
            let place: *const c_void = unsafe { self.base.add(sent) }.cast();
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let moved = real::send(socket, place, self.len - sent, flags);
            if let Ok(moved) = usize::try_from(moved) {
                sent += moved;
                waits = 0;
                continue;
            }
            let is_full = errno::last() == libc::EAGAIN;
            let left = self.len - sent;
            if !is_full || !may_wait && left <= RING {
                break;
            }
            if waits == WAITS {
                reset(socket);
                break;
            }
            waits += 1;
            enlarge(socket, left);
            may_wait = waits_for(socket, libc::POLLOUT);
        }
        let writer = half.writer();
        writer.kernel_sent.fetch_add(sent as u64, Ordering::SeqCst);
        // SAFETY: the rest is inside the mapping.
        half.put_back(unsafe { self.base.add(sent) }, self.len - sent);
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length and no other user.
        unsafe { libc::munmap(self.base.cast(), ROOM) };
    }
}

/// Waits until a socket is ready. Returns false if it is not within the longest wait.
fn waits_for(fd: i32, events: libc::c_short) -> bool {
    let mut entry = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    real::poll(&raw mut entry, 1, PATIENCE_MS) > 0
}

/// Enlarges the socket's send buffer for `len` more bytes, as far as the host permits.
fn enlarge(socket: i32, len: usize) {
    let Some(now) = join::option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF) else {
        return;
    };
    // The kernel doubles the value, and counts its own structures, too.
    let value = now.saturating_add(c_int::try_from(len).unwrap_or(c_int::MAX));
    // The host's limit may be below a size that the kernel chose itself, so try another socket.
    // SAFETY: the call has no preconditions.
    let other = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    let Some(other) = owned(other.into()) else {
        return;
    };
    let set = |socket: i32| {
        let place = (&raw const value).cast();
        real::setsockopt(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, place, 4);
        join::option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF)
    };
    if set(other.as_raw_fd()) > Some(now) {
        set(socket);
    }
}

/// Resets the connection: an address without a family disconnects it.
fn reset(socket: i32) {
    let none = libc::sockaddr {
        sa_family: 0,
        sa_data: [0; 14],
    };
    real::connect(socket, &raw const none, 16);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    #[test]
    fn shutdown_does_not_wait_for_ever_for_a_thread_that_returns_nothing() {
        let (segment, _file) = Segment::create().unwrap();
        let half = segment.half(0);
        let returning = &half.reader().returning;
        // Threads that exist and never end the return, that is itself waiting, and that is dead.
        for id in [1, lock::own_id(), i32::MAX.unsigned_abs()] {
            returning.store(id, Ordering::SeqCst);
            await_reader(half);
            assert_eq!(returning.load(Ordering::SeqCst), id);
        }
        segment.unmap();
    }

    #[test]
    fn kernel_bytes_are_counted_before_the_ring_and_behind_it() {
        let (segment, _file) = Segment::create().unwrap();
        let half = segment.half(0);
        half.writer().kernel_sent.store(10, Ordering::SeqCst);
        half.put_back(b"ring".as_ptr(), 4);
        half.writer().kernel_sent.store(17, Ordering::SeqCst);
        for (received, expected) in [(4, (6, 7)), (10, (0, 7)), (12, (0, 5)), (17, (0, 0))] {
            half.reader().received.store(received, Ordering::SeqCst);
            assert_eq!(kernel_bytes(half), expected);
        }
        // A corrupt peer's count is not below zero, and not above the room.
        half.writer().kernel_sent.store(0, Ordering::SeqCst);
        assert_eq!(kernel_bytes(half), (0, 0));
        half.writer().kernel_sent.store(1 << 60, Ordering::SeqCst);
        assert_eq!(kernel_bytes(half), (0, ROOM));
        segment.unmap();
    }
}
