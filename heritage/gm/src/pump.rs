// SPDX-License-Identifier: MIT OR Apache-2.0
//! A turn: what has come is taken in, and what that asks for is done with the node.

use crate::code::*;
use crate::conn::{Conn, Key, Line};
use crate::error::{Failure, Gm, is_about_peer};
use crate::machine::{CARRIER, Machine};
use crate::wire::{Header, Kind, LEN};
use crate::world::{Finishing, Lent, Todo};
use portolan::{Buffer, Lane, Node, Request, TagMatch, TagTarget, Target};
use portolan_ffi::Codes;
use std::time::Instant;

/// Longest message that follows its header, in bytes: GM's packets were as long.
pub(crate) const INLINE_LEN_MAX: usize = 4096;

/// Short enough to be put behind its header on the stack: what a frame of any path takes.
const STACK_LEN: usize = 512;

/// Turns without anything between two looks whether peers live that something is waited for from, and
/// whether messages have waited for too long. A look costs as much as a turn.
const IDLE_TURNS_PER_LOOK: u32 = 64;

/// Turns without anything after which a program that polls lets others have the core, now and then: where
/// there are more processes than cores, what it waits for comes from one of them.
const IDLE_TURNS_PER_YIELD: u32 = 256;

/// Turns of a call that polls: a quarter of a microsecond on shared memory.
const TURNS_PER_POLL: u32 = 8;

/// Tags of bytes that travel by themselves: of messages, and of what was asked for.
const MESSAGE_TAG: u64 = 0x474d << 48;
const ANSWER_TAG: u64 = MESSAGE_TAG | 1 << 32;
/// Nothing is ever sent with this one.
const CANARY_TAG: u64 = MESSAGE_TAG | 2 << 32;

#[inline]
fn lane(high: bool) -> Lane {
    match high {
        true => Lane::High,
        false => Lane::Low,
    }
}

/// The tag of a message's bytes.
fn message_tag(tag: u32) -> u64 {
    MESSAGE_TAG | u64::from(tag)
}

/// Sends a header and what follows it: at once, or with others that are ready soon.
#[inline]
pub(crate) fn transmit(
    node: &mut Node,
    rank: u32,
    header: &Header,
    bytes: &[u8],
    at_once: bool,
) -> Result<(), portolan::Error> {
    let mut target = Target::new(rank, CARRIER).lane(lane(header.high));
    if header.kind == Kind::Datagram {
        target = target.best_effort();
    }
    transmit_to(node, target, header, bytes, at_once)
}

/// The same to a target that need not have the priority of the header.
#[inline]
fn transmit_to(
    node: &mut Node,
    target: Target,
    header: &Header,
    bytes: &[u8],
    at_once: bool,
) -> Result<(), portolan::Error> {
    let mut head = [0; LEN];
    let len = header.write(&mut head);
    if len + bytes.len() <= STACK_LEN {
        let mut whole = [0; STACK_LEN];
        whole[..len].copy_from_slice(&head[..len]);
        whole[len..len + bytes.len()].copy_from_slice(bytes);
        let whole = &whole[..len + bytes.len()];
        return match at_once {
            true => node.send(target, whole),
            false => node.isend_copy(target, whole),
        };
    }
    node.send_gather(target, &[&head[..len], bytes])
}

/// Sends the bytes of a long message by themselves.
///
/// # Safety
/// They stay as they are until the request has ended.
pub(crate) unsafe fn transmit_long(
    node: &mut Node,
    key: Key,
    tag: u32,
    (at, len): (*const u8, usize),
) -> Result<Request, portolan::Error> {
    let target = TagTarget {
        lane: lane(key.high),
        ..TagTarget::new(key.rank, message_tag(tag))
    };
    // SAFETY: the caller's promise.
    node.isend_tagged(target, unsafe { Buffer::from_raw(at, len) })
}

/// Posts memory for what was asked for.
///
/// # Safety
/// The memory is there and nobody else's until the request has ended.
pub(crate) unsafe fn expect_answer(
    node: &mut Node,
    key: Key,
    tag: u32,
    (at, len): (*mut u8, usize),
) -> Result<Request, portolan::Error> {
    let which = TagMatch::new(ANSWER_TAG | u64::from(tag)).source(key.rank);
    // SAFETY: the caller's promise.
    node.post_recv_tagged(which, unsafe { Buffer::from_raw_mut(at, len) })
}

impl Conn {
    /// The tag and memory of bytes that were announced as that one of the line, if that memory is to be posted
    /// now.
    fn unposted(&self, index: usize) -> Option<(u32, *mut u8, usize)> {
        let line = self.line.get(index)?;
        let &Line::Coming {
            request: None,
            tag,
            at,
            len,
            ..
        } = line
        else {
            return None;
        };
        let is_free = match line.lent() {
            Lent::Registered(at, len) => {
                let mut before = self.line.iter().take(index);
                !before.any(|other| other.lent().touches(at, len))
            }
            _ => true,
        };
        is_free.then_some((tag, at, len))
    }
}

/// A header without a message.
pub(crate) fn control(key: Key, kind: Kind, ack: u32, aux: u32) -> Header {
    Header {
        kind,
        size: 0,
        high: key.high,
        from_port: key.own,
        to_port: key.other,
        ack,
        len: 0,
        aux,
        addr: 0,
    }
}

impl Machine {
    /// Takes in what has come, and does what is to be done.
    #[inline]
    pub(crate) fn turn(&mut self) -> Result<(), Failure> {
        // GM has no event for the end of all other processes.
        let moved = self.node()?.progress().unwrap_or(0);
        self.after_turns(moved, 1)
    }

    /// The same until something comes, for some turns: a program that polls calls again anyhow, and calls
    /// cost more than turns.
    #[inline]
    pub(crate) fn turns(&mut self) -> Result<(), Failure> {
        let moved = self.node()?.progress_until_moved(TURNS_PER_POLL);
        self.after_turns(moved, TURNS_PER_POLL)
    }

    #[inline]
    fn after_turns(&mut self, moved: usize, turns: u32) -> Result<(), Failure> {
        if moved > 0 {
            (self.idle_turns, self.looked_at, self.yielded_at) = (0, 0, 0);
            return self.work();
        }
        self.idle_turns = self.idle_turns.wrapping_add(turns);
        self.work()?;
        self.rest()
    }

    /// Does what is to be done with the node.
    #[inline]
    pub(crate) fn work(&mut self) -> Result<(), Failure> {
        while self.world().has_work() {
            if !self.work_once()? {
                break;
            }
        }
        Ok(())
    }

    /// Whether that may have brought new work.
    #[cold]
    fn work_once(&mut self) -> Result<bool, Failure> {
        let todo = std::mem::take(&mut self.world().todo);
        let mut is_new = !todo.is_empty();
        for one in todo {
            self.perform(one)?;
        }
        let lines = self.world().lines.clone();
        for key in lines {
            is_new |= self.take_in(key)?;
        }
        is_new |= self.finish()?;
        Ok(is_new)
    }

    fn perform(&mut self, todo: Todo) -> Result<(), Failure> {
        match todo {
            Todo::Ack(key) => self.say(key, Kind::Ack, 0),
            Todo::Answer { key, tag, at, len } => self.answer(key, tag, (at, len)),
            Todo::Discard { rank, tag } => {
                let which = TagMatch::new(message_tag(tag)).source(rank);
                // Without memory: it ends when the bytes are thrown away.
                let request = self.node()?.post_recv_tagged(which, Vec::new())?;
                self.await_quietly(request, Lent::Nobodys);
                Ok(())
            }
            Todo::Cancel(request) => {
                self.node()?.cancel(request);
                Ok(())
            }
        }
    }

    /// Sends a word of the library's; what cannot be told a process that is gone is not missed.
    fn say(&mut self, key: Key, kind: Kind, aux: u32) -> Result<(), Failure> {
        self.say_in(key.high, key, kind, aux)
    }

    /// The same in a lane that need not be the connection's. An acknowledgement that comes late is older
    /// than what is known, and ignored.
    fn say_in(&mut self, high: bool, key: Key, kind: Kind, aux: u32) -> Result<(), Failure> {
        let ack = self.world().conn(key).tell(high);
        let header = control(key, kind, ack, aux);
        let target = Target::new(key.rank, CARRIER).lane(lane(high));
        match transmit_to(self.node()?, target, &header, &[], true) {
            Ok(()) => Ok(()),
            Err(error) => self.lose_or_fail(key.rank, error),
        }
    }

    /// What was for a process that is gone is not missed; without anything else that it needs the library
    /// cannot go on.
    #[cold]
    pub(crate) fn lose_or_fail(
        &mut self,
        rank: u32,
        error: portolan::Error,
    ) -> Result<(), Failure> {
        if !is_about_peer(&error) {
            return Err(error.into());
        }
        self.world().lose(rank);
        Ok(())
    }

    fn answer(&mut self, key: Key, tag: u32, bytes: (*const u8, usize)) -> Result<(), Failure> {
        let target = TagTarget {
            lane: lane(key.high),
            ..TagTarget::new(key.rank, ANSWER_TAG | u64::from(tag))
        };
        // SAFETY: registered memory, which was seen when the message was accepted: the program's promise
        // that it is there. Deregistering waits for what is under way.
        let buffer = unsafe { Buffer::from_raw(bytes.0, bytes.1) };
        match self.node()?.isend_tagged(target, buffer) {
            Ok(request) => {
                self.await_quietly(request, Lent::Registered(bytes.0.addr(), bytes.1));
            }
            Err(error) => self.lose_or_fail(key.rank, error)?,
        }
        Ok(())
    }

    fn await_quietly(&mut self, request: Request, lent: Lent) {
        self.world().finishing.push(Finishing {
            request,
            report: None,
            lent,
        });
    }

    /// Looks after a connection that waits for bytes; whether a message has ended.
    fn take_in(&mut self, key: Key) -> Result<bool, Failure> {
        self.post_line(key)?;
        let mut has_ended = false;
        loop {
            let (first, word) = match self.world().conn(key).line.front() {
                None => break,
                // Announced meanwhile: posted in the next turn.
                Some(Line::Coming { request: None, .. }) => return Ok(true),
                Some(Line::Coming { request, .. }) => (*request, None),
                Some(Line::Failed(status)) => {
                    let status = u32::try_from(*status).unwrap_or(0);
                    (None, Some((Kind::Nack, status)))
                }
                Some(Line::Dropped) => (None, Some((Kind::Dropped, 0))),
                Some(_) => (None, None),
            };
            if let Some((kind, aux)) = word {
                // While it is in the line, nothing behind it is counted as accepted.
                self.say(key, kind, aux)?;
            }
            if let Some(request) = first {
                match self.node()?.test(request) {
                    Ok(None) => return Ok(has_ended),
                    Ok(Some(_)) => {}
                    // Its sender is gone: the buffer is for another message.
                    Err(_) => {
                        let mut world = self.world();
                        let line = world.conn(key).line.pop_front();
                        if let Some(Line::Coming {
                            event: Some(event), ..
                        }) = line
                        {
                            world.give_back(key, &event);
                        }
                        continue;
                    }
                }
            }
            has_ended = true;
            let mut world = self.world();
            if let Some(line) = world.conn(key).line.pop_front() {
                world.settle(key, line);
            }
        }
        self.world().lines.retain(|other| *other != key);
        Ok(has_ended)
    }

    /// Posts memory for bytes that were announced, unless something before them is still to use the same
    /// memory: bytes that travel by themselves may overtake one another.
    fn post_line(&mut self, key: Key) -> Result<(), Failure> {
        let count = self.world().conn(key).line.len();
        for index in 0..count {
            let Some((tag, at, len)) = self.world().conn(key).unposted(index) else {
                continue;
            };
            let which = TagMatch::new(message_tag(tag)).source(key.rank);
            // SAFETY: a buffer that the program has provided, as long as its size says, or memory that
            // it has registered for others to write to.
            let buffer = unsafe { Buffer::from_raw_mut(at, len) };
            let posted = self.node()?.post_recv_tagged(which, buffer)?;
            if let Some(Line::Coming { request, .. }) = self.world().conn(key).line.get_mut(index) {
                *request = Some(posted);
            }
        }
        Ok(())
    }

    /// Looks after operations that end by themselves; whether one has.
    fn finish(&mut self) -> Result<bool, Failure> {
        let mut finishing = std::mem::take(&mut self.world().finishing);
        let before = finishing.len();
        let mut kept = Vec::new();
        for one in finishing.drain(..) {
            let outcome = self.node()?.test(one.request);
            if let Ok(None) = outcome {
                kept.push(one);
                continue;
            }
            if let Some(mut report) = one.report {
                if let (Err(error), GM_SUCCESS) = (outcome, report.ended.status) {
                    report.ended.status = Gm::of(&error);
                }
                self.world().finish(&report);
            }
        }
        let has_ended = kept.len() < before;
        let mut world = self.world();
        world.finishing.append(&mut kept);
        world.release_retired();
        Ok(has_ended)
    }

    /// What waits until nothing else is to be done: acknowledgements, and looks at the clock and at who
    /// lives.
    fn rest(&mut self) -> Result<(), Failure> {
        if !self.world().due.is_empty() {
            self.acknowledge()?;
        }
        if self.idle_turns.wrapping_sub(self.looked_at) >= IDLE_TURNS_PER_LOOK {
            self.looked_at = self.idle_turns;
            self.look()?;
        }
        if self.idle_turns.wrapping_sub(self.yielded_at) >= IDLE_TURNS_PER_YIELD {
            self.yielded_at = self.idle_turns;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Says what is owed, before the program is busy elsewhere.
    pub(crate) fn acknowledge(&mut self) -> Result<(), Failure> {
        // The table keeps its memory: it is filled with each message.
        loop {
            let (key, owes) = {
                let mut world = self.world();
                let Some(key) = world.due.pop() else {
                    return Ok(());
                };
                let conn = world.conn(key);
                conn.is_due = false;
                (key, conn.told != conn.accepted)
            };
            if owes {
                self.say(key, Kind::Ack, 0)?;
            }
        }
    }

    /// Acknowledges what other connections with the process of `next` have brought, before something is
    /// sent that may be the answer. Connection `next` itself acknowledges with what is sent.
    #[inline]
    pub(crate) fn acknowledge_before(&mut self, next: Key) -> Result<(), Failure> {
        let own = (next.own, next.other, next.high);
        let mut world = self.world();
        let owes = world
            .peer(next.rank)
            .owed_in(next.high)
            .any(|key| key != own);
        drop(world);
        match owes {
            true => self.acknowledge_others(next),
            false => Ok(()),
        }
    }

    #[cold]
    fn acknowledge_others(&mut self, next: Key) -> Result<(), Failure> {
        let owed: Vec<_> = self.world().peer(next.rank).owed_in(next.high).collect();
        for (own, other, high) in owed {
            let key = Key {
                own,
                other,
                high,
                ..next
            };
            if key != next {
                self.say_in(next.high, key, Kind::Ack, 0)?;
            }
        }
        Ok(())
    }

    /// Looks whether messages have waited for too long, and whether those live that something is waited
    /// for from.
    pub(crate) fn look(&mut self) -> Result<(), Failure> {
        if self.world().held_count > 0 {
            self.world().expire(Instant::now());
            self.work()?;
        }
        let own = self.node()?.rank();
        let mut ranks: Vec<u32> = {
            let mut world = self.world();
            let waiting = world.keys(|key, conn| key.rank != own && !conn.sent.is_empty());
            waiting.iter().map(|key| key.rank).collect()
        };
        ranks.dedup();
        for rank in ranks {
            self.look_at(rank)?;
        }
        Ok(())
    }

    /// A receive from one process, for which nothing is ever sent, ends when that is gone.
    fn look_at(&mut self, rank: u32) -> Result<(), Failure> {
        let known = self.world().peer(rank).canary;
        let canary = match known {
            Some(canary) => canary,
            None => {
                let which = TagMatch::new(CANARY_TAG).source(rank);
                let canary = self.node()?.post_recv_tagged(which, Vec::new())?;
                self.world().peer(rank).canary = Some(canary);
                canary
            }
        };
        if self.node()?.test(canary).is_err() {
            self.world().peer(rank).canary = None;
            self.world().lose(rank);
            self.work()?;
        }
        Ok(())
    }
}
