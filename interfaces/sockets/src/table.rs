// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kinds of this process's descriptors: one word for each, so that a call on an unobserved
//! descriptor costs one load.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Maximum number of observed descriptors. Higher ones use the kernel only.
const FDS_MAX: usize = 1 << 20;

const KIND: u32 = 3 << 30;
const CONN: u32 = 1 << 30;
const EPOLL: u32 = 2 << 30;
const OWN: u32 = 3 << 30;

/// Kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not observed.
    Other,
    /// Connection of this index.
    Conn(u32),
    /// Epoll set of this index.
    Epoll(u32),
    /// A descriptor of this library, for the connection of this index.
    Own(u32),
}

static WORDS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Returns zeroed memory of `len` bytes, optionally `shared` with forked processes. Returns null if
/// memory is exhausted.
pub(crate) fn zeroed(len: usize, shared: bool) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let visible = if shared {
        libc::MAP_SHARED
    } else {
        libc::MAP_PRIVATE
    };
    let flags = visible | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping replaces no memory of this process.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    base.cast()
}

/// Creates the table. If memory is exhausted, no descriptor is observed.
pub(crate) fn load() {
    let words = zeroed(FDS_MAX * size_of::<AtomicU32>(), false);
    WORDS.store(words.cast(), Ordering::Release);
}

fn word(fd: i32) -> Option<&'static AtomicU32> {
    let index = usize::try_from(fd).ok()?;
    let words = WORDS.load(Ordering::Acquire);
    if index >= FDS_MAX || words.is_null() {
        return None;
    }
    // SAFETY: the table has FDS_MAX words and is never freed.
    Some(unsafe { &*words.add(index) })
}

fn decode(word: u32) -> Kind {
    let index = word & !KIND;
    match word & KIND {
        CONN => Kind::Conn(index),
        EPOLL => Kind::Epoll(index),
        OWN => Kind::Own(index),
        _ => Kind::Other,
    }
}

pub(crate) fn kind(fd: i32) -> Kind {
    word(fd).map_or(Kind::Other, |word| decode(word.load(Ordering::SeqCst)))
}

/// Sets the kind of a descriptor, and returns the previous one, or `None` for a descriptor beyond
/// the table.
pub(crate) fn set(fd: i32, kind: Kind) -> Option<Kind> {
    let value = match kind {
        Kind::Other => 0,
        Kind::Conn(index) => CONN | index,
        Kind::Epoll(index) => EPOLL | index,
        Kind::Own(index) => OWN | index,
    };
    Some(decode(word(fd)?.swap(value, Ordering::SeqCst)))
}

/// Returns the first observed descriptor in `first..=last`.
pub(crate) fn next_known(first: u32, last: u32) -> Option<i32> {
    let last = last.min(highest());
    (first..=last)
        .filter_map(|fd| i32::try_from(fd).ok())
        .find(|fd| kind(*fd) != Kind::Other)
}

/// Returns all observed descriptors.
pub(crate) fn known() -> impl Iterator<Item = i32> {
    let mut next = Some(0_u32);
    std::iter::from_fn(move || {
        let found = next_known(next?, u32::MAX)?;
        next = found.unsigned_abs().checked_add(1);
        Some(found)
    })
}

static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// Returns the highest descriptor that was ever observed.
fn highest() -> u32 {
    HIGHEST.load(Ordering::Relaxed)
}

/// Raises the highest observed descriptor to `fd`, before its kind is set.
pub(crate) fn note(fd: i32) {
    HIGHEST.fetch_max(fd.unsigned_abs(), Ordering::Relaxed);
}
