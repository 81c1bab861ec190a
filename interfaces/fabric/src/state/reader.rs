// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a completion queue into the application's arrays.

#![allow(unsafe_code, reason = "writes to the application's arrays")]

use std::ffi::c_void;

use super::State;
use super::queue::Entry;
use crate::abi::{CqTaggedEntry, EOPBADSTATE};
use crate::errno::Errno;

/// Destination arrays of a read; `sources` may be null.
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

    /// Writes an entry.
    ///
    /// # Safety
    /// There is room for an entry of `len` bytes at `at`; `len` is at most the length of the
    /// longest format.
    #[inline]
    unsafe fn write(&self, at: usize, entry: &Entry, len: usize) {
        let entry_out = CqTaggedEntry {
            op_context: entry.context as *mut c_void,
            flags: entry.flags,
            len: entry.len,
            buf: entry.buf as *mut c_void,
            data: entry.data,
            tag: entry.tag,
        };
        // SAFETY: guaranteed by the caller; both sides are plain bytes.
        unsafe {
            let target = self.buf.cast::<u8>().add(at * len);
            std::ptr::copy_nonoverlapping((&raw const entry_out).cast::<u8>(), target, len);
            if !self.sources.is_null() {
                self.sources.add(at).write(entry.source);
            }
        }
    }
}

/// A read in progress. Entries of its queue are written directly to the application's arrays.
pub(super) struct Reader {
    /// Index of the queue.
    cq: usize,
    entry_len: usize,
    into: Arrays,
    taken: usize,
}

impl Reader {
    /// Starts a read.
    ///
    /// # Safety
    /// While the reader lives, the arrays have room for their count of entries of this length.
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
    pub(super) fn has_space(&self) -> bool {
        self.taken < self.into.count
    }

    /// Writes an entry. The caller has checked that there is room.
    #[inline]
    pub(super) fn put(&mut self, entry: &Entry) {
        debug_assert!(self.has_space());
        // SAFETY: the caller of `new` guarantees room for the count, and `taken` is below it.
        unsafe { self.into.write(self.taken, entry, self.entry_len) };
        self.taken += 1;
    }
}

impl State {
    /// Reads available entries after a turn of the endpoints. The turn is skipped if the queue
    /// holds more entries than fit the arrays.
    ///
    /// Sends add their entries when they are called. The turn therefore also runs if there are
    /// entries: a program that reads one entry after each send must not keep its endpoints from
    /// making progress.
    ///
    /// # Errors
    /// As for [`State::read`].
    ///
    /// # Safety
    /// The arrays have room for their count.
    #[inline(always)]
    pub(crate) unsafe fn read_new(&mut self, cq: usize, into: &Arrays) -> Result<isize, Errno> {
        let queue = &mut self.cqs[cq];
        if queue.has_failed() || queue.len() > into.count {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.read(cq, into) };
        }
        // SAFETY: as above, for the duration of the read.
        let mut reader = unsafe { Reader::new(cq, queue.entry_len(), into) };
        while let Some(entry) = queue.pop() {
            reader.put(&entry);
        }
        let is_forked = self.progress_read(cq, &mut reader);
        match reader.taken {
            0 if is_forked => Err(Errno(EOPBADSTATE)),
            0 if !self.cqs[cq].is_readable() => Err(Errno::AGAIN),
            // SAFETY: as above.
            0 => unsafe { self.read(cq, into) },
            taken => Ok(taken.cast_signed()),
        }
    }

    /// Reads available entries.
    ///
    /// # Errors
    /// `AVAIL` if a failure must be read first, `AGAIN` if there are no entries.
    ///
    /// # Safety
    /// The arrays have room for their count.
    pub(crate) unsafe fn read(&mut self, cq: usize, into: &Arrays) -> Result<isize, Errno> {
        let State { cqs, eps, .. } = self;
        let queue = &mut cqs[cq];
        if queue.has_failed() {
            return Err(Errno::AVAIL);
        }
        if !queue.is_readable() {
            let is_forked = |ep: &usize| eps.get(*ep).is_some_and(|ep| ep.is_forked());
            return Err(match queue.eps().iter().any(is_forked) {
                true => Errno(EOPBADSTATE),
                false => Errno::AGAIN,
            });
        }
        // SAFETY: guaranteed by the caller.
        let mut reader = unsafe { Reader::new(cq, queue.entry_len(), into) };
        while reader.has_space()
            && let Some(entry) = queue.pop()
        {
            reader.put(&entry);
        }
        Ok(reader.taken.cast_signed())
    }

    /// Runs one turn of each endpoint of a queue that is being read. Returns true if this process
    /// is a forked child, in which endpoints make no progress.
    #[inline(always)]
    fn progress_read(&mut self, cq: usize, reader: &mut Reader) -> bool {
        let (mut next, mut is_forked) = (0, false);
        while let Some(&ep) = self.cqs[cq].eps().get(next) {
            is_forked |= self.poll_ep(ep, &mut Some(&mut *reader));
            next += 1;
        }
        is_forked
    }
}
