// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine without a job: for libraries that bring processes together in ways of their own.
//!
//! An [`Endpoint`] has an address of 64 bytes, which its program passes on; peers are inserted and
//! removed at run time, and a process that knows the address may be the first to send. Operations
//! work on memory by address, carry a cookie of the caller's, and end in [`RawCompletion`]s that
//! [`Endpoint::poll`] hands out. There are no ranks. Messages are matched by tags, or are active messages,
//! which run a hook of the receiver's.
//!
//! The one invariant: each operation that was accepted and has not ended at once gets exactly one completion, and
//! its memory is not touched after that was handed out.
#![allow(
    unsafe_code,
    reason = "operations on memory that the caller names by address; see `RawPiece`"
)]

mod active;
mod atomic;
mod message;
mod open;
mod remote;
mod removal;
#[cfg(test)]
mod tests;
mod wait;

pub use active::ActiveMessage;
pub use atomic::RawAtomic;
pub use open::EndpointConfig;

use crate::directory::{Directory, EndpointAddress};
use crate::engine::{Descriptor, Engine, Waiter};
use crate::error::Error;
use crate::raw::{PeerIndex, RawCompletion};
use portolan_proto::{Counters, Instant, LinkId, OpId, PeerId};
use portolan_sys::gate::Gate;
use removal::Leaver;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// A process, or a part of one, that others reach by its address. See the module documentation.
///
/// Belongs to one thread at a time. Dropping it sees to it that what was sent arrives, however long
/// the receivers take, while they live, and logs what may not have arrived. For peers in the same
/// process it waits a second at most.
pub struct Endpoint {
    engine: Gate<Engine>,
    directory: Arc<Directory>,
    address: EndpointAddress,
    waiter: Waiter,
    /// What its caller sleeps on, and since when that is armed.
    descriptor: Descriptor,
    armed_at: Option<Instant>,
    /// Registration memory, by key.
    regions: HashMap<u64, OpId>,
    /// Peers that were removed and are not forgotten yet.
    leavers: Vec<Leaver>,
    /// Buffer that joins the two pieces of a short active message.
    joined: Vec<u8>,
}

impl Endpoint {
    /// What others need to reach this endpoint.
    #[must_use]
    pub fn address(&self) -> EndpointAddress {
        self.address
    }

    /// Makes the owner of `address` a peer; nothing is sent to it yet. The address of a peer gives
    /// the same number again, and that of this endpoint one that it reaches itself by.
    ///
    /// # Errors
    /// [`Error::TooManyPeers`].
    pub fn insert(&mut self, address: &EndpointAddress) -> Result<PeerIndex, Error> {
        let mut peer = self.directory.insert(address).ok_or(Error::TooManyPeers)?;
        self.engine.enter().meet_fresh();
        if self.is_removed(peer) && !self.take_back(peer) {
            peer = self.directory.insert(address).ok_or(Error::TooManyPeers)?;
            self.engine.enter().meet_fresh();
        }
        Ok(PeerIndex(peer.0))
    }

    /// Whether this process is a child, forked after the endpoint was opened: it can do nothing with it.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.engine.is_forked()
    }

    /// The address of a peer; `None` for one that was removed or never was.
    #[must_use]
    pub fn address_of(&self, peer: PeerIndex) -> Option<EndpointAddress> {
        let peer = PeerId(peer.0);
        self.directory
            .address_of(peer)
            .filter(|_| !self.is_removed(peer))
    }

    /// Whether the program has inserted `peer`; an unsolicited peer has come by itself.
    #[must_use]
    pub fn is_inserted(&self, peer: PeerIndex) -> bool {
        self.directory.is_inserted(PeerId(peer.0))
    }

    /// What the protocol has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.engine.look().inner.core.counters().clone()
    }

    /// Everything that was dropped here, by reason, by the protocol and by the links.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        self.engine.look().inner.drops()
    }

    /// The links that lead to `peer` now, by name; none before the first message.
    #[must_use]
    pub fn links_to(&self, peer: PeerIndex) -> Vec<String> {
        let engine = self.engine.look();
        let status = |link| engine.inner.core.path_status(PeerId(peer.0), link);
        let up = LinkId::ALL.into_iter().filter_map(status);
        up.filter(|path| path.up)
            .map(|path| path.link.to_string())
            .collect()
    }

    /// Hands what has ended to `sink`, after a turn that receives and sends. Returns how many
    /// completions and frames there were.
    ///
    /// After many turns without any it lets others have the core, where there are any that use it.
    #[inline]
    pub fn poll(&mut self, sink: &mut (impl FnMut(RawCompletion) + ?Sized)) -> usize {
        if self.is_forked() {
            return 0;
        }
        self.wake();
        if self.directory.has_fresh() {
            self.engine.enter().meet_fresh();
        }
        if !self.leavers.is_empty() {
            self.see_off();
        }
        let engine = &mut *self.engine.enter();
        let mut count = engine.work(None);
        if engine.inner.has_done() {
            engine.leave_to_caller();
            count += engine.inner.hand_out(sink);
        } else {
            engine.leave();
        }
        self.waiter.note(count, engine);
        count
    }

    fn is_removed(&self, peer: PeerId) -> bool {
        self.engine.look().inner.is_removed(peer)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.is_forked() {
            self.engine.enter().abandon();
            return;
        }
        if std::thread::panicking() {
            return;
        }
        let mut engine = self.engine.enter();
        if let Err(error) = engine.close(&mut self.waiter) {
            log::error!("{error}");
        }
        engine.disconnect_all();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
