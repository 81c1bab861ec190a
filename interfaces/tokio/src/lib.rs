// SPDX-License-Identifier: MIT OR Apache-2.0
//! Portolan on Tokio: messages, calls and events of peers for asynchronous programs.
//!
//! [`AsyncNode`] wraps a [`Node`]. One task drives it: it sleeps on the node's event descriptor,
//! and a wake-up handles everything that has arrived. Tasks then take what they wait for, without
//! further system calls. Timeouts are those of Tokio: every future is cancel safe.
//!
//! ```
//! use portolan::{Node, PortConfig};
//! use portolan_tokio::AsyncNode;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = b"from a file that only the user can read";
//! let mut node = Node::standalone()?;
//! node.open(7, PortConfig::default())?;
//! let address = node.listen("127.0.0.1:0", secret)?.to_string();
//! let server = AsyncNode::new(node)?;
//! let client = AsyncNode::new(Node::standalone()?)?;
//! let peer = client.connect(&address, secret, Duration::from_secs(10)).await?;
//! client.send(peer.port(7), b"ahoy".to_vec()).await?;
//! let (message, _source) = server.recv(7).await?;
//! assert_eq!(message, b"ahoy");
//! # Ok(())
//! # }
//! ```
//!
//! The one invariant: the descriptor is armed while the driver sleeps, and whatever a task submits
//! meanwhile makes the driver arm it again.

mod driver;
mod state;
mod stream;

pub use stream::{Messages, PeerEvents};

use driver::Shared;
use portolan::{Buffer, Completion, Error, Failed, Node, Peer, PeerEvent, Reply, Request, Target};
use state::Waiting;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

/// A node with futures as operations. Clones share it. The node leaves its job when the last clone
/// is dropped.
#[derive(Clone)]
pub struct AsyncNode(Arc<Shared>);

impl AsyncNode {
    /// Wraps `node`, and starts the task that drives it. To be called in a runtime of Tokio that
    /// has I/O enabled. Handlers of the node run in that task.
    ///
    /// # Errors
    /// [`Error::System`] when no descriptor is left.
    pub fn new(node: Node) -> Result<AsyncNode, Error> {
        driver::start(node).map(AsyncNode)
    }

    /// Calls `body` with the node, for calls that do not wait, such as [`Node::open`] or
    /// [`Node::serve`]. A call that waits would block the runtime's thread. Take events of peers by
    /// [`AsyncNode::next_peer_event`].
    ///
    /// # Panics
    /// After [`AsyncNode::close`].
    pub fn with<T>(&self, body: impl FnOnce(&mut Node) -> T) -> T {
        self.0.with(body).expect("the node was closed")
    }

    /// Calls `body` with the node, unless it was closed.
    fn begin<T, E: From<Error>>(
        &self,
        body: impl FnOnce(&mut Node) -> Result<T, E>,
    ) -> Result<T, E> {
        let closed = || Err(Error::Cancelled.into());
        self.0.with(body).unwrap_or_else(closed)
    }

    /// Receives the next message to the open `port`, and returns it with the rank of its sender. A
    /// message received for a dropped future is passed to the next one.
    ///
    /// # Errors
    /// As [`Node::recv_vec`]; [`Error::Cancelled`] after [`AsyncNode::close`].
    pub async fn recv(&self, port: u16) -> Result<(Vec<u8>, u32), Error> {
        poll_fn(|context| self.0.poll_recv(port, context)).await
    }

    /// Returns the messages to `port` as a stream.
    #[must_use]
    pub fn messages(&self, port: u16) -> Messages {
        Messages::new(Arc::clone(&self.0), port)
    }

    /// Sends a message, and returns its buffer when it may be reused. The first poll of the future
    /// submits the message. Dropping the future later does not cancel the send.
    ///
    /// # Errors
    /// As [`Node::isend`] and [`Node::wait`].
    pub async fn send(&self, to: Target, bytes: impl Into<Buffer>) -> Result<Buffer, Failed> {
        let bytes = bytes.into();
        let request = self.begin(|node| node.isend(to, bytes))?;
        let done = self.end(request).await?;
        Ok(done.buffer.unwrap_or_else(|| Buffer::from(Vec::new())))
    }

    /// Calls `to` and returns the reply. If the future is dropped, a later reply is dropped too.
    ///
    /// # Errors
    /// [`Error::PeerGone`] when the server has ended; those of [`Node::send`].
    pub async fn call(&self, to: Target, bytes: &[u8]) -> Result<Reply, Error> {
        let request = self.begin(|node| node.call(to, bytes).begin())?;
        Ok(Reply::from(self.end(request).await?))
    }

    /// Waits for a request that was started by [`AsyncNode::with`]. If the future is dropped, the
    /// program may wait for the request again.
    ///
    /// # Errors
    /// As [`Node::wait`].
    pub async fn wait(&self, request: Request) -> Result<Completion, Failed> {
        let mut waiting = Waiting::kept(&self.0, request);
        poll_fn(move |context| waiting.poll(context)).await
    }

    /// Waits for a request of a method of this type.
    async fn end(&self, request: Request) -> Result<Completion, Failed> {
        let mut waiting = Waiting::new(&self.0, request);
        poll_fn(move |context| waiting.poll(context)).await
    }

    /// Connects as [`Node::connect`] does. Resolving the name blocks the first poll of the future.
    ///
    /// # Errors
    /// As [`Node::connect`].
    pub async fn connect(
        &self,
        address: &str,
        secret: &[u8],
        timeout: Duration,
    ) -> Result<Peer, Error> {
        let connecting = self.begin(|node| node.begin_connect(address, secret, timeout))?;
        poll_fn(|context| self.0.poll_connected(&connecting, context)).await;
        self.begin(|node| node.end_connect(connecting))
    }

    /// Returns the next event of a peer.
    ///
    /// # Errors
    /// [`Error::Cancelled`] after [`AsyncNode::close`]; [`Error::NobodyLeft`] if no event can occur.
    pub async fn next_peer_event(&self) -> Result<PeerEvent, Error> {
        poll_fn(|context| self.0.poll_event(context)).await
    }

    /// Returns the events of peers as a stream.
    #[must_use]
    pub fn peer_events(&self) -> PeerEvents {
        PeerEvents::new(Arc::clone(&self.0))
    }

    /// Leaves as [`Node::close`] does, on a thread for blocking calls. Other calls then end with
    /// [`Error::Cancelled`].
    ///
    /// # Errors
    /// As [`Node::close`].
    pub async fn close(self) -> Result<(), Error> {
        let Some(node) = self.0.take() else {
            return Ok(());
        };
        let closed = tokio::task::spawn_blocking(move || node.close()).await;
        closed.unwrap_or(Err(Error::Cancelled))
    }

    /// Returns how often the driver was woken and found messages for tasks that wait. A burst of
    /// messages wakes it once.
    #[must_use]
    pub fn wake_count(&self) -> u64 {
        self.0.wake_count()
    }
}

/// Runs the code of a guide as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/event-loops.md")]
struct EventLoopsGuide;
