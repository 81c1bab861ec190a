// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery of an endpoint's completions to queues and counters.

use portolan::binding::{RawCompletion, RawError, RawKind};
use slab::Slab;

use super::cntr::Cntr;
use super::op::Op;
use super::peers::Peers;
use super::queue::{Entry, Failure, Queue};
use super::reader::Reader;
use super::routes::Routes;
use crate::abi;
use crate::errno::{self, Errno};

/// Destination of an endpoint's completions.
pub(super) struct Delivery<'a> {
    routes: &'a Routes,
    cqs: &'a mut Slab<Queue>,
    cntrs: &'a mut Slab<Cntr>,
    /// The reader of one of the queues, if a read is in progress.
    reader: Option<&'a mut Reader>,
}

impl<'a> Delivery<'a> {
    #[inline(always)]
    pub(super) fn new(
        routes: &'a Routes,
        cqs: &'a mut Slab<Queue>,
        cntrs: &'a mut Slab<Cntr>,
        reader: Option<&'a mut Reader>,
    ) -> Delivery<'a> {
        Delivery {
            routes,
            cqs,
            cntrs,
            reader,
        }
    }

    /// Reports a completion of an endpoint with these peers.
    #[inline]
    pub(super) fn complete(&mut self, completion: &RawCompletion, peers: &Peers) {
        if completion.kind == RawKind::RemotePut {
            return self.announce_put(completion, peers);
        }
        let op = Op::of(completion.cookie);
        let entry = entry(&op, completion, peers);
        match &completion.error {
            None => self.succeed(&op, entry),
            Some(error) => self.fail(&op, failure(entry, completion, error, peers)),
        }
    }

    /// Counts a success, and reports it if the operation requests that.
    #[inline]
    pub(super) fn succeed(&mut self, op: &Op, entry: Entry) {
        if op.is_reported()
            && let Some(cq) = self.routes.cq(op.flags())
        {
            self.push(cq, &entry);
        }
        self.count(op.flags());
    }

    /// Counts an operation that has no completion.
    #[inline]
    pub(super) fn count(&mut self, flags: u64) {
        if let Some(cntr) = self.counter(flags) {
            cntr.succeeded();
        }
    }

    /// Counts a failure, and reports it unless the operation has no context to identify it.
    #[cold]
    fn fail(&mut self, op: &Op, failure: Failure) {
        if let Some(cntr) = self.counter(op.flags()) {
            cntr.failed();
        }
        let queue = self.queue_of(op).filter(|_| !op.is_silent());
        if let Some(queue) = queue {
            queue.fail(failure);
        }
    }

    /// Reports a message that a peek found.
    pub(super) fn found(&mut self, op: &Op, entry: Entry) {
        if let Some(queue) = self.queue_of(op) {
            queue.push(entry);
        }
    }

    /// Reports that a peek found no message, with the cause if there is one.
    pub(super) fn not_found(&mut self, op: &Op, why: Option<RawError>) {
        let (errno, text) = match why {
            Some(error) => (errno::of_completion(&error), error.to_string()),
            None => (
                Errno(libc::ENOMSG),
                "no matching message has arrived".to_owned(),
            ),
        };
        if let Some(queue) = self.queue_of(op) {
            queue.fail(Failure {
                entry: op.entry(),
                beyond: 0,
                errno,
                text,
            });
        }
    }

    /// Reports a peer's put with immediate data to the receive queue, without a context.
    #[cold]
    fn announce_put(&mut self, completion: &RawCompletion, peers: &Peers) {
        let entry = Entry {
            flags: abi::RMA | abi::REMOTE_WRITE | abi::REMOTE_CQ_DATA,
            len: usize::try_from(completion.len).unwrap_or(usize::MAX),
            data: completion.imm.unwrap_or(0),
            source: peers.source(completion.peer),
            ..Entry::default()
        };
        if let Some(cq) = self.routes.cq(abi::RECV) {
            self.push(cq, &entry);
        }
    }

    /// Passes an entry to the current reader, or queues it if the reader is full or older entries
    /// wait.
    #[inline]
    fn push(&mut self, cq: usize, entry: &Entry) {
        let Some(queue) = self.cqs.get_mut(cq) else {
            return;
        };
        match &mut self.reader {
            Some(reader) if reader.reads(cq) && reader.has_space() && !queue.is_readable() => {
                reader.put(entry);
            }
            _ => queue.push(*entry),
        }
    }

    fn queue_of(&mut self, op: &Op) -> Option<&mut Queue> {
        self.cqs.get_mut(self.routes.cq(op.flags())?)
    }

    #[inline]
    fn counter(&mut self, flags: u64) -> Option<&mut Cntr> {
        self.cntrs.get_mut(self.routes.cntr(flags)?)
    }
}

/// Returns the queue entry of a completion.
#[inline]
fn entry(op: &Op, completion: &RawCompletion, peers: &Peers) -> Entry {
    let mut flags = op.flags();
    if completion.imm.is_some() {
        flags |= abi::REMOTE_CQ_DATA;
    }
    if completion.released {
        flags |= abi::MULTI_RECV;
    }
    Entry {
        flags,
        len: usize::try_from(completion.len).unwrap_or(usize::MAX),
        buf: completion.buf as usize,
        data: completion.imm.unwrap_or(0),
        tag: completion.tag,
        source: peers.source(completion.peer),
        ..op.entry()
    }
}

#[cold]
fn failure(entry: Entry, completion: &RawCompletion, error: &RawError, peers: &Peers) -> Failure {
    let beyond = match error {
        RawError::Truncated { message_len } => message_len.saturating_sub(completion.len),
        _ => 0,
    };
    Failure {
        entry,
        beyond: usize::try_from(beyond).unwrap_or(usize::MAX),
        errno: peers.errno_of(error),
        text: peers.sentence(completion.peer, error),
    }
}
