// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a peer's memory. For a long message, the peer shares the work if it waits in the
//! library: it then writes a part into the reader's memory (`portolan_sys::ring`, offers).
//!
//! Invariant: a pull does not return while the peer writes. It may therefore take as long as the
//! peer's copy of its last claimed share, about 25 µs of the peer's time.

use super::Shm;
use super::peer::{Inbound, Life};
use crate::{PeerId, PullError};
use portolan_sys::ring::{Helped, OFFER_LEN_MIN, RingBroken};
use portolan_sys::wait::yield_now;
use portolan_sys::{doorbell, vm_read};
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// Polls for the end of the peer's copy before this core is yielded: a few microseconds, in which a
/// running peer finishes.
const SPINS_MAX: u32 = 200;

/// Yields before sleeping, for a stopped peer.
const YIELDS_MAX: u32 = 200;

/// Interval between polls of a peer that makes no progress.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Unused offers after which the peer is assumed to be busy, or to share this core.
const UNUSED_MAX: u32 = 2;

/// Long messages read without an offer after that. An unused offer costs one call per share, which
/// is negligible among so many.
const SKIP_COUNT: u32 = 16;

/// History of offers to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfferRecord {
    unused: u32,
    /// Messages still to be read without an offer.
    skips_left: u32,
    /// Set if the peer cannot write to this process.
    cannot_write: bool,
}

impl OfferRecord {
    /// Returns `true` if the next message, of `len` bytes, is to be offered.
    fn should_offer(&mut self, len: usize) -> bool {
        if len < OFFER_LEN_MIN || self.cannot_write {
            return false;
        }
        self.skips_left = self.skips_left.saturating_sub(1);
        self.skips_left == 0
    }

    /// Records that the peer did or did not copy a part.
    fn note(&mut self, has_helped: bool) {
        match has_helped {
            true => *self = OfferRecord::default(),
            false => self.unused += 1,
        }
        if self.unused >= UNUSED_MAX {
            self.skips_left = SKIP_COUNT;
        }
    }
}

impl Shm {
    pub(super) fn pull_from(
        &mut self,
        peer: PeerId,
        remote_addr: u64,
        dst: &mut [u8],
    ) -> Result<(), PullError> {
        if !self.can_pull {
            return Err(PullError::Unsupported);
        }
        let Some(state) = self.peers.get_mut(&peer) else {
            return Err(PullError::Unsupported);
        };
        if state.life != Life::Live {
            return Err(disconnected(peer));
        }
        let pid = state.pid.ok_or(PullError::Unsupported)?;
        let inbound = self.inbound.iter_mut().find(|inbound| inbound.peer == peer);
        let shared = inbound.filter(|_| state.offers.should_offer(dst.len()));
        let result = match shared {
            Some(inbound) => pull_shared(inbound, &mut state.offers, (pid, remote_addr), dst),
            None => vm_read::read_process(pid, remote_addr, dst).map_err(Failed::System),
        };
        match result {
            // A process closes its sockets before its pid can be reused. The bytes are therefore
            // the peer's if it has not hung up by now.
            Ok(()) if self.is_hung_up(peer) => Err(disconnected(peer)),
            Ok(()) => Ok(()),
            Err(Failed::System(err)) => Err(self.pull_failed(peer, err)),
            Err(Failed::Broken(broken)) => {
                self.break_off(peer, broken);
                Err(disconnected(peer))
            }
        }
    }

    fn pull_failed(&mut self, peer: PeerId, err: io::Error) -> PullError {
        match err.raw_os_error() {
            Some(libc::ENOSYS) => {
                self.can_pull = false;
                PullError::Unsupported
            }
            // The kernel's decision does not change, so later messages need not try again.
            Some(libc::EPERM | libc::EACCES) => {
                if let Some(state) = self.peers.get_mut(&peer) {
                    state.pid = None;
                }
                PullError::Unsupported
            }
            _ => PullError::Failed(peer, err),
        }
    }

    /// See [`crate::Link::offered`].
    pub(super) fn offered_by(&self, peer: PeerId) -> Option<u64> {
        let outbound = self.outbound.get(peer as usize)?.as_ref()?;
        outbound.ring.offered()
    }

    /// See [`crate::Link::help`].
    pub(super) fn help_peer(&mut self, peer: PeerId, memory: &[u8]) -> bool {
        let pid = self.peers.get(&peer).and_then(|state| state.pid);
        let outbound = self.outbound.get_mut(peer as usize);
        let (Some(pid), Some(Some(outbound))) = (pid, outbound) else {
            return false;
        };
        // The pid of an exited process may belong to another one: nothing is written there.
        if outbound.socket().is_none_or(doorbell::is_hung_up) {
            return false;
        }
        let source = memory.as_ptr().addr() as u64;
        let Some(claim) = outbound.ring.claim_back(source, memory.len()) else {
            return false;
        };
        let written = match memory.get(claim.bytes.clone()) {
            Some(bytes) => vm_read::write_process(pid, claim.target, bytes),
            None => Err(io::ErrorKind::InvalidInput.into()),
        };
        if let Err(error) = &written {
            log::debug!("shm link: write to peer {peer}: {error}");
        }
        outbound.ring.finish(&claim, written.is_ok());
        written.is_ok()
    }

    fn is_hung_up(&self, peer: PeerId) -> bool {
        let outbound = self.outbound.get(peer as usize).and_then(Option::as_ref);
        let inbound = self.inbound.iter().find(|inbound| inbound.peer == peer);
        let ours = outbound.and_then(|outbound| outbound.socket());
        ours.or(inbound.map(|inbound| &inbound.socket))
            .is_none_or(doorbell::is_hung_up)
    }
}

/// Reason for the failure of a shared pull.
enum Failed {
    System(io::Error),
    Broken(RingBroken),
}

/// Reads from `from`, an address of a process, into `dst`, and lets that process write a part of
/// `dst`.
fn pull_shared(
    inbound: &mut Inbound,
    record: &mut OfferRecord,
    from: (u32, u64),
    dst: &mut [u8],
) -> Result<(), Failed> {
    // This process does not touch the bytes from the claim on. The kernel performs the peer's
    // writes to this memory, as in a system call.
    let target = dst.as_mut_ptr().expose_provenance() as u64;
    inbound.ring.offer(from.1, target, dst.len());
    let copied = copy_front(inbound, from, dst);
    inbound.ring.withdraw_offer();
    if let Err(Failed::Broken(_)) = copied {
        // A peer with a corrupt ring cannot be waited for.
        return copied;
    }
    // Wait before `dst` is used in any way, even if our own share failed.
    let helped = await_share(inbound);
    copied?;
    match helped {
        Helped::From(begin) => record.note(begin < dst.len()),
        Helped::NotFrom(begin) => {
            record.cannot_write = true;
            read(from, begin, &mut dst[begin..])?;
        }
        Helped::Busy => return Err(Failed::System(io::ErrorKind::NotConnected.into())),
    }
    Ok(())
}

/// Copies the ranges that this process claims, until none is left.
fn copy_front(inbound: &mut Inbound, from: (u32, u64), dst: &mut [u8]) -> Result<(), Failed> {
    while let Some(bytes) = inbound.ring.claim_front().map_err(Failed::Broken)? {
        let begin = bytes.start;
        let share = dst.get_mut(bytes).unwrap_or_default();
        read(from, begin, share)?;
    }
    Ok(())
}

fn read((pid, remote_addr): (u32, u64), off: usize, dst: &mut [u8]) -> Result<(), Failed> {
    let remote_addr = remote_addr.wrapping_add(off as u64);
    vm_read::read_process(pid, remote_addr, dst).map_err(Failed::System)
}

/// Waits until the peer has finished its claimed share; returns [`Helped::Busy`] if the peer exited
/// instead. Its sockets are closed only when none of its threads is in a system call.
fn await_share(inbound: &Inbound) -> Helped {
    for poll in 0_u32.. {
        let helped = inbound.ring.helped();
        if helped != Helped::Busy {
            return helped;
        }
        if poll < SPINS_MAX {
            std::hint::spin_loop();
            continue;
        }
        if doorbell::is_hung_up(&inbound.socket) {
            // The last share may have finished in the meantime.
            return inbound.ring.helped();
        }
        match poll < SPINS_MAX + YIELDS_MAX {
            true => yield_now(),
            false => sleep(POLL_INTERVAL),
        }
    }
    Helped::Busy
}

fn disconnected(peer: PeerId) -> PullError {
    PullError::Failed(peer, io::ErrorKind::NotConnected.into())
}
