// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a completion queue into the application's arrays.

#![allow(unsafe_code, reason = "writes to the application's arrays")]

use std::ffi::c_void;

use super::State;
use super::queue::Entry;
use crate::abi::{CqTaggedEntry, EOPBADSTATE};
use crate::errno::Errno;

/// Where a read puts what it takes; `sources` may be null.
#[derive(Clone, Copy)]
pub(crate) struct Arrays {
    buf: *mut c_void,
    count: usize,
    sources: *mut u64,
}

impl Arrays {
    #[inline]
    pub(crate) fn new(buf: *mut c_void, count: usize, sources: *mut u64) -> Arrays {
        Arrays {
            buf,
            count,
            sources,
        }
    }

    /// # Safety
    /// There is room for an entry at `at`, of `len` bytes, at most those of the longest format.
    #[inline]
    unsafe fn write(&self, at: usize, entry: &Entry, len: usize) {
        let whole = CqTaggedEntry {
            op_context: entry.context as *mut c_void,
            flags: entry.flags,
            len: entry.len,
            buf: entry.buf as *mut c_void,
            data: entry.data,
            tag: entry.tag,
        };
        // SAFETY: the caller's promise; both sides are plain bytes.
        unsafe {
            let target = self.buf.cast::<u8>().add(at * len);
            std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), target, len);
            if !self.sources.is_null() {
                self.sources.add(at).write(entry.source);
            }
        }
    }
}

/// A read under way: entries of its queue go straight to the application's arrays.
pub(super) struct Reader {
    /// The queue.
    cq: usize,
    entry_len: usize,
    into: Arrays,
    taken: usize,
}

impl Reader {
    /// # Safety
    /// The arrays have room for their count of entries of this length while the reader lives.
    #[inline]
    unsafe fn new(cq: usize, entry_len: usize, into: &Arrays) -> Reader {
        Reader {
            cq,
            entry_len,
            into: *into,
            taken: 0,
        }
    }

    #[inline]
    pub(super) fn reads(&self, cq: usize) -> bool {
        self.cq == cq
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.taken < self.into.count
    }

    /// Write an entry; there is room.
    #[inline]
    pub(super) fn put(&mut self, entry: &Entry) {
        debug_assert!(self.has_room());
        // SAFETY: `new`'s caller has promised room for the count, and `taken` is below it.
        unsafe { self.into.write(self.taken, entry, self.entry_len) };
        self.taken += 1;
    }
}

impl State {
    /// Read what is there, after a turn of the endpoints, unless more is there than the arrays take.
    /// Sends write their entries when they are called: a program that reads one after each send must
    /// not keep its endpoints from working.
    ///
    /// # Errors
    /// As [`State::read`].
    ///
    /// # Safety
    /// The arrays have room for their count.
    #[inline(always)]
    pub(crate) unsafe fn read_new(&mut self, cq: usize, into: &Arrays) -> Result<isize, Errno> {
        let queue = &mut self.cqs[cq];
        if queue.has_failed() || queue.len() > into.count {
            // SAFETY: the caller's promise.
            return unsafe { self.read(cq, into) };
        }
        // SAFETY: as above, until the read has ended.
        let mut reader = unsafe { Reader::new(cq, queue.entry_len(), into) };
        while let Some(entry) = queue.pop() {
            reader.put(&entry);
        }
        let is_forked = self.progress_read(cq, &mut reader);
        match reader.taken {
            0 if is_forked => Err(Errno(EOPBADSTATE)),
            0 if !self.cqs[cq].has_news() => Err(Errno::AGAIN),
            // SAFETY: as above.
            0 => unsafe { self.read(cq, into) },
            taken => Ok(taken.cast_signed()),
        }
    }

    /// Read what is there.
    ///
    /// # Errors
    /// `AVAIL` if a failure is to be read first, `AGAIN` if there is nothing.
    ///
    /// # Safety
    /// The arrays have room for their count.
    pub(crate) unsafe fn read(&mut self, cq: usize, into: &Arrays) -> Result<isize, Errno> {
        let State { cqs, eps, .. } = self;
        let queue = &mut cqs[cq];
        if queue.has_failed() {
            return Err(Errno::AVAIL);
        }
        if !queue.has_news() {
            let is_forked = |ep: &usize| eps.get(*ep).is_some_and(|ep| ep.is_forked());
            return Err(match queue.eps().iter().any(is_forked) {
                true => Errno(EOPBADSTATE),
                false => Errno::AGAIN,
            });
        }
        // SAFETY: the caller's promise.
        let mut reader = unsafe { Reader::new(cq, queue.entry_len(), into) };
        while reader.has_room()
            && let Some(entry) = queue.pop()
        {
            reader.put(&entry);
        }
        Ok(reader.taken.cast_signed())
    }

    /// Let the endpoints of a queue that is being read work for one turn. Returns whether this process
    /// is a child, which they do nothing for.
    #[inline(always)]
    fn progress_read(&mut self, cq: usize, reader: &mut Reader) -> bool {
        let (mut next, mut is_forked) = (0, false);
        while let Some(&ep) = self.cqs[cq].eps().get(next) {
            is_forked |= self.turn(ep, &mut Some(&mut *reader));
            next += 1;
        }
        is_forked
    }
}
