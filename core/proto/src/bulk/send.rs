// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending side of bulk data: runs of fragments of granted transfers, and chunks on lossless links.

use super::part::PART_LEN_MAX_LATENCY_SENSITIVE;
use super::trial::{Carrier, Trial};
use super::{Transfers, TxRole, TxTransfer};
use crate::base::config::BATCH_LEN_MAX;
use crate::base::context::Context;
use crate::base::narrow::narrow;
use crate::mem::scratch::{Payload, Scratch};
use crate::path::outgoing::{Bytes, Outgoing, OutgoingKind};
use crate::path::refragment::{FragmentPart, PART_HEADER_LEN};
use crate::path::{Contents, Path, Paths};
use crate::{Cause, DropReason, Event, Instant, LinkId, OpError, OpId, PeerId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use portolan_wire::{
    BULK_HEADER_LEN, BulkHeader, CHUNK_LEN, Chunk, Done, DoneStatus, FRAME_HEADER_LEN, FrameHeader,
    FrameKind, Grant,
};

/// User data in one chunk, in bytes: an eighth of shared memory's ring, so that both ends work at
/// the same time.
const CHUNK_PAYLOAD_MAX: usize = 32 * 1024;

/// Maximum length of a fragment's frame in bytes. Segmentation offload takes at most 60 KB per
/// call; longer frames exist on loopback only.
const FRAGMENT_FRAME_LEN_MAX: usize = 60_000;

/// Bulk data that waits to be sent to one peer.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// Transfers with granted bytes that are not sent yet.
    ready: VecDeque<u32>,
    /// Parts of transfers to be retransmitted on whichever path carries bulk data.
    parts: VecDeque<FragmentPart>,
}

impl SendQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.parts.is_empty()
    }

    /// Returns true if parts of fragments wait, which any path for bulk data carries.
    #[inline]
    pub(crate) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    pub(crate) fn push_parts(&mut self, parts: Vec<FragmentPart>) {
        self.parts.extend(parts);
    }

    /// Returns true if any transfer in the queue is `is_selected`.
    pub(super) fn has_ready(&self, is_selected: impl Fn(u32) -> bool) -> bool {
        self.ready.iter().any(|&key| is_selected(key))
    }

    /// Returns the first `is_selected` transfer, and its position in the queue.
    pub(super) fn find_ready(&self, is_selected: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let place = self.ready.iter().position(|&key| is_selected(key))?;
        Some((place, self.ready[place]))
    }

    pub(super) fn remove_ready(&mut self, place: usize) {
        self.ready.remove(place);
    }

    pub(super) fn push_ready(&mut self, key: u32) {
        self.ready.push_back(key);
    }

    pub(crate) fn clear(&mut self) {
        self.ready.clear();
        self.parts.clear();
    }

    /// Queues fragments that are too long for their path as parts.
    fn split(&mut self, transfer: u32, first: u32, fragment_len: usize, len: usize) {
        for (index, off) in (first..).zip((0..len).step_by(fragment_len)) {
            self.parts.push_back(FragmentPart {
                transfer,
                index,
                within: 0,
                len: narrow(fragment_len.min(len - off)),
            });
        }
    }
}

/// Consecutive fragments that are about to be sent for the first time.
#[derive(Debug)]
pub(super) struct RunOut {
    key: u32,
    off: u64,
    len: usize,
    fragment_len: usize,
}

impl RunOut {
    fn first_index(&self) -> u32 {
        narrow(self.off / self.fragment_len as u64)
    }
}

/// Transfer that is about to be announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcement {
    pub(crate) peer: PeerId,
    pub(crate) role: TxRole,
    pub(crate) op: OpId,
    /// Offset of the first byte in the memory of `op`.
    pub(crate) base: u64,
    pub(crate) len: u64,
}

impl Transfers {
    /// Stores a transfer from this process on the path for bulk data. Returns its number and the
    /// user data bytes per datagram (0 on a lossless path, where chunks vary); `None` if there is
    /// no room.
    pub(crate) fn announce(&mut self, what: &Announcement, paths: &Paths) -> Option<(u32, u16)> {
        let fragment_len = match paths.bulk_path() {
            Some(path) if !path.is_lossless() => {
                let frame_len = paths.shared_frame_len(path.frame_len());
                narrow(frame_len.min(FRAGMENT_FRAME_LEN_MAX) - BULK_HEADER_LEN)
            }
            _ => 0,
        };
        let transfer = TxTransfer {
            peer: what.peer,
            op: what.op,
            role: what.role,
            base: what.base,
            link: paths.bulk(),
            len: what.len,
            receiver_transfer: 0,
            granted: 0,
            next_off: 0,
            acked: 0,
            fragment_len,
            queued: false,
            carrier: None,
            granted_at: Instant::default(),
            is_alone: false,
            is_untimed: false,
            pushed: None,
            carried: None,
            confirmed: 0,
        };
        let key = self.tx.insert(transfer).ok()?;
        Some((key, fragment_len))
    }

    /// Handles the receiver's grant of a transfer up to a limit. The first grant starts the
    /// transfer, on the carrier returned by `choose`. If a part was pushed, returns whether
    /// the receiver has discarded it. `P5.5`, `P15.1`
    pub(crate) fn on_grant(
        &mut self,
        now: Instant,
        from: PeerId,
        grant: &Grant,
        queue: &mut SendQueue,
        choose: impl FnOnce(u64) -> Carrier,
    ) -> Result<Option<bool>, DropReason> {
        let mut is_missed = None;
        let transfer = self.tx.get_mut(grant.transfer);
        let transfer = transfer.filter(|transfer| transfer.peer == from);
        let Some(transfer) = transfer else {
            return Err(DropReason::StaleTransfer);
        };
        transfer.receiver_transfer = grant.receiver_transfer;
        if transfer.pushed.take().is_some() {
            // The receiver has handled the head.
            transfer.carried = None;
            // P15.14: the receiver has discarded the pushed part, unless it states how far behind
            // its limit it is.
            is_missed = Some(grant.behind == 0);
            if grant.behind == 0 {
                (transfer.next_off, transfer.granted) = (0, 0);
            }
        }
        transfer.granted = transfer.granted.max(grant.limit.min(transfer.len));
        if transfer.carrier.is_none() {
            transfer.carrier = Some(match transfer.fragment_len {
                // On a lossless link it uses chunks.
                0 => Carrier::Fragments,
                _ => choose(transfer.len),
            });
            transfer.granted_at = now;
        }
        if grant.behind > 0 {
            let confirmed = grant.limit.saturating_sub(grant.behind.into());
            transfer.confirmed = transfer.confirmed.max(confirmed.min(transfer.len));
        }
        if !transfer.queued && transfer.next_off < transfer.granted {
            transfer.queued = true;
            queue.ready.push_back(grant.transfer);
        }
        Ok(is_missed)
    }

    /// Handles the receiver's report of how a transfer ended.
    pub(crate) fn on_done(
        &mut self,
        now: Instant,
        ctx: &mut Context,
        from: PeerId,
        done: &Done,
        trial: Option<&mut Trial>,
    ) -> Result<(), DropReason> {
        let transfer = self.tx.get(done.transfer);
        if transfer.is_none_or(|transfer| transfer.peer != from) {
            return Err(DropReason::StaleTransfer);
        }
        let result = match done.status {
            DoneStatus::Complete => Ok(()),
            // P2.14
            DoneStatus::Refused => Err(OpError::PeerFailed(from, Cause::Closed)),
            DoneStatus::Unwritable => Err(OpError::PeerFault(from)),
            DoneStatus::Unreadable | DoneStatus::Other(_) => Err(OpError::Refused),
        };
        self.note_end(now, done.transfer, trial);
        self.end_send(ctx, done.transfer, result);
        Ok(())
    }

    /// Records a transfer that completed on one carrier for the trial.
    fn note_end(&self, now: Instant, key: u32, trial: Option<&mut Trial>) {
        if let Some(trial) = trial
            && let Some(transfer) = self.tx.get(key)
            && let Some(carrier) = transfer.carrier
            && !transfer.is_untimed
        {
            let kind = (transfer.len, transfer.is_alone);
            trial.on_end(carrier, kind, (transfer.granted_at, now));
        }
    }

    /// Ends a transfer from this process, and reports the completion of a message.
    pub(super) fn end_send(&mut self, ctx: &mut Context, key: u32, result: Result<(), OpError>) {
        if let Some(transfer) = self.tx.remove(key)
            && transfer.role == TxRole::Send
        {
            let op = transfer.op;
            ctx.emit(Event::SendDone { op, result });
        }
    }

    /// Ends a transfer of remote memory; its request reports the completion.
    pub(crate) fn end_tx(&mut self, key: u32) {
        self.tx.remove(key);
    }

    /// Ends the transfers out of the memory of `op`. Returns their peers, each with the number of
    /// the request that the transfer answers, and the completion that may not have left with it.
    pub(crate) fn end_out_of(&mut self, op: OpId) -> Vec<(PeerId, Option<u32>, Option<Done>)> {
        let keys = self.tx.keys_where(|tx| tx.op == op);
        let ended = keys.into_iter().filter_map(|key| self.tx.remove(key));
        let replies = ended.map(|transfer| {
            let request = match transfer.role {
                TxRole::Reply { op } => Some(op),
                TxRole::Send | TxRole::Put => None,
            };
            let carried = transfer.carried.filter(|_| transfer.pushed.is_some());
            (transfer.peer, request, carried)
        });
        replies.collect()
    }

    /// Ends the transfers out of bytes `range` of the memory of `op`. Returns the peer, number and
    /// role of each.
    pub(crate) fn end_out_within(
        &mut self,
        ctx: &mut Context,
        op: OpId,
        range: &Range<u64>,
    ) -> Vec<(PeerId, u32, TxRole)> {
        let touches = |tx: &TxTransfer| {
            let (begin, end) = (tx.base, tx.base.saturating_add(tx.len));
            tx.op == op && begin < range.end && range.start < end
        };
        let keys = self.tx.keys_where(touches);
        let ended = keys.into_iter().filter_map(|key| {
            let (peer, role) = self.tx.get(key).map(|tx| (tx.peer, tx.role))?;
            self.end_send(ctx, key, Err(OpError::Fault { written: false }));
            Some((peer, key, role))
        });
        ended.collect()
    }

    /// Returns the incomplete outgoing transfers: peer, operation, and whether the receiver has
    /// started to accept it.
    pub(crate) fn unfinished_tx(&self) -> impl Iterator<Item = (PeerId, OpId, bool)> + '_ {
        let transfers = self.tx.iter();
        let is_accepted = |transfer: &TxTransfer| transfer.granted > 0 && transfer.pushed.is_none();
        transfers.map(move |transfer| (transfer.peer, transfer.op, is_accepted(transfer)))
    }

    /// Returns true if a grant has reached its transfer, because bytes it allows have begun to
    /// arrive.
    pub(crate) fn has_taken_effect(&self, grant: &Grant) -> bool {
        let transfer = self.rx.get(grant.receiver_transfer);
        transfer.is_none_or(|transfer| transfer.frontier >= grant.limit)
    }

    /// Handles the arrival of `len` bytes of a transfer; the last ones complete the send. `P5.7`
    pub(crate) fn on_acked(
        &mut self,
        now: Instant,
        ctx: &mut Context,
        (key, len): (u32, u64),
        trial: Option<&mut Trial>,
    ) {
        let Some(transfer) = self.tx.get_mut(key) else {
            return;
        };
        transfer.acked += len;
        if transfer.acked >= transfer.len {
            self.note_end(now, key, trial);
            self.end_send(ctx, key, Ok(()));
        }
    }

    /// Returns the next chunk for a lossless link.
    pub(crate) fn next_chunk(
        &mut self,
        queue: &mut SendQueue,
        scratch: &mut Scratch,
        link: LinkId,
    ) -> Option<Outgoing> {
        // Transfers that the peer has ended meanwhile no longer exist.
        while self.tx.get(*queue.ready.front()?).is_none() {
            queue.ready.pop_front();
        }
        let key = *queue.ready.front()?;
        let transfer = self.tx.get_mut(key)?;
        let off = transfer.next_off;
        let left = usize::try_from(transfer.granted - off).unwrap_or(usize::MAX);
        let len = left.min(CHUNK_PAYLOAD_MAX);
        transfer.next_off += len as u64;
        if transfer.next_off >= transfer.granted {
            transfer.queued = false;
            queue.ready.pop_front();
        }
        let chunk = Chunk {
            transfer: transfer.receiver_transfer,
            offset: off,
        };
        chunk.emit(scratch.start(CHUNK_LEN));
        Some(Outgoing {
            link,
            bytes: transfer.put_bytes(scratch, off, len, CHUNK_LEN),
            kind: OutgoingKind::Chunk { transfer: key, off },
        })
    }

    /// Puts back a chunk for which the ring had no room. It is sent again from its first byte.
    pub(crate) fn rewind(&mut self, queue: &mut SendQueue, key: u32, off: u64) {
        if let Some(transfer) = self.tx.get_mut(key) {
            transfer.next_off = off;
            if !transfer.queued {
                transfer.queued = true;
                queue.ready.push_front(key);
            }
        }
    }

    /// Returns the first granted transfer on `link`, and its position in the queue.
    pub(super) fn next_transfer(
        &self,
        queue: &mut SendQueue,
        paths: &Paths,
        link: LinkId,
    ) -> Option<(usize, u32)> {
        loop {
            let fits = |key: &u32| {
                let transfer = self.tx.get(*key);
                transfer.is_none_or(|transfer| transfer.is_turn_of(link, paths))
            };
            let place = queue.ready.iter().position(fits)?;
            let key = queue.ready[place];
            if self.tx.get(key).is_some() {
                return Some((place, key));
            }
            queue.ready.remove(place);
        }
    }

    /// Returns the next part of a transfer that has left its path or does not fit it: an unchanged
    /// fragment, or a chunk as long as the path carries. `P3.12`
    pub(crate) fn next_part(
        &mut self,
        now: Instant,
        queue: &mut SendQueue,
        path: &mut Path,
        scratch: &mut Scratch,
        session: u64,
    ) -> Option<Outgoing> {
        if path.window_left() == 0 {
            return None;
        }
        let (part, whole_len) = loop {
            let part = queue.parts.pop_front()?;
            if let Some(transfer) = self.tx.get(part.transfer) {
                let fragment_len = u64::from(transfer.fragment_len);
                let left = transfer.len - u64::from(part.index) * fragment_len;
                break (part, fragment_len.min(left));
            }
        };
        let FragmentPart {
            transfer,
            index,
            within,
            ..
        } = part;
        let len = usize::from(part.len);
        let is_complete = within == 0 && u64::from(part.len) == whole_len;
        let num = path.next_num();
        let bytes = if is_complete && len + BULK_HEADER_LEN <= path.frame_len() {
            let frame_len = len + BULK_HEADER_LEN;
            path.number(now, Contents::Fragment { transfer, index }, frame_len);
            let header = path.header(FrameKind::Bulk, (num, 0), frame_len, session);
            self.fragment_bytes(scratch, (transfer, index), header)
        } else {
            let most = len.min(path.frame_len() - PART_HEADER_LEN);
            if most < len {
                let sent: u16 = narrow(most);
                queue.parts.push_front(FragmentPart {
                    within: within + sent,
                    len: part.len - sent,
                    ..part
                });
            }
            let frame_len = most + PART_HEADER_LEN;
            let contents = Contents::FragmentPart {
                transfer,
                index,
                within,
            };
            path.number(now, contents, frame_len);
            let header = path.header(FrameKind::Data, (num, 0), frame_len, session);
            self.part_bytes(scratch, (transfer, index, within), header)
        }?;
        Some(path.outgoing((num, 1), bytes))
    }

    /// Returns a run of fragments of a granted transfer.
    pub(crate) fn next_run_out(
        &mut self,
        now: Instant,
        ctx: &Context,
        queue: &mut SendQueue,
        (paths, link): (&mut Paths, LinkId),
        scratch: &mut Scratch,
        session: u64,
    ) -> Option<Outgoing> {
        let (place, key) = self.next_transfer(queue, paths, link)?;
        let path = paths.get_mut(link)?;
        let is_single = self.tx.len() == 1;
        let transfer = self.tx.get(key)?;
        let most = transfer.batch_frames(ctx, is_single, path.segments_max());
        let most = most.min(path.window_left());
        let run = self.take_run(queue, (place, key), most)?;
        if run.fragment_len + BULK_HEADER_LEN > path.frame_len() {
            queue.split(key, run.first_index(), run.fragment_len, run.len);
            return self.next_part(now, queue, path, scratch, session);
        }
        scratch.start(0);
        let first = path.next_num();
        self.put_run(now, &run, path, scratch, session);
        let bytes = Bytes::Gathered {
            header_len: BULK_HEADER_LEN,
            fragment_len: run.fragment_len,
        };
        Some(path.outgoing((first, path.next_num().wrapping_sub(first)), bytes))
    }

    /// Takes up to `most` granted fragments of a transfer that were not sent, and counts them as
    /// passed to a link.
    pub(super) fn take_run(
        &mut self,
        queue: &mut SendQueue,
        (place, key): (usize, u32),
        most: usize,
    ) -> Option<RunOut> {
        let transfer = self.tx.get_mut(key)?;
        let fragment_len = usize::from(transfer.fragment_len);
        let off = transfer.next_off;
        let (left, count) = transfer.sendable();
        let len = left.min(count.min(most) * fragment_len);
        transfer.next_off += len as u64;
        if count == 0 || transfer.next_off >= transfer.granted {
            transfer.queued = false;
            queue.ready.remove(place);
        }
        (len > 0).then_some(RunOut {
            key,
            off,
            len,
            fragment_len,
        })
    }

    /// Numbers the frames of a run, and appends their headers and payload.
    pub(super) fn put_run(
        &self,
        now: Instant,
        run: &RunOut,
        path: &mut Path,
        scratch: &mut Scratch,
        session: u64,
    ) {
        let Some(transfer) = self.tx.get(run.key) else {
            return;
        };
        let count = run.len.div_ceil(run.fragment_len);
        let headers = scratch.extend(count * BULK_HEADER_LEN);
        let out = headers.chunks_exact_mut(BULK_HEADER_LEN);
        for ((ahead, index), out) in (0..).zip(run.first_index()..).zip(out) {
            let part = run.fragment_len.min(run.len - ahead * run.fragment_len);
            let frame_len = part + BULK_HEADER_LEN;
            let contents = Contents::Fragment {
                transfer: run.key,
                index,
            };
            let num = path.number(now, contents, frame_len);
            path.bulk_header((num, 0), frame_len, session).emit(out);
            let bulk = BulkHeader {
                transfer: transfer.receiver_transfer,
                fragment_index: index,
            };
            bulk.emit(out);
        }
        scratch.push_payload(transfer.payload(run.off, run.len));
    }

    /// Returns a fragment that is sent alone or retransmitted, after `header`; `None` if its
    /// transfer has ended. `P5.8`
    pub(crate) fn fragment_bytes(
        &self,
        scratch: &mut Scratch,
        (key, index): (u32, u32),
        header: FrameHeader,
    ) -> Option<Bytes> {
        scratch.start(0);
        let fragment_len = self.put_fragment(scratch, (key, index), header)?;
        Some(Bytes::Gathered {
            header_len: BULK_HEADER_LEN,
            fragment_len,
        })
    }

    /// Appends `header` and a fragment; returns its payload length.
    pub(super) fn put_fragment(
        &self,
        scratch: &mut Scratch,
        (key, index): (u32, u32),
        header: FrameHeader,
    ) -> Option<usize> {
        let transfer = self.tx.get(key)?;
        let out = scratch.extend(BULK_HEADER_LEN);
        header.emit(out);
        let bulk = BulkHeader {
            transfer: transfer.receiver_transfer,
            fragment_index: index,
        };
        bulk.emit(out);
        let off = u64::from(index) * u64::from(transfer.fragment_len);
        let len = usize::from(header.frame_len) - BULK_HEADER_LEN;
        scratch.push_payload(transfer.payload(off, len));
        Some(len)
    }

    /// Returns a part of a fragment, which is sent as a chunk in a data frame; `None` if its
    /// transfer has ended. `P3.12`
    pub(crate) fn part_bytes(
        &self,
        scratch: &mut Scratch,
        (key, index, within): (u32, u32, u16),
        header: FrameHeader,
    ) -> Option<Bytes> {
        let transfer = self.tx.get(key)?;
        let off = u64::from(index) * u64::from(transfer.fragment_len) + u64::from(within);
        let out = scratch.start(PART_HEADER_LEN);
        header.emit(out);
        let chunk = Chunk {
            transfer: transfer.receiver_transfer,
            offset: off,
        };
        chunk.emit(&mut out[FRAME_HEADER_LEN..]);
        let len = usize::from(header.frame_len) - PART_HEADER_LEN;
        Some(transfer.put_bytes(scratch, off, len, PART_HEADER_LEN))
    }
}

impl TxTransfer {
    /// Returns the link of the transfer: the one that its fragments were made for, while it works
    /// and carries them, else the one for bulk data; `None` if it uses a stream.
    fn route(&self, paths: &Paths) -> Option<LinkId> {
        if self.carrier == Some(Carrier::Stream) {
            return None;
        }
        let fragment_frame_len = usize::from(self.fragment_len) + BULK_HEADER_LEN;
        let own = self.link.and_then(|link| paths.get(link));
        let own = own.filter(|path| path.is_usable() && path.frame_len() >= fragment_frame_len);
        own.map(Path::link).or(paths.bulk())
    }

    /// Returns true if `link` carries the next fragments. `P6.8`
    fn is_turn_of(&self, link: LinkId, paths: &Paths) -> bool {
        let route = self.route(paths);
        match paths.is_shared() {
            false => route == Some(link),
            true => route.is_some_and(|route| {
                let frame_len = usize::from(self.fragment_len) + BULK_HEADER_LEN;
                paths.is_turn_of(link, route, frame_len)
            }),
        }
    }

    /// Returns the number of fragments in one GSO batch, which is short while short messages pass.
    /// `P4.11`
    pub(super) fn batch_frames(
        &self,
        ctx: &Context,
        is_single: bool,
        segments_max: usize,
    ) -> usize {
        let batch_len = match is_single {
            _ if ctx.is_latency_sensitive() => PART_LEN_MAX_LATENCY_SENSITIVE,
            true => ctx.choice().single_batch_len(self.len),
            false => BATCH_LEN_MAX,
        };
        let frame_len = usize::from(self.fragment_len) + BULK_HEADER_LEN;
        segments_max.min(batch_len / frame_len).max(1)
    }

    /// Returns the granted bytes that were not sent, and the number of fragments they are. Only
    /// whole fragments count: a grant may end within a fragment, which then waits for the next
    /// grant. `P5.4`
    fn sendable(&self) -> (usize, usize) {
        let fragment_len = usize::from(self.fragment_len);
        let left = usize::try_from(self.granted - self.next_off).unwrap_or(usize::MAX);
        match self.granted == self.len {
            true => (left, left.div_ceil(fragment_len)),
            false => (left, left / fragment_len),
        }
    }

    /// Appends `len` bytes of the transfer starting at `off`, in one piece after the header in the
    /// scratch buffer.
    pub(super) fn put_bytes(
        &self,
        scratch: &mut Scratch,
        off: u64,
        len: usize,
        header_len: usize,
    ) -> Bytes {
        scratch.push_payload(self.payload(off, len));
        Bytes::Gathered {
            header_len,
            fragment_len: len,
        }
    }

    fn payload(&self, off: u64, len: usize) -> Payload {
        Payload {
            op: self.op,
            off: self.base + off,
            len,
        }
    }
}
