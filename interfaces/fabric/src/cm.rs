// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection management, separate from the data path: listeners, requests and disconnects (P16).
//!
//! Each event queue has a [`Manager`], which owns the sockets of the endpoints that report to that
//! queue. The manager makes progress when the event queue, or a completion queue of one of these
//! endpoints, is read. It does not refer to a domain. A [`Conn`], shared by manager and endpoint,
//! holds the state of a connection that the endpoint needs.
//!
//! Invariant: bytes from a socket are interpreted only after validation, and stored data is
//! bounded.

mod channel;
mod conn;
mod drops;
mod event;
mod manager;
mod permits;
mod request;
pub(crate) mod socket;

pub(crate) use conn::{Conn, Stage};
#[cfg(test)]
pub(crate) use drops::DropReason;
pub(crate) use event::{Event, Events, Fidptr};
pub(crate) use manager::{Listening, Manager};
pub(crate) use request::Request;

/// Maximum bytes of application data in a request, an acceptance or a rejection.
pub(crate) use portolan_wire::CONNECTION_DATA_LEN_MAX as DATA_LEN_MAX;
