// SPDX-License-Identifier: MIT OR Apache-2.0
//! Performs a plan as a state machine: the messages of one round at a time.
//!
//! Each message begins with the operation's head and the length of its data (P14.2). A receive for a
//! head is posted before that for its data, so that both match in the order of the sender.

use super::memory::{Combine, Memories};
use super::plan::{Action, Few, Plan, Round, Span};
use crate::buffer::Buffer;
use crate::collective::PART_INLINE_LEN_MAX;
use crate::engine::Engine;
use crate::error::Error;
use crate::node::running::Machine;
use crate::node::{Task, Wait};
use std::vec;

/// A pending operation.
pub(super) struct Exchange {
    rounds: vec::IntoIter<Round>,
    memories: Option<Memories>,
    combine: Option<Combine>,
    current: Option<Current>,
}

/// A round with pending messages.
struct Current {
    sending: Vec<Wait>,
    receiving: Vec<Receiving>,
    after: Few<Action>,
}

/// A pending message from another member.
struct Receiving {
    to: Span,
    head: Option<Wait>,
    /// Data that do not fit the message of their head.
    data: Option<Wait>,
}

impl Exchange {
    pub(super) fn new(plan: Plan, memories: Memories, combine: Option<Combine>) -> Exchange {
        Exchange {
            rounds: plan.rounds.into_iter(),
            memories: Some(memories),
            combine,
            current: None,
        }
    }

    /// Posts the receives of a round, then starts its sends. What has begun is in `current` even
    /// after an error.
    fn begin(&mut self, engine: &mut Engine, task: &Task, round: Round) -> Result<(), Error> {
        let Some(memories) = &self.memories else {
            return Err(Error::Cancelled);
        };
        let current = self.current.insert(Current {
            sending: Vec::new(),
            receiving: Vec::with_capacity(round.receives.len()),
            after: round.after,
        });
        for (member, to) in round.receives {
            let head = Some(engine.post_head_of(task, member)?);
            let data = None;
            current.receiving.push(Receiving { to, head, data });
            if to.len > PART_INLINE_LEN_MAX {
                let data = engine.post_data_of(task, member, memories.place(to))?;
                if let Some(receiving) = current.receiving.last_mut() {
                    receiving.data = data;
                }
            }
        }
        for (member, from) in round.sends {
            let long = match from.len > PART_INLINE_LEN_MAX {
                true => Some(memories.source(from)),
                false => None,
            };
            let bytes = memories.bytes(from);
            current
                .sending
                .extend(engine.begin_part(task, member, bytes, long)?);
        }
        Ok(())
    }

    /// Returns whether all messages of the current round have ended.
    fn poll(&mut self, engine: &mut Engine, task: &Task) -> Result<bool, Error> {
        let (Some(current), Some(memories)) = (&mut self.current, &mut self.memories) else {
            return Ok(true);
        };
        for receiving in &mut current.receiving {
            if !receiving.poll(engine, task, memories)? {
                return Ok(false);
            }
        }
        while let Some(mut sending) = current.sending.pop() {
            let has_ended = engine.poll_task(task, &mut sending);
            if !has_ended.as_ref().is_ok_and(|ended| *ended) {
                current.sending.push(sending);
                return has_ended;
            }
            engine.finish_wait(&sending)?;
        }
        Ok(true)
    }

    /// Performs the work after a round.
    fn finish_round(&mut self) {
        let (Some(current), Some(memories)) = (self.current.take(), &mut self.memories) else {
            return;
        };
        for action in current.after {
            memories.act(action, self.combine.as_ref());
        }
    }
}

impl Receiving {
    /// Returns whether the message has been received.
    fn poll(
        &mut self,
        engine: &mut Engine,
        task: &Task,
        memories: &mut Memories,
    ) -> Result<bool, Error> {
        if let Some(head) = &mut self.head {
            if !engine.poll_task(task, head)? {
                return Ok(false);
            }
            if let Some(head) = self.head.take() {
                let inline = match self.data.is_some() {
                    true => None,
                    false => Some(memories.bytes_mut(self.to)),
                };
                engine.finish_part(task, &head, self.to.len, inline)?;
            }
        }
        if let Some(data) = &mut self.data {
            if !engine.poll_task(task, data)? {
                return Ok(false);
            }
            if let Some(data) = self.data.take() {
                let done = engine.finish_wait(&data)?;
                engine.check_len(data.peer(), done.len as u64, self.to.len as u64)?;
            }
        }
        Ok(true)
    }
}

impl Machine for Exchange {
    fn step(&mut self, engine: &mut Engine, task: &Task) -> Result<Option<Buffer>, Error> {
        loop {
            if !self.poll(engine, task)? {
                return Ok(None);
            }
            self.finish_round();
            match self.rounds.next() {
                Some(round) => self.begin(engine, task, round)?,
                None => {
                    engine.check_intact(task)?;
                    let output = self.memories.take().and_then(Memories::into_output);
                    return output.ok_or(Error::Cancelled).map(Some);
                }
            }
        }
    }

    /// Takes the parts back from all messages. The last one frees the memory that the program does
    /// not get back.
    fn give_up(&mut self, engine: &mut Engine) -> Option<Buffer> {
        if let Some(current) = self.current.take() {
            let receives = current.receiving.iter();
            let receives = receives.flat_map(|one| one.head.iter().chain(&one.data));
            for wait in current.sending.iter().chain(receives) {
                drop(engine.take_memory(wait));
            }
        }
        self.memories.take().and_then(Memories::into_output)
    }
}
