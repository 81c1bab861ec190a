// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to send: what a peer says of a message that is to be asked for.

use crate::{Address, LinkId, PeerId};
use portolan_wire::LaneId;

/// What a request to send says of its transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) sender_transfer: u32,
    pub(crate) remote_addr: u64,
    pub(crate) fragment_len: u16,
    /// By which the data will come.
    pub(crate) link: LinkId,
}

/// A request to send that has found a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    pub(crate) to: Address,
    pub(crate) len: u64,
    pub(crate) asked: Asked,
}
