// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links: how frames leave and enter a process.
//!
//! A link moves frames between processes and knows nothing of the protocol inside them. It is what
//! GAMMA called BIND2: a few verbs and a capability record. What a link may lose, duplicate,
//! reorder or corrupt it says in [`LinkCaps`]; everything else is the protocol core's business.
//!
//! The control path (opening, connecting, notices) and the data path (transmit, receive) of each
//! link live in separate files.
//!
//! The one invariant: a frame handed to [`Link::transmit`] is never referenced after the call
//! returns, and a frame handed to the sink of [`Link::receive`] is valid only during that call.

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

/// Who is at the far end of a link, as the caller numbers its peers (the rank within a job).
pub type PeerId = u32;

/// A way for frames to leave and enter this process.
pub trait Link {
    /// What this link can do. Constant after opening.
    fn caps(&self) -> &LinkCaps;

    /// Where peers reach this link.
    fn local_addr(&self) -> LinkAddr;

    /// Makes `peer` reachable at `addr`. Idempotent; does not wait for the peer.
    ///
    /// # Errors
    /// [`LinkError`] when the address is of another kind of link or the system refuses a resource.
    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError>;

    /// Forgets `peer` and what was allocated for it.
    fn disconnect(&mut self, peer: PeerId);

    /// Sends one frame, or one run of equal segments, to `peer`.
    ///
    /// # Errors
    /// [`TxError::Full`] is back-pressure: nothing was sent, try again after progress.
    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError>;

    /// Hands frames that have arrived to `sink`, at most about `budget` of them, and returns how
    /// many it handed over. Never blocks.
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize;

    /// As [`Link::receive`], for a receiver that may say where the payload of bulk frames belongs. A
    /// link that cannot receive there ignores its plans: this default.
    fn receive_placed(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.receive(budget, &mut |frame| receiver.frame(frame))
    }

    /// Copies `dst.len()` bytes that `peer` announced at its address `remote_addr` into `dst`
    /// (`process_vm_readv`). The peer need not do anything; of a long message it may copy a part
    /// ([`Link::help`]), and nobody writes to `dst` any more when this returns.
    ///
    /// # Errors
    /// [`PullError::Unsupported`] where the link or the system cannot; the caller then asks the
    /// peer to send the data as frames.
    fn pull(&mut self, peer: PeerId, remote_addr: u64, dst: &mut [u8]) -> Result<(), PullError> {
        let _ = (peer, remote_addr, dst);
        Err(PullError::Unsupported)
    }

    /// Where in this process's memory the message lies that `peer` is pulling, if it lets this process
    /// copy a part of it. Cheap: for every turn in which something of this process may be pulled.
    fn offered(&self, peer: PeerId) -> Option<u64> {
        let _ = peer;
        None
    }

    /// Copies a part of the message `memory`, which was announced to `peer` at its address, into the
    /// peer's memory, if the peer is pulling it and parts are left; whether it did.
    fn help(&mut self, peer: PeerId, memory: &[u8]) -> bool {
        let _ = (peer, memory);
        false
    }

    /// The next thing that happened outside the data path: a peer vanished, an MTU shrank.
    /// Cheap when nothing happened, but may make a system call: not for every turn of a spin loop.
    fn poll_notice(&mut self) -> Option<Notice>;

    /// Prepares to sleep: asks peers to ring, and adds the descriptors to wait for. Returns
    /// `false` if frames are already waiting, in which case the caller must not sleep.
    fn arm(&mut self, wake: &mut WakeSet) -> bool;

    /// Undoes [`Link::arm`] after waking.
    fn disarm(&mut self) {}
}

/// A descriptor that becomes readable when a sleeping process must wake.
pub type WakeFd = RawFd;
