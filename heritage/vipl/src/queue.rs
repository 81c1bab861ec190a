// SPDX-License-Identifier: MIT OR Apache-2.0
//! A work queue: descriptors in the order in which they were posted, which is the order in which they end.
//!
//! They are numbered from the beginning of the VI, so that a number stays when those before it are taken.

use crate::descriptor::Descriptor;
use crate::types::{VIP_DESCRIPTOR, VIP_NIC_HANDLE, VIP_VI_HANDLE};
use std::collections::VecDeque;
use std::ffi::c_void;

/// Most descriptors on a queue: as many as hardware of the time had.
pub(crate) const DESCRIPTORS_MAX: usize = 1024;

/// What a descriptor on a queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send,
    Write,
    /// With its number.
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
    /// Units that were sent when the last of it had left; of a read, bytes that have come.
    pub(crate) mark: u32,
    /// What is wrong with it, as a status; found in its turn.
    pub(crate) fault: u32,
    pub(crate) has_ended: bool,
}

/// What the program wants to be called with when a descriptor has ended.
pub type VIP_WORK_HANDLER = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        nic: VIP_NIC_HANDLE,
        vi: VIP_VI_HANDLE,
        descriptor: *mut VIP_DESCRIPTOR,
    ),
>;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    /// Number of the first that has not ended.
    pub(crate) ended: u64,
    /// Number of the first that was not begun: sent whole, or given a message.
    pub(crate) next: u64,
    /// The completion queue, by its place.
    pub(crate) cq: Option<u32>,
    /// Who is to be called for the next ones that end.
    pub(crate) wanted: VecDeque<(VIP_WORK_HANDLER, *mut c_void)>,
}

impl Queue {
    /// An empty one, which tells a completion queue.
    pub(crate) fn new(cq: Option<u32>) -> Queue {
        Queue {
            cq,
            ..Queue::default()
        }
    }

    /// Number of the one that is posted next.
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

    /// Whether an entry waits for its acknowledgement: reads wait for their bytes.
    pub(crate) fn is_unanswered(&self, number: u64) -> bool {
        let entry = self.entries.get(self.index(number));
        entry.is_some_and(|entry| !entry.has_ended && !matches!(entry.op, Op::Read(_)))
    }

    /// Number of the read with that number of its own.
    pub(crate) fn read(&self, id: u32) -> Option<u64> {
        let mut numbered = (self.first..).zip(&self.entries);
        let wanted = |entry: &Entry| entry.op == Op::Read(id) && !entry.has_ended;
        Some(numbered.find(|(_, entry)| wanted(entry))?.0)
    }

    /// Ends an entry; how many at the front have ended with that.
    #[inline]
    pub(crate) fn finish(&mut self, number: u64, status: u32, len: Option<u32>) -> u32 {
        if let Some(entry) = self.get(number).filter(|entry| !entry.has_ended) {
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

    /// Forgets all descriptors, whose memory may be gone.
    pub(crate) fn abandon(&mut self) {
        self.entries.clear();
        (self.ended, self.next) = (self.first, self.first);
    }

    /// Whether the first has ended.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.ended > self.first
    }

    /// Takes the first, which has ended.
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
        Entry {
            descriptor: Descriptor(own.0.as_mut_ptr().cast()),
            op: Op::Recv,
            control: 0,
            total: 0,
            mark: 0,
            fault: 0,
            has_ended: false,
        }
    }

    #[test]
    fn descriptors_are_taken_in_the_order_in_which_they_were_posted() {
        let mut own: [Own; 3] = std::array::from_fn(|_| Own([0; 16]));
        let mut queue = Queue::default();
        for one in &mut own {
            queue.push(entry(one));
        }
        assert_eq!(queue.finish(1, 4, Some(9)), 0);
        assert!(queue.take().is_none() && !queue.is_ready());
        assert_eq!(queue.finish(0, 0, None), 2);
        // A second end changes nothing.
        assert_eq!(queue.finish(1, 8, Some(1)), 0);
        let first = queue.take().unwrap();
        assert_eq!(first.status(), VIP_STATUS_DONE);
        let second = queue.take().unwrap();
        assert_eq!((second.status(), second.declared_len()), (5, 9));
        assert!(queue.take().is_none() && !queue.is_empty());
        assert_eq!(queue.finish(2, 0, None), 1);
        assert!(queue.take().is_some() && queue.is_empty());
    }
}
