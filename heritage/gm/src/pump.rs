// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pass of the library: handles received messages, and performs the operations of the node that
//! they require.

use crate::code::*;
use crate::conn::{Conn, Key, Queued};
use crate::error::{Failure, Gm, is_about_peer};
use crate::machine::{CARRIER, Machine};
use crate::wire::{Header, Kind, LEN};
use crate::world::{Borrowed, Finishing, Todo};
use portolan::binding::Plumbing as _;
use portolan::{Buffer, Lane, Node, Request, TagMatch, TagTarget, Target};
use portolan_ffi::Codes;
use std::time::Instant;

/// Longest message that follows its header, in bytes, as in GM's packets.
pub(crate) const INLINE_LEN_MAX: usize = 4096;

/// Longest message that is copied behind its header on the stack, in bytes. It fits a frame of any
/// path.
const STACK_LEN: usize = 512;

/// Passes without a message between two checks for failed peers and for messages that have waited
/// too long. A check costs as much as a pass.
const IDLE_PASSES_PER_CHECK: u32 = 64;

/// Passes without a message between two yields of the core by a polling program. If there are more
/// processes than cores, the awaited message comes from one of them.
const IDLE_PASSES_PER_YIELD: u32 = 256;

/// Passes of a polling call: 0.25 µs on shared memory.
const PASSES_PER_POLL: u32 = 8;

/// Tags of bytes that are sent apart from their header: a long message's, and the reply to a get.
const MESSAGE_TAG: u64 = 0x474d << 48;
const REPLY_TAG: u64 = MESSAGE_TAG | 1 << 32;
/// Tag of messages that are never sent.
const CANARY_TAG: u64 = MESSAGE_TAG | 2 << 32;

#[inline]
fn lane(high: bool) -> Lane {
    match high {
        true => Lane::High,
        false => Lane::Low,
    }
}

/// Returns the tag with which the bytes of a long message are sent.
fn message_tag(tag: u32) -> u64 {
    MESSAGE_TAG | u64::from(tag)
}

/// Sends a header and the bytes after it, either at once or batched with messages that follow soon.
#[inline]
pub(crate) fn transmit(
    node: &mut Node,
    rank: u32,
    header: &Header,
    bytes: &[u8],
    at_once: bool,
) -> Result<(), portolan::Error> {
    let target = Target::new(rank, CARRIER).lane(lane(header.high));
    transmit_to(node, target, header, bytes, at_once)
}

/// Sends a header and the bytes after it at once. They may be lost.
#[inline]
pub(crate) fn transmit_best_effort(
    node: &mut Node,
    rank: u32,
    header: &Header,
    bytes: &[u8],
) -> Result<(), portolan::Error> {
    let target = Target::new(rank, CARRIER).lane(lane(header.high));
    transmit_to(node, target.best_effort(), header, bytes, true)
}

/// Sends like [`transmit`], to a target whose priority may differ from the header's.
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
        let mut message = [0; STACK_LEN];
        message[..len].copy_from_slice(&head[..len]);
        message[len..len + bytes.len()].copy_from_slice(bytes);
        let message = &message[..len + bytes.len()];
        return match at_once {
            true => node.send(target, message),
            false => node.isend_copy(target, message),
        };
    }
    node.send_gather(target, &[&head[..len], bytes])
}

/// Sends the bytes of a long message as a tagged message of their own.
///
/// # Safety
/// The bytes must stay valid and unchanged until the request has ended.
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
    // SAFETY: guaranteed by the caller, see `# Safety`.
    node.isend_tagged(target, unsafe { Buffer::from_raw(at, len) })
}

/// Posts a receive for the bytes that a get has requested.
///
/// # Safety
/// The memory must be valid, and unused by others, until the request has ended.
pub(crate) unsafe fn post_reply(
    node: &mut Node,
    key: Key,
    tag: u32,
    (at, len): (*mut u8, usize),
) -> Result<Request, portolan::Error> {
    let which = TagMatch::new(REPLY_TAG | u64::from(tag)).source(key.rank);
    // SAFETY: guaranteed by the caller, see `# Safety`.
    node.post_recv_tagged(which, unsafe { Buffer::from_raw_mut(at, len) })
}

impl Conn {
    /// Returns the tag and memory of the bytes announced at position `index` of the queue, if that
    /// memory must be posted now.
    fn unposted(&self, index: usize) -> Option<(u32, *mut u8, usize)> {
        let entry = self.queue.get(index)?;
        let &Queued::Arriving {
            request: None,
            tag,
            at,
            len,
            ..
        } = entry
        else {
            return None;
        };
        let is_free = match entry.borrowed() {
            Borrowed::Registered(at, len) => {
                let mut before = self.queue.iter().take(index);
                !before.any(|other| other.borrowed().touches(at, len))
            }
            _ => true,
        };
        is_free.then_some((tag, at, len))
    }
}

/// Creates a header without a message.
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
    /// Handles received messages, and performs the pending operations.
    #[inline]
    pub(crate) fn progress(&mut self) -> Result<(), Failure> {
        // GM has no event for the end of all other processes.
        let moved = self.node()?.progress().unwrap_or(0);
        self.after_passes(moved, 1)
    }

    /// Runs at most [`PASSES_PER_POLL`] passes, until a message arrives. A polling program calls again,
    /// and calls cost more than passes.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<(), Failure> {
        let moved = self.node()?.progress_until_moved(PASSES_PER_POLL);
        self.after_passes(moved, PASSES_PER_POLL)
    }

    #[inline]
    fn after_passes(&mut self, moved: usize, passes: u32) -> Result<(), Failure> {
        if moved > 0 {
            (self.idle_passes, self.checked_at, self.yielded_at) = (0, 0, 0);
            return self.work();
        }
        self.idle_passes = self.idle_passes.wrapping_add(passes);
        self.work()?;
        self.do_idle_work()
    }

    /// Performs the pending operations of the node.
    #[inline]
    pub(crate) fn work(&mut self) -> Result<(), Failure> {
        while self.world().has_work() {
            if !self.work_once()? {
                break;
            }
        }
        Ok(())
    }

    /// Performs the pending operations once. Returns whether there may be new ones.
    #[cold]
    fn work_once(&mut self) -> Result<bool, Failure> {
        let todo = std::mem::take(&mut self.world().todo);
        let mut is_new = !todo.is_empty();
        for one in todo {
            self.perform(one)?;
        }
        let queues = self.world().queues.clone();
        for key in queues {
            is_new |= self.advance_queue(key)?;
        }
        is_new |= self.finish()?;
        Ok(is_new)
    }

    fn perform(&mut self, todo: Todo) -> Result<(), Failure> {
        match todo {
            Todo::Ack(key) => self.send_control(key, Kind::Ack, 0),
            Todo::Reply { key, tag, at, len } => self.reply(key, tag, (at, len)),
            Todo::Discard { rank, tag } => {
                let which = TagMatch::new(message_tag(tag)).source(rank);
                // Without memory: the request ends when the bytes are discarded.
                let request = self.node()?.post_recv_tagged(which, Vec::new())?;
                self.finish_unreported(request, Borrowed::Nothing);
                Ok(())
            }
            Todo::Cancel(request) => {
                self.node()?.cancel(request);
                Ok(())
            }
        }
    }

    /// Sends a control message. It need not reach a process that has failed.
    fn send_control(&mut self, key: Key, kind: Kind, aux: u32) -> Result<(), Failure> {
        self.send_control_in(key.high, key, kind, aux)
    }

    /// Sends like [`Machine::send_control`], in a lane that may differ from the connection's. A delayed
    /// acknowledgement is older than the current state, and is ignored.
    fn send_control_in(
        &mut self,
        high: bool,
        key: Key,
        kind: Kind,
        aux: u32,
    ) -> Result<(), Failure> {
        let ack = self.world().conn(key).mark_acknowledged(high);
        let header = control(key, kind, ack, aux);
        let target = Target::new(key.rank, CARRIER).lane(lane(high));
        match transmit_to(self.node()?, target, &header, &[], true) {
            Ok(()) => Ok(()),
            Err(error) => self.on_send_error(key.rank, error),
        }
    }

    /// Ignores an error about a process that has failed. Any other error is one that the library
    /// cannot continue after.
    #[cold]
    pub(crate) fn on_send_error(
        &mut self,
        rank: u32,
        error: portolan::Error,
    ) -> Result<(), Failure> {
        if !is_about_peer(&error) {
            return Err(error.into());
        }
        self.world().fail_peer(rank);
        Ok(())
    }

    fn reply(&mut self, key: Key, tag: u32, bytes: (*const u8, usize)) -> Result<(), Failure> {
        let target = TagTarget {
            lane: lane(key.high),
            ..TagTarget::new(key.rank, REPLY_TAG | u64::from(tag))
        };
        // SAFETY: the program guarantees that registered memory is valid. Its registration was
        // checked when the message was accepted, and deregistering waits for pending operations.
        let buffer = unsafe { Buffer::from_raw(bytes.0, bytes.1) };
        match self.node()?.isend_tagged(target, buffer) {
            Ok(request) => {
                self.finish_unreported(request, Borrowed::Registered(bytes.0.addr(), bytes.1));
            }
            Err(error) => self.on_send_error(key.rank, error)?,
        }
        Ok(())
    }

    fn finish_unreported(&mut self, request: Request, borrowed: Borrowed) {
        self.world().finishing.push(Finishing {
            request,
            report: None,
            borrowed,
        });
    }

    /// Advances a connection that waits for bytes. Returns whether a message has ended.
    fn advance_queue(&mut self, key: Key) -> Result<bool, Failure> {
        self.post_queued(key)?;
        let mut has_ended = false;
        loop {
            let (first, notice) = match self.world().conn(key).queue.front() {
                None => break,
                // Announced in the meantime: posted in the next pass.
                Some(Queued::Arriving { request: None, .. }) => return Ok(true),
                Some(Queued::Arriving { request, .. }) => (*request, None),
                Some(Queued::Failed(status)) => {
                    let status = u32::try_from(*status).unwrap_or(0);
                    (None, Some((Kind::Nack, status)))
                }
                Some(Queued::Dropped) => (None, Some((Kind::Dropped, 0))),
                Some(_) => (None, None),
            };
            if let Some((kind, aux)) = notice {
                // While it is in the queue, no message behind it is counted as accepted.
                self.send_control(key, kind, aux)?;
            }
            if let Some(request) = first {
                match self.node()?.test(request) {
                    Ok(None) => return Ok(has_ended),
                    Ok(Some(_)) => {}
                    // Its sender has failed: the buffer is used for another message.
                    Err(_) => {
                        let mut world = self.world();
                        let entry = world.conn(key).queue.pop_front();
                        if let Some(Queued::Arriving {
                            event: Some(event), ..
                        }) = entry
                        {
                            world.return_buffer(key, &event);
                        }
                        continue;
                    }
                }
            }
            has_ended = true;
            let mut world = self.world();
            if let Some(entry) = world.conn(key).queue.pop_front() {
                world.settle(key, entry);
            }
        }
        self.world().queues.retain(|other| *other != key);
        Ok(has_ended)
    }

    /// Posts memory for announced bytes, unless an earlier entry will still use the same memory:
    /// separately sent bytes may overtake one another.
    fn post_queued(&mut self, key: Key) -> Result<(), Failure> {
        let count = self.world().conn(key).queue.len();
        for index in 0..count {
            let Some((tag, at, len)) = self.world().conn(key).unposted(index) else {
                continue;
            };
            let which = TagMatch::new(message_tag(tag)).source(key.rank);
            // SAFETY: a buffer that the program has provided, as long as its size requires, or
            // memory that the program has registered for writes by other processes.
            let buffer = unsafe { Buffer::from_raw_mut(at, len) };
            let posted = self.node()?.post_recv_tagged(which, buffer)?;
            if let Some(Queued::Arriving { request, .. }) =
                self.world().conn(key).queue.get_mut(index)
            {
                *request = Some(posted);
            }
        }
        Ok(())
    }

    /// Handles operations that complete in the background. Returns whether one has ended.
    fn finish(&mut self) -> Result<bool, Failure> {
        let mut finishing = std::mem::take(&mut self.world().finishing);
        let before = finishing.len();
        let mut pending = Vec::new();
        for one in finishing.drain(..) {
            let outcome = self.node()?.test(one.request);
            if let Ok(None) = outcome {
                pending.push(one);
                continue;
            }
            if let Some(mut report) = one.report {
                if let (Err(error), GM_SUCCESS) = (outcome, report.ended.status) {
                    report.ended.status = Gm::of(error.error());
                }
                self.world().finish(&report);
            }
        }
        let has_ended = pending.len() < before;
        let mut world = self.world();
        world.finishing.append(&mut pending);
        world.release_retired();
        Ok(has_ended)
    }

    /// Performs work that waits until there is nothing else to do: acknowledgements, and checks of
    /// the clock and the peers.
    fn do_idle_work(&mut self) -> Result<(), Failure> {
        if !self.world().due.is_empty() {
            self.acknowledge()?;
        }
        if self.idle_passes.wrapping_sub(self.checked_at) >= IDLE_PASSES_PER_CHECK {
            self.checked_at = self.idle_passes;
            self.check_waits()?;
        }
        if self.idle_passes.wrapping_sub(self.yielded_at) >= IDLE_PASSES_PER_YIELD {
            self.yielded_at = self.idle_passes;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends all due acknowledgements, before the program is busy elsewhere.
    pub(crate) fn acknowledge(&mut self) -> Result<(), Failure> {
        // Taken one by one, so that the table keeps its memory: it is filled with each message.
        loop {
            let (key, is_pending) = {
                let mut world = self.world();
                let Some(key) = world.due.pop() else {
                    return Ok(());
                };
                let conn = world.conn(key);
                conn.is_due = false;
                (key, conn.acknowledged != conn.accepted)
            };
            if is_pending {
                self.send_control(key, Kind::Ack, 0)?;
            }
        }
    }

    /// Acknowledges the messages of other connections with the process of `next`, before a message
    /// is sent to it that may be its reply. Connection `next` itself acknowledges with that
    /// message.
    #[inline]
    pub(crate) fn acknowledge_before(&mut self, next: Key) -> Result<(), Failure> {
        let own = (next.own, next.other, next.high);
        let mut world = self.world();
        let is_pending = world
            .peer(next.rank)
            .unacknowledged_in(next.high)
            .any(|key| key != own);
        drop(world);
        match is_pending {
            true => self.acknowledge_others(next),
            false => Ok(()),
        }
    }

    #[cold]
    fn acknowledge_others(&mut self, next: Key) -> Result<(), Failure> {
        let pending: Vec<_> = self
            .world()
            .peer(next.rank)
            .unacknowledged_in(next.high)
            .collect();
        for (own, other, high) in pending {
            let key = Key {
                own,
                other,
                high,
                ..next
            };
            if key != next {
                self.send_control_in(next.high, key, Kind::Ack, 0)?;
            }
        }
        Ok(())
    }

    /// Checks for messages that have waited too long, and for awaited peers that have failed.
    pub(crate) fn check_waits(&mut self) -> Result<(), Failure> {
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
            self.check_peer(rank)?;
        }
        Ok(())
    }

    /// Checks a process by a receive from it for which no message is ever sent. The receive ends
    /// when the process has failed.
    fn check_peer(&mut self, rank: u32) -> Result<(), Failure> {
        let found = self.world().peer(rank).canary;
        let canary = match found {
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
            self.world().fail_peer(rank);
            self.work()?;
        }
        Ok(())
    }
}
