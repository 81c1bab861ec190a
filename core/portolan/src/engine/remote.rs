// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory in the engine: submits requests in the order of their lane, moves bytes between
//! frames and regions, and stores notices for the program.

use super::Inner;
use super::delivery::copy_part;
use super::send::{BUFFERED_LEN_MAX, Submitted};
use crate::atomic::{self, AtomicOp, Datatype};
use crate::error::Error;
use portolan_link::RxFrame;
use portolan_proto::{
    ATOMIC_LEN_MAX, AtomicSpec, Data, Event, OpError, OpId, PeerId, PortId, PutNotice, Refused,
    RemoteFault, RemoteSpec, Reply, SendSpec,
};
use portolan_sys::probe;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

/// Kind of a request. The bytes of a put, or the memory for the result, belong to the operation.
#[derive(Clone, Debug)]
pub(crate) enum Call<'a> {
    Put,
    Get,
    /// Atomic operation with its operands.
    Atomic(AtomicSpec, Cow<'a, [u8]>),
}

impl Call<'_> {
    fn into_owned(self) -> Call<'static> {
        match self {
            Call::Put => Call::Put,
            Call::Get => Call::Get,
            Call::Atomic(spec, operands) => Call::Atomic(spec, operands.into_owned().into()),
        }
    }
}

/// State of remote memory; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct RemoteState {
    /// Requests that wait behind others of their lane.
    queued: BTreeMap<OpId, (RemoteSpec, Call<'static>)>,
    /// Puts for which the program has not taken a notice. Credit limits their number.
    notices: VecDeque<PutNotice>,
    /// Reusable memory for the operands of an atomic operation, and for its result.
    operands: Vec<u8>,
    before: Vec<u8>,
}

impl Inner {
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        !self.remote.notices.is_empty()
    }

    /// Returns the next notice of a put for the program.
    #[inline]
    pub(crate) fn take_notice(&mut self) -> Option<PutNotice> {
        let notice = self.remote.notices.pop_front()?;
        self.core.notice_taken(&notice);
        Some(notice)
    }

    /// Returns reusable memory for the operands of an atomic operation. Give it back with
    /// [`Inner::return_operands`].
    pub(crate) fn take_operands(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.remote.operands)
    }

    pub(crate) fn return_operands(&mut self, operands: Vec<u8>) {
        self.remote.operands = operands;
    }

    /// Returns reusable memory for the result of an atomic operation. Give it back with
    /// [`Inner::return_before`].
    pub(crate) fn take_before(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.remote.before)
    }

    pub(crate) fn return_before(&mut self, before: Vec<u8>) {
        self.remote.before = before;
    }

    /// Submits the request of `op`, or queues it behind earlier submissions of its lane.
    pub(crate) fn submit_remote(
        &mut self,
        peer: PeerId,
        op: OpId,
        spec: RemoteSpec,
        call: Call<'_>,
    ) -> Result<(), Error> {
        self.flush_wanted = true;
        let place = SendSpec {
            to: PortId::system(u16::MAX).into(),
            lane: spec.lane,
            best_effort: false,
        };
        if !self.pending.has(peer, &place) {
            match self.try_remote(peer, op, &spec, &call) {
                Ok(()) => return Ok(()),
                Err(Refused::Busy) => {}
                Err(refused) => {
                    let Submitted::Wait = self.on_refused(peer, refused)? else {
                        return Ok(());
                    };
                }
            }
        }
        self.remote.queued.insert(op, (spec, call.into_owned()));
        self.pending.push(peer, place, op);
        Ok(())
    }

    /// Retries a queued request. Returns `false` if it must wait longer.
    pub(super) fn try_queued_remote(&mut self, peer: PeerId, op: OpId) -> bool {
        let Some((spec, call)) = self.remote.queued.remove(&op) else {
            return true;
        };
        match self.try_remote(peer, op, &spec, &call) {
            Ok(()) => self.flush_wanted = true,
            Err(Refused::PeerFailed(cause)) => {
                self.complete_send(op, peer, Err(OpError::PeerFailed(peer, cause)));
            }
            Err(_) => {
                self.remote.queued.insert(op, (spec, call));
                return false;
            }
        }
        true
    }

    /// Forgets a request that ended while it was queued.
    pub(super) fn forget_queued_remote(&mut self, op: OpId) {
        self.remote.queued.remove(&op);
    }

    fn try_remote(
        &mut self,
        peer: PeerId,
        op: OpId,
        spec: &RemoteSpec,
        call: &Call<'_>,
    ) -> Result<(), Refused> {
        let addr = match call {
            Call::Put => self.pull_addr(peer, op, 0),
            Call::Get | Call::Atomic(..) => 0,
        };
        let long_len = self.ops.len(op);
        if long_len > BUFFERED_LEN_MAX {
            self.note_long(long_len as u64);
        }
        let Inner { core, ops, .. } = self;
        let bytes = ops.bytes(op);
        let len = bytes.len() as u64;
        match call {
            Call::Put => {
                if let Some(mut staging) = core.put(peer, spec, op, len, addr)? {
                    staging.push(bytes);
                }
            }
            Call::Get => core.get(peer, spec, op, len)?,
            Call::Atomic(atomic, operands) => {
                let mut staging = core.atomic(peer, spec, op, atomic, operands.len())?;
                staging.push(operands);
            }
        }
        Ok(())
    }

    /// Handles the events of remote memory, which are the only ones left.
    pub(super) fn on_remote(&mut self, frame: Option<&RxFrame<'_>>, event: Event) {
        match event {
            Event::RemoteDone { op, result } => {
                if let Some(crate::ops::OpKind::Remote(peer)) = self.ops.kind(op) {
                    self.complete_send(op, peer, result);
                }
            }
            Event::RemoteWrite {
                reply,
                len,
                data,
                notifies,
            } => self.write_put(frame, (&reply, len), data, notifies),
            Event::Discard { held } => self.core.release(held),
            Event::RemoteRead { reply, len } => self.reply_read(&reply, len),
            Event::RemoteAtomic {
                reply,
                atomic,
                data,
            } => self.apply_atomic(frame, &reply, &atomic, data),
            Event::PutNotice(notice) if self.skips_notice() => self.core.notice_taken(&notice),
            Event::PutNotice(notice) => self.remote.notices.push_back(notice),
            _ => {}
        }
    }

    fn reply_read(&mut self, reply: &Reply, len: u64) {
        let off = usize::try_from(reply.off).unwrap_or(usize::MAX);
        let addr = self.pull_addr(reply.peer, reply.region, off);
        if len > BUFFERED_LEN_MAX as u64 {
            self.note_long(len);
            // The transfer may be timed.
            self.read_clock();
        }
        let Inner { core, ops, now, .. } = self;
        let bytes = ops.bytes(reply.region);
        let end = off.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
        let bytes = bytes.get(off..end).unwrap_or(&[]);
        // The memory of a long reply is probed when its parts leave.
        if bytes.len() <= BUFFERED_LEN_MAX && !probe::is_readable(bytes) {
            return core.refuse(reply, RemoteFault::Inaccessible);
        }
        if let Some(mut staging) = core.reply_read(*now, reply, len, addr) {
            staging.push(bytes);
        }
    }

    fn apply_atomic(
        &mut self,
        frame: Option<&RxFrame<'_>>,
        reply: &Reply,
        atomic: &AtomicSpec,
        data: Data,
    ) {
        let mut operands = std::mem::take(&mut self.scratch);
        operands.clear();
        match data {
            Data::Frame(src) => {
                operands.resize(src.len(), 0);
                copy_part(frame, src, &mut operands);
            }
            Data::Held(held) => {
                operands.extend_from_slice(self.core.held(held));
                self.core.release(held);
            }
            Data::Placed => {}
        }
        self.change(reply, atomic, &operands);
        self.scratch = operands;
    }

    fn change(&mut self, reply: &Reply, atomic: &AtomicSpec, operands: &[u8]) {
        let span = atomic.span as usize;
        let checked = atomic::check(atomic.code, atomic.datatype, span, operands.len());
        let Inner { core, ops, .. } = self;
        let checked = match checked {
            Ok(checked) => checked,
            Err(fault) => return core.refuse(reply, fault),
        };
        let Some(place) = part_mut(ops.bytes_mut(reply.region), reply.off, span) else {
            return;
        };
        if !probe::is_writable(place) {
            return core.refuse(reply, RemoteFault::Inaccessible);
        }
        let back: &[u8] = if atomic.fetch { place } else { &[] };
        if let Some(mut staging) = core.reply(reply, back.len()) {
            staging.push(back);
        }
        checked.apply(place, operands);
    }
}

/// Returns `len` bytes at `off`, or `None` if they exceed `bytes`.
fn part_mut(bytes: &mut [u8], off: u64, len: usize) -> Option<&mut [u8]> {
    bytes.get_mut(usize::try_from(off).ok()?..)?.get_mut(..len)
}

/// Returns the request of an atomic operation, or an error for invalid arguments.
pub(crate) fn atomic_spec(
    op: AtomicOp,
    datatype: Datatype,
    count: usize,
    operands_len: usize,
    back_len: usize,
) -> Result<AtomicSpec, Error> {
    let span = count * datatype.len();
    let why = if !op.supports(datatype) {
        "bitwise operations need integers"
    } else if operands_len != op.operands_len(span) {
        "target, operands and compare values must have equal counts"
    } else if back_len != 0 && back_len != span {
        "the buffer for previous values must have the count of the target"
    } else if operands_len.max(span) > ATOMIC_LEN_MAX {
        "at most 4096 bytes at once; split the arrays"
    } else {
        return Ok(AtomicSpec {
            code: op.code(),
            datatype: datatype.code(),
            fetch: back_len > 0,
            span: u32::try_from(span).unwrap_or(u32::MAX),
        });
    };
    Err(Error::Atomic { op, datatype, why })
}
