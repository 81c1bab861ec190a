// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to send, as announced by a peer.

use crate::{Address, LinkId, PeerId};
use portolan_wire::LaneId;

/// Transfer that a request to send announces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) sender_transfer: u32,
    pub(crate) remote_addr: u64,
    pub(crate) fragment_len: u16,
    /// Link that will carry the data.
    pub(crate) link: LinkId,
}

/// Request to send that has matched a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    pub(crate) to: Address,
    pub(crate) len: u64,
    pub(crate) announced: Announced,
}
