// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive ring of a raw Ethernet socket, in mapped memory that the kernel fills with frames.
//!
//! The kernel copies each frame into the next slot and then sets the slot's status word. The owner
//! reads the frame in place and returns the slot through the same word. Neither an empty poll nor a
//! frame costs a system call (packet(7), `PACKET_RX_RING`;
//! Documentation/networking/packet_mmap.rst).
//!
//! Uses version 2 of the layout, with one slot per frame. In version 3, frames share blocks that
//! the kernel delivers when they are full, or after 1 ms at the earliest: too late for a reply.
//!
//! Invariant: the memory of a slot is read only between the acquire of a status *user* and the
//! release of a status *kernel*. The other side is the kernel, not another process. Another process
//! with the mapping does not access it: a broker that created the ring keeps it mapped only so that
//! it persists, and the socket closes on `exec`. (A forked child inherits both; the caller must
//! ensure that it uses neither.)
//!
//! SYNC pair *slot*: the kernel's barrier before the status *user* (`tpacket_rcv`), our acquire of
//! it: the frame is readable. Our release of *kernel*, the kernel's barrier after its read
//! (`__packet_get_status`): the slot is writable again.
#![allow(unsafe_code, reason = "reads and returns slots of the mapping")]

use super::options::set;
use crate::mapping::Mapping;
use libc::{c_int, tpacket2_hdr};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Shortest block. Blocks are the kernel's unit of allocation, in contiguous pages if possible, and
/// powers of two in any case. Longer ones waste less at their ends. This is a multiple of any page
/// size (at most 64 KiB).
const BLOCK_LEN_MIN: usize = 64 << 10;

/// Offset of a frame in its slot: behind the slot's header and the sender's address, so that the
/// data after the Ethernet header is aligned (`tpacket_rcv`, `netoff` and `macoff`).
const FRAME_OFF: usize = (libc::TPACKET2_HDRLEN + 16).next_multiple_of(16) - 14;

/// Alignment of slots: a cache line, so that no two share one.
const SLOT_ALIGN: usize = 64;

/// A frame in its slot.
#[derive(Clone, Copy, Debug)]
pub struct RingFrame<'a> {
    /// The frame with its Ethernet header; truncated if it is longer than a slot.
    pub bytes: &'a [u8],
    /// Full length of the frame in bytes.
    pub len: usize,
    /// Set if frames before this one were dropped since the drop count was last read.
    pub behind_drops: bool,
}

/// Mapped receive ring of a raw Ethernet socket.
#[derive(Debug)]
pub struct PacketRing {
    memory: Mapping,
    slot_len: usize,
    slots_per_block: usize,
    block_len: usize,
    slot_count: usize,
    /// Position of the next frame: offset in the mapping, and slots left in its block.
    next_off: usize,
    left_in_block: usize,
}

/// Division of a ring into blocks and slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    slot_len: usize,
    block_len: usize,
    block_count: usize,
}

impl RingLayout {
    /// Returns the layout of about `ring_len` bytes, at least one block, for frames of up to
    /// `frame_len` bytes including the Ethernet header.
    #[must_use]
    pub fn new(frame_len: usize, ring_len: usize) -> RingLayout {
        let slot_len = (FRAME_OFF + frame_len).next_multiple_of(SLOT_ALIGN);
        // Two slots and the remainder: at worst a third is wasted.
        let block_len = (2 * slot_len).next_power_of_two().max(BLOCK_LEN_MIN);
        RingLayout {
            slot_len,
            block_len,
            block_count: (ring_len / block_len).max(1),
        }
    }

    /// Returns the layout of a ring created by another process: bytes of a slot and of a block, and
    /// number of blocks. Returns `None` if these are invalid.
    #[must_use]
    pub fn from_parts([slot_len, block_len, block_count]: [u32; 3]) -> Option<RingLayout> {
        let [slot_len, block_len, block_count] =
            [slot_len as usize, block_len as usize, block_count as usize];
        let is_cut = slot_len.is_multiple_of(SLOT_ALIGN)
            && slot_len >= FRAME_OFF
            && block_len.is_power_of_two()
            && block_len >= slot_len.max(BLOCK_LEN_MIN)
            && block_count > 0
            && block_len.checked_mul(block_count).is_some();
        is_cut.then_some(RingLayout {
            slot_len,
            block_len,
            block_count,
        })
    }

    /// Returns the bytes of a slot and of a block, and the number of blocks; `None` for a ring
    /// longer than the kernel can count.
    #[must_use]
    pub fn parts(&self) -> Option<[u32; 3]> {
        let part = |len: usize| u32::try_from(len).ok();
        Some([
            part(self.slot_len)?,
            part(self.block_len)?,
            part(self.block_count)?,
        ])
    }

    /// Returns the total length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an empty ring cannot exist")]
    pub fn len(&self) -> usize {
        self.block_len * self.block_count
    }

    fn slots_per_block(&self) -> usize {
        self.block_len / self.slot_len
    }

    fn slot_count(&self) -> usize {
        self.slots_per_block() * self.block_count
    }

    /// Converts to the kernel's form.
    fn request(&self) -> io::Result<libc::tpacket_req> {
        let field = |len: usize| u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput);
        Ok(libc::tpacket_req {
            tp_block_size: field(self.block_len)?,
            tp_block_nr: field(self.block_count)?,
            tp_frame_size: field(self.slot_len)?,
            tp_frame_nr: field(self.slot_count())?,
        })
    }
}

impl PacketRing {
    /// Makes the raw Ethernet socket `fd` receive through a ring of about `ring_len` bytes, at
    /// least one block, for frames of up to `frame_len` bytes including the Ethernet header. The
    /// kernel allocates the memory at once, and waits a few milliseconds until the socket is not in
    /// use without the ring.
    ///
    /// # Errors
    /// `ENOMEM` if memory or address space is exhausted. The socket may then have a ring or not,
    /// and must be closed.
    pub fn attach(fd: BorrowedFd<'_>, frame_len: usize, ring_len: usize) -> io::Result<PacketRing> {
        let layout = RingLayout::new(frame_len, ring_len);
        Self::lay(fd, &layout)?;
        Self::map(fd, &layout)
    }

    /// Gives the raw Ethernet socket `fd` a ring without mapping it.
    ///
    /// # Errors
    /// As [`PacketRing::attach`].
    pub fn lay(fd: BorrowedFd<'_>, layout: &RingLayout) -> io::Result<()> {
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        set(fd, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        set(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_RX_RING,
            layout.request()?,
        )
    }

    /// Maps the ring of `fd`, created with that layout, perhaps by another process. Only one
    /// process may read it.
    ///
    /// # Errors
    /// `EINVAL` if the ring has another length.
    pub fn map(fd: BorrowedFd<'_>, layout: &RingLayout) -> io::Result<PacketRing> {
        // The mapping keeps the socket alive, and the socket its ring.
        let memory = Mapping::map(fd, layout.len())?;
        Ok(PacketRing {
            memory,
            slot_len: layout.slot_len,
            slots_per_block: layout.slots_per_block(),
            block_len: layout.block_len,
            slot_count: layout.slot_count(),
            next_off: 0,
            left_in_block: layout.slots_per_block(),
        })
    }

    /// Returns the most frames that can wait.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slot_count
    }

    /// Returns `true` if a frame is waiting.
    #[inline]
    #[must_use]
    pub fn has_frame(&self) -> bool {
        // SYNC: slot
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Passes the next frame to `read`, if one is waiting, and returns its slot to the kernel.
    #[inline]
    pub fn take<R>(&mut self, read: impl FnOnce(RingFrame<'_>) -> R) -> Option<R> {
        // SYNC: slot
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let result = read(self.frame(status));
        // SYNC: slot
        self.status()
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.advance();
        Some(result)
    }

    #[inline]
    fn slot(&self) -> NonNull<tpacket2_hdr> {
        // SAFETY: `advance` keeps `next_off` at the beginning of a slot of the mapping.
        unsafe { self.memory.base().add(self.next_off) }.cast()
    }

    #[inline]
    fn status(&self) -> &AtomicU32 {
        // SAFETY: the word is at the start of a slot, which is aligned to a cache line and lives as
        // long as the mapping, which `self` owns; the kernel and we access it only as one word.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.slot().as_ptr()).tp_status) }
    }

    /// Returns the frame of a slot that is ours, with its `status`.
    #[inline]
    fn frame(&self, status: u32) -> RingFrame<'_> {
        let slot = self.slot().as_ptr();
        // SAFETY: the acquired status makes the slot ours: the kernel wrote the header before, and
        // writes nothing until `take` returns the slot. The same holds for all three.
        let (off, captured_len, len) = unsafe {
            (
                (&raw const (*slot).tp_mac).read(),
                (&raw const (*slot).tp_snaplen).read(),
                (&raw const (*slot).tp_len).read(),
            )
        };
        // The kernel truncates frames longer than the slot (`tpacket_rcv`).
        let off = usize::from(off).min(self.slot_len);
        let captured_len = (captured_len as usize).min(self.slot_len - off);
        // SAFETY: within the slot by the lines above; ours, and written, as the header is. The
        // reference ends before the slot is returned: `take` passes it only to `read`.
        let bytes = unsafe { std::slice::from_raw_parts(slot.cast::<u8>().add(off), captured_len) };
        RingFrame {
            bytes,
            len: len as usize,
            behind_drops: status & libc::TP_STATUS_LOSING != 0,
        }
    }

    #[inline]
    fn advance(&mut self) {
        self.next_off += self.slot_len;
        self.left_in_block -= 1;
        if self.left_in_block == 0 {
            self.left_in_block = self.slots_per_block;
            // The rest of the block is shorter than a slot.
            self.next_off = self.next_off.next_multiple_of(self.block_len);
            if self.next_off == self.memory.len() {
                self.next_off = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_take_frames_of_any_mtu_and_fill_their_blocks() {
        for frame_len in [14 + 68, 14 + 1500, 14 + 9000, 14 + 65_535, 14 + 65_536] {
            for ring_len in [0, 4096, 4 << 20] {
                let layout = RingLayout::new(frame_len, ring_len);
                assert!(layout.slot_len >= FRAME_OFF + frame_len, "{layout:?}");
                assert_eq!(layout.slot_len % 16, 0, "TPACKET_ALIGNMENT");
                assert_eq!(layout.block_len % BLOCK_LEN_MIN, 0, "{layout:?}");
                assert!(layout.slot_count() > 0, "{layout:?}");
                assert!(layout.block_len * layout.block_count <= ring_len.max(layout.block_len));
                let waste = layout.block_len - layout.slots_per_block() * layout.slot_len;
                assert!(waste < layout.slot_len, "{layout:?}");
                let decoded = layout.parts().map(RingLayout::from_parts);
                assert_eq!(decoded, Some(Some(layout)));
            }
        }
        assert_eq!(RingLayout::new(14 + 1500, 4 << 20).slot_count(), 40 * 64);
        assert_eq!(RingLayout::new(14 + 9000, 4 << 20).slot_count(), 7 * 64);
    }

    #[test]
    fn socket_without_a_ring_is_not_mapped() {
        for parts in [
            [0, 65_536, 1],
            [1_600, 65_536, 0],
            [1_601, 65_536, 1],
            [1_600, 65_535, 1],
            [1_600, 4_096, 1],
            [131_072, 65_536, 1],
        ] {
            assert_eq!(RingLayout::from_parts(parts), None, "{parts:?}");
        }
    }
}
