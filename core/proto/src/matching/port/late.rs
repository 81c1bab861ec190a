// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that waited at a port and have a buffer now. Several of a lane are transferred at once;
//! they stay in their queue, and are delivered in order.
//!
//! Invariant: the messages of a queue that have their buffers are its first ones.

use super::{Place, Port, Ports, Step, Unexpected};
use crate::{OpError, OpId, PeerId, PortId};
use alloc::boxed::Box;
use portolan_wire::LaneId;

/// Maximum number of messages of a lane that have their buffers and wait for delivery. They keep any
/// network busy, and bound the search for the next one.
const SERVED_MAX: usize = 64;

/// Complete message for which a buffer was found late.
#[derive(Debug)]
pub(crate) struct LateMessage {
    pub(crate) op: OpId,
    pub(crate) len: u64,
    pub(crate) error: Option<OpError>,
}

/// Returns the message of a queue that is served next: the first one without a buffer. Behind
/// messages with buffers only a request is served; a held message waits until they are delivered.
pub(super) fn next_unserved<'a>(
    items: impl Iterator<Item = &'a Unexpected>,
) -> Option<&'a Unexpected> {
    let mut items = items.take(SERVED_MAX).enumerate();
    let (index, item) = items.find(|(_, item)| !item.step.has_buffer())?;
    (index == 0 || matches!(item.step, Step::Request(_))).then_some(item)
}

impl Port {
    /// Finds the queue with the oldest request that can be served behind messages that already have
    /// their buffers.
    #[cold]
    pub(super) fn first_behind(
        &self,
        has_undelivered: impl Fn(PeerId, LaneId) -> bool,
    ) -> Option<Place> {
        let requests = self
            .unexpected
            .queues()
            .filter_map(|(place, (peer, lane), items)| {
                let item = next_unserved(items)?;
                let is_it = self.can_serve(peer, item) && !has_undelivered(peer, lane);
                is_it.then_some((item.stamp, place))
            });
        Some(requests.min_by_key(|(stamp, _)| *stamp)?.1)
    }

    /// Marks the first message of a lane that has no buffer, a request, as being transferred.
    pub(super) fn begin_transfer(&mut self, from: (PeerId, LaneId), transfer: u32) {
        self.set_step(
            from,
            |step| !step.has_buffer(),
            Step::Transferring(transfer),
        );
    }

    /// Marks the message of this transfer as complete.
    pub(super) fn end_transfer(
        &mut self,
        from: (PeerId, LaneId),
        transfer: u32,
        message: LateMessage,
    ) {
        let is_it = |step: &Step| matches!(step, Step::Transferring(key) if *key == transfer);
        self.set_step(from, is_it, Step::Transferred(Box::new(message)));
    }

    /// Sets the step of the first message of a lane with an `is_selected` step.
    fn set_step(
        &mut self,
        from: (PeerId, LaneId),
        is_selected: impl Fn(&Step) -> bool,
        step: Step,
    ) {
        let place = self.unexpected.find(from);
        let is_it = |item: &Unexpected| is_selected(&item.step);
        if let Some((_, item)) = place.and_then(|place| self.unexpected.find_mut(place, is_it)) {
            item.step = step;
        }
    }

    /// Takes the first message of a lane if its transfer has completed.
    pub(super) fn pop_transferred(&mut self, from: (PeerId, LaneId)) -> Option<LateMessage> {
        let place = self.unexpected.find(from)?;
        let front = self.unexpected.front(place)?;
        if !matches!(front.step, Step::Transferred(_)) {
            return None;
        }
        match self.unexpected.pop(place)?.1.step {
            Step::Transferred(message) => Some(*message),
            _ => None,
        }
    }
}

impl Ports {
    /// See [`Port::begin_transfer`].
    pub(in crate::matching) fn begin_transfer(
        &mut self,
        id: PortId,
        from: (PeerId, LaneId),
        transfer: u32,
    ) {
        if let Some(port) = self.get_mut(id) {
            port.begin_transfer(from, transfer);
        }
    }

    /// See [`Port::end_transfer`].
    pub(in crate::matching) fn end_transfer(
        &mut self,
        id: PortId,
        from: (PeerId, LaneId),
        transfer: u32,
        message: LateMessage,
    ) {
        if let Some(port) = self.get_mut(id) {
            port.end_transfer(from, transfer, message);
        }
    }

    /// See [`Port::pop_transferred`].
    pub(in crate::matching) fn pop_transferred(
        &mut self,
        id: PortId,
        from: (PeerId, LaneId),
    ) -> Option<LateMessage> {
        let message = self.get_mut(id)?.pop_transferred(from)?;
        self.waiting_count -= 1;
        Some(message)
    }
}
