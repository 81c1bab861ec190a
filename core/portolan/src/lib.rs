// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fast messages between the processes of parallel programs, over plain Ethernet and shared memory.
//!
//! A program that `portolan run` has started joins its job and exchanges messages with the other
//! ranks through numbered ports:
//!
//! ```no_run
//! use portolan::{Node, PortConfig, Target};
//!
//! # fn main() -> Result<(), portolan::Error> {
//! let mut node = Node::join()?;
//! let next = (node.rank() + 1) % node.size();
//! node.open(7, PortConfig::default())?;
//! node.send(Target::new(next, 7), b"ahoy")?;
//! let mut buf = [0; 16];
//! let got = node.recv(7, &mut buf)?;
//! println!("rank {} got {} bytes from rank {}", node.rank(), got.len, got.source);
//! # Ok(())
//! # }
//! ```
//!
//! | task | calls |
//! | --- | --- |
//! | join and leave a job | [`Node::join`], [`Node::close`], [`Node::rank`], [`Node::size`] |
//! | send to a port, receive there | [`Node::send`], [`Node::recv`], [`Node::recv_from`] |
//! | receive messages of any length | [`Node::recv_vec`], [`Node::probe`] |
//! | match messages by tag | [`Node::send_tagged`], [`Node::recv_tagged`], [`Node::claim`] |
//! | compute meanwhile | [`Node::isend`], [`Node::post_recv`], [`Node::wait`], [`Node::test`] |
//! | the same on borrowed memory | [`Node::scope`] |
//! | wait for one of several | [`Node::wait_any`], [`Node::wait_some`], [`Node::wait_all`] |
//! | wait for a limited time | [`Node::recv_timeout`], [`Node::send_timeout`], [`Node::wait_timeout`] |
//! | run a function for each message | [`Node::open_active`] |
//! | call a function elsewhere | [`Node::call`], [`Node::serve`], [`Node::serve_with`] |
//! | work in groups | [`Group`], [`Group::split`], [`Node::barrier`], [`Node::broadcast`] |
//! | combine numbers | [`Node::allreduce`], [`Node::reduce`], [`Node::scan`], [`Operator`] |
//! | exchange blocks | [`Node::allgather`], [`Node::scatter`], [`Node::alltoall`] |
//! | access memory of other processes | [`Node::window`], [`Node::register`], [`Node::put`], [`Node::get`] |
//! | count together | [`Node::fetch_add`], [`Node::compare_swap`], [`Node::atomic`] |
//! | fit into an event loop | [`Node::event_fd`], [`Node::arm`], [`Node::disarm`] |
//! | survive failures | [`Node::next_peer_event`], [`Group::new`] |
//! | do without a launcher | [`Node::standalone`], [`Node::listen`], [`Node::connect`] |
//!
//! `docs/guide/cookbook.md` has whole programs, and the calls of MPI and ZeroMQ beside these.
//!
//! Ports are GAMMA's Active Ports. A message is sent to a (rank, port) and arrives in a buffer that
//! was posted there. If the port has a handler, the handler runs when the message is complete.
//! Handlers run inside calls of this library, on the calling thread. The only background work is a
//! thread that answers liveness probes, and one that sends and acknowledges what a call has left
//! behind.
//!
//! The one invariant: every operation ends, with its result or with an [`Error`] that names the
//! peer and the reason.

mod address;
mod admission;
mod atomic;
#[doc(hidden)]
pub mod binding;
mod buffer;
mod canary;
mod checksum;
mod clock;
mod collective;
mod directory;
mod endpoint;
mod engine;
mod error;
mod fragments;
mod launch;
mod links;
mod liveness;
mod meeting;
mod model;
mod multicast;
mod node;
mod ops;
mod pool;
mod port;
mod raw;
mod region;
mod seal;
mod settings;
mod simulated;
mod start;
pub mod status;
mod streams;
mod table;
mod unexpected;

pub use admission::BurstAnswer;
pub use atomic::{AtomicOp, Datatype, Number};
pub use buffer::Buffer;
pub use collective::{CollectiveCall, CollectiveKind, CollectiveMismatch};
pub use engine::{Context, PeerEvent, PeerEventKind};
pub use error::{Error, Reason};
pub use launch::PathChoice;
pub use node::{
    Bf16, Call, CallBuilder, Claimed, Connecting, Ended, Envelope, F16, Group, Node, Operator,
    PathInfo, Peer, Pending, PutNotice, ReceivedCall, ReduceOp, Reducible, Registration, RemoteKey,
    RemoteTarget, Reply, ReplyTo, Scope, TagMatch, TagTarget, Window,
};
pub use ops::{Completion, Failed, Received, Request};
pub use port::{Lane, Message, PortConfig, Target};
pub use portolan_proto::{Access, Cause, Counters, RemoteFault};
pub use region::Region;
pub use start::EndpointConfig;

/// Runs the code of a guide as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/servers.md")]
struct ServersGuide;
