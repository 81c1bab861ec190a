// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a TCP connection in this process: its users, its state, and its segment.
//!
//! Descriptors of one connection share a record. Its last user, a descriptor or a running call,
//! frees it. `users` counts the processes that have the connection, in memory that forked
//! processes share; only a connection with one process uses the ring.

use crate::lock::Lock;
use crate::pool::Pool;
use crate::segment::{Half, Segment};
use crate::table::{self, Kind};
use crate::{epoll, give_back, real, settings, stats};
use std::ops::Deref;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Maximum number of observed connections of a process. Further ones use the kernel only.
pub(crate) const CONNS_MAX: usize = 1 << 16;

static CONNS: Pool<Conn, CONNS_MAX> = Pool::new();
static USERS: Pool<AtomicU32, CONNS_MAX> = Pool::new();

/// Not joined with the other end yet.
pub(crate) const PLAIN: u32 = 0;
/// A thread is joining both ends; calls on the connection wait for it.
pub(crate) const JOINING: u32 = 1;
/// Both ends have the segment.
pub(crate) const JOINED: u32 = 2;
/// The connection stays on the kernel.
pub(crate) const ABSENT: u32 = 3;

/// Record of a connection. An unused record is all zeros.
#[derive(Default)]
pub(crate) struct Conn {
    claimed: AtomicU32,
    /// Descriptors and running calls.
    refs: AtomicU32,
    /// Descriptors.
    fds: AtomicU32,
    state: AtomicU32,
    /// Index in `USERS`.
    users: AtomicU32,
    /// 1 at the end that called `connect`.
    end: AtomicU32,
    calls: AtomicU32,
    next_try: AtomicU32,
    in_reads: AtomicU32,
    in_writes: AtomicU32,
    /// Descriptor on which the connecting end awaits the other, or 0.
    listener: AtomicI32,
    segment: AtomicPtr<u8>,
    /// Kernel bytes received before the last write, which acknowledged them.
    acknowledged: AtomicU64,
    /// 1 after the loss of unread bytes was reported.
    reset_reported: AtomicU32,
    /// Reason for staying on the kernel, a [`stats::Why`].
    why: AtomicU32,
    pub(crate) join_lock: Lock,
    pub(crate) member: epoll::Member,
    pub(crate) counts: Counts,
}

/// Bytes of this process.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) ring_out: AtomicU64,
    pub(crate) kernel_out: AtomicU64,
    pub(crate) ring_in: AtomicU64,
    pub(crate) kernel_in: AtomicU64,
}

/// Adds to a counter without ordering; other threads need no exact value.
pub(crate) fn add(figure: &AtomicU64, len: usize) {
    let sum = figure.load(Ordering::Relaxed).wrapping_add(len as u64);
    figure.store(sum, Ordering::Relaxed);
}

/// Use of a record by a running call.
pub(crate) struct ConnRef(u32, &'static Conn);

impl Deref for ConnRef {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        self.1
    }
}

impl Drop for ConnRef {
    fn drop(&mut self) {
        release(self.0, self.1);
    }
}

impl ConnRef {
    /// Returns the index of the record.
    pub(crate) fn index(&self) -> u32 {
        self.0
    }
}

/// Provides the memory of the records.
pub(crate) fn load() {
    CONNS.load(false);
    USERS.load(true);
}

/// Returns the connection of a descriptor, unless it stays on the kernel.
pub(crate) fn of(fd: i32) -> Option<ConnRef> {
    let Kind::Conn(index) = table::kind(fd) else {
        return None;
    };
    let conn = CONNS.at(index)?;
    if conn.state.load(Ordering::Relaxed) == ABSENT {
        return None;
    }
    acquire(fd, index, conn)
}

/// Returns the connection of a descriptor in any state.
pub(crate) fn any_of(fd: i32) -> Option<ConnRef> {
    let Kind::Conn(index) = table::kind(fd) else {
        return None;
    };
    acquire(fd, index, CONNS.at(index)?)
}

/// Returns the connection of an index, if it is in use.
pub(crate) fn at(index: u32) -> Option<ConnRef> {
    let conn = CONNS.at(index)?;
    hold(conn).then(|| ConnRef(index, conn))
}

/// Returns all connections of this process.
pub(crate) fn all() -> impl Iterator<Item = ConnRef> {
    CONNS.iter().filter_map(|(index, _)| at(index))
}

fn acquire(fd: i32, index: u32, conn: &'static Conn) -> Option<ConnRef> {
    if !hold(conn) {
        return None;
    }
    let held = ConnRef(index, conn);
    // The descriptor may have been closed, and its record used for another connection.
    (table::kind(fd) == Kind::Conn(index)).then_some(held)
}

/// Adds a user to a record that has one.
fn hold(conn: &Conn) -> bool {
    let more = |refs: u32| (refs > 0).then_some(refs + 1);
    conn.refs
        .fetch_update(Ordering::SeqCst, Ordering::Relaxed, more)
        .is_ok()
}

fn release(index: u32, conn: &'static Conn) {
    if conn.refs.fetch_sub(1, Ordering::SeqCst) != 1 {
        return;
    }
    stats::write(conn);
    conn.close_listener();
    epoll::forget(&conn.member, index);
    let segment = conn.segment.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !segment.is_null() {
        Segment::from_address(segment).unmap();
    }
    conn.claimed.store(0, Ordering::Release);
    CONNS.freed(index);
}

/// Begins to observe a new connection; `client` at the end that called `connect`.
pub(crate) fn track(fd: i32, client: bool) {
    table::note(fd);
    let claim = |conn: &Conn| conn.claim();
    let Some((index, conn)) = CONNS.claim(claim) else {
        return;
    };
    let one = |users: &AtomicU32| {
        users
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    let Some((users, _)) = USERS.claim(one) else {
        conn.claimed.store(0, Ordering::Release);
        return;
    };
    conn.reset(users, client);
    if table::set(fd, Kind::Conn(index)).is_none() {
        forget_user(conn);
        release(index, conn);
    }
}

/// Forgets a descriptor of this library that the program is about to replace.
pub(crate) fn lose_own(fd: i32) {
    for conn in all().filter(|conn| conn.listener() == Some(fd)) {
        conn.set_listener(0);
        conn.stay_on_kernel(stats::Why::Alone);
        conn.set_state(ABSENT);
    }
}

/// Removes one process from the connection. Returns true if it was the last one.
fn forget_user(conn: &Conn) -> bool {
    let index = conn.users.load(Ordering::Relaxed);
    let Some(users) = USERS.at(index) else {
        return false;
    };
    let was_last = users.fetch_sub(1, Ordering::SeqCst) == 1;
    if was_last {
        USERS.freed(index);
    }
    was_last
}

pub(crate) fn add_fd(conn: &ConnRef, fd: i32) {
    table::note(fd);
    conn.refs.fetch_add(1, Ordering::SeqCst);
    conn.fds.fetch_add(1, Ordering::SeqCst);
    if table::set(fd, Kind::Conn(conn.index())).is_none() {
        conn.fds.fetch_sub(1, Ordering::SeqCst);
        release(conn.index(), conn.1);
    }
}

/// Stops observing a descriptor, which the caller closes next.
pub(crate) fn remove_fd(fd: i32) {
    let Some(conn) = any_of(fd) else {
        return;
    };
    if table::set(fd, Kind::Other) != Some(Kind::Conn(conn.index())) {
        return;
    }
    if conn.fds.load(Ordering::SeqCst) == 1 {
        give_back::outgoing(&conn, fd);
    }
    if conn.fds.fetch_sub(1, Ordering::SeqCst) == 1 {
        conn.leave(fd);
    }
    release(conn.index(), conn.1);
}

impl Conn {
    fn claim(&self) -> bool {
        self.claimed.load(Ordering::Relaxed) == 0
            && self
                .claimed
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Prepares a claimed record for one descriptor.
    fn reset(&self, users: u32, client: bool) {
        let store = |field: &AtomicU32, value| field.store(value, Ordering::Relaxed);
        store(&self.fds, 1);
        store(&self.state, PLAIN);
        store(&self.users, users);
        store(&self.end, u32::from(client));
        store(&self.calls, 0);
        store(&self.next_try, settings::calls_before_join());
        store(&self.in_reads, 0);
        store(&self.in_writes, 0);
        store(&self.reset_reported, 0);
        store(&self.why, 0);
        self.listener.store(0, Ordering::Relaxed);
        self.acknowledged.store(0, Ordering::Relaxed);
        self.member.clear();
        for count in self.counts.all() {
            count.store(0, Ordering::Relaxed);
        }
        self.refs.store(1, Ordering::Release);
    }

    /// Prepares for the close of the last descriptor in this process.
    fn leave(&self, fd: i32) {
        let unread = self.joined().is_some_and(|ends| ends.incoming().len() > 0);
        if forget_user(self) && unread {
            // TCP resets a connection that is closed with unread bytes.
            let linger = libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            let len = libc::socklen_t::try_from(size_of_val(&linger)).unwrap_or(0);
            let value = (&raw const linger).cast();
            real::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, len);
        }
    }

    /// Returns the segment, if both ends have it.
    pub(crate) fn joined(&self) -> Option<Ends> {
        let address = self.segment.load(Ordering::Acquire);
        if address.is_null() || self.state.load(Ordering::SeqCst) != JOINED {
            return None;
        }
        Some(Ends {
            segment: Segment::from_address(address),
            end: self.end(),
        })
    }

    /// Returns 1 at the end that called `connect`, else 0.
    pub(crate) fn end(&self) -> usize {
        self.end.load(Ordering::Relaxed) as usize & 1
    }

    /// Returns true if only this process has the connection.
    pub(crate) fn is_sole_user(&self) -> bool {
        let users = USERS.at(self.users.load(Ordering::Relaxed));
        users.is_some_and(|users| users.load(Ordering::SeqCst) == 1)
    }

    /// Returns true if this process has a descriptor of the connection.
    pub(crate) fn has_fds(&self) -> bool {
        self.fds.load(Ordering::Relaxed) > 0
    }

    /// Adds a process, so that both directions return to the kernel until it has left.
    pub(crate) fn add_user(&self) {
        let Some(users) = USERS.at(self.users.load(Ordering::Relaxed)) else {
            return;
        };
        let Some(ends) = self.joined() else {
            users.fetch_add(1, Ordering::SeqCst);
            return;
        };
        // Take the locks, so that no thread still uses the ring because of an older count.
        let (incoming, outgoing) = (ends.incoming(), ends.outgoing());
        let reads = incoming.reader().lock.lock().is_ok();
        let writes = outgoing.writer().lock.lock().is_ok();
        users.fetch_add(1, Ordering::SeqCst);
        incoming.arm();
        outgoing.close();
        if writes {
            outgoing.writer().lock.unlock();
        }
        if reads {
            incoming.reader().lock.unlock();
        }
    }

    /// Undoes `add_user`.
    pub(crate) fn drop_user(&self) {
        forget_user(self);
    }

    /// Returns the connection to the kernel permanently, for reason `why`.
    pub(crate) fn stay_on_kernel(&self, why: stats::Why) {
        self.why.store(why as u32, Ordering::Relaxed);
        self.add_user();
    }

    /// Returns true if this process has used the connection.
    pub(crate) fn was_used(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
            || self
                .counts
                .all()
                .iter()
                .any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Returns the reason for staying on the kernel.
    pub(crate) fn why(&self) -> u32 {
        self.why.load(Ordering::Relaxed)
    }

    /// Counts a call; returns true when this end should search for the other.
    pub(crate) fn count_call(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        calls >= self.next_try.load(Ordering::Relaxed)
    }

    /// Doubles the number of calls before the next search. Returns false if no search is left.
    pub(crate) fn try_later(&self) -> bool {
        let next = self.calls.load(Ordering::Relaxed).saturating_mul(2).max(2);
        self.next_try.store(next, Ordering::Relaxed);
        next < TRIES_END
    }

    pub(crate) fn set_state(&self, state: u32) {
        self.state.store(state, Ordering::SeqCst);
    }

    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::SeqCst)
    }

    /// Stores the segment, before the state becomes `JOINED`.
    pub(crate) fn set_segment(&self, segment: Segment) {
        self.segment.store(segment.address(), Ordering::Release);
    }

    /// Returns true if no uncounted call is in progress.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_reads.load(Ordering::SeqCst) == 0 && self.in_writes.load(Ordering::SeqCst) == 0
    }

    /// Begins a call that does not count its bytes, unless both ends are joined.
    pub(crate) fn enter_plain(&self, is_read: bool) -> Option<PlainCall<'_>> {
        let calls = if is_read {
            &self.in_reads
        } else {
            &self.in_writes
        };
        calls.fetch_add(1, Ordering::SeqCst);
        let call = PlainCall(calls);
        match self.state() {
            PLAIN | ABSENT => return Some(call),
            JOINED => return None,
            _ => {}
        }
        drop(call);
        // Short: the joining thread makes only a few non-blocking calls.
        while self.state() == JOINING {
            std::thread::yield_now();
        }
        self.enter_plain(is_read)
    }

    /// Returns the descriptor on which the other end is awaited.
    pub(crate) fn listener(&self) -> Option<i32> {
        let fd = self.listener.load(Ordering::Relaxed);
        (fd != 0).then_some(fd)
    }

    /// Sets the descriptor on which the other end is awaited.
    pub(crate) fn set_listener(&self, fd: i32) {
        self.listener.store(fd, Ordering::Relaxed);
    }

    /// Closes the descriptor on which the other end is awaited.
    pub(crate) fn close_listener(&self) {
        let fd = self.listener.swap(0, Ordering::Relaxed);
        if fd != 0 {
            table::set(fd, Kind::Other);
            real::close(fd);
        }
    }

    /// Returns true if `received`, the kernel bytes ever received, has changed since the last call.
    pub(crate) fn acknowledges(&self, received: u64) -> bool {
        if self.acknowledged.load(Ordering::Relaxed) == received {
            return false;
        }
        self.acknowledged.store(received, Ordering::Relaxed);
        true
    }

    /// Returns true the first time that it is called.
    pub(crate) fn report_reset(&self) -> bool {
        self.reset_reported.swap(1, Ordering::Relaxed) == 0
    }

    /// Repairs the record in a forked child, which has no other threads.
    pub(crate) fn after_fork(&self) {
        let fds = self.fds.load(Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        self.next_try
            .store(settings::calls_before_join(), Ordering::Relaxed);
        for count in self.counts.all() {
            count.store(0, Ordering::Relaxed);
        }
        // The caller's own reference is one more.
        self.refs.store(fds + 1, Ordering::Relaxed);
        self.in_reads.store(0, Ordering::Relaxed);
        self.in_writes.store(0, Ordering::Relaxed);
        self.member.share();
        if self.state() == JOINING {
            self.set_state(ABSENT);
        }
    }
}

impl Counts {
    /// Returns all counters, in the order of the statistics.
    pub(crate) fn all(&self) -> [&AtomicU64; 4] {
        [
            &self.ring_out,
            &self.kernel_out,
            &self.ring_in,
            &self.kernel_in,
        ]
    }
}

/// Number of calls after which the search for the other end stops.
const TRIES_END: u32 = 1 << 15;

/// A call that does not count its bytes.
pub(crate) struct PlainCall<'a>(&'a AtomicU32);

impl Drop for PlainCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Segment as seen from this end.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    segment: Segment,
    end: usize,
}

impl Ends {
    /// Returns the direction that this end reads.
    pub(crate) fn incoming(&self) -> Half<'_> {
        self.segment.half(1 - self.end)
    }

    /// Returns the direction that this end writes.
    pub(crate) fn outgoing(&self) -> Half<'_> {
        self.segment.half(self.end)
    }
}
