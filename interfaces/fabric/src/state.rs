// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a domain. Objects refer to one another by their index in its tables. The modules
//! that implement the C calls depend on this one, not the reverse.

mod av;
mod cntr;
mod delivery;
mod domain;
mod ep;
mod link;
mod mr;
mod op;
mod peers;
mod queue;
mod reader;
mod routes;
mod submit;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use portolan::binding::EndpointAddress;
use portolan_ffi::yield_core;
use slab::Slab;

use self::av::Av;
use self::delivery::Delivery;
use self::reader::Reader;
use crate::errno::Errno;

pub(crate) use self::cntr::Cntr;
pub(crate) use self::domain::Domain;
pub(crate) use self::ep::Ep;
pub(crate) use self::link::{LINGER, Link};
pub(crate) use self::mr::Mr;
pub(crate) use self::op::{Op, Side};
pub(crate) use self::queue::{Failure, Queue};
pub(crate) use self::reader::Arrays;

/// The tables of a domain.
#[derive(Default)]
pub(crate) struct State {
    eps: Slab<Ep>,
    cqs: Slab<Queue>,
    cntrs: Slab<Cntr>,
    avs: Slab<Av>,
    mrs: Slab<Mr>,
    /// The fabric, until the domain is closed.
    fabric: Option<Arc<()>>,
}

/// Opening and closing. A closed object is returned, so that it is dropped without the lock.
impl State {
    /// Adds an endpoint, and registers the existing regions with it.
    pub(crate) fn open_ep(&mut self, mut ep: Ep) -> Result<usize, Errno> {
        for (_, mr) in &self.mrs {
            ep.register(mr)?;
        }
        Ok(self.eps.insert(ep))
    }

    pub(crate) fn close_ep(&mut self, at: usize) -> Result<Ep, Errno> {
        let ep = self.eps.remove(at);
        for cq in ep.routes().cqs() {
            if let Some(queue) = self.cqs.get_mut(cq) {
                queue.detach(at, || ep.wait_fds());
            }
        }
        for cntr in ep.routes().cntrs() {
            if let Some(cntr) = self.cntrs.get_mut(cntr) {
                cntr.detach(at);
            }
        }
        Ok(ep)
    }

    pub(crate) fn open_cq(&mut self, queue: Queue) -> usize {
        self.cqs.insert(queue)
    }

    pub(crate) fn close_cq(&mut self, at: usize) -> Result<Queue, Errno> {
        match self.cqs[at].eps() {
            [] => Ok(self.cqs.remove(at)),
            _ => Err(Errno::BUSY),
        }
    }

    pub(crate) fn open_cntr(&mut self) -> usize {
        self.cntrs.insert(Cntr::default())
    }

    pub(crate) fn close_cntr(&mut self, at: usize) -> Result<Cntr, Errno> {
        match self.cntrs[at].eps() {
            [] => Ok(self.cntrs.remove(at)),
            _ => Err(Errno::BUSY),
        }
    }

    pub(crate) fn open_av(&mut self) -> usize {
        self.avs.insert(Av::default())
    }

    pub(crate) fn close_av(&mut self, at: usize) -> Result<Av, Errno> {
        if self.eps.iter().any(|(_, ep)| ep.uses_av(at)) {
            return Err(Errno::BUSY);
        }
        Ok(self.avs.remove(at))
    }

    pub(crate) fn has_key(&self, key: u64) -> bool {
        self.mrs.iter().any(|(_, mr)| mr.key() == key)
    }

    /// Registers a region with all endpoints, or with none if one of them fails.
    pub(crate) fn open_mr(&mut self, mr: Mr) -> Result<usize, Errno> {
        let mut eps = self.eps.iter_mut();
        if let Some(error) = eps.find_map(|(_, ep)| ep.register(&mr).err()) {
            self.deregister(mr.key());
            return Err(error);
        }
        Ok(self.mrs.insert(mr))
    }

    pub(crate) fn close_mr(&mut self, at: usize) -> Result<Mr, Errno> {
        let mr = self.mrs.remove(at);
        self.deregister(mr.key());
        Ok(mr)
    }

    fn deregister(&mut self, key: u64) {
        for (_, ep) in &mut self.eps {
            ep.deregister(key);
        }
    }

    /// Makes the domain a user of its fabric.
    pub(crate) fn enter(&mut self, fabric: &Arc<()>) {
        self.fabric = Some(Arc::clone(fabric));
    }

    /// Ends the use of the fabric, if the domain may be closed. Remaining regions and counters keep
    /// its memory alive.
    pub(crate) fn leave(&mut self) -> Result<(), Errno> {
        if self.eps.is_empty() && self.cqs.is_empty() && self.avs.is_empty() {
            self.fabric = None;
            Ok(())
        } else {
            Err(Errno::BUSY)
        }
    }
}

/// Access to the objects by index.
impl State {
    #[inline]
    pub(crate) fn ep(&mut self, at: usize) -> &mut Ep {
        &mut self.eps[at]
    }

    #[inline]
    pub(crate) fn cq(&mut self, at: usize) -> &mut Queue {
        &mut self.cqs[at]
    }

    #[inline]
    pub(crate) fn cntr(&mut self, at: usize) -> &mut Cntr {
        &mut self.cntrs[at]
    }
}

/// Bindings between objects.
impl State {
    pub(crate) fn bind_av(&mut self, ep: usize, av: usize) -> Result<(), Errno> {
        let (ep, addresses) = (&mut self.eps[ep], self.avs.get(av).ok_or(Errno::INVAL)?);
        ep.set_av(av);
        addresses
            .addresses()
            .try_for_each(|(at, address)| ep.insert(at, &address))
    }

    /// Makes an endpoint report to a queue, in the directions that the flags name.
    pub(crate) fn bind_cq(&mut self, at: usize, cq: usize, flags: u64) -> Result<(), Errno> {
        let ep = &mut self.eps[at];
        ep.add_cq(cq, flags);
        let queue = self.cqs.get_mut(cq).ok_or(Errno::INVAL)?;
        queue.attach(at, || ep.wait_fds())
    }

    /// Makes an endpoint count operations with any of these flags.
    pub(crate) fn bind_cntr(&mut self, ep: usize, cntr: usize, of: u64) -> Result<(), Errno> {
        self.eps[ep].add_cntr(cntr, of);
        self.cntrs.get_mut(cntr).ok_or(Errno::INVAL)?.attach(ep);
        Ok(())
    }

    /// Adds an address to a vector and to the endpoints that use it.
    pub(crate) fn insert(&mut self, av: usize, address: &EndpointAddress) -> Result<usize, Errno> {
        let at = self.avs[av].insert(*address);
        for ep in users(&mut self.eps, av) {
            ep.insert(at, address)?;
        }
        Ok(at)
    }

    /// Removes an address from a vector and from the endpoints that use it.
    pub(crate) fn remove(&mut self, av: usize, addr: u64) -> Result<(), Errno> {
        let at = self.avs[av].take(addr).ok_or(Errno::INVAL)?;
        users(&mut self.eps, av).for_each(|ep| ep.forget(at));
        Ok(())
    }

    pub(crate) fn address(&self, av: usize, addr: u64) -> Result<EndpointAddress, Errno> {
        self.avs[av].address(addr).ok_or(Errno::INVAL)
    }
}

/// Returns the endpoints that use an address vector.
fn users(eps: &mut Slab<Ep>, av: usize) -> impl Iterator<Item = &mut Ep> {
    let all = eps.iter_mut().map(|(_, ep)| ep);
    all.filter(move |ep| ep.uses_av(av))
}

/// Progress, in the application's calls.
impl State {
    /// Runs one turn of an endpoint. Its completions are put into its queues. May yield the core.
    pub(crate) fn progress(&mut self, ep: usize) {
        self.poll_ep(ep, &mut None);
        if let Some(ep) = self.eps.get_mut(ep)
            && ep.take_yield()
        {
            ep.note_yield(yield_core());
        }
    }

    /// Returns an endpoint of a queue if the core should be yielded after its last turn. The caller
    /// releases the lock, so that other threads make progress, yields, and calls
    /// [`State::note_yield`].
    #[inline]
    pub(crate) fn take_yield(&mut self, cq: usize) -> Option<usize> {
        let State { eps, cqs, .. } = self;
        let mut bound = cqs[cq].eps().iter().copied();
        bound.find(|ep| eps.get_mut(*ep).is_some_and(Ep::take_yield))
    }

    /// Records that the core was yielded for an endpoint.
    pub(crate) fn note_yield(&mut self, ep: usize, duration: Duration) {
        if let Some(ep) = self.eps.get_mut(ep) {
            ep.note_yield(duration);
        }
    }

    /// Runs one turn of each endpoint of a queue, unless the queue has entries.
    pub(crate) fn progress_cq(&mut self, cq: usize) {
        if !self.cqs[cq].is_readable() {
            self.progress_all(|state| state.cqs[cq].eps());
        }
    }

    /// Runs one turn of each endpoint of a counter.
    pub(crate) fn progress_cntr(&mut self, cntr: usize) {
        self.progress_all(|state| state.cntrs[cntr].eps());
    }

    fn progress_all(&mut self, eps: impl Fn(&State) -> &[usize]) {
        let mut next = 0;
        while let Some(&ep) = eps(self).get(next) {
            self.progress(ep);
            next += 1;
        }
    }

    /// Runs one turn of an endpoint. Completions are passed to `reader` or put into queues. Returns
    /// true if this process is a forked child, in which endpoints make no progress.
    #[inline(always)]
    fn poll_ep(&mut self, ep: usize, reader: &mut Option<&mut Reader>) -> bool {
        let State {
            eps, cqs, cntrs, ..
        } = self;
        let Some(ep) = eps.get_mut(ep) else {
            return false;
        };
        ep.work(|routes, peers, completion| {
            let reader = reader.as_deref_mut();
            Delivery::new(routes, cqs, cntrs, reader).complete(completion, peers);
        })
    }

    /// Returns the destination of an endpoint's completions.
    #[inline]
    fn delivery(&mut self, ep: usize) -> Delivery<'_> {
        let routes = self.eps[ep].routes();
        Delivery::new(routes, &mut self.cqs, &mut self.cntrs, None)
    }
}
