// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bare mapped receive ring of a raw Ethernet socket: `PACKET_RX_RING`, version 2 (packet(7)).

use super::{SharedMap, check, socklen};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a block. Slots do not cross block boundaries.
const BLOCK_LEN: usize = 64 << 10;
/// Number of blocks. They hold more frames than a ping-pong has in flight, and their headers fit in
/// a core's cache.
const BLOCKS: usize = 16;

/// A bare receive ring; see the module documentation.
pub(crate) struct Ring {
    memory: SharedMap,
    slot_len: usize,
    next: usize,
    count: usize,
}

impl Ring {
    /// Sets up a ring for frames of at most `frame_len` bytes on `socket`, which must not be bound
    /// yet.
    pub(crate) fn new(socket: &OwnedFd, frame_len: usize) -> io::Result<Ring> {
        let fd = socket.as_fd();
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set(fd, libc::PACKET_VERSION, &version)?;
        // A power of two, so that slots fill their blocks.
        let slot_len = (frame_len + libc::TPACKET2_HDRLEN + 32).next_power_of_two();
        let (slot_len, block_len) = (slot_len, BLOCK_LEN.max(slot_len));
        let count = BLOCKS * block_len / slot_len;
        let field = |len: usize| u32::try_from(len).map_err(io::Error::other);
        let request = libc::tpacket_req {
            tp_block_size: field(block_len)?,
            tp_block_nr: field(BLOCKS)?,
            tp_frame_size: field(slot_len)?,
            tp_frame_nr: field(count)?,
        };
        set(fd, libc::PACKET_RX_RING, &request)?;
        Ok(Ring {
            memory: SharedMap::of(fd, BLOCKS * block_len)?,
            slot_len,
            next: 0,
            count,
        })
    }

    /// Copies the next frame to `bytes` and returns its length. Returns `None` if none is available
    /// now.
    #[inline]
    pub(crate) fn try_receive(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let off = self.next * self.slot_len;
        let status = self.status(off).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let mut header = [0; mem::size_of::<libc::tpacket2_hdr>()];
        self.memory.read(off, &mut header);
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&header[at..at + 4]);
            u32::from_ne_bytes(word) as usize
        };
        let len = word(mem::offset_of!(libc::tpacket2_hdr, tp_len));
        // Two 16-bit numbers share the word; the first is the offset of the frame.
        let place = word(mem::offset_of!(libc::tpacket2_hdr, tp_mac)) & 0xffff;
        let kept = len.min(bytes.len());
        self.memory.read(off + place, &mut bytes[..kept]);
        self.status(off)
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.count;
        Some(len)
    }

    #[inline]
    fn status(&self, off: usize) -> &AtomicU32 {
        self.memory.half_word(off)
    }
}

fn set<T>(fd: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let (level, value) = (libc::SOL_PACKET, (&raw const *value).cast());
    // SAFETY: the option reads a T, which outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, socklen::<T>()) })?;
    Ok(())
}
