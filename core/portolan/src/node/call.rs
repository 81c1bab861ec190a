// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote procedure calls: a request to a port, and its reply.
//!
//! A server receives requests with a handler ([`Node::serve`]) or by [`Node::recv_call`], and
//! replies at once or later. Requests and replies have any length, and a reply has a status. Ports
//! for calls take no other messages.

use super::Node;
use crate::buffer::Buffer;
use crate::engine::{CALL_HEAD_LEN, Context, Engine, Inner, reply_spec};
use crate::error::Error;
use crate::ops::{Completion, Failed, Request};
use crate::port::{Message, PortConfig, Target};
use portolan_proto::PeerId;
use std::ops::ControlFlow;
use std::time::Duration;

/// Names the call that a reply answers. It may be kept, to reply later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a call that is never answered ends at its caller's deadline only"]
pub struct ReplyTo {
    rank: u32,
    number: u64,
}

impl ReplyTo {
    /// Returns the rank of the caller.
    ///
    /// # Examples
    /// See [`Node::recv_call`].
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of the call, which the caller has chosen.
    ///
    /// # Examples
    /// See [`Node::recv_call`].
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the name of a call from its parts, for interfaces in other languages.
    ///
    /// # Examples
    /// See [`Node::recv_call`].
    pub fn from_parts(rank: u32, number: u64) -> ReplyTo {
        ReplyTo { rank, number }
    }
}

/// A request, as passed to a handler of [`Node::serve`].
#[derive(Debug)]
pub struct Call<'a> {
    to: ReplyTo,
    bytes: &'a [u8],
}

impl Call<'_> {
    /// Returns the rank of the caller.
    ///
    /// # Examples
    /// See [`Node::serve`].
    #[must_use]
    pub fn source(&self) -> u32 {
        self.to.rank
    }

    /// Returns the bytes of the request.
    ///
    /// # Examples
    /// See [`Node::serve`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Returns the name of the call, to reply later.
    ///
    /// # Examples
    /// See [`Node::serve`].
    pub fn reply_to(&self) -> ReplyTo {
        self.to
    }
}

/// A request, as received by [`Node::recv_call`].
#[derive(Debug)]
pub struct ReceivedCall {
    to: ReplyTo,
    message: Vec<u8>,
}

impl ReceivedCall {
    /// Returns the rank of the caller.
    ///
    /// # Examples
    /// See [`Node::recv_call`].
    #[must_use]
    pub fn source(&self) -> u32 {
        self.to.rank
    }

    /// Returns the bytes of the request.
    ///
    /// # Examples
    /// See [`Node::recv_call`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.message[CALL_HEAD_LEN..]
    }

    /// Returns the name of the call.
    ///
    /// # Examples
    /// See [`Node::recv_call`].
    pub fn reply_to(&self) -> ReplyTo {
        self.to
    }
}

/// A reply.
#[derive(Debug)]
pub struct Reply {
    /// Status that the server has chosen; 0 is success by convention.
    pub status: u16,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl From<Completion> for Reply {
    /// Returns the reply in the completion of a call.
    fn from(done: Completion) -> Reply {
        Reply {
            status: done
                .imm
                .and_then(|imm| u16::try_from(imm).ok())
                .unwrap_or(0),
            bytes: done.buffer.map(Buffer::into_vec).unwrap_or_default(),
        }
    }
}

/// A call that has not begun.
#[must_use = "a call begins with `wait` or `begin`"]
pub struct CallBuilder<'a> {
    node: &'a mut Node,
    to: Target,
    bytes: &'a [u8],
    timeout: Option<Duration>,
}

impl CallBuilder<'_> {
    /// Ends the call with [`Error::TimedOut`] if it has no reply after `timeout`.
    ///
    /// # Examples
    /// See [`Node::call`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request and waits for the reply.
    ///
    /// # Errors
    /// [`Error::PeerGone`] when the server has ended; [`Error::TimedOut`], and a later reply is
    /// dropped; those of [`Node::send`].
    ///
    /// # Examples
    /// See [`Node::call`].
    pub fn wait(self) -> Result<Reply, Error> {
        let timeout = self.timeout;
        let CallBuilder {
            node, to, bytes, ..
        } = self;
        let request = node.begin_call(to, bytes)?;
        let done: Result<Option<Completion>, Failed> = match timeout {
            None => node.wait(request).map(Some),
            Some(timeout) => node.wait_timeout(request, timeout),
        };
        match done? {
            Some(done) => Ok(Reply::from(done)),
            None => {
                node.engine.enter().end_call(request.0);
                Err(Error::TimedOut {
                    rank: to.rank(),
                    timeout: timeout.unwrap_or_default(),
                })
            }
        }
    }

    /// Sends the request and returns at once. The completion of the request has the reply's bytes
    /// as its buffer, and its status as immediate data; [`Reply`] is made `from` it. To bound the
    /// wait, use [`Node::wait_timeout`]; a timeout of the call has no effect.
    ///
    /// # Errors
    /// Those of [`Node::send`].
    ///
    /// # Examples
    /// See [`Node::recv_call`].
    pub fn begin(self) -> Result<Request, Error> {
        self.node.begin_call(self.to, self.bytes)
    }
}

impl Node {
    /// Calls `to`: sends `bytes` as a request to a port for calls, and gets the reply of any length.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, Target};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.serve(7, |context, call| {
    ///     let reply = call.bytes().to_ascii_uppercase();
    ///     context.reply(call.reply_to(), 0, reply)
    /// })?;
    /// let server = Target::new(0, 7);
    /// let reply = node.call(server, b"ahoy").timeout(Duration::from_secs(5)).wait()?;
    /// assert_eq!((reply.status, &reply.bytes[..]), (0, &b"AHOY"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn call<'a>(&'a mut self, to: Target, bytes: &'a [u8]) -> CallBuilder<'a> {
        CallBuilder {
            node: self,
            to,
            bytes,
            timeout: None,
        }
    }

    fn begin_call(&mut self, to: Target, bytes: &[u8]) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let peer = engine.inner.check_rank(to.rank())?;
        let (op, number) = engine.begin_call(peer);
        let sent = engine.send_request(peer, to, number, bytes);
        if sent.is_err() {
            engine.end_call(op);
        }
        sent.map(|()| Request(op))
    }

    /// Opens `port` for calls. `handler` runs for each request, inside calls of this library, and
    /// replies with [`Context::reply`] or, later, [`Node::reply`]. An error that it returns is
    /// logged.
    ///
    /// # Errors
    /// [`Error::PortInUse`].
    ///
    /// # Examples
    /// See [`Node::call`].
    pub fn serve(
        &mut self,
        port: u16,
        mut handler: impl FnMut(&mut Context<'_>, Call<'_>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let on_message = move |context: &mut Context<'_>, message: Message<'_>| {
            let source = message.source();
            let Some((to, bytes)) = parse(source, message.bytes()) else {
                log::warn!("port {port}: a message of rank {source} is no call");
                return;
            };
            if let Err(error) = handler(context, Call { to, bytes }) {
                log::error!("port {port}: a call of rank {source}: {error}");
            }
        };
        self.open_active(port, PortConfig::in_place(), on_message)
    }

    /// Receives requests to `port`, which was opened with [`Node::open`], and passes each to `handler`
    /// with `state` until it breaks. The handler may use the node, and state that the program keeps.
    ///
    /// # Errors
    /// As [`Node::recv`]; those of `handler`.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    /// use std::ops::ControlFlow;
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let own = Target::new(node.rank(), 7);
    /// let calls = [node.call(own, b"ahoy").begin()?, node.call(own, b"bye").begin()?];
    /// let mut served = 0;
    /// node.serve_with(7, &mut served, |served, node, call| {
    ///     *served += 1;
    ///     node.reply(call.reply_to(), 0, call.bytes().to_vec())?;
    ///     Ok(if *served == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    /// })?;
    /// assert_eq!(served, 2);
    /// # for call in calls { node.wait(call)?; }
    /// # Ok(())
    /// # }
    /// ```
    pub fn serve_with<S, T>(
        &mut self,
        port: u16,
        state: &mut S,
        mut handler: impl FnMut(&mut S, &mut Node, ReceivedCall) -> Result<ControlFlow<T>, Error>,
    ) -> Result<T, Error> {
        loop {
            if let Some(call) = self.recv_call(port, None)?
                && let ControlFlow::Break(value) = handler(state, self, call)?
            {
                return Ok(value);
            }
        }
    }

    /// Waits for the next request to `port`, which was opened with [`Node::open`], at most for
    /// `timeout` if there is one. Returns `None` if none has arrived by then.
    ///
    /// # Errors
    /// As [`Node::recv`].
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Reply, Target};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let call = node.call(Target::new(0, 7), b"ahoy").begin()?;
    /// while let Some(call) = node.recv_call(7, None)? {
    ///     node.reply(call.reply_to(), 3, call.bytes().to_vec())?;
    /// #   break;
    /// }
    /// let reply = Reply::from(node.wait(call)?);
    /// assert_eq!((reply.status, &reply.bytes[..]), (3, &b"ahoy"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_call(
        &mut self,
        port: u16,
        timeout: Option<Duration>,
    ) -> Result<Option<ReceivedCall>, Error> {
        loop {
            let received = match timeout {
                None => Some(self.recv_vec::<u8>(port)?),
                Some(timeout) => self.recv_vec_timeout::<u8>(port, timeout)?,
            };
            let Some((message, source)) = received else {
                return Ok(None);
            };
            match parse(source, &message) {
                Some((to, _)) => return Ok(Some(ReceivedCall { to, message })),
                None => log::warn!("port {port}: a message of rank {source} is no call"),
            }
        }
    }

    /// Answers a call. The bytes are not copied if they are long.
    ///
    /// # Errors
    /// Those of [`Node::send`].
    ///
    /// # Examples
    /// See [`Node::recv_call`].
    pub fn reply(
        &mut self,
        to: ReplyTo,
        status: u16,
        bytes: impl Into<Buffer>,
    ) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        engine.inner.reply(to, status, bytes.into())?;
        engine.flush_if_wanted();
        Ok(())
    }
}

impl Context<'_> {
    /// Answers a call, like [`Node::reply`].
    ///
    /// # Errors
    /// As [`Node::reply`].
    ///
    /// # Examples
    /// See [`Node::serve`].
    pub fn reply(
        &mut self,
        to: ReplyTo,
        status: u16,
        bytes: impl Into<Buffer>,
    ) -> Result<(), Error> {
        self.inner().reply(to, status, bytes.into())
    }
}

impl Engine {
    /// Sends a request with the number of its call in front.
    fn send_request(
        &mut self,
        peer: PeerId,
        to: Target,
        number: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut message = Vec::with_capacity(CALL_HEAD_LEN + bytes.len());
        message.extend_from_slice(&number.to_le_bytes());
        message.extend_from_slice(bytes);
        let sent = self
            .inner
            .send_unawaited(peer, to.spec(), Buffer::from(message));
        self.flush();
        sent
    }
}

impl Inner {
    fn reply(&mut self, to: ReplyTo, status: u16, bytes: Buffer) -> Result<(), Error> {
        let peer = self.check_rank(to.rank)?;
        self.send_unawaited(peer, reply_spec(to.number, status), bytes)
    }
}

/// Splits a request into the name of its call and its bytes.
fn parse(source: u32, message: &[u8]) -> Option<(ReplyTo, &[u8])> {
    let (head, bytes) = message.split_first_chunk()?;
    let number = u64::from_le_bytes(*head);
    Some((ReplyTo::from_parts(source, number), bytes))
}
