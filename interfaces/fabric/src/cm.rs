// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection management, beside the data path: who listens, who calls whom, who has hung up (P16).
//!
//! Each event queue has a [`Manager`], which has the sockets of the endpoints that report there. It
//! works when somebody looks at the queue, or at a completion queue of an endpoint; it knows no domain,
//! and what an endpoint must learn of its connection lies in the [`Conn`] that the two share.
//!
//! The one invariant: what comes by a socket is looked at only as far as it is sound, and nothing of
//! it is kept but bounded data.

mod conn;
mod drops;
mod event;
mod manager;
mod request;
mod seats;
pub(crate) mod socket;
mod talk;

pub(crate) use conn::{Conn, Stage};
#[cfg(test)]
pub(crate) use drops::DropReason;
pub(crate) use event::{Event, Events, Fidptr};
pub(crate) use manager::{Listening, Manager};
pub(crate) use request::Request;

/// Bytes of a program's own that may come with a request, an answer or a rejection.
pub(crate) use portolan_wire::CONNECTION_DATA_LEN_MAX as DATA_LEN_MAX;
