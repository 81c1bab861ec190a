// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frame buffers. A frame is kept in one from its first record until it is acknowledged. So a lost
//! frame is retransmitted byte for byte (`P3.1`), whatever kind of send its messages came from.

use crate::base::narrow::narrow;
use alloc::vec;
use alloc::vec::Vec;

/// Length in bytes of the longest message that is cut into fragments in a buffer.
pub(crate) const FRAGMENTED_LEN_MAX: usize = 64 * 1024;

/// Length in bytes of a buffer for runs. It holds the fragments of two longest messages in frames of
/// 512 bytes, the least of a path: 137 per message, the last one padded. One such message in the
/// shortest frames that the choice allows has 509, of 92 KB together. Two such buffers hold the
/// frames of any call.
pub(crate) const RUNS_LEN: usize = 144 * 1024;

/// Buffer lengths in bytes: a frame of ordinary Ethernet, a jumbo frame, and runs; then single
/// messages of up to 20 KiB, and of any length.
const CLASS_LENS: [usize; 5] = [2048, 9216, RUNS_LEN, 20 * 1024, FRAGMENTED_LEN_MAX];

/// Number of classes for frames. The other classes are for messages without frames.
const FRAME_CLASSES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

/// Alignment of run buffers: a page, like the kernel buffers that they are copied to. Most x86
/// processors copy at half speed if the destination is up to 31 bytes after the source, modulo 4
/// KiB.
const RUNS_ALIGN: usize = 4096;

#[derive(Debug)]
struct Slot {
    /// Memory of the buffer, which begins at `off`.
    bytes: Vec<u8>,
    off: usize,
    class: u8,
    /// Number of unacknowledged frames in this buffer.
    ref_count: u32,
}

impl Slot {
    fn new(class: usize) -> Slot {
        let len = CLASS_LENS[class];
        let align = if class + 1 >= FRAME_CLASSES {
            RUNS_ALIGN
        } else {
            1
        };
        let bytes = vec![0; len + align - 1];
        let off = bytes.as_ptr().align_offset(align);
        Slot {
            bytes,
            off,
            class: narrow(class),
            ref_count: 0,
        }
    }
}

/// All frame buffers of a process; allocated on demand and reused.
#[derive(Debug, Default)]
pub(crate) struct SlotPool {
    slots: Vec<Slot>,
    free: [Vec<u32>; CLASS_LENS.len()],
}

impl SlotPool {
    /// Returns a buffer of at least `len` bytes (at most 147,456) with one reference.
    pub(crate) fn take(&mut self, len: usize) -> SlotId {
        self.take_bytes(len).0
    }

    /// Returns a buffer like [`SlotPool::take`], and its memory.
    #[inline]
    pub(crate) fn take_bytes(&mut self, len: usize) -> (SlotId, &mut [u8]) {
        if len <= CLASS_LENS[0] {
            return self.take_of(0);
        }
        let classes = &CLASS_LENS[..FRAME_CLASSES];
        let class = classes.iter().position(|&class_len| len <= class_len);
        self.take_of(class.unwrap_or(FRAME_CLASSES - 1))
    }

    /// Returns a buffer for a message of `len` bytes (at most 65,536) that is kept without frames,
    /// and its memory. It has one reference.
    pub(crate) fn take_message(&mut self, len: usize) -> (SlotId, &mut [u8]) {
        let classes = [1, 3, 4].into_iter();
        let class = classes.clone().find(|&class| len <= CLASS_LENS[class]);
        self.take_of(class.unwrap_or(4))
    }

    #[inline]
    fn take_of(&mut self, class: usize) -> (SlotId, &mut [u8]) {
        let index = match self.free[class].pop() {
            Some(index) => index,
            None => self.allocate(class),
        };
        let slot = &mut self.slots[index as usize];
        slot.ref_count = 1;
        (SlotId(index), &mut slot.bytes[slot.off..])
    }

    #[cold]
    fn allocate(&mut self, class: usize) -> u32 {
        self.slots.push(Slot::new(class));
        narrow(self.slots.len() - 1)
    }

    #[inline]
    pub(crate) fn bytes(&self, id: SlotId) -> &[u8] {
        let slot = &self.slots[id.0 as usize];
        &slot.bytes[slot.off..]
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, id: SlotId) -> &mut [u8] {
        let slot = &mut self.slots[id.0 as usize];
        &mut slot.bytes[slot.off..]
    }

    pub(crate) fn retain(&mut self, id: SlotId, count: u32) {
        self.slots[id.0 as usize].ref_count += count;
    }

    pub(crate) fn release(&mut self, id: SlotId) {
        let slot = &mut self.slots[id.0 as usize];
        debug_assert!(slot.ref_count > 0, "a frame buffer was released twice");
        slot.ref_count -= 1;
        if slot.ref_count == 0 {
            self.free[usize::from(slot.class)].push(id.0);
        }
    }

    /// Returns the number of buffers in use.
    pub(crate) fn used(&self) -> usize {
        self.slots.len() - self.free.iter().map(Vec::len).sum::<usize>()
    }
}
