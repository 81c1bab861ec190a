// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues of the messages that wait at one port: one per sender and lane.
//!
//! They are sorted by sender and lane, and none is empty. At a port with one sender nothing is
//! searched or allocated.

use crate::PeerId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use portolan_wire::LaneId;

/// Capacity up to which a queue keeps its memory, 1.5 KiB. Otherwise a burst of tens of messages
/// would allocate it anew for every other message.
const SHRINK_LEN_MIN: usize = 64;

/// Sender and lane of a message.
type From = (PeerId, LaneId);

/// Position of a queue. Valid until a queue is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

#[derive(Debug)]
struct Queue<T> {
    from: From,
    items: VecDeque<T>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Queues<T> {
    sorted: Vec<Queue<T>>,
    /// Memory of a queue that has become empty, for the next one.
    recycled: VecDeque<T>,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Queues {
            sorted: Vec::new(),
            recycled: VecDeque::new(),
        }
    }
}

impl<T> Queues<T> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns the queue of `from`; `None` if no message of it waits.
    #[inline]
    pub(super) fn find(&self, from: From) -> Option<Place> {
        match &self.sorted[..] {
            [] => None,
            [only] => (only.from == from).then_some(Place(0)),
            _ => self.search(from).ok().map(Place),
        }
    }

    fn search(&self, from: From) -> Result<usize, usize> {
        self.sorted.binary_search_by_key(&from, |queue| queue.from)
    }

    /// Appends a message to the queue of `from`.
    #[inline]
    pub(super) fn push(&mut self, from: From, item: T) {
        let index = match self.find(from) {
            Some(Place(index)) => index,
            None => self.add(from),
        };
        self.sorted[index].items.push_back(item);
    }

    /// Adds an empty queue for `from`, which has none.
    fn add(&mut self, from: From) -> usize {
        let (Ok(index) | Err(index)) = self.search(from);
        let items = core::mem::take(&mut self.recycled);
        self.sorted.insert(index, Queue { from, items });
        index
    }

    /// Returns the first message of a queue.
    #[inline]
    pub(super) fn front(&self, Place(index): Place) -> Option<&T> {
        self.sorted.get(index)?.items.front()
    }

    /// Returns the first message of a queue, and the sender and lane of the queue.
    pub(super) fn front_with(&self, Place(index): Place) -> Option<(From, &T)> {
        let queue = self.sorted.get(index)?;
        Some((queue.from, queue.items.front()?))
    }

    /// Takes the first message of a queue.
    #[inline]
    pub(super) fn pop(&mut self, Place(index): Place) -> Option<(From, T)> {
        let queue = self.sorted.get_mut(index)?;
        let (from, first) = (queue.from, queue.items.pop_front()?);
        self.shrink_if_short(index);
        Some((from, first))
    }

    /// Drops the first message of a queue.
    #[inline(always)]
    pub(super) fn drop_front(&mut self, Place(index): Place) {
        let Some(queue) = self.sorted.get_mut(index) else {
            return;
        };
        queue.items.pop_front();
        self.shrink_if_short(index);
    }

    /// Shrinks a queue from which messages were taken; one with a few messages keeps its memory.
    #[inline(always)]
    fn shrink_if_short(&mut self, index: usize) {
        let items = &self.sorted[index].items;
        let is_long = items.capacity() > SHRINK_LEN_MIN;
        if items.is_empty() || is_long && items.len() * 4 < items.capacity() {
            self.shrink(index);
        }
    }

    /// Removes a queue that has become empty, and frees memory of a formerly long one.
    #[cold]
    fn shrink(&mut self, index: usize) {
        let items = &mut self.sorted[index].items;
        if !items.is_empty() {
            return items.shrink_to(items.len() * 2);
        }
        let Queue { items, .. } = self.sorted.remove(index);
        if items.capacity() <= SHRINK_LEN_MIN {
            self.recycled = items;
        }
    }

    /// Returns the first message of the only queue; `None` if there are more queues or none.
    #[inline]
    pub(super) fn only_front(&self) -> Option<(Place, From, &T)> {
        match &self.sorted[..] {
            [only] => Some((Place(0), only.from, only.items.front()?)),
            _ => None,
        }
    }

    /// Returns the first message of each queue.
    #[inline]
    pub(super) fn fronts(&self) -> impl Iterator<Item = (Place, From, &T)> {
        let queues = self.sorted.iter().enumerate();
        queues.filter_map(|(index, queue)| Some((Place(index), queue.from, queue.items.front()?)))
    }

    /// Returns all messages, by sender and lane, each queue in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (From, &T)> {
        let queues = self.sorted.iter();
        queues.flat_map(|queue| queue.items.iter().map(|item| (queue.from, item)))
    }

    /// Returns the messages of each queue, in order.
    pub(super) fn queues(&self) -> impl Iterator<Item = (Place, From, impl Iterator<Item = &T>)> {
        let queues = self.sorted.iter().enumerate();
        queues.map(|(index, queue)| (Place(index), queue.from, queue.items.iter()))
    }

    /// Returns the first `is_selected` message of a queue, and the sender and lane of the queue.
    pub(super) fn find_mut(
        &mut self,
        Place(index): Place,
        is_selected: impl Fn(&T) -> bool,
    ) -> Option<(From, &mut T)> {
        let queue = self.sorted.get_mut(index)?;
        let item = queue.items.iter_mut().find(|item| is_selected(item))?;
        Some((queue.from, item))
    }

    /// Same as [`Queues::iter`], with mutable messages.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (From, &mut T)> {
        let queues = self.sorted.iter_mut();
        queues.flat_map(|queue| {
            let from = queue.from;
            queue.items.iter_mut().map(move |item| (from, item))
        })
    }

    /// Keeps the messages for which `keeps` returns `true`.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(From, &mut T) -> bool) {
        self.sorted.retain_mut(|queue| {
            queue.items.retain_mut(|item| keeps(queue.from, item));
            !queue.items.is_empty()
        });
    }
}
