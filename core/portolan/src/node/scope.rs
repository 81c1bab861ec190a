// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking operations on borrowed memory.
//!
//! The one invariant: no operation of a scope accesses borrowed memory after the scope has ended. The
//! scope is a value of [`Node::scope`] itself, which the program cannot move or forget. Its end waits
//! for the operations, and its destructor takes back the memory of those that are left.
#![allow(
    unsafe_code,
    reason = "a scope lends slices to operations and takes them back; see `ops`"
)]

use super::{Ended, Node, RemoteTarget, TagMatch, TagTarget};
use crate::engine::Submitted;
use crate::error::Error;
use crate::ops::{Completion, Failed, OpKind, Received, Request};
use crate::port::Target;
use bytemuck::Pod;
use portolan_proto::{OpId, PortId, SendSpec};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Non-blocking operations that borrow their memory; see [`Node::scope`].
///
/// The lifetime `'env` is that of the borrowed memory, which is borrowed until the scope ends.
pub struct Scope<'scope, 'env> {
    node: &'scope mut Node,
    ops: Vec<OpId>,
    /// Makes `'env` invariant, so that the borrows cannot be shortened.
    env: PhantomData<&'env mut &'env ()>,
}

/// A non-blocking operation of a scope. The end of the scope waits for it if the program does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending(Request);

impl Node {
    /// Runs `body` with non-blocking operations that borrow their memory, and then waits for all
    /// operations of the scope. If `body` fails or panics, the operations that are left are
    /// cancelled, and their messages may be lost.
    ///
    /// # Errors
    /// That of `body`; otherwise the first of an operation for which `body` has not waited.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let right = Target::new((node.rank() + 1) % node.size(), 7);
    /// let left = (node.rank() + node.size() - 1) % node.size();
    /// let (edge, mut halo) = ([1.0_f64, 2.0], [0.0_f64; 2]);
    /// node.scope(|scope| {
    ///     scope.post_recv_from(left, 7, &mut halo)?;
    ///     scope.isend(right, &edge)?;
    ///     // Work on other memory.
    ///     Ok(())
    /// })?;
    /// assert_eq!(halo, edge);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope<'env, T>(
        &mut self,
        body: impl FnOnce(&mut Scope<'_, 'env>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut scope = Scope {
            node: self,
            ops: Vec::new(),
            env: PhantomData,
        };
        let value = body(&mut scope)?;
        scope.wait_all()?;
        Ok(value)
    }
}

impl<'env> Scope<'_, 'env> {
    /// Sends `data`, like [`Node::isend`].
    ///
    /// # Errors
    /// As [`Node::isend`].
    ///
    /// # Examples
    /// See [`Node::scope`].
    pub fn isend<T: Pod>(&mut self, to: Target, data: &'env [T]) -> Result<Pending, Error> {
        self.send(to.rank(), to.spec(), bytemuck::cast_slice(data))
    }

    /// Sends `data` to a receive with a tag, like [`Node::isend_tagged`].
    ///
    /// # Errors
    /// As [`Node::isend_tagged`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Node, TagMatch, TagTarget};
    ///
    /// let mut node = Node::join()?;
    /// let own = node.rank();
    /// let (sent, mut received) = ([1_u32, 2], [0_u32; 2]);
    /// node.scope(|scope| {
    ///     scope.post_recv_tagged(TagMatch::new(5), &mut received)?;
    ///     scope.isend_tagged(TagTarget::new(own, 5), &sent)?;
    ///     Ok(())
    /// })?;
    /// assert_eq!(received, sent);
    /// # Ok(())
    /// # }
    /// ```
    pub fn isend_tagged<T: Pod>(
        &mut self,
        to: TagTarget,
        data: &'env [T],
    ) -> Result<Pending, Error> {
        self.send(to.rank, to.spec(), bytemuck::cast_slice(data))
    }

    /// Posts `memory` for the next message to `port`, like [`Node::post_recv`].
    ///
    /// # Errors
    /// [`Error::PortClosed`], [`Error::PortHandled`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let to = Target::new(node.rank(), 7);
    /// let mut bytes = [0_u8; 4];
    /// node.scope(|scope| {
    ///     let pending = scope.post_recv(7, &mut bytes)?;
    ///     scope.isend(to, b"ahoy")?;
    ///     assert_eq!(scope.wait(pending)?.len, 4);
    ///     Ok(())
    /// })?;
    /// assert_eq!(&bytes, b"ahoy");
    /// # Ok(())
    /// # }
    /// ```
    pub fn post_recv<T: Pod>(
        &mut self,
        port: u16,
        memory: &'env mut [T],
    ) -> Result<Pending, Error> {
        self.recv(port, None, bytemuck::cast_slice_mut(memory))
    }

    /// Posts `memory` for the next message to `port` from process `source`, like
    /// [`Node::post_recv_from`].
    ///
    /// # Errors
    /// As [`Scope::post_recv`]; [`Error::NoSuchRank`].
    ///
    /// # Examples
    /// See [`Node::scope`].
    pub fn post_recv_from<T: Pod>(
        &mut self,
        source: u32,
        port: u16,
        memory: &'env mut [T],
    ) -> Result<Pending, Error> {
        self.recv(port, Some(source), bytemuck::cast_slice_mut(memory))
    }

    /// Posts `memory` for a message with a tag, like [`Node::post_recv_tagged`].
    ///
    /// # Errors
    /// As [`Node::post_recv_tagged`].
    ///
    /// # Examples
    /// See [`Scope::isend_tagged`].
    pub fn post_recv_tagged<T: Pod>(
        &mut self,
        which: TagMatch,
        memory: &'env mut [T],
    ) -> Result<Pending, Error> {
        let memory: &mut [u8] = bytemuck::cast_slice_mut(memory);
        let engine = &mut *self.node.engine.enter();
        let inner = &mut engine.inner;
        inner.check_owner()?;
        let selector = inner.selector(which)?;
        let kind = OpKind::RecvTagged {
            source: selector.source,
        };
        let len = memory.len() as u64;
        // SAFETY: `memory` is borrowed for `'env`, which outlives the scope; the destructor of the
        // scope removes or detaches the operation.
        let op = unsafe { inner.ops.borrowed_mut(kind, memory) };
        self.ops.push(op);
        inner.core.post_tagged(&selector, op, len);
        engine.drain();
        Ok(Pending(Request(op)))
    }

    /// Puts `data` into the memory of another process, like [`Node::iput`].
    ///
    /// # Errors
    /// As [`Node::iput`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::Node;
    ///
    /// let mut node = Node::join()?;
    /// let window = node.window::<u32>(4)?;
    /// let (place, data) = (window.target(0, 2)?, [7_u32, 8]);
    /// let mut back = [0_u32; 2];
    /// node.scope(|scope| {
    ///     let put = scope.iput(place, &data)?;
    ///     scope.wait(put)?;
    ///     scope.iget(place, &mut back)?;
    ///     Ok(())
    /// })?;
    /// assert_eq!(back, data);
    /// window.free(&mut node)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn iput<T: Pod>(&mut self, to: RemoteTarget, data: &'env [T]) -> Result<Pending, Error> {
        let engine = &mut *self.node.engine.enter();
        // SAFETY: as in `post_recv_tagged`.
        let op = unsafe { engine.begin_put(to, bytemuck::cast_slice(data)) }?;
        self.ops.push(op);
        Ok(Pending(Request(op)))
    }

    /// Gets from the memory of another process, like [`Node::iget`].
    ///
    /// # Errors
    /// As [`Node::iget`].
    ///
    /// # Examples
    /// See [`Scope::iput`].
    pub fn iget<T: Pod>(
        &mut self,
        from: RemoteTarget,
        memory: &'env mut [T],
    ) -> Result<Pending, Error> {
        let engine = &mut *self.node.engine.enter();
        // SAFETY: as in `post_recv_tagged`.
        let op = unsafe { engine.begin_get(from, bytemuck::cast_slice_mut(memory)) }?;
        self.ops.push(op);
        Ok(Pending(Request(op)))
    }

    /// Waits for an operation, like [`Node::wait`]. Its memory stays borrowed until the scope ends.
    ///
    /// # Errors
    /// As [`Node::wait`].
    ///
    /// # Examples
    /// See [`Scope::post_recv`].
    pub fn wait(&mut self, pending: Pending) -> Result<Completion, Failed> {
        self.node.wait(pending.0)
    }

    /// Waits for an operation at most for `timeout`, like [`Node::wait_timeout`].
    ///
    /// # Errors
    /// As [`Node::wait`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Node, PortConfig, Target};
    /// use std::time::Duration;
    ///
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let to = Target::new(node.rank(), 7);
    /// let mut bytes = [0_u8; 4];
    /// node.scope(|scope| {
    ///     let pending = scope.post_recv(7, &mut bytes)?;
    ///     assert!(scope.wait_timeout(pending, Duration::from_millis(1))?.is_none());
    ///     scope.isend(to, b"ahoy")?;
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_timeout(
        &mut self,
        pending: Pending,
        timeout: Duration,
    ) -> Result<Option<Completion>, Failed> {
        self.node.wait_timeout(pending.0, timeout)
    }

    /// Waits until one of the operations has ended, and removes it, like [`Node::wait_any`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let to = Target::new(node.rank(), 7);
    /// let mut bytes = [0_u8; 4];
    /// node.scope(|scope| {
    ///     let mut pending = vec![scope.post_recv(7, &mut bytes)?, scope.isend(to, b"ahoy")?];
    ///     while let Some(ended) = scope.wait_any(&mut pending) {
    ///         assert_eq!(ended.result?.len, 4);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_any(&mut self, pending: &mut Vec<Pending>) -> Option<Ended> {
        let mut requests = pending.iter().map(|one| one.0).collect();
        let ended = self.node.wait_any(&mut requests)?;
        pending.remove(ended.index);
        Some(ended)
    }

    /// Makes progress once, and returns the completion if the operation has ended, like
    /// [`Node::test`].
    ///
    /// # Errors
    /// As [`Node::test`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::{Node, PortConfig, Target};
    ///
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let to = Target::new(node.rank(), 7);
    /// let mut bytes = [0_u8; 4];
    /// node.scope(|scope| {
    ///     let pending = scope.post_recv(7, &mut bytes)?;
    ///     scope.isend(to, b"ahoy")?;
    ///     while scope.test(pending)?.is_none() {}
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn test(&mut self, pending: Pending) -> Result<Option<Completion>, Failed> {
        self.node.test(pending.0)
    }

    fn send(&mut self, rank: u32, spec: SendSpec, bytes: &'env [u8]) -> Result<Pending, Error> {
        let engine = &mut *self.node.engine.enter();
        let inner = &mut engine.inner;
        let peer = inner.check_rank(rank)?;
        let mut submitted = inner.offer(peer, &spec, bytes)?;
        if submitted == Submitted::Wait && peer.0 == inner.rank() {
            // The end of the scope waits, and could not receive it.
            inner.submit_copy(peer, spec, bytes)?;
            submitted = Submitted::Accepted;
        }
        // SAFETY: as in `post_recv_tagged`.
        let op = unsafe { inner.ops.borrowed(OpKind::Send(peer), bytes) };
        self.ops.push(op);
        inner.settle(peer, spec, (op, bytes.len()), submitted);
        engine.flush_if_wanted();
        Ok(Pending(Request(op)))
    }

    fn recv(
        &mut self,
        port: u16,
        source: Option<u32>,
        bytes: &'env mut [u8],
    ) -> Result<Pending, Error> {
        let engine = &mut *self.node.engine.enter();
        let (inner, len) = (&mut engine.inner, bytes.len() as u64);
        let port = PortId::user(port);
        let source = inner.check_recv(port, source)?;
        // SAFETY: as in `post_recv_tagged`.
        let op = unsafe { inner.ops.borrowed_mut(OpKind::Recv { port, source }, bytes) };
        self.ops.push(op);
        inner.core.post_recv(port, op, len, source);
        engine.drain();
        Ok(Pending(Request(op)))
    }

    /// Waits for the operations that the program has not waited for. Returns the first error.
    fn wait_all(&mut self) -> Result<(), Error> {
        let mut first = Ok(Received { len: 0, source: 0 });
        for index in 0..self.ops.len() {
            let op = self.ops[index];
            let engine = &mut *self.node.engine.enter();
            if engine.inner.ops.exists(op) {
                let about = engine.inner.awaited_peer(op);
                let ended = engine.finish_borrowed(&mut self.node.waiter, op, about.as_slice());
                first = first.and(ended);
            }
        }
        first.map(|_| ())
    }
}

impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        let engine = &mut *self.node.engine.enter();
        for op in self.ops.drain(..) {
            engine.inner.take_back(op);
        }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("operations", &self.ops.len())
            .finish_non_exhaustive()
    }
}
