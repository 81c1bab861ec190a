// SPDX-License-Identifier: MIT OR Apache-2.0
//! Epoll sets. The kernel's set is always what the program made it; this module adds the events of
//! rings to its results.
//!
//! A connection may be disarmed while it is in one set of this process in which no thread sleeps.
//! It is then in the set's list of open connections. A thread that is about to sleep arms all
//! connections of that list. Sets that are in other sets, one-shot connections and connections in
//! several sets stay on the kernel.
#![allow(unsafe_code)]

use crate::conn::{self, ConnRef, Ends};
use crate::lock::Lock;
use crate::pool::Pool;
use crate::process::own_fd;
use crate::ready;
use crate::table::{self, Kind};
use crate::{errno, real, settings, spin};
use libc::{c_int, epoll_event};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of observed epoll sets. Connections in further sets use the kernel only.
const SETS_MAX: usize = 1024;

/// Maximum number of open connections of a set. Further ones use the kernel only.
const OPEN_MAX: usize = 64;

const IN: u32 = libc::EPOLLIN.cast_unsigned() | libc::EPOLLRDNORM.cast_unsigned();
const EDGE: u32 = libc::EPOLLET.cast_unsigned();
const ONE_SHOT: u32 = libc::EPOLLONESHOT.cast_unsigned();

static SETS: Pool<Set, SETS_MAX> = Pool::new();

/// An epoll set of this process. An unused record is all zeros.
struct Set {
    claimed: AtomicU32,
    fds: AtomicU32,
    lock: Lock,
    /// Threads that sleep in it.
    sleepers: AtomicU32,
    /// 1 if other processes or sets use it: its connections stay on the kernel.
    shared: AtomicU32,
    open_count: AtomicU32,
    /// Index of the next open connection to report first.
    turn: AtomicU32,
    open: [AtomicU32; OPEN_MAX],
}

/// Membership of a connection in sets.
#[derive(Default)]
pub(crate) struct Member {
    /// Sets that have the connection.
    sets: AtomicU32,
    /// The set, plus 1.
    set: AtomicU32,
    /// Descriptor by which it was added.
    fd: AtomicU32,
    events: AtomicU32,
    data: AtomicU64,
    /// 1 while the connection is in the set's list of open ones.
    is_open: AtomicU32,
    /// Ring bytes at the last reported event, for edges.
    reported: AtomicU64,
}

impl Member {
    pub(crate) fn clear(&self) {
        for field in [&self.sets, &self.set, &self.fd, &self.events, &self.is_open] {
            field.store(0, Ordering::Relaxed);
        }
        self.reported.store(0, Ordering::Relaxed);
    }

    /// Marks the set as shared with a forked process.
    pub(crate) fn share(&self) {
        if let Some(set) = self.set() {
            set.shared.store(1, Ordering::SeqCst);
        }
    }

    fn set(&self) -> Option<&'static Set> {
        SETS.at(self.set.load(Ordering::Acquire).checked_sub(1)?)
    }
}

/// Provides the memory of the records.
pub(crate) fn load() {
    SETS.load(false);
}

/// Begins to observe a new set.
pub(crate) fn track(fd: i32) {
    table::note(fd);
    let claim = |set: &Set| {
        set.claimed
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    let Some((index, set)) = SETS.claim(claim) else {
        return;
    };
    set.fds.store(1, Ordering::Relaxed);
    for field in [&set.sleepers, &set.shared, &set.open_count, &set.turn] {
        field.store(0, Ordering::Relaxed);
    }
    if table::set(fd, Kind::Epoll(index)).is_none() {
        set.claimed.store(0, Ordering::Release);
    }
}

/// Counts a further descriptor of a set. This is rare, so its connections use the kernel only.
pub(crate) fn add_fd(index: u32, fd: i32) {
    if let Some(set) = SETS.at(index) {
        table::note(fd);
        set.fds.fetch_add(1, Ordering::SeqCst);
        share(index);
        table::set(fd, Kind::Epoll(index));
    }
}

/// Stops observing a descriptor, which the caller closes next.
pub(crate) fn remove_fd(fd: i32, index: u32) {
    table::set(fd, Kind::Other);
    let Some(set) = SETS.at(index) else {
        return;
    };
    if set.fds.fetch_sub(1, Ordering::SeqCst) != 1 {
        return;
    }
    for conn in conn::all() {
        if conn.member.set.load(Ordering::Relaxed) == index + 1 {
            conn.member.set.store(0, Ordering::Release);
            conn.member.sets.fetch_sub(1, Ordering::SeqCst);
            conn.member.is_open.store(0, Ordering::Relaxed);
        }
    }
    set.open_count.store(0, Ordering::Relaxed);
    set.claimed.store(0, Ordering::Release);
}

/// Arms the open connections of a set, and keeps all of its connections on the kernel.
pub(crate) fn share(index: u32) {
    let Some(set) = SETS.at(index) else {
        return;
    };
    if set.lock.lock().is_ok() {
        set.shared.store(1, Ordering::SeqCst);
        for conn in set.open_conns() {
            if let Some(ends) = conn.joined() {
                ends.incoming().arm();
            }
        }
        set.lock.unlock();
    }
}

/// Repairs the sets in a forked child, which shares them with its parent.
pub(crate) fn after_fork() {
    for (_, set) in SETS.iter() {
        set.lock.unlock();
        set.shared.store(1, Ordering::SeqCst);
        set.sleepers.store(0, Ordering::SeqCst);
    }
}

/// Marks all sets as shared, before a fork.
pub(crate) fn before_fork() {
    for (index, set) in SETS.iter() {
        if set.claimed.load(Ordering::Relaxed) == 1 {
            share(index);
        }
    }
}

/// Calls `open_ring` if no thread can miss the bytes of a disarmed connection.
pub(crate) fn with_consent(conn: &ConnRef, open_ring: impl FnOnce()) {
    let member = &conn.member;
    match member.sets.load(Ordering::SeqCst) {
        0 => return open_ring(),
        1 => {}
        _ => return,
    }
    let Some(set) = member.set() else {
        return;
    };
    if member.events.load(Ordering::Relaxed) & ONE_SHOT != 0 || set.lock.lock().is_err() {
        return;
    }
    if set.consents(member, conn.index()) {
        open_ring();
    }
    set.lock.unlock();
}

/// Removes a closed connection from its set.
pub(crate) fn forget(member: &Member, index: u32) {
    if let Some(set) = member.set()
        && set.lock.lock().is_ok()
    {
        set.remove_open(index);
        set.lock.unlock();
    }
    member.clear();
}

impl Set {
    /// Adds a connection to the open ones. Returns false if it must stay armed.
    fn consents(&self, member: &Member, index: u32) -> bool {
        if self.sleepers.load(Ordering::SeqCst) > 0 || self.shared.load(Ordering::SeqCst) != 0 {
            return false;
        }
        if member.is_open.load(Ordering::Relaxed) == 1 {
            return true;
        }
        let count = self.open_count.load(Ordering::Relaxed);
        let Some(place) = self.open.get(count as usize) else {
            return false;
        };
        place.store(index, Ordering::Relaxed);
        self.open_count.store(count + 1, Ordering::Relaxed);
        member.is_open.store(1, Ordering::Relaxed);
        true
    }

    fn remove_open(&self, index: u32) {
        let count = self.open_count.load(Ordering::Relaxed) as usize;
        let open = &self.open[..count.min(OPEN_MAX)];
        let Some(place) = open.iter().position(|o| o.load(Ordering::Relaxed) == index) else {
            return;
        };
        let last = open[count - 1].load(Ordering::Relaxed);
        open[place].store(last, Ordering::Relaxed);
        self.open_count.fetch_sub(1, Ordering::Relaxed);
    }

    fn open_conns(&self) -> impl Iterator<Item = ConnRef> {
        let count = self.open_count.load(Ordering::Relaxed) as usize;
        let open = &self.open[..count.min(OPEN_MAX)];
        open.iter()
            .filter_map(|index| conn::at(index.load(Ordering::Relaxed)))
    }
}

/// Returns true if the descriptor has a record.
pub(crate) fn is_of_interest(fd: i32) -> bool {
    matches!(table::kind(fd), Kind::Conn(_) | Kind::Epoll(_))
}

/// Records a successful `epoll_ctl`.
pub(crate) fn changed(epoll: i32, op: c_int, fd: i32, event: Option<epoll_event>) {
    let Kind::Epoll(index) = table::kind(epoll) else {
        // A set without a record: the connection stays on the kernel while it may be in it.
        if op == libc::EPOLL_CTL_ADD
            && let Some(conn) = conn::any_of(fd)
        {
            conn.stay_on_kernel(crate::stats::Why::Option);
        }
        return;
    };
    if let Kind::Epoll(inner) = table::kind(fd) {
        share(inner);
        return;
    }
    let Some(conn) = conn::any_of(fd) else {
        return;
    };
    let Some(set) = SETS.at(index) else {
        return;
    };
    let member = &conn.member;
    let is_this = member.set.load(Ordering::Relaxed) == index + 1
        && member.fd.load(Ordering::Relaxed) == fd.unsigned_abs();
    let is_locked = set.lock.lock().is_ok();
    match (op, event) {
        (libc::EPOLL_CTL_ADD, Some(event)) if member.sets.fetch_add(1, Ordering::SeqCst) == 0 => {
            member.set.store(index + 1, Ordering::Release);
            member.fd.store(fd.unsigned_abs(), Ordering::Relaxed);
            member.set_event(event);
        }
        (libc::EPOLL_CTL_MOD, Some(event)) if is_this => member.set_event(event),
        (libc::EPOLL_CTL_DEL, _) => {
            if is_this {
                set.remove_open(conn.index());
                member.is_open.store(0, Ordering::Relaxed);
                member.set.store(0, Ordering::Release);
            }
            member.sets.fetch_sub(1, Ordering::SeqCst);
        }
        _ => {}
    }
    // A thread may already sleep in the set: from now on the kernel wakes it.
    if let Some(ends) = conn.joined()
        && !(is_locked && set.keeps(&conn))
    {
        ends.incoming().arm();
        if op != libc::EPOLL_CTL_DEL && ends.incoming().len() > 0 {
            set.consider_leftover(&conn);
            if set.sleepers.load(Ordering::SeqCst) > 0 {
                kick(epoll);
            }
        }
    }
    if is_locked {
        set.lock.unlock();
    }
}

impl Member {
    fn set_event(&self, event: epoll_event) {
        self.events.store(event.events, Ordering::Relaxed);
        self.data.store(event.u64, Ordering::Relaxed);
        // The kernel reports the current state again after each change.
        self.reported.store(u64::MAX, Ordering::Relaxed);
    }

    /// Returns the event to report for bytes in the ring.
    fn event(&self, ends: &Ends) -> Option<epoll_event> {
        let half = ends.incoming();
        let wanted = self.events.load(Ordering::Relaxed);
        if half.len() == 0 || wanted & IN == 0 {
            return None;
        }
        let tail = half.word().tail();
        if wanted & EDGE != 0 && self.reported.swap(tail, Ordering::Relaxed) == tail {
            return None;
        }
        Some(epoll_event {
            events: wanted & IN,
            u64: self.data.load(Ordering::Relaxed),
        })
    }
}

impl Set {
    /// Returns true if a changed connection may stay disarmed: it is in no set, or only in this
    /// one and in its list. The caller holds the lock.
    fn keeps(&self, conn: &ConnRef) -> bool {
        let member = &conn.member;
        match member.sets.load(Ordering::SeqCst) {
            0 => true,
            1 => {
                member.set().is_some_and(|set| std::ptr::eq(set, self))
                    && member.events.load(Ordering::Relaxed) & ONE_SHOT == 0
                    && self.consents(member, conn.index())
            }
            _ => false,
        }
    }

    /// Adds an armed connection with unread ring bytes to the list of open ones.
    fn consider_leftover(&self, conn: &ConnRef) {
        let member = &conn.member;
        if member.is_open.load(Ordering::Relaxed) == 1 {
            return;
        }
        let count = self.open_count.load(Ordering::Relaxed);
        if let Some(place) = self.open.get(count as usize) {
            place.store(conn.index(), Ordering::Relaxed);
            self.open_count.store(count + 1, Ordering::Relaxed);
            member.is_open.store(1, Ordering::Relaxed);
        }
    }

    /// Collects events of rings into `events`. Arms all open connections if `arm`.
    fn collect(&self, arm: bool, events: &mut [epoll_event]) -> usize {
        let mut found = 0;
        let mut index = 0;
        while index < (self.open_count.load(Ordering::Relaxed) as usize).min(OPEN_MAX) {
            let number = self.open[index].load(Ordering::Relaxed);
            let conn = conn::at(number);
            let ends = conn.as_ref().and_then(|conn| conn.joined());
            let (Some(conn), Some(ends)) = (conn, ends) else {
                self.remove_open(number);
                continue;
            };
            let half = ends.incoming();
            if arm {
                half.arm();
            }
            if found < events.len()
                && let Some(event) = conn.member.event(&ends)
            {
                events[found] = event;
                found += 1;
            }
            if arm && half.len() == 0 {
                self.remove_open(number);
                conn.member.is_open.store(0, Ordering::Relaxed);
                continue;
            }
            index += 1;
        }
        // Rotate the start, for fairness.
        if found == events.len() && index > 1 {
            let first = self.open[0].load(Ordering::Relaxed);
            let last = self.open[index - 1].swap(first, Ordering::Relaxed);
            self.open[0].store(last, Ordering::Relaxed);
        }
        found
    }
}

/// Presence of a thread in the kernel's wait.
struct Sleeper(&'static Set);

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Implements `epoll_wait` and its variants. `kernel` performs the program's own call on the given
/// events, or a call that does not sleep.
pub(crate) fn wait(
    epoll: i32,
    events: &mut [epoll_event],
    sleeps: bool,
    kernel: &mut dyn FnMut(&mut [epoll_event], bool) -> c_int,
) -> c_int {
    let Kind::Epoll(index) = table::kind(epoll) else {
        return kernel(events, false);
    };
    let Some(set) = SETS.at(index) else {
        return kernel(events, false);
    };
    if !sleeps {
        let found = set.ready(events, kernel);
        return without_kick(events, found);
    }
    if settings::spin_ns() > 0 && set.open_count.load(Ordering::Relaxed) > 0 {
        let found = poll(set, events, kernel);
        let kept = without_kick(events, found);
        if kept != 0 {
            return kept;
        }
    }
    if set.lock.lock().is_err() {
        return kernel(events, false);
    }
    set.sleepers.fetch_add(1, Ordering::SeqCst);
    let sleeper = Sleeper(set);
    let found = set.collect(true, events);
    set.lock.unlock();
    let result = if found > 0 {
        merge(events, found, kernel)
    } else {
        kernel(events, false)
    };
    let error = errno::last();
    drop(sleeper);
    errno::set(error);
    let kept = without_kick(events, result);
    if kept == 0 && result > 0 {
        return wait(epoll, events, sleeps, kernel);
    }
    kept
}

/// Mark of the wake-up event. Its address is unique, so no program uses it as data.
static KICK: AtomicU32 = AtomicU32::new(0);

fn kick_data() -> u64 {
    (&raw const KICK).addr() as u64
}

/// Wakes the threads that sleep in a set, by an event that is always ready and occurs once.
fn kick(epoll: i32) {
    let error = errno::last();
    let fd = kick_fd();
    let mut event = epoll_event {
        events: IN | ONE_SHOT,
        u64: kick_data(),
    };
    if real::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) != 0 {
        real::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, fd, &raw mut event);
    }
    errno::set(error);
}

/// Returns a descriptor of this process that is always readable.
fn kick_fd() -> i32 {
    let known = KICK.load(Ordering::Acquire);
    if known != 0 {
        return i32::try_from(known).unwrap_or(-1);
    }
    // SAFETY: `eventfd` has no preconditions.
    let fd = own_fd(unsafe { libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) });
    KICK.store(u32::try_from(fd).unwrap_or(0), Ordering::Release);
    fd
}

/// Forgets a descriptor of this library that the program is about to replace.
pub(crate) fn lose_own(fd: i32) {
    let fd = fd.unsigned_abs();
    // It fails if the number was reused already.
    let _ = KICK.compare_exchange(fd, 0, Ordering::AcqRel, Ordering::Relaxed);
}

/// Removes the event of `kick` from `count` events. Returns the number of remaining events.
fn without_kick(events: &mut [epoll_event], count: c_int) -> c_int {
    let Ok(len) = usize::try_from(count) else {
        return count;
    };
    let mut kept = 0;
    for index in 0..len {
        if { events[index].u64 } != kick_data() {
            events[kept] = events[index];
            kept += 1;
        }
    }
    c_int::try_from(kept).unwrap_or(count)
}

/// Polls rings and kernel for the configured spin time. Returns 0 if nothing is ready.
fn poll(
    set: &Set,
    events: &mut [epoll_event],
    kernel: &mut dyn FnMut(&mut [epoll_event], bool) -> c_int,
) -> c_int {
    let mut open = [const { None }; OPEN_MAX];
    if set.lock.lock().is_err() {
        return 0;
    }
    let found = set.collect(false, events);
    // An armed connection would end the polling at once. It is checked before the sleep.
    let is_idle = |conn: &ConnRef| conn.joined().is_some_and(|ends| !ready::is_active(&ends));
    let mut count = 0;
    if found == 0 {
        for (place, conn) in open.iter_mut().zip(set.open_conns().filter(is_idle)) {
            *place = conn.joined().map(|ends| (conn, ends));
            count += 1;
        }
    }
    set.lock.unlock();
    if found > 0 {
        return merge(events, found, kernel);
    }
    let open = &open[..count];
    if open.is_empty() {
        return 0;
    }
    // Other descriptors of the set, and writable connections, are ready without a delay.
    let mut found = kernel(events, true);
    if found != 0 {
        return found;
    }
    let is_active = || {
        open.iter()
            .flatten()
            .any(|(_, ends)| ready::is_active(ends))
    };
    spin::until(&is_active, &mut || {
        found = kernel(events, true);
        found != 0
    });
    if found != 0 || set.lock.lock().is_err() {
        return found;
    }
    // The kernel's events were current before the polling: the next call checks them again.
    let found = set.collect(false, events);
    set.lock.unlock();
    c_int::try_from(found).unwrap_or(c_int::MAX)
}

impl Set {
    /// Returns the events of rings and kernel for a call that does not sleep, and arms nothing.
    fn ready(
        &self,
        events: &mut [epoll_event],
        kernel: &mut dyn FnMut(&mut [epoll_event], bool) -> c_int,
    ) -> c_int {
        if self.open_count.load(Ordering::Relaxed) == 0 || self.lock.lock().is_err() {
            return kernel(events, false);
        }
        let found = self.collect(false, events);
        self.lock.unlock();
        if found == 0 {
            return kernel(events, false);
        }
        merge(events, found, kernel)
    }
}

/// Adds the kernel's current events to the first `found` ones, and merges events of the same
/// connection.
fn merge(
    events: &mut [epoll_event],
    found: usize,
    kernel: &mut dyn FnMut(&mut [epoll_event], bool) -> c_int,
) -> c_int {
    let (own, rest) = events.split_at_mut(found);
    let total = c_int::try_from(found).unwrap_or(c_int::MAX);
    if rest.is_empty() {
        return total;
    }
    let more = usize::try_from(kernel(rest, true)).unwrap_or(0);
    let mut kept = 0;
    for index in 0..more {
        let event = rest[index];
        let data = event.u64;
        match own.iter_mut().find(|own| { own.u64 } == data) {
            Some(own) => own.events |= event.events,
            None => {
                rest[kept] = event;
                kept += 1;
            }
        }
    }
    total + c_int::try_from(kept).unwrap_or(0)
}
