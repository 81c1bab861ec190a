// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine without a job, for libraries that connect processes in ways of their own.
//!
//! An [`Endpoint`] has an address of 64 bytes, which its program distributes. Peers are inserted
//! and removed at run time, and a process that has the address may send first. Operations use
//! memory by address, carry a cookie of the caller, and complete with a [`RawCompletion`] that
//! [`Endpoint::poll`] hands out. There are no ranks. Messages are matched by tag, or are active
//! messages, which run a hook of the receiver.
//!
//! Invariant: each accepted operation that does not complete at once gets exactly one completion.
//! Its memory is not accessed after that completion was handed out.
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
mod simulated;
#[cfg(test)]
mod tests;
mod wait;

pub use active::ActiveMessage;
pub use atomic::RawAtomic;
pub use simulated::SimulatedEndpoint;

use crate::directory::{Directory, EndpointAddress};
use crate::engine::{Descriptor, Engine, Waiter};
use crate::error::Error;
use crate::raw::{PeerIndex, RawCompletion};
use portolan_proto::{Counters, Instant, LinkId, OpId, PeerId};
use portolan_sys::gate::Gate;
use removal::RemovedPeer;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Process, or part of one, that other processes reach by its address. See the module
/// documentation.
///
/// Belongs to one thread at a time. Dropping it waits until everything sent has arrived at live
/// receivers, without a time limit, and logs what may not have arrived. It waits at most one second
/// for peers in the same process.
pub struct Endpoint {
    engine: Gate<Engine>,
    directory: Arc<Directory>,
    address: EndpointAddress,
    waiter: Waiter,
    /// Descriptor on which the caller sleeps; `None` in a simulation.
    descriptor: Option<Descriptor>,
    /// Time since which the caller sleeps, or is about to.
    armed_at: Option<Instant>,
    /// Operations that keep the registered memory, by key.
    regions: HashMap<u64, OpId>,
    /// Removed peers that are not forgotten yet.
    removed_peers: Vec<RemovedPeer>,
    /// Set if dropping the endpoint closes it and waits for delivery; clear in a simulation.
    waits_when_dropped: bool,
}

/// Inserts peers of an endpoint that is in use, for example from its hook of active messages.
#[derive(Clone)]
pub struct PeerInserter(Arc<Directory>);

impl PeerInserter {
    /// Inserts the owner of `address` as a peer and returns its number. A call of
    /// [`Endpoint::insert`] with the same address must follow before the number is used. It returns
    /// the same number, except if the peer was removed and its session has ended.
    ///
    /// # Errors
    /// [`Error::TooManyPeers`].
    pub fn insert(&self, address: &EndpointAddress) -> Result<PeerIndex, Error> {
        let peer = self.0.insert(address).ok_or(Error::TooManyPeers)?;
        Ok(PeerIndex(peer.0))
    }
}

impl Endpoint {
    /// Returns the address by which other processes reach this endpoint.
    #[must_use]
    pub fn address(&self) -> EndpointAddress {
        self.address
    }

    /// Inserts the owner of `address` as a peer and returns its number. Nothing is sent to it yet.
    /// For the address of an existing peer, returns the same number. For the address of this
    /// endpoint, returns a number for sending to itself.
    ///
    /// # Errors
    /// [`Error::TooManyPeers`].
    pub fn insert(&mut self, address: &EndpointAddress) -> Result<PeerIndex, Error> {
        let mut peer = self.directory.insert(address).ok_or(Error::TooManyPeers)?;
        self.engine.enter().register_fresh();
        if self.is_removed(peer) && !self.take_back(peer) {
            peer = self.directory.insert(address).ok_or(Error::TooManyPeers)?;
            self.engine.enter().register_fresh();
        }
        Ok(PeerIndex(peer.0))
    }

    /// Returns a handle that inserts peers during other calls of this endpoint.
    #[must_use]
    pub fn inserter(&self) -> PeerInserter {
        PeerInserter(Arc::clone(&self.directory))
    }

    /// Returns `true` in a child that was forked after the endpoint was opened. The child cannot
    /// use it.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.engine.is_forked()
    }

    /// Returns the address of a peer; `None` if it was removed or never existed.
    #[must_use]
    pub fn address_of(&self, peer: PeerIndex) -> Option<EndpointAddress> {
        let peer = PeerId(peer.0);
        self.directory
            .address_of(peer)
            .filter(|_| !self.is_removed(peer))
    }

    /// Returns `true` if the program has inserted `peer`. An unsolicited peer has connected by
    /// itself.
    #[must_use]
    pub fn is_inserted(&self, peer: PeerIndex) -> bool {
        self.directory.is_inserted(PeerId(peer.0))
    }

    /// Returns the counters of the protocol.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.engine.read().inner.core.counters().clone()
    }

    /// Returns the number of drops by reason, of the protocol and of the links.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        self.engine.read().inner.drops()
    }

    /// Returns the names of the links that are connected to `peer`; none before the first message.
    #[must_use]
    pub fn links_to(&self, peer: PeerIndex) -> Vec<String> {
        let engine = self.engine.read();
        let status = |link| engine.inner.core.path_status(PeerId(peer.0), link);
        let up = LinkId::ALL.into_iter().filter_map(status);
        up.filter(|path| path.up)
            .map(|path| path.link.to_string())
            .collect()
    }

    /// Makes a turn that receives and sends, and passes completions to `sink`. Returns the number
    /// of completions and frames.
    ///
    /// After many turns without any, it yields the core if other processes use it.
    #[inline]
    pub fn poll(&mut self, sink: &mut (impl FnMut(RawCompletion) + ?Sized)) -> usize {
        let (count, yields) = self.poll_unyielding(sink);
        if yields {
            self.waiter.yield_core(&mut self.engine.enter());
        }
        count
    }

    /// Polls like [`Endpoint::poll`] but never yields the core. Returns `true` as second value if
    /// the caller should yield it and then call [`Endpoint::note_yield`].
    ///
    /// For endpoints behind a lock: a thread that yields while it holds the lock would keep the
    /// other threads from polling.
    #[inline]
    pub fn poll_unyielding(
        &mut self,
        sink: &mut (impl FnMut(RawCompletion) + ?Sized),
    ) -> (usize, bool) {
        if self.is_forked() {
            return (0, false);
        }
        self.wake();
        if self.directory.has_fresh() {
            self.engine.enter().register_fresh();
        }
        if !self.removed_peers.is_empty() {
            self.forget_removed();
        }
        let engine = &mut *self.engine.enter();
        let mut count = engine.work(None);
        if count > 0 || engine.inner.has_done() {
            // The caller most likely answers what has arrived.
            engine.leave_to_caller();
        } else {
            engine.leave();
        }
        if engine.inner.has_done() {
            count += engine.inner.hand_out(sink);
        }
        let yields = self.waiter.note(count, engine);
        (count, yields)
    }

    /// Records that the caller yielded the core for `duration`, which ended now.
    pub fn note_yield(&mut self, duration: Duration) {
        let now = self.engine.enter().inner.read_clock();
        self.waiter.on_yielded(now - duration, now);
    }

    fn is_removed(&self, peer: PeerId) -> bool {
        self.engine.read().inner.is_removed(peer)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.is_forked() {
            self.engine.enter().abandon();
            return;
        }
        if std::thread::panicking() || !self.waits_when_dropped {
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
