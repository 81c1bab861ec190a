// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint: the engine, who its peers are, and where its completions go.

#![allow(unsafe_code, reason = "lends memory of the application to the engine")]

mod claims;
mod connection;
mod submit;

use std::os::fd::RawFd;

use portolan::{Endpoint, EndpointAddress, Error, Idle, PeerIndex, RawCompletion, RawError};

use self::claims::Claimed;
use super::link::Link;
use super::mr::Mr;
use super::op::Side;
use super::peers::Peers;
use super::queue::WaitFds;
use super::routes::Routes;
use crate::abi::{ADDR_UNSPEC, RECV, SELECTIVE_COMPLETION, SEND};
use crate::errno::Errno;
use crate::nap::Nap;

/// Least room that a buffer for many messages keeps, unless the application says another: the
/// messages of most programs' control traffic are shorter.
const MIN_FREE_DEFAULT: usize = 64;

/// An endpoint.
pub(crate) struct Ep {
    engine: Endpoint,
    routes: Routes,
    peers: Peers,
    /// The address vector it is bound to.
    av: Option<usize>,
    claims: Vec<Claimed>,
    tx: Side,
    rx: Side,
    sources: Sources,
    min_free: usize,
    /// Of a connected endpoint.
    link: Option<Box<Link>>,
}

/// Whom receives are from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sources {
    /// Anybody.
    All,
    /// Whom they name.
    Named,
}

impl Ep {
    /// An endpoint of which nothing is bound yet, with the flags of calls that pass none. Receives
    /// name a source if it is `directed`.
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
        }
    }

    /// What is sent, and what is read and written at peers.
    #[inline]
    pub(crate) fn tx(&self) -> Side {
        self.tx
    }

    /// What is received.
    #[inline]
    pub(crate) fn rx(&self) -> Side {
        self.rx
    }

    /// Set the flags of calls that pass none, in the one direction that is named among them.
    pub(crate) fn set_default_flags(&mut self, flags: u64) -> Result<(), Errno> {
        let side = match flags & (SEND | RECV) {
            SEND => &mut self.tx,
            RECV => &mut self.rx,
            _ => return Err(Errno::INVAL),
        };
        side.set_default_flags(flags & !(SEND | RECV));
        Ok(())
    }

    /// Least room that a buffer for many messages keeps.
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

    /// Report to a queue, in the directions that the flags name.
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

    /// Count operations with any of these flags.
    pub(super) fn add_cntr(&mut self, cntr: usize, of: u64) {
        self.routes.add_cntr(cntr, of);
    }

    /// Use an address vector.
    pub(super) fn set_av(&mut self, av: usize) {
        self.av = Some(av);
    }

    pub(crate) fn has_av(&self) -> bool {
        self.av.is_some()
    }

    pub(super) fn uses_av(&self, av: usize) -> bool {
        self.av == Some(av)
    }

    /// Learn of an address at its place in the vector.
    pub(super) fn insert(&mut self, at: usize, address: &EndpointAddress) -> Result<(), Errno> {
        let peer = self.engine.insert(address).map_err(|_| Errno::NOMEM)?;
        self.peers.learn(at, peer, address);
        Ok(())
    }

    /// Forget an address; the peer goes with its last place.
    pub(super) fn forget(&mut self, at: usize) {
        if let Some(peer) = self.peers.forget(at) {
            self.engine.remove(peer);
        }
    }

    /// The peer that a receive is limited to.
    #[inline]
    pub(crate) fn source(&self, addr: u64) -> Result<Option<PeerIndex>, Errno> {
        match self.sources {
            Sources::All => Ok(None),
            Sources::Named if addr == ADDR_UNSPEC => Ok(None),
            Sources::Named => self.peers.find(addr).map(Some),
        }
    }

    /// The place of a peer in the address vector.
    pub(super) fn place_of(&self, peer: PeerIndex) -> u64 {
        self.peers.source(Some(peer))
    }

    /// Open a region to peers.
    pub(super) fn register(&mut self, mr: &Mr) -> Result<(), Errno> {
        // SAFETY: the application registered the memory, and keeps it until it closes the region,
        // which deregisters it.
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

    /// Work for one turn. Returns whether this process is a child, which nothing is done for.
    #[inline(always)]
    pub(super) fn work(
        &mut self,
        mut deliver: impl FnMut(&Routes, &Peers, &RawCompletion),
    ) -> bool {
        if self.link.is_some() {
            self.follow();
        }
        let Ep {
            engine,
            routes,
            peers,
            ..
        } = self;
        engine.poll(&mut |completion| {
            deliver(routes, peers, &completion);
            if let Some(error) = &completion.error {
                peers.announce_loss(completion.peer, error);
            }
        });
        engine.is_forked()
    }

    pub(super) fn is_forked(&self) -> bool {
        self.engine.is_forked()
    }

    /// Why messages may be missing: the engine had no memory for them.
    pub(super) fn shortage(&self) -> Option<RawError> {
        self.engine.shortage()
    }

    /// What is to be done after a turn that brought nothing. One that may sleep is armed.
    pub(super) fn nap(&mut self) -> Nap {
        match self.engine.idle() {
            Idle::Spin => Nap::Again,
            Idle::Yield => Nap::Yield,
            Idle::Sleep if self.arm() => Nap::Sleep(self.wait_fd()),
            Idle::Sleep => Nap::Again,
        }
    }

    /// Prepare for a sleep on the descriptor. Returns whether there is nothing to do.
    pub(super) fn arm(&mut self) -> bool {
        !self.has_link_news() && self.engine.arm()
    }

    /// What to sleep on for a queue.
    ///
    /// # Errors
    /// For want of descriptors.
    pub(super) fn wait_fds(&self) -> Result<WaitFds, Errno> {
        let link = self.link.as_ref().map(|link| link.wake_fd());
        Ok([Some(self.wait_fd()), link.transpose()?])
    }

    fn wait_fd(&self) -> RawFd {
        self.engine.wait_fd()
    }
}
