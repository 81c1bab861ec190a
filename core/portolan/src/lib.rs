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
//! | purpose | calls |
//! | --- | --- |
//! | join and leave | [`Node::join`], [`Node::close`] |
//! | messages to a port | [`Node::send`], [`Node::recv`], [`Node::recv_vec`], [`Node::probe`] |
//! | messages by tag | [`Node::send_tagged`], [`Node::recv_tagged`], [`Node::peek`] |
//! | without waiting | [`Node::isend`], [`Node::post_recv`], [`Node::wait`], [`Node::test`] |
//! | several requests | [`Node::wait_any`], [`Node::wait_some`], [`Node::wait_all`] |
//! | timeouts | [`Node::recv_timeout`], [`Node::send_timeout`], [`Node::wait_timeout`] |
//! | handlers | [`Node::open_active`] |
//! | calls with a reply | [`Node::call`], [`Node::serve`], [`Node::recv_call`] |
//! | groups | [`Group`], [`Node::barrier`], [`Node::broadcast`], [`Node::allreduce`] |
//! | blocks of groups | [`Node::allgather`], [`Node::scatter`], [`Node::alltoall`], [`Node::scan`] |
//! | remote memory | [`Node::window`], [`Node::put`], [`Node::get`], [`Node::fetch_add`] |
//! | event loops | [`Node::event_fd`], [`Node::arm`], [`Node::disarm`] |
//! | failures of peers | [`Node::next_peer_event`] |
//! | servers and clients | [`Node::standalone`], [`Node::listen`], [`Node::connect`] |
//! | libraries | [`Endpoint`] |
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
mod atomic;
mod buffer;
mod checksum;
mod clock;
mod collective;
mod directory;
mod endpoint;
mod engine;
mod error;
pub mod launch;
mod links;
mod liveness;
mod meeting;
pub mod model;
mod multicast;
mod node;
mod ops;
mod pool;
mod port;
mod raw;
mod region;
mod seal;
pub mod settings;
mod start;
pub mod status;
mod streams;
mod table;
mod unexpected;

pub use address::Address;
pub use atomic::{AtomicOp, Datatype, Number};
pub use buffer::Buffer;
pub use collective::{CollectiveCall, CollectiveKind, CollectiveMismatch};
pub use directory::EndpointAddress;
pub use endpoint::{ActiveMessage, Endpoint, PeerInserter, RawAtomic};
pub use engine::{Context, Interrupter, Interruption, PeerEvent, PeerEventKind};
pub use error::{Error, Reason};
pub use launch::PathChoice;
pub use node::{
    Bf16, Call, CallBuilder, Claimed, Connecting, Ended, Envelope, F16, Group, Node, Operator,
    PathInfo, Peer, PutNotice, ReceivedCall, ReduceOp, Reducible, Registration, RemoteKey,
    RemoteTarget, Reply, ReplyTo, TagMatch, TagTarget, Window,
};
pub use ops::{Completion, Failed, Received, Request};
pub use port::{Lane, Message, PortConfig, Target};
pub use portolan_link::{PortRange, PortsUsedUp};
pub use portolan_proto::{Access, Cause, Counters, DropReason, RemoteFault};
pub use portolan_sys::usage::Usage;
pub use raw::{
    Cookie, EndpointLimits, Idle, PeerIndex, RawAccess, RawClaim, RawCompletion, RawEnvelope,
    RawError, RawKind, RawPiece, RawRecv, RawRemote, RawSend, RawSpace, Sent, SubmitError,
};
pub use region::Region;
pub use start::{EndpointConfig, candidates, check_settings, port_range, ports_of};
pub use unexpected::{UnexpectedMemory, unexpected_memory};

/// Runs the code of a guide as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/servers.md")]
struct ServersGuide;
