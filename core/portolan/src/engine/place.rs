// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives from a network link, with bulk payload directly into user memory where that pays.
//!
//! [`Intake`] connects a link with the core for one receive call. Before each batch it gets the
//! expected fragments from the core, and passes that part of the operation's buffer to the link.
//! [`Placement`] decides whether to do so.

mod auto;

pub(crate) use auto::Placement;

use super::Inner;
use super::delivery::{Handlers, Inbox};
use crate::checksum;
use portolan_link::{Expected, Plan, Receiver, RxFrame};
use portolan_proto::{ExpectedRun, LinkId};
use portolan_sys::probe;
use portolan_wire::CHECK_LEN;

/// Fragments that the core expects, as the link checks them.
struct Run(ExpectedRun);

impl Expected for Run {
    fn matches(&self, index: usize, header: &[u8], payload: &[u8]) -> bool {
        let header = match self.0.is_checked() {
            true => checksum::open_apart(header, payload),
            false => Some(header),
        };
        header.is_some_and(|header| self.0.matches(index, header, payload.len()))
    }
}

/// Receiver of one receive call; see the module documentation.
pub(super) struct Intake<'a, 'b> {
    inner: &'a mut Inner,
    handlers: &'a mut Handlers,
    link: LinkId,
    inbox: Option<&'a mut Inbox<'b>>,
    /// Set when the clock was read for this call.
    is_fresh: bool,
    /// Expected fragments of the last plan.
    run: Option<Run>,
}

impl<'a, 'b> Intake<'a, 'b> {
    #[inline]
    pub(super) fn new(
        inner: &'a mut Inner,
        handlers: &'a mut Handlers,
        link: LinkId,
        inbox: Option<&'a mut Inbox<'b>>,
    ) -> Self {
        Intake {
            inner,
            handlers,
            link,
            inbox,
            is_fresh: false,
            run: None,
        }
    }

    /// Tests whether the waiting receive has its message.
    #[inline]
    pub(super) fn is_filled(&self) -> bool {
        (self.inbox.as_ref()).is_some_and(|inbox| inbox.got.is_some())
    }

    #[inline]
    fn freshen(&mut self) {
        if !self.is_fresh {
            self.is_fresh = true;
            self.inner.read_clock();
        }
    }

    /// Counts frames that the network has marked, of which the core had accepted `before` when they
    /// arrived. The first one has this `header`. `P3.14`
    #[cold]
    fn note_marked(&mut self, before: u64, header: &[u8]) {
        let core = &mut self.inner.core;
        let count = core.counters().frames_received - before;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        core.note_marked(self.link, checksum::behind_sum(header), count);
    }

    fn plan_bulk(&mut self) -> Option<Plan<'_>> {
        // Sealed payload must be opened before it can be placed.
        if !self.inner.placement.may_speculate() || self.inner.seals.is_some() {
            return None;
        }
        let run = self.inner.core.expected_run(self.link)?;
        if !self.inner.placement.begin_batch() {
            return None;
        }
        let off = usize::try_from(run.off()).ok()?;
        let len = usize::try_from(run.len()).ok()?;
        let bytes = self.inner.ops.bytes_mut(run.op());
        let dst = bytes.get_mut(off..)?.get_mut(..len)?;
        let header_len = match run.is_checked() {
            true => CHECK_LEN + ExpectedRun::HEADER_LEN,
            false => ExpectedRun::HEADER_LEN,
        };
        Some(Plan {
            header_len,
            fragment_len: run.fragment_len(),
            dst,
            expected: self.run.insert(Run(run)),
        })
    }

    /// Makes the waiting receive search for earlier messages before it takes another.
    #[inline]
    fn search_next(&mut self) {
        if let Some(inbox) = &mut self.inbox {
            inbox.is_quiet = false;
        }
    }

    #[cold]
    fn take_sealed(&mut self, frame: &[u8]) {
        let inbox = self.inbox.as_deref_mut();
        self.inner.on_sealed(self.handlers, self.link, frame, inbox);
    }
}

impl Receiver for Intake<'_, '_> {
    #[inline]
    fn plan(&mut self) -> Option<Plan<'_>> {
        self.inner.placement.end_batch();
        match self.inner.core.expects_bulk() {
            true => self.plan_bulk(),
            false => None,
        }
    }

    /// Always inlined: otherwise passing the frame would cost as much as a short message.
    #[inline(always)]
    fn frame(&mut self, frame: RxFrame<'_>) {
        self.freshen();
        self.inner.placement.count(frame.head.len());
        let before = self.inner.core.counters().frames_received;
        if self.inner.seals.is_some() {
            self.take_sealed(frame.head);
        } else {
            match checksum::open(frame.head) {
                Ok(head) => {
                    let inbox = self.inbox.as_deref_mut();
                    self.inner
                        .on_datagram(self.handlers, self.link, head, inbox);
                }
                Err(reason) => self.inner.core.note_dropped(reason),
            }
        }
        if frame.marked {
            self.note_marked(before, frame.head);
        }
    }

    /// A frame left with the kernel costs less than a copy in held memory.
    #[inline]
    fn has_enough(&self) -> bool {
        self.is_filled()
    }

    fn run(&mut self, frames: &[u8], frame_len: usize, marked: bool) -> usize {
        if self.inner.seals.is_some() {
            return 0;
        }
        self.freshen();
        let before = self.inner.core.counters().frames_received;
        let taken = self
            .inner
            .on_run(self.handlers, self.link, frames, frame_len);
        if taken > 0 {
            // Its message may wait at the port of the receive.
            self.search_next();
        }
        if marked {
            self.note_marked(before, frames);
        }
        taken
    }

    #[inline]
    fn placed(&mut self, header: &[u8], payload_len: usize, marked: bool) {
        self.freshen();
        self.search_next();
        self.inner.placement.count(header.len() + payload_len);
        let Inner { core, now, .. } = &mut *self.inner;
        let before = core.counters().frames_received;
        core.handle_placed(*now, self.link, checksum::behind_sum(header), payload_len);
        self.inner.drain(self.handlers, None);
        if marked {
            self.note_marked(before, header);
        }
    }

    fn faulted(&mut self) {
        let Some(Run(run)) = &self.run else { return };
        let (Ok(off), Ok(len)) = (usize::try_from(run.off()), usize::try_from(run.len())) else {
            return;
        };
        let (op, range) = (run.op(), off..off.saturating_add(len));
        let dst = self.inner.ops.bytes_mut(op).get_mut(range.clone());
        if dst.is_some_and(|dst| !probe::is_writable(dst)) {
            self.inner.fail_writes(op, range);
            self.inner.drain(self.handlers, None);
        }
    }

    fn missed(&mut self, frame_count: usize, copied_len: usize) {
        self.inner.core.note_missed(frame_count, copied_len);
    }
}
