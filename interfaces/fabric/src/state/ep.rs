// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint: the engine, its peers, and the destination of its completions.

#![allow(unsafe_code, reason = "passes memory of the application to the engine")]

mod claims;
mod connection;
mod submit;

use std::os::fd::RawFd;
use std::time::Duration;

use portolan::Error;
use portolan::binding::{Endpoint, EndpointAddress, Idle, PeerIndex, RawCompletion, RawError};

use self::claims::Claimed;
use super::link::Link;
use super::mr::Mr;
use super::op::Side;
use super::peers::Peers;
use super::queue::WaitFds;
use super::routes::Routes;
use crate::abi::{ADDR_UNSPEC, RECV, SELECTIVE_COMPLETION, SEND};
use crate::errno::Errno;
use crate::idle::IdleAction;

/// Default minimum free space in a multi-receive buffer. Most programs' control messages are
/// shorter.
const MIN_FREE_DEFAULT: usize = 64;

/// An endpoint.
pub(crate) struct Ep {
    engine: Endpoint,
    routes: Routes,
    peers: Peers,
    /// The bound address vector.
    av: Option<usize>,
    claims: Vec<Claimed>,
    tx: Side,
    rx: Side,
    sources: Sources,
    min_free: usize,
    /// Connection of a connected endpoint.
    link: Option<Box<Link>>,
    /// Set if the core should be yielded after the last turn.
    yields: bool,
}

/// Sources that receives accept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sources {
    /// Any peer.
    All,
    /// The peer that the receive names.
    Named,
}

impl Ep {
    /// Creates an endpoint without bindings. The flags apply to calls that pass none. Receives name
    /// a source if `directed` is set.
    pub(crate) fn new(engine: Endpoint, tx_flags: u64, rx_flags: u64, directed: bool) -> Ep {
        let sources = match directed {
            true => Sources::Named,
            false => Sources::All,
        };
        Ep {
            engine,
            routes: Routes::default(),
            peers: Peers::default(),
            av: None,
            claims: Vec::new(),
            tx: Side::new(tx_flags),
            rx: Side::new(rx_flags),
            sources,
            min_free: MIN_FREE_DEFAULT,
            link: None,
            yields: false,
        }
    }

    /// Returns the flags of sends and remote memory operations.
    #[inline]
    pub(crate) fn tx(&self) -> Side {
        self.tx
    }

    /// Returns the flags of receives.
    #[inline]
    pub(crate) fn rx(&self) -> Side {
        self.rx
    }

    /// Sets the default flags of calls that pass none, for the one direction that `flags` contains.
    pub(crate) fn set_default_flags(&mut self, flags: u64) -> Result<(), Errno> {
        let side = match flags & (SEND | RECV) {
            SEND => &mut self.tx,
            RECV => &mut self.rx,
            _ => return Err(Errno::INVAL),
        };
        side.set_default_flags(flags & !(SEND | RECV));
        Ok(())
    }

    /// Returns the minimum free space in a multi-receive buffer.
    pub(crate) fn min_free(&self) -> usize {
        self.min_free
    }

    pub(crate) fn set_min_free(&mut self, len: usize) {
        self.min_free = len;
    }

    pub(crate) fn address(&self) -> EndpointAddress {
        self.engine.address()
    }

    pub(super) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Reports to a queue, in the directions that the flags name.
    pub(super) fn add_cq(&mut self, cq: usize, flags: u64) {
        let selective = flags & SELECTIVE_COMPLETION != 0;
        if flags & SEND != 0 {
            self.tx.set_selective(selective);
        }
        if flags & RECV != 0 {
            self.rx.set_selective(selective);
        }
        self.routes.add_cq(cq, flags);
    }

    /// Counts operations with any of these flags.
    pub(super) fn add_cntr(&mut self, cntr: usize, of: u64) {
        self.routes.add_cntr(cntr, of);
    }

    /// Uses an address vector.
    pub(super) fn set_av(&mut self, av: usize) {
        self.av = Some(av);
    }

    pub(crate) fn has_av(&self) -> bool {
        self.av.is_some()
    }

    pub(super) fn uses_av(&self, av: usize) -> bool {
        self.av == Some(av)
    }

    /// Adds an address with its index in the vector.
    pub(super) fn insert(&mut self, at: usize, address: &EndpointAddress) -> Result<(), Errno> {
        let peer = self.engine.insert(address).map_err(|_| Errno::NOMEM)?;
        self.peers.insert(at, peer, address);
        Ok(())
    }

    /// Removes an address. The peer is removed with its last index.
    pub(super) fn forget(&mut self, at: usize) {
        if let Some(peer) = self.peers.forget(at) {
            self.engine.remove(peer);
        }
    }

    /// Returns the peer that a receive is restricted to.
    #[inline]
    pub(crate) fn source(&self, addr: u64) -> Result<Option<PeerIndex>, Errno> {
        match self.sources {
            Sources::All => Ok(None),
            Sources::Named if addr == ADDR_UNSPEC => Ok(None),
            Sources::Named => self.peers.find(addr).map(Some),
        }
    }

    /// Returns the index of a peer in the address vector.
    pub(super) fn index_of(&self, peer: PeerIndex) -> u64 {
        self.peers.source(Some(peer))
    }

    /// Registers a region for access by peers.
    pub(super) fn register(&mut self, mr: &Mr) -> Result<(), Errno> {
        // SAFETY: the application registered the memory and keeps it valid until it closes the
        // region, which deregisters it.
        let registered = unsafe {
            self.engine
                .register(mr.memory(), mr.access(), mr.key(), mr.base())
        };
        registered.map_err(|error| match error {
            Error::KeyInUse { .. } => Errno::NOKEY,
            _ => Errno::INVAL,
        })
    }

    pub(super) fn deregister(&mut self, key: u64) {
        self.engine.deregister(key);
    }

    /// Runs one turn. Returns true if this process is a forked child, in which nothing is done. The
    /// caller yields the core if [`Ep::take_yield`] returns true.
    #[inline(always)]
    pub(super) fn work(
        &mut self,
        mut deliver: impl FnMut(&Routes, &Peers, &RawCompletion),
    ) -> bool {
        if self.link.is_some() {
            self.handle_link();
        }
        let Ep {
            engine,
            routes,
            peers,
            yields,
            ..
        } = self;
        (_, *yields) = engine.poll_unyielding(&mut |completion| {
            deliver(routes, peers, &completion);
            if let Some(error) = &completion.error {
                peers.report_failure(completion.peer, error);
            }
        });
        engine.is_forked()
    }

    /// Returns true if the core should be yielded since the last turn. Only one caller gets true.
    #[inline]
    pub(super) fn take_yield(&mut self) -> bool {
        std::mem::take(&mut self.yields)
    }

    /// Records that the core was yielded for `duration`, which ended now.
    pub(super) fn note_yield(&mut self, duration: Duration) {
        self.engine.note_yield(duration);
    }

    pub(super) fn is_forked(&self) -> bool {
        self.engine.is_forked()
    }

    /// Returns the error if messages may be missing because the engine ran out of memory.
    pub(super) fn shortage(&self) -> Option<RawError> {
        self.engine.shortage()
    }

    /// Returns the action after a turn without progress. An endpoint that may sleep is armed.
    pub(super) fn idle_action(&mut self) -> IdleAction {
        match self.engine.idle() {
            Idle::Spin => IdleAction::Again,
            Idle::Yield => IdleAction::Yield,
            Idle::Sleep if self.arm() => IdleAction::Sleep(self.wait_fd()),
            Idle::Sleep => IdleAction::Again,
        }
    }

    /// Prepares for a sleep on the descriptor. Returns true if no work is pending.
    pub(super) fn arm(&mut self) -> bool {
        !self.has_link_change() && self.engine.arm()
    }

    /// Returns the descriptors that a queue's reader sleeps on.
    ///
    /// # Errors
    /// No descriptor is available.
    pub(super) fn wait_fds(&self) -> Result<WaitFds, Errno> {
        let link = self.link.as_ref().map(|link| link.wake_fd());
        Ok([Some(self.wait_fd()), link.transpose()?])
    }

    fn wait_fd(&self) -> RawFd {
        self.engine.wait_fd()
    }
}
