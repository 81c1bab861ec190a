// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock-free ring of frames between two processes: one writes, one reads.
//!
//! The sender creates a sealed memory file ([`create`]) and passes the descriptor on; the receiver
//! maps it ([`open`]). Each then holds one role handle, [`RingSender`] or [`RingReceiver`], with
//! methods that take `&mut self`.
//!
//! An entry is an 8-byte word and the frame, padded to 8 bytes. The word is zero until the entry is
//! committed. The receiver polls exactly that word, which is on the line of the frame's first
//! bytes. A small message therefore costs one or two line transfers, and there is no shared tail
//! index.
//!
//! Stream positions count bytes since the beginning; a position modulo the ring's length is an
//! offset in the ring. `head ≤ tail`, and `tail + 8 - head ≤ ring_len`: the sender zeroes the word
//! behind an entry before it commits the entry. The receiver therefore never finds bytes of an old
//! lap where it expects the next word, and never writes to the data.
//!
//! Faults of the other process are checked against private copies. Only the words, the head and two
//! flags are ever read from it. A value that no correct peer can write breaks the ring
//! ([`RingBroken`]); the owner then reports and unmaps it.
//!
//! SYNC pairs, named at both ends:
//! - *entry*: the sender's release of a word, the receiver's acquire of it: the frame is readable.
//! - *space*: the receiver's release of the head, the sender's acquire: the bytes are writable.
//! - *sleep*: commit, fence, read the receiver's state | set SLEEPING, fence, poll for a word.
//! - *offer* and *share*: see `offer`, for messages that bypass the ring.
//! - *waiting*: publish the head, fence, read the flag | set the flag, fence, read the head.

mod layout;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
#[path = "memory_loom.rs"]
mod memory;
mod offer;
mod receiver;
mod sender;

#[cfg(test)]
mod loom_tests;
#[cfg(test)]
mod tests;

pub use layout::{RING_LEN_MAX, RING_LEN_MIN, file_len, frame_len_max, is_valid_ring_len};
pub use offer::{Claim, Helped, OFFER_LEN_MIN};
pub use receiver::{Entry, RingReceiver};
pub use sender::{PushError, RingSender};

#[cfg(not(loom))]
use memory::RingMemory;
#[cfg(not(loom))]
use std::io;
#[cfg(not(loom))]
use std::os::fd::{AsFd, OwnedFd};

/// The other process wrote an invalid value; the ring must no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shared ring is corrupt: {0}")]
pub struct RingBroken(pub &'static str);

/// Result that states if the process at the other end must be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a bell that is not rung leaves the other process asleep"]
pub enum Bell {
    /// It is awake or will poll by itself.
    Silent,
    /// It sleeps: ring.
    Ring,
}

/// Creates a ring of `ring_len` bytes and its sending end. The descriptor is for the receiver.
///
/// # Errors
/// Returns the error of the system for the memory file or its mapping.
///
/// # Panics
/// Panics if [`is_valid_ring_len`] returns `false`.
#[cfg(not(loom))]
pub fn create(ring_len: usize) -> io::Result<(RingSender, OwnedFd)> {
    assert!(is_valid_ring_len(ring_len), "ring length {ring_len}");
    let fd = crate::memfd::create_sealed("portolan-ring", file_len(ring_len) as u64)?;
    let memory = RingMemory::map(&fd, ring_len)?;
    memory.initialize();
    Ok((RingSender::new(memory), fd))
}

/// Maps the receiving end of a ring that another process created.
///
/// # Errors
/// Fails if the length is invalid, or if the file is not sealed, has another size or another
/// layout, or cannot be mapped.
#[cfg(not(loom))]
pub fn open(fd: impl AsFd, ring_len: usize) -> io::Result<RingReceiver> {
    let invalid = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    if !is_valid_ring_len(ring_len) {
        return Err(invalid("ring length out of bounds"));
    }
    crate::memfd::check(fd.as_fd(), file_len(ring_len) as u64)
        .map_err(|refused| io::Error::new(io::ErrorKind::InvalidData, refused))?;
    let memory = RingMemory::map(fd, ring_len)?;
    if !memory.is_initialized() {
        return Err(invalid("ring of another layout"));
    }
    Ok(RingReceiver::new(memory))
}
