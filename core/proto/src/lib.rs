// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Portolan protocol core: the state machine that both ends of a connection run.
//!
//! The core does no I/O, reads no clock, draws no randomness and holds no pointer to user memory.
//! Contract for the caller, the engine:
//!
//! 1. *Mutate*: call [`Core::handle_frame`] or [`Core::handle_timeout`], or submit an operation.
//! 2. *Drain*: call [`Core::poll_event`] until it returns `None`, while the handled frame is still
//!    in memory, because events refer to parts of it. Then call [`Core::poll_transmit`] until it
//!    returns `None`.
//! 3. Call [`Core::handle_timeout`] soon after [`Core::poll_timeout`] expires.
//!
//! The core refers to user memory only as (operation, offset, length). An event requests that the
//! engine place a part of a frame at an offset of an operation's buffer; a transmit requests that
//! it gather one. Only small payloads pass through the core's own frame buffers, where they are
//! kept until they are acknowledged.
//!
//! Rules of the protocol are numbered in `docs/reference/protocol.md`; comments cite them as
//! `P3.2`.
//!
//! Invariant: whatever a frame contains, the core neither panics nor grows beyond [`Limits`]. It
//! counts a bad frame under a [`DropReason`] and continues.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod base;
mod bulk;
mod dispatch;
mod lane;
pub mod liveness;
mod matching;
mod mem;
mod path;
mod peer;
mod rma;
mod session;
mod shared;

pub use base::config::{
    Choice, Config, FRAME_PAYLOAD_LEN_MIN, FRAME_STEPS, FrameStep, Limits, LinkId, LinkParams,
    SINGLE_STEPS, Schedule, SingleStep, StreamUse,
};
pub use base::counters::{Counters, DropReason};
pub use base::event::{
    Address, Cause, Data, Dest, Event, HeldId, OpError, OpId, PeerId, PortId, PortMode,
};
pub use base::group;
pub use base::remote::{AtomicSpec, PutNotice, RemoteFault, Reply};
pub use base::time::Instant;
pub use bulk::part::{PART_LEN_MAX_LATENCY_SENSITIVE, PartHead, PartPlace};
pub use bulk::prediction::ExpectedRun;
pub use bulk::push::{PushPlace, PushRequest};
pub use dispatch::Core;
pub use dispatch::batch::TakenRun;
pub use dispatch::shortcut::{
    Admitted, CompleteMessage, MessageDest, RecvFilter, Tagged, WaitingRecv,
};
pub use dispatch::transmit::Transmit;
pub use lane::stream::{MessagePlace, StreamMessage};
pub use lane::tx::CreditStatus;
pub use matching::match_list::{ClaimId, Envelope, Selector};
pub use matching::port::{HeldMessage, NotTaken};
pub use mem::copy::copy;
pub use mem::scratch::Payload;
pub use path::outgoing::SingleFrame;
pub use path::stage::{FlushHint, Refused, SendSpec, Staging};
pub use path::{PathStatus, PendingWork};
pub use peer::PeerStatus;
pub use portolan_wire::{ENDPOINT_ID_LEN, EndpointId, LaneId, MatchBits, Space};
pub use rma::{ATOMIC_LEN_MAX, Access, RegionSpec, RemoteSpec};
pub use session::SessionIds;

#[cfg(test)]
mod tests;
