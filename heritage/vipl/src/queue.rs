// SPDX-License-Identifier: MIT OR Apache-2.0
//! A work queue: descriptors in the order in which they were posted, which is also the order of
//! completion.
//!
//! Entries are numbered from the creation of the VI, so that a number stays valid when earlier
//! entries are removed.

use crate::descriptor::Descriptor;
use crate::types::{VIP_DESCRIPTOR, VIP_NIC_HANDLE, VIP_VI_HANDLE};
use std::collections::VecDeque;
use std::ffi::c_void;

/// Maximum number of descriptors on a queue, as in hardware of the time.
pub(crate) const DESCRIPTORS_MAX: usize = 1024;

/// Operation of a descriptor on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send,
    Write,
    /// An RDMA read, with its number.
    Read(u32),
    Recv,
}

/// A descriptor on a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) descriptor: Descriptor,
    pub(crate) op: Op,
    pub(crate) control: u32,
    pub(crate) total: u32,
    /// Number of units sent up to and including its last one. For a read, the bytes received.
    pub(crate) mark: u32,
    /// Error status of a malformed descriptor, reported when it is processed.
    pub(crate) fault: u32,
    pub(crate) has_ended: bool,
    /// Set while a long transfer of a send was not accepted.
    pub(crate) is_long: bool,
    /// Set while the node uses the memory of the descriptor.
    pub(crate) is_busy: bool,
    /// Status and length with which the descriptor completes when it is no longer busy.
    pub(crate) deferred: Option<(u32, Option<u32>)>,
}

impl Entry {
    /// Creates the entry of a descriptor that was just posted.
    #[inline]
    pub(crate) fn new(descriptor: Descriptor, op: Op) -> Entry {
        Entry {
            descriptor,
            op,
            control: 0,
            total: 0,
            mark: 0,
            fault: 0,
            has_ended: false,
            is_long: false,
            is_busy: false,
            deferred: None,
        }
    }
}

/// Function of the program that is called when a descriptor has completed.
pub type VIP_WORK_HANDLER = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        nic: VIP_NIC_HANDLE,
        vi: VIP_VI_HANDLE,
        descriptor: *mut VIP_DESCRIPTOR,
    ),
>;

/// A work queue; see the module documentation.
#[derive(Default)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    /// Number of the first incomplete entry.
    pub(crate) ended: u64,
    /// Number of the first entry that was not started, that is, not sent completely or not matched
    /// by a message.
    pub(crate) next: u64,
    /// Index of the completion queue.
    pub(crate) cq: Option<u32>,
    /// Handlers for the next completions.
    pub(crate) handlers: VecDeque<(VIP_WORK_HANDLER, *mut c_void)>,
}

impl Queue {
    /// Creates an empty queue that reports to a completion queue.
    pub(crate) fn new(cq: Option<u32>) -> Queue {
        Queue {
            cq,
            ..Queue::default()
        }
    }

    /// Returns the number of the next entry to be posted.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= DESCRIPTORS_MAX
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> u64 {
        self.entries.push_back(entry);
        self.end() - 1
    }

    #[inline]
    fn index(&self, number: u64) -> usize {
        usize::try_from(number.wrapping_sub(self.first)).unwrap_or(usize::MAX)
    }

    #[inline]
    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Entry> {
        let index = self.index(number);
        self.entries.get_mut(index)
    }

    /// Returns true if an entry waits for its acknowledgement. Reads wait for their data instead.
    pub(crate) fn is_unacknowledged(&self, number: u64) -> bool {
        let entry = self.entries.get(self.index(number));
        entry.is_some_and(|entry| !entry.has_ended && !matches!(entry.op, Op::Read(_)))
    }

    /// Returns the entry number of the read with the number `id`.
    pub(crate) fn read(&self, id: u32) -> Option<u64> {
        let mut numbered = (self.first..).zip(&self.entries);
        let matches = |entry: &Entry| entry.op == Op::Read(id) && !entry.has_ended;
        Some(numbered.find(|(_, entry)| matches(entry))?.0)
    }

    /// Records that the node no longer uses the memory of an entry. Returns the status and length
    /// with which it must be completed now, if that was deferred.
    pub(crate) fn release(&mut self, number: u64) -> Option<(u32, Option<u32>)> {
        let entry = self.get(number)?;
        entry.is_busy = false;
        entry.deferred.take()
    }

    /// Completes an entry, or defers that while it is busy. Returns the number of entries at the
    /// front that are complete because of it.
    #[inline]
    pub(crate) fn finish(&mut self, number: u64, status: u32, len: Option<u32>) -> u32 {
        if let Some(entry) = self.get(number).filter(|entry| !entry.has_ended) {
            if entry.is_busy {
                entry.deferred.get_or_insert((status, len));
                return 0;
            }
            entry.has_ended = true;
            entry.descriptor.end(status, len);
        }
        let mut count = 0;
        let mut ended = self.ended;
        while self.get(ended).is_some_and(|entry| entry.has_ended) {
            ended += 1;
            count += 1;
        }
        self.ended = ended;
        count
    }

    /// Removes all descriptors without access to their memory, which may be invalid.
    pub(crate) fn abandon(&mut self) {
        self.entries.clear();
        (self.ended, self.next) = (self.first, self.first);
    }

    /// Returns true if the first entry is complete.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.ended > self.first
    }

    /// Removes the first entry if it is complete.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Descriptor> {
        if !self.is_ready() {
            return None;
        }
        self.first += 1;
        Some(self.entries.pop_front()?.descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::VIP_STATUS_DONE;

    #[repr(align(64))]
    struct Own([u32; 16]);

    fn entry(own: &mut Own) -> Entry {
        Entry::new(Descriptor(own.0.as_mut_ptr().cast()), Op::Recv)
    }

    #[test]
    fn descriptors_are_taken_in_posting_order() {
        let mut own: [Own; 3] = std::array::from_fn(|_| Own([0; 16]));
        let mut queue = Queue::default();
        for one in &mut own {
            queue.push(entry(one));
        }
        assert_eq!(queue.finish(1, 4, Some(9)), 0);
        assert!(queue.take().is_none() && !queue.is_ready());
        assert_eq!(queue.finish(0, 0, None), 2);
        // A second completion has no effect.
        assert_eq!(queue.finish(1, 8, Some(1)), 0);
        let first = queue.take().unwrap();
        assert_eq!(first.status(), VIP_STATUS_DONE);
        let second = queue.take().unwrap();
        assert_eq!((second.status(), second.declared_len()), (5, 9));
        assert!(queue.take().is_none() && !queue.is_empty());
        assert_eq!(queue.finish(2, 0, None), 1);
        assert!(queue.take().is_some() && queue.is_empty());
    }

    #[test]
    fn busy_descriptor_completes_when_it_is_released() {
        let mut own: [Own; 2] = std::array::from_fn(|_| Own([0; 16]));
        let mut queue = Queue::default();
        for one in &mut own {
            queue.push(entry(one));
        }
        queue.get(0).unwrap().is_busy = true;
        assert_eq!(queue.finish(0, 4, Some(9)), 0);
        // A later result, such as that of the end of the connection, has no effect.
        assert_eq!(queue.finish(0, 8, None), 0);
        assert_eq!(queue.finish(1, 0, None), 0);
        assert!(queue.take().is_none());
        assert_eq!(queue.release(1), None);
        let (status, len) = queue.release(0).unwrap();
        assert_eq!((queue.finish(0, status, len), queue.release(0)), (2, None));
        let first = queue.take().unwrap();
        assert_eq!((first.status(), first.declared_len()), (5, 9));
    }
}
