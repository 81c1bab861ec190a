// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open ports, their handlers, and the operations available to handlers.

use super::delivery::{ActiveHook, Handlers};
use super::{Engine, Inner};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::ops::Request;
use crate::port::{Message, Target};
use portolan_proto::PortId;

/// Use of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PortUse {
    #[default]
    Closed,
    /// Open for receives.
    Open,
    /// Open with a handler.
    Handled,
}

impl Inner {
    /// Returns the use of `port`. The library's own ports are always open.
    pub(crate) fn port_use(&self, port: PortId) -> PortUse {
        if port.system {
            return PortUse::Open;
        }
        self.port_uses
            .get(usize::from(port.number))
            .copied()
            .unwrap_or_default()
    }

    /// Reserves a port of the program for `claimed`.
    pub(crate) fn take_port(&mut self, port: u16, claimed: PortUse) -> Result<(), Error> {
        let uses = &mut self.port_uses;
        let index = usize::from(port);
        if uses.len() <= index {
            uses.resize(index + 1, PortUse::Closed);
        }
        if uses[index] != PortUse::Closed {
            return Err(Error::PortInUse { port });
        }
        uses[index] = claimed;
        Ok(())
    }

    /// Tests whether a port of the program has a handler.
    pub(crate) fn has_handler(&self, port: u16) -> Result<bool, Error> {
        match self.port_use(PortId::user(port)) {
            PortUse::Closed => Err(Error::PortClosed { port }),
            PortUse::Open => Ok(false),
            PortUse::Handled => Ok(true),
        }
    }
}

impl Engine {
    /// Sets the handler for messages to `port`. They are passed in place or in posted buffers.
    pub(crate) fn set_handler(&mut self, port: u16, in_place: bool, handler: Handler) {
        self.defers &= !in_place;
        let index = usize::from(port);
        let Handlers::OfPorts(handlers) = &mut self.handlers else {
            unreachable!("an endpoint with a hook opens no port for a handler");
        };
        if handlers.len() <= index {
            handlers.resize_with(index + 1, || None);
        }
        handlers[index] = Some(handler);
    }

    /// Sets the hook for messages to all ports, which gets them in place.
    pub(crate) fn set_active_hook(&mut self, hook: ActiveHook) {
        self.defers = false;
        self.handlers = Handlers::Active(hook);
    }
}

/// Operations available to a handler. All return at once; messages leave after the handler has
/// returned.
pub struct Context<'a> {
    inner: &'a mut Inner,
}

impl<'a> Context<'a> {
    pub(crate) fn new(inner: &'a mut Inner) -> Self {
        Context { inner }
    }

    pub(crate) fn inner(&mut self) -> &mut Inner {
        self.inner
    }

    /// Returns the rank of this process.
    ///
    /// # Examples
    /// See [`Context::isend`].
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// Returns the number of processes in the job.
    ///
    /// # Examples
    /// See [`Context::isend`].
    #[must_use]
    pub fn size(&self) -> u32 {
        self.inner.size()
    }

    /// Returns `true` if `port` has a handler, which receives the buffers posted there.
    ///
    /// # Errors
    /// [`Error::PortClosed`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn has_handler(&self, port: u16) -> Result<bool, Error> {
        self.inner.has_handler(port)
    }

    /// Sends a copy of `bytes`; there is nothing to wait for.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::PeerGone`], [`Error::NoPath`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn send(&mut self, to: Target, bytes: &[u8]) -> Result<(), Error> {
        self.inner.send_copy(&to, bytes)
    }

    /// Sends `buffer`. Wait for the request outside of the handler.
    ///
    /// # Errors
    /// Same as [`Context::send`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.open_active(8, PortConfig::in_place(), move |context, message| {
    ///     let answer = Target::new(message.source(), 7);
    ///     // This send needs no wait.
    ///     let _ = context.isend(answer, message.bytes().to_vec());
    /// })?;
    /// node.send(Target::new(node.rank(), 8), b"ahoy")?;
    /// assert_eq!(node.recv_vec::<u8>(7)?.0, b"ahoy");
    /// # Ok(()) }
    /// ```
    pub fn isend(&mut self, to: Target, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        self.inner.isend(&to, buffer.into())
    }

    /// Sends two buffers as one message, as [`crate::binding::Plumbing::isend_two`]. If a request is
    /// returned, wait for it outside of the handler.
    ///
    /// # Errors
    /// Same as [`crate::binding::Plumbing::isend_two`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn isend_two(
        &mut self,
        to: Target,
        first: impl Into<Buffer>,
        second: impl Into<Buffer>,
    ) -> Result<Option<Request>, Error> {
        self.inner.isend_two(&to, [first.into(), second.into()])
    }

    /// Posts `buffer` for the next message to `port`. If the port has a handler, the buffer is
    /// passed to it; otherwise wait for the request.
    ///
    /// # Errors
    /// [`Error::PortClosed`], [`Error::BufferShared`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn post_recv(&mut self, port: u16, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        self.inner
            .post_recv(PortId::user(port), buffer.into(), None)
    }
}

/// Handler for received messages.
pub(crate) type Handler = Box<dyn FnMut(&mut Context<'_>, Message<'_>) + Send>;
