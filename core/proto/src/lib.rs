// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Portolan protocol core: everything that two processes agree on, and nothing else.
//!
//! The core does no I/O, reads no clock, draws no randomness and holds no pointer to user memory.
//! Its contract with the engine around it:
//!
//! 1. *Mutate*: [`Core::handle_frame`], [`Core::handle_timeout`], or submit an operation.
//! 2. *Drain*: take [`Core::poll_event`] until it says `None`, while the frame that was handled is
//!    still at hand, since events name parts of it; then [`Core::poll_transmit`] until `None`.
//! 3. Call [`Core::handle_timeout`] not much later than [`Core::poll_timeout`].
//!
//! User memory appears only as (operation, offset, length): an event asks the engine to place a
//! part of a frame at an offset of an operation's buffer, a transmit asks it to gather one. Small
//! payloads alone pass through the core's own frame buffers, because they must survive there until
//! they are acknowledged.
//!
//! Rules of the protocol are numbered in `docs/protocol.md`; `P3.2` in a comment names one.
//!
//! The one invariant: whatever a frame holds, the core neither panics nor grows beyond
//! [`Limits`]; it counts the frame under a [`DropReason`] and goes on.

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
    Choice, Config, LONE_STEPS, Limits, LinkId, LinkParams, LoneStep, Schedule, StreamUse,
};
pub use base::counters::{Counters, DropReason};
pub use base::event::{
    Address, Cause, Data, Dest, Event, HeldId, OpError, OpId, PeerId, PortId, PortMode,
};
pub use base::group;
pub use base::remote::{Answer, AtomicSpec, PutNotice, RemoteFault};
pub use base::time::Instant;
pub use bulk::part::{PART_LEN_HURRIED, PartPlace};
pub use bulk::prediction::ExpectedRun;
pub use dispatch::Core;
pub use dispatch::batch::TakenRun;
pub use dispatch::lone::{Admitted, Direct, Tagged, Want, Wanted, Whole, WholeDest};
pub use dispatch::transmit::Transmit;
pub use lane::tx::CreditStatus;
pub use matching::match_list::{ClaimId, Envelope, Selector};
pub use matching::port::TakenHeld;
pub use mem::copy::copy;
pub use mem::scratch::Payload;
pub use path::stage::{FlushHint, Refused, SendSpec, Staging};
pub use path::{Left, PathStatus};
pub use peer::PeerStatus;
pub use peer::lone::Lone;
pub use portolan_wire::{ENDPOINT_ID_LEN, EndpointId, LaneId, MatchBits, Space};
pub use rma::{ATOMIC_LEN_MAX, Access, RegionSpec, RemoteSpec};
pub use session::SessionIds;

#[cfg(test)]
mod tests;
