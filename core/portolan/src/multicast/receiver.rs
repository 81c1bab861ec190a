// SPDX-License-Identifier: MIT OR Apache-2.0
//! A member's side of a broadcast by multicast: received blocks are copied to its buffer.

use super::control::Control;
use super::{BLOCK_LEN, BLOCKS_AHEAD, block_count, block_range};
use crate::buffer::Buffer;
use portolan_multicast::{Codec, Front, Listener, Sent, Terms};

/// A broadcast that this member receives.
pub(super) struct Receiver {
    root: u32,
    codec: Codec,
    listener: Listener,
    buffer: Buffer,
    /// Number of blocks in the buffer.
    taken: u64,
    /// Number of received datagrams of this broadcast.
    got: u64,
    /// The root's report of sent datagrams, until all received datagrams are handled.
    sent: Option<Sent>,
    /// Set when the root has been notified that the data are complete here.
    has_reported: bool,
    /// Set if the data arrive in a message.
    is_direct: bool,
    has_root_failed: bool,
    /// Memory for blocks.
    spare: Vec<Vec<u8>>,
}

impl Receiver {
    pub(super) fn new(root: u32, codec: Codec, terms: Terms, buffer: Buffer) -> Receiver {
        Receiver {
            root,
            codec,
            listener: Listener::new(terms, 1..=BLOCK_LEN),
            buffer,
            taken: 0,
            got: 0,
            sent: None,
            has_reported: false,
            is_direct: false,
            has_root_failed: false,
            spare: Vec::new(),
        }
    }

    pub(super) fn root(&self) -> u32 {
        self.root
    }

    /// Returns whether it waits for nothing more by multicast.
    pub(super) fn is_settled(&self) -> bool {
        self.is_direct || self.has_reported
    }

    pub(super) fn failed(&self) -> Option<u32> {
        self.has_root_failed.then_some(self.root)
    }

    pub(super) fn on_failed(&mut self, rank: u32) {
        self.has_root_failed |= rank == self.root && !self.is_settled();
    }

    /// Returns the buffer, and whether its data arrive in a message.
    pub(super) fn into_parts(self) -> (Buffer, bool) {
        (self.buffer, self.is_direct)
    }

    /// Handles the root's report of sent datagrams.
    pub(super) fn on_sent(&mut self, sent: Sent) {
        self.sent = Some(sent);
    }

    /// Handles the root's notice that its window is narrower than announced. `P17.4`
    pub(super) fn on_window(&mut self, window: u32) {
        self.listener.on_window(u64::from(window));
    }

    /// Handles the root's notice that it excludes this member from the multicast. Returns true if
    /// the data must arrive in a message, or false if they were already reported complete.
    pub(super) fn on_direct(&mut self) -> bool {
        self.is_direct = !self.has_reported;
        self.is_direct
    }

    /// Returns whether a datagram may belong to this broadcast.
    pub(super) fn matches(&self, datagram: &[u8]) -> bool {
        self.codec.is_from_source(datagram)
    }

    /// Handles a datagram. Returns whether it is valid and belongs to this broadcast.
    pub(super) fn on_datagram(&mut self, datagram: &mut [u8]) -> bool {
        let Some((header, body)) = self.codec.read(datagram) else {
            return false;
        };
        if header.len != block_range(header.block, self.buffer.len()).len() {
            return false;
        }
        self.got += 1;
        let (limit, spare) = (self.taken + BLOCKS_AHEAD, &mut self.spare);
        let memory = || spare.pop().unwrap_or_default();
        self.listener.on_datagram(&header, body, limit, memory);
        true
    }

    /// Copies complete blocks and returns the next report to the root. `is_drained` is set when all
    /// received datagrams were handled.
    pub(super) fn report(&mut self, is_drained: bool) -> Option<Control> {
        let len = self.buffer.len();
        while let Some((block, bytes)) = self.listener.take_block() {
            if let Some(place) = self.buffer.as_mut_slice() {
                place[block_range(block, len)].copy_from_slice(&bytes);
            }
            self.taken += 1;
            self.spare.push(bytes);
        }
        let is_complete = self.taken == block_count(len);
        if let Some(sent) = self.sent.filter(|_| is_drained || is_complete) {
            self.sent = None;
            self.listener.on_sent(sent);
        }
        if is_complete && !self.has_reported {
            self.has_reported = true;
            // Requests a report without information about sent datagrams.
            let nothing = Sent {
                serial: 0,
                front: Front::default(),
            };
            self.listener.on_sent(nothing);
        }
        let report = self.listener.take_report()?;
        let got = self.got;
        Some(Control::Report { report, got })
    }
}
