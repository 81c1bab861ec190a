// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links: transports that carry frames between processes.
//!
//! A link moves frames and does not interpret them; it corresponds to BIND2 of GAMMA. It consists
//! of a few verbs and a capability record. [`LinkCaps`] states if a link may lose, duplicate,
//! reorder or corrupt frames; the protocol core handles the rest.
//!
//! The control path (opening, connecting, notices) and the data path (transmit, receive) of each
//! link are in separate files.
//!
//! Invariant: a frame given to [`Link::transmit`] is not referenced after the call returns. A frame
//! given to the sink of [`Link::receive`] is valid only during the call of the sink.

mod addr;
mod boxed;
mod caps;
pub mod conformance;
mod cut;
pub mod die;
mod ethernet;
pub mod fault;
mod frame;
mod host;
mod notice;
pub mod packet;
pub mod pcap;
mod peers;
mod place;
pub mod shm;
pub mod sim;
pub mod stream;
pub mod udp;
pub mod xdp;

pub use addr::{HostId, LinkAddr};
pub use caps::{LinkCaps, LinkKind};
pub use cut::{Pieces, Run};
pub use frame::{Body, RxFrame, Segments, TxFrame};
pub use notice::{LinkError, Notice, PullError, TxError, WakeSet};
pub use place::{Expected, Plan, Receiver};
pub use portolan_sys::net::{
    BadPortRange, Interface, InterfaceKind, MacAddr, Network, PortRange, PortsUsedUp, interfaces,
};
pub use shm::{Shm, ShmConfig};

use std::os::fd::RawFd;

/// Number of a peer, assigned by the caller (the rank within a job).
pub type PeerId = u32;

/// A transport that sends and receives frames for this process.
pub trait Link {
    /// Returns the capabilities of this link, which are constant after opening.
    fn caps(&self) -> &LinkCaps;

    /// Returns the address at which peers reach this link.
    fn local_addr(&self) -> LinkAddr;

    /// Makes `peer` reachable at `addr`. Idempotent; does not wait for the peer.
    ///
    /// # Errors
    /// [`LinkError`] if the address belongs to another kind of link or the system refuses a
    /// resource.
    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError>;

    /// Removes `peer` and releases the resources allocated for it.
    fn disconnect(&mut self, peer: PeerId);

    /// Sends one frame, or one run of equal segments, to `peer`.
    ///
    /// # Errors
    /// [`TxError::Full`] is back-pressure: nothing was sent; retry after progress.
    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError>;

    /// Sends one frame that lies in one piece, like [`Link::transmit`]. Links that send short
    /// messages often implement it with fewer steps.
    ///
    /// # Errors
    /// The errors of [`Link::transmit`].
    #[inline]
    fn send(&mut self, peer: PeerId, frame: &[u8]) -> Result<(), TxError> {
        self.transmit(peer, &TxFrame::contiguous(frame))
    }

    /// Passes received frames to `sink`, about `budget` at most, and returns how many it passed.
    /// Never blocks.
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize;

    /// Like [`Link::receive`], for a receiver that can specify where the payload of bulk frames
    /// belongs. This default, for links without placement, ignores the plans.
    fn receive_placed(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.receive(budget, &mut |frame| receiver.frame(frame))
    }

    /// Copies `dst.len()` bytes, which `peer` announced at its address `remote_addr`, into `dst`
    /// (`process_vm_readv`). The peer need not take part, but it may copy a part of a long message
    /// ([`Link::help`]). No process writes to `dst` after this returns.
    ///
    /// # Errors
    /// [`PullError::Unsupported`] if the link or the system cannot do this. The caller then
    /// requests the data as frames.
    fn pull(&mut self, peer: PeerId, remote_addr: u64, dst: &mut [u8]) -> Result<(), PullError> {
        let _ = (peer, remote_addr, dst);
        Err(PullError::Unsupported)
    }

    /// Returns the local address of the message that `peer` is pulling, if this process may copy a
    /// part of it. Cheap enough to call in every poll while a message may be pulled.
    fn offered(&self, peer: PeerId) -> Option<u64> {
        let _ = peer;
        None
    }

    /// Copies a part of `memory`, a message announced to `peer`, into the peer's memory. Returns
    /// `false` if the peer is not pulling that message or no part is left.
    fn help(&mut self, peer: PeerId, memory: &[u8]) -> bool {
        let _ = (peer, memory);
        false
    }

    /// Returns the next event outside the data path, such as a failed peer or a reduced MTU. Cheap
    /// without an event, but it may make a system call: do not call it in every iteration of a
    /// spin loop.
    fn poll_notice(&mut self) -> Option<Notice>;

    /// Prepares to sleep: requests wake-ups from the peers and adds the descriptors to wait for.
    /// Returns `false` if frames are already waiting; the caller must then not sleep.
    fn arm(&mut self, wake: &mut WakeSet) -> bool;

    /// Reverts [`Link::arm`] after waking.
    fn disarm(&mut self) {}
}

/// A descriptor that becomes readable when a sleeping process must wake.
pub type WakeFd = RawFd;
