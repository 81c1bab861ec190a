// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcast of long data along a chain, in blocks. Each member forwards a block as soon as it has
//! received it.
//!
//! A binomial tree moves few bytes in few hops, but its root sends all data several times. In a
//! chain each member's link carries the data once in each direction. With many more blocks than
//! members, the time hardly depends on the number of members. `portolan cast` copies files by the
//! same method.
//!
//! The one invariant: blocks are sent in order, each with its own header (`P14.2`).

use super::{Group, Node, Sending, Task, Wait};
use crate::buffer::Buffer;
use crate::collective::{CollectiveKind, Head};
use crate::error::Error;
use portolan_proto::{Cause, PeerId};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a block, as in `portolan cast`. The cost of a header and an answer is small in
/// comparison, and a chain fills soon.
const BLOCK_LEN: usize = 1 << 20;

/// Blocks in flight to the next member, and from the preceding one. While one is on the wire, the
/// others are announced and granted.
const IN_FLIGHT_MAX: usize = 4;

/// A member's part of a cast.
struct Cast<'a> {
    task: Task<'a>,
    before: Option<u32>,
    next: Option<u32>,
    /// Expected headers and blocks, oldest first. A short block is in the message of its header.
    receiving: VecDeque<Expected>,
    sending: VecDeque<Wait>,
    spare: Vec<Vec<u8>>,
}

/// Pending receives of one block.
struct Expected {
    head: Option<Wait>,
    data: Option<Wait>,
}

impl Node {
    /// Copies `bytes` of member `root` to those of all other members, in the order of the group from
    /// the root on.
    pub(super) fn broadcast_by_chain(
        &mut self,
        group: &Group,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let head = Head::new(CollectiveKind::Cast, root, bytes.len());
        let task = self.engine.enter().begin_task(group, head)?;
        let (own, size) = (group.rank(), group.size());
        let member = |place: u32| (place % size != root).then_some(place % size);
        let mut cast = Cast {
            before: (own != root).then_some((own + size - 1) % size),
            next: member(own + 1),
            task,
            receiving: VecDeque::new(),
            sending: VecDeque::new(),
            spare: Vec::new(),
        };
        let result = self.perform_cast(&mut cast, bytes);
        let heads = cast.receiving.drain(..);
        let waits = heads.flat_map(|expected| expected.head.into_iter().chain(expected.data));
        for wait in waits.chain(cast.sending.drain(..)) {
            self.engine.enter().give_up_wait(&wait);
        }
        self.engine.enter().end_task(&cast.task, result)
    }

    fn perform_cast(&mut self, cast: &mut Cast, bytes: &mut [u8]) -> Result<(), Error> {
        let len = bytes.len();
        // Empty data are sent too, so that every member detects a mismatch.
        let count = len.div_ceil(BLOCK_LEN).max(1);
        let mut expected = 0;
        for index in 0..count {
            while cast.before.is_some() && expected < count.min(index + IN_FLIGHT_MAX) {
                self.expect_block(cast, block(expected, len).len())?;
                expected += 1;
            }
            let place = &mut bytes[block(index, len)];
            let memory = match cast.receiving.pop_front() {
                Some(mut expected) => {
                    let taken = self.take_block(&cast.task, &mut expected, place);
                    if taken.is_err() {
                        cast.receiving.push_front(expected);
                    }
                    taken?
                }
                None => {
                    let mut memory = cast.spare.pop().unwrap_or_default();
                    memory.clear();
                    memory.extend_from_slice(place);
                    memory
                }
            };
            self.pass_on(cast, memory)?;
        }
        while !cast.sending.is_empty() {
            self.finish_oldest(cast)?;
        }
        Ok(())
    }

    /// Posts the receives of the next block.
    fn expect_block(&mut self, cast: &mut Cast, len: usize) -> Result<(), Error> {
        let Some(before) = cast.before else {
            return Ok(());
        };
        let head = Some(self.engine.enter().post_head_of(&cast.task, before)?);
        // From here on the receive is cancelled if an error follows.
        cast.receiving.push_back(Expected { head, data: None });
        if !Task::is_inline(len) {
            let mut buffer = cast.spare.pop().unwrap_or_default();
            buffer.resize(len, 0);
            let data =
                self.engine
                    .enter()
                    .post_data_of(&cast.task, before, Buffer::from(buffer))?;
            if let Some(expected) = cast.receiving.back_mut() {
                expected.data = data;
            }
        }
        Ok(())
    }

    /// Waits for a block, copies it to `place`, and returns its memory for reuse.
    fn take_block(
        &mut self,
        task: &Task,
        expected: &mut Expected,
        place: &mut [u8],
    ) -> Result<Vec<u8>, Error> {
        let is_inline = expected.data.is_none();
        if let Some(head) = &mut expected.head {
            self.wait_task(task, head)?;
        }
        if let Some(head) = expected.head.take() {
            let inline: &mut [u8] = if is_inline { &mut *place } else { &mut [] };
            self.engine.enter().finish_inline(task, &head, inline)?;
        }
        if let Some(data) = &mut expected.data {
            self.wait_task(task, data)?;
        }
        let Some(data) = expected.data.take() else {
            return Ok(place.to_vec());
        };
        let done = self.engine.enter().finish_wait(&data)?;
        let memory = done.buffer.map(Buffer::into_vec).unwrap_or_default();
        match memory.get(..place.len()) {
            Some(got) if done.len == place.len() => place.copy_from_slice(got),
            _ => {
                let cause = Cause::Violation("block of a cast with a wrong length");
                let before = PeerId(done.source);
                return Err(self.engine.read().inner.peer_error(before, cause));
            }
        }
        Ok(memory)
    }

    /// Starts to send a block to the next member, after waiting for the oldest send if too many are
    /// in flight.
    fn pass_on(&mut self, cast: &mut Cast, memory: Vec<u8>) -> Result<(), Error> {
        let Some(next) = cast.next else {
            cast.spare.push(memory);
            return Ok(());
        };
        if cast.sending.len() == IN_FLIGHT_MAX {
            self.finish_oldest(cast)?;
        }
        match self
            .engine
            .enter()
            .begin_send_buffer(&cast.task, next, Buffer::from(memory))?
        {
            Sending::Done(buffer) => cast.spare.push(buffer.into_vec()),
            Sending::UnderWay(wait) => cast.sending.push_back(wait),
        }
        Ok(())
    }

    fn finish_oldest(&mut self, cast: &mut Cast) -> Result<(), Error> {
        let Some(wait) = cast.sending.front_mut() else {
            return Ok(());
        };
        self.wait_task(&cast.task, wait)?;
        if let Some(wait) = cast.sending.pop_front() {
            let done = self.engine.enter().finish_wait(&wait)?;
            cast.spare.extend(done.buffer.map(Buffer::into_vec));
        }
        Ok(())
    }
}

/// Returns the byte range of block `index` in `len` bytes.
fn block(index: usize, len: usize) -> Range<usize> {
    index * BLOCK_LEN..((index + 1) * BLOCK_LEN).min(len)
}
