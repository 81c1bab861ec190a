// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that belongs to a domain, and the way of a completion from an endpoint to a queue.

use portolan::{Cause, PeerIndex, RawCompletion, RawError, RawKind};
use slab::Slab;

use crate::abi;
use crate::av::Av;
use crate::cntr::Cntr;
use crate::cq::{Entry, Failure, Queue, Reader};
use crate::ep::{Ep, Op, Routes};
use crate::errno;
use crate::mr::Mr;

/// The tables of a domain. Objects name one another by their place in them.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) eps: Slab<Ep>,
    pub(crate) cqs: Slab<Queue>,
    pub(crate) cntrs: Slab<Cntr>,
    pub(crate) avs: Slab<Av>,
    pub(crate) mrs: Slab<Mr>,
}

impl State {
    /// Let an endpoint work for one turn; what it completed is in its queues.
    pub(crate) fn progress(&mut self, ep: usize) {
        self.turn(ep, &mut None);
    }

    /// The same; what it completed was read, or is in its queues. Returns whether this process is a
    /// child, which the endpoint does nothing for.
    #[inline(always)]
    fn turn(&mut self, ep: usize, reader: &mut Option<&mut Reader>) -> bool {
        let State {
            eps, cqs, cntrs, ..
        } = self;
        let Some(ep) = eps.get_mut(ep) else {
            return false;
        };
        let Ep {
            engine,
            routes,
            lost,
            ..
        } = ep;
        engine.poll(&mut |completion| {
            let reader = reader.as_deref_mut();
            Delivery {
                routes,
                cqs,
                cntrs,
                reader,
            }
            .complete(&completion);
            if let Some(error) = &completion.error {
                announce_loss(lost, routes, completion.peer, error);
            }
        });
        engine.is_forked()
    }

    /// Where the completions of an endpoint go.
    #[inline]
    pub(crate) fn delivery(&mut self, ep: usize) -> Delivery<'_> {
        let State {
            eps, cqs, cntrs, ..
        } = self;
        let routes = &eps[ep].routes;
        Delivery {
            routes,
            cqs,
            cntrs,
            reader: None,
        }
    }

    /// Let all endpoints of a list work for one turn.
    pub(crate) fn progress_all(&mut self, eps: impl Fn(&State) -> &[usize]) {
        let mut next = 0;
        while let Some(&ep) = eps(self).get(next) {
            self.progress(ep);
            next += 1;
        }
    }

    /// Let the endpoints of a queue that is being read work for one turn. Returns whether this process
    /// is a child, which they do nothing for.
    #[inline(always)]
    pub(crate) fn progress_read(&mut self, reader: &mut Reader) -> bool {
        let (mut next, mut is_forked) = (0, false);
        while let Some(&ep) = self.cqs[reader.cq].eps.get(next) {
            is_forked |= self.turn(ep, &mut Some(&mut *reader));
            next += 1;
        }
        is_forked
    }
}

/// Where an endpoint's completions go.
pub(crate) struct Delivery<'a> {
    pub(crate) routes: &'a Routes,
    pub(crate) cqs: &'a mut Slab<Queue>,
    pub(crate) cntrs: &'a mut Slab<Cntr>,
    /// Somebody reads one of the queues.
    reader: Option<&'a mut Reader>,
}

impl Delivery<'_> {
    /// Report a completion.
    #[inline]
    fn complete(&mut self, completion: &RawCompletion) {
        if completion.kind == RawKind::RemotePut {
            return self.announce_put(completion);
        }
        let op = Op::of(completion.cookie);
        let entry = self.entry(&op, completion);
        match &completion.error {
            None => self.succeed(&op, entry),
            Some(error) => self.fail(&op, entry, error, completion),
        }
    }

    #[inline]
    fn entry(&self, op: &Op, completion: &RawCompletion) -> Entry {
        let mut flags = op.flags;
        if completion.imm.is_some() {
            flags |= abi::REMOTE_CQ_DATA;
        }
        if completion.released {
            flags |= abi::MULTI_RECV;
        }
        Entry {
            context: op.context,
            flags,
            len: usize::try_from(completion.len).unwrap_or(usize::MAX),
            buf: completion.buf as usize,
            data: completion.imm.unwrap_or(0),
            tag: completion.tag,
            source: self.routes.source(completion.peer),
        }
    }

    /// Report success, where the operation is to be reported.
    #[inline]
    pub(crate) fn succeed(&mut self, op: &Op, entry: Entry) {
        if op.reported
            && let Some(cq) = self.cq(op.flags)
        {
            self.push(cq, &entry);
        }
        self.count(op.flags);
    }

    #[cold]
    fn fail(&mut self, op: &Op, entry: Entry, error: &RawError, completion: &RawCompletion) {
        let errno = errno::of_completion(error);
        let beyond = match error {
            RawError::Truncated { message_len } => message_len.saturating_sub(completion.len),
            _ => 0,
        };
        let failure = Failure {
            entry,
            beyond: usize::try_from(beyond).unwrap_or(usize::MAX),
            errno,
            text: sentence(self.routes, completion.peer, error),
        };
        self.report(op, failure);
    }

    /// Report a failure, unless nobody could tell whose it is.
    #[cold]
    pub(crate) fn report(&mut self, op: &Op, failure: Failure) {
        if let Some(cntr) = self.counter(op.flags) {
            cntr.failed();
        }
        let cq = self.cq(op.flags).filter(|_| !op.silent);
        if let Some(queue) = cq.and_then(|cq| self.cqs.get_mut(cq)) {
            queue.fail(failure);
        }
    }

    /// Count an operation that has no completion.
    #[inline]
    pub(crate) fn count(&mut self, flags: u64) {
        if let Some(cntr) = self.counter(flags) {
            cntr.succeeded();
        }
    }

    /// A peer's put with immediate data: reported to the receive queue, without a context.
    #[cold]
    fn announce_put(&mut self, completion: &RawCompletion) {
        let flags = abi::RMA | abi::REMOTE_WRITE | abi::REMOTE_CQ_DATA;
        let entry = Entry {
            context: 0,
            flags,
            len: usize::try_from(completion.len).unwrap_or(usize::MAX),
            buf: 0,
            data: completion.imm.unwrap_or(0),
            tag: 0,
            source: self.routes.source(completion.peer),
        };
        if let Some(cq) = self.routes.rx_cq {
            self.push(cq, &entry);
        }
    }

    /// To who reads the queue now, unless something waits before it, else into the queue.
    #[inline]
    fn push(&mut self, cq: usize, entry: &Entry) {
        let Some(queue) = self.cqs.get_mut(cq) else {
            return;
        };
        match &mut self.reader {
            Some(reader) if reader.cq == cq && reader.has_room() && !queue.has_news() => {
                reader.put(entry);
            }
            _ => queue.push(*entry),
        }
    }

    #[inline]
    fn cq(&self, flags: u64) -> Option<usize> {
        match flags & abi::RECV {
            0 => self.routes.tx_cq,
            _ => self.routes.rx_cq,
        }
    }

    #[inline]
    fn counter(&mut self, flags: u64) -> Option<&mut Cntr> {
        if self.routes.counters.is_empty() {
            return None;
        }
        let bound = self
            .routes
            .counters
            .iter()
            .find(|counter| counter.of & flags != 0)?;
        self.cntrs.get_mut(bound.cntr)
    }
}

/// Who and why, for people.
fn sentence(routes: &Routes, peer: Option<PeerIndex>, error: &RawError) -> String {
    match peer {
        None => error.to_string(),
        Some(peer) => format!("{}: {error}", routes.describe(peer)),
    }
}

/// Tell the user once about each peer that is gone. Some programs end at the first failure, with
/// no word about whose it was.
#[cold]
fn announce_loss(
    lost: &mut Vec<PeerIndex>,
    routes: &Routes,
    peer: Option<PeerIndex>,
    error: &RawError,
) {
    if !matches!(error, RawError::PeerGone(cause) if *cause != Cause::Closed) {
        return;
    }
    let Some(gone) = peer.filter(|peer| !lost.contains(peer)) else {
        return;
    };
    lost.push(gone);
    // One call, one line: other processes write to the same terminal.
    let line = format!("portolan: {}\n", sentence(routes, peer, error));
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
