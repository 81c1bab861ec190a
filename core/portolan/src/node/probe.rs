// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes, and receives of messages of unknown length.
//!
//! A probe is an operation that completes when a message waits for a receive. The message stays
//! available.

use super::running::RequestGuard;
use super::{Envelope, Node, TagMatch};
use crate::buffer::zeroed_elements;
use crate::engine::{Background, Engine};
use crate::error::Error;
use crate::ops::{Completion, OpKind, Received, Request};
use bytemuck::Pod;
use portolan_proto::{MatchBits, OpId, PeerId, PortId, RecvFilter};
use std::time::Duration;

/// A pending probe.
struct Probe {
    op: OpId,
    wanted: RecvFilter,
    /// Set if the wait has a deadline. In a job of one process it then lasts until the deadline.
    has_deadline: bool,
}

impl Probe {
    fn source(&self) -> Option<PeerId> {
        match &self.wanted {
            RecvFilter::Port(_, source) => *source,
            RecvFilter::MatchBits(selector) => selector.source,
        }
    }

    fn find(&self, engine: &mut Engine) -> Option<(Received, Option<MatchBits>)> {
        let core = &mut engine.inner.core;
        let (peer, len, match_bits) = match &self.wanted {
            RecvFilter::Port(port, source) => {
                let (peer, len) = core.peek_port(*port, *source)?;
                (peer, len, None)
            }
            RecvFilter::MatchBits(selector) => {
                let envelope = core.peek_tagged(selector)?;
                (envelope.peer, envelope.len, Some(envelope.match_bits))
            }
        };
        let received = Received {
            len: usize::try_from(len).unwrap_or(usize::MAX),
            source: peer.0,
        };
        Some((received, match_bits))
    }

    /// Returns an error if no such message waits and none can arrive.
    fn check(&self, engine: &mut Engine) -> Result<(), Error> {
        let source = self.source();
        let is_over = || match self.has_deadline {
            true => engine.inner.is_deserted(),
            false => engine.inner.has_no_sender(),
        };
        match source {
            Some(peer) => engine.watch_background(peer),
            None if is_over() => return Err(engine.inner.no_sender_error()),
            None if engine.inner.is_last() => engine.on_empty_poll_from(None),
            None => {}
        }
        engine.inner.check_shortage()?;
        engine.inner.check_sender(source)
    }
}

impl Background for Probe {
    fn op(&self) -> OpId {
        self.op
    }

    fn advance(&mut self, engine: &mut Engine) -> bool {
        let mut found = self.find(engine);
        if found.is_none() {
            let checked = self.check(engine);
            found = self.find(engine);
            if let (None, Err(error)) = (found, checked) {
                engine.inner.ops.fail(self.op, error);
                return true;
            }
        }
        if let Some((received, match_bits)) = found {
            engine.inner.ops.complete_ok(self.op, received, match_bits);
        }
        found.is_some()
    }

    fn give_up(&mut self, engine: &mut Engine) {
        engine.inner.ops.forget(self.op);
    }
}

impl Node {
    /// Waits until a message waits at `port`, and returns its length and sender. The message stays
    /// available: a receive from that sender gets it.
    ///
    /// # Errors
    /// As [`Node::recv`], except for [`Error::Truncated`].
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// node.send(Target::new(node.rank(), 7), b"ahoy")?;
    /// let waiting = node.probe(7)?;
    /// let mut buf = vec![0; waiting.len];
    /// node.recv_from(waiting.source, 7, &mut buf)?;
    /// assert_eq!(buf, b"ahoy");
    /// # Ok(())
    /// # }
    /// ```
    pub fn probe(&mut self, port: u16) -> Result<Received, Error> {
        self.await_waiting(port, None, None).and_then(found)
    }

    /// Waits until a message from process `source` waits at `port`, like [`Node::probe`].
    ///
    /// # Errors
    /// As [`Node::recv_from`], except for [`Error::Truncated`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send(own, b"ahoy")?;
    /// assert_eq!(node.probe_from(own.rank(), 7)?.len, 4);
    /// # node.recv(7, &mut [0; 4])?;
    /// # Ok(()) }
    /// ```
    pub fn probe_from(&mut self, source: u32, port: u16) -> Result<Received, Error> {
        self.await_waiting(port, Some(source), None).and_then(found)
    }

    /// Waits like [`Node::probe`], at most for `timeout`. With [`Duration::ZERO`] it does not wait.
    ///
    /// # Errors
    /// As [`Node::probe`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let patience = std::time::Duration::from_millis(1);
    /// assert_eq!(node.probe_timeout(7, patience)?, None);
    /// # Ok(()) }
    /// ```
    pub fn probe_timeout(
        &mut self,
        port: u16,
        timeout: Duration,
    ) -> Result<Option<Received>, Error> {
        self.await_waiting(port, None, Some(timeout))
    }

    /// Waits like [`Node::probe_from`], at most for `timeout`.
    ///
    /// # Errors
    /// As [`Node::probe_from`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let patience = std::time::Duration::from_millis(1);
    /// assert_eq!(node.probe_from_timeout(own.rank(), 7, patience)?, None);
    /// # Ok(()) }
    /// ```
    pub fn probe_from_timeout(
        &mut self,
        source: u32,
        port: u16,
        timeout: Duration,
    ) -> Result<Option<Received>, Error> {
        self.await_waiting(port, Some(source), Some(timeout))
    }

    /// Waits until a tagged message waits that `which` matches. The message stays available.
    /// [`Node::peek`] does not wait.
    ///
    /// # Errors
    /// As [`Node::peek`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send_tagged(TagTarget::new(node.rank(), 5), b"ahoy")?;
    /// let found = node.probe_tagged(TagMatch::any())?;
    /// assert_eq!((found.tag, found.len), (5, 4));
    /// # node.recv_tagged(TagMatch::any(), &mut [0; 4])?;
    /// # Ok(()) }
    /// ```
    pub fn probe_tagged(&mut self, which: TagMatch) -> Result<Envelope, Error> {
        self.await_waiting_tagged(which, None).and_then(found)
    }

    /// Waits like [`Node::probe_tagged`], at most for `timeout`.
    ///
    /// # Errors
    /// As [`Node::probe_tagged`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let patience = std::time::Duration::from_millis(1);
    /// assert!(node.probe_tagged_timeout(TagMatch::any(), patience)?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn probe_tagged_timeout(
        &mut self,
        which: TagMatch,
        timeout: Duration,
    ) -> Result<Option<Envelope>, Error> {
        self.await_waiting_tagged(which, Some(timeout))
    }

    /// Waits for the next message to `port`, of any length, and returns its elements and its sender.
    ///
    /// # Errors
    /// As [`Node::recv`], except for [`Error::Truncated`]; [`Error::NoMemory`],
    /// [`Error::PartialElement`]. After the last two the message is still available.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let to = Target::new(node.rank(), 7);
    /// node.send(to, bytemuck::cast_slice(&[1.5_f64, 2.5]))?;
    /// let (numbers, source) = node.recv_vec::<f64>(7)?;
    /// assert_eq!((&numbers[..], source), (&[1.5, 2.5][..], node.rank()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_vec<T: Pod>(&mut self, port: u16) -> Result<(Vec<T>, u32), Error> {
        loop {
            let waiting = self.probe(port)?;
            if let Some(received) = self.recv_waiting_from_any(port, waiting)? {
                return Ok(received);
            }
        }
    }

    /// Waits for the next message to `port` from process `source`, like [`Node::recv_vec`].
    ///
    /// # Errors
    /// As [`Node::recv_vec`]; [`Error::NoSuchRank`], [`Error::PeerGone`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send(own, b"ahoy")?;
    /// let bytes: Vec<u8> = node.recv_vec_from(own.rank(), 7)?;
    /// assert_eq!(bytes, b"ahoy");
    /// # Ok(()) }
    /// ```
    pub fn recv_vec_from<T: Pod>(&mut self, source: u32, port: u16) -> Result<Vec<T>, Error> {
        let waiting = self.probe_from(source, port)?;
        let (elements, _) = self.recv_waiting(port, waiting)?;
        Ok(elements)
    }

    /// Waits like [`Node::recv_vec`], at most for `timeout`.
    ///
    /// # Errors
    /// As [`Node::recv_vec`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let patience = std::time::Duration::from_millis(1);
    /// assert!(node.recv_vec_timeout::<u8>(7, patience)?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn recv_vec_timeout<T: Pod>(
        &mut self,
        port: u16,
        timeout: Duration,
    ) -> Result<Option<(Vec<T>, u32)>, Error> {
        let deadline = self.engine.enter().inner.deadline(timeout);
        loop {
            let now = self.engine.enter().inner.read_clock();
            let Some(waiting) = self.probe_timeout(port, deadline.since(now))? else {
                return Ok(None);
            };
            if let Some(received) = self.recv_waiting_from_any(port, waiting)? {
                return Ok(Some(received));
            }
        }
    }

    /// Waits for the first tagged message that `which` matches, of any length, and returns its
    /// elements.
    ///
    /// # Errors
    /// As [`Node::recv_tagged`], except for [`Error::TruncatedTagged`]; [`Error::NoMemory`],
    /// [`Error::PartialElement`]. After the last two the message is still available.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, TagMatch, TagTarget};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.send_tagged(TagTarget::new(node.rank(), 5), b"ahoy")?;
    /// let (bytes, envelope) = node.recv_vec_tagged::<u8>(TagMatch::any())?;
    /// assert_eq!((&bytes[..], envelope.tag), (&b"ahoy"[..], 5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_vec_tagged<T: Pod>(
        &mut self,
        which: TagMatch,
    ) -> Result<(Vec<T>, Envelope), Error> {
        let waiting = self.probe_tagged(which)?;
        let mut elements = zeroed_elements(waiting.len)?;
        let exactly = TagMatch::new(waiting.tag).source(waiting.source);
        let bytes = bytemuck::cast_slice_mut(&mut elements);
        let envelope = self.recv_tagged(exactly, bytes)?;
        Ok((elements, envelope))
    }

    fn recv_waiting<T: Pod>(
        &mut self,
        port: u16,
        waiting: Received,
    ) -> Result<(Vec<T>, u32), Error> {
        let mut elements = zeroed_elements(waiting.len)?;
        let bytes = bytemuck::cast_slice_mut(&mut elements);
        self.recv_from(waiting.source, port, bytes)?;
        Ok((elements, waiting.source))
    }

    /// Receives a message that waits, for a caller to which any sender will do. Returns `None` if
    /// the sender has ended before its message was here.
    fn recv_waiting_from_any<T: Pod>(
        &mut self,
        port: u16,
        waiting: Received,
    ) -> Result<Option<(Vec<T>, u32)>, Error> {
        match self.recv_waiting(port, waiting) {
            Err(Error::PeerGone { rank, .. }) if rank == waiting.source => Ok(None),
            received => received.map(Some),
        }
    }

    fn await_waiting(
        &mut self,
        port: u16,
        source: Option<u32>,
        timeout: Option<Duration>,
    ) -> Result<Option<Received>, Error> {
        let id = PortId::user(port);
        let source = self.engine.enter().inner.check_recv(id, source)?;
        let found = self.await_probe(RecvFilter::Port(id, source), source, timeout)?;
        Ok(found.map(|found| Received {
            len: found.len,
            source: found.source,
        }))
    }

    fn await_waiting_tagged(
        &mut self,
        which: TagMatch,
        timeout: Option<Duration>,
    ) -> Result<Option<Envelope>, Error> {
        let selector = {
            let inner = &mut self.engine.enter().inner;
            inner.check_owner()?;
            inner.selector(which)?
        };
        let wanted = RecvFilter::MatchBits(selector);
        let found = self.await_probe(wanted, selector.source, timeout)?;
        Ok(found.map(|found| Envelope {
            source: found.source,
            tag: found.tag,
            len: found.len,
            imm: found.imm,
        }))
    }

    fn await_probe(
        &mut self,
        wanted: RecvFilter,
        source: Option<PeerId>,
        timeout: Option<Duration>,
    ) -> Result<Option<Completion>, Error> {
        let request = {
            let engine = &mut *self.engine.enter();
            engine.progress();
            let op = engine.inner.ops.without_memory(OpKind::Probe { source });
            engine.begin_background(Box::new(Probe {
                op,
                wanted,
                has_deadline: timeout.is_some(),
            }));
            Request(op)
        };
        let mut guard = RequestGuard::new(self, request);
        let found = match timeout {
            None => guard.node().wait(request).map(Some),
            Some(timeout) => guard.node().wait_timeout(request, timeout),
        };
        Ok(found?)
    }
}

/// Returns the result of a wait without a timeout.
fn found<T>(found: Option<T>) -> Result<T, Error> {
    found.ok_or(Error::StaleRequest)
}
