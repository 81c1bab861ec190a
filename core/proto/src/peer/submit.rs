// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submission of messages and requests to one peer: they are checked, numbered, charged and staged.

use super::eager_stream::as_fragment;
use super::{Direct, Peer};
use crate::base::context::Context;
use crate::base::credit::charge;
use crate::base::narrow::narrow;
use crate::bulk::TxRole;
use crate::bulk::push::PushRequest;
use crate::bulk::send::Announcement;
use crate::mem::copy::copy;
use crate::mem::slot::FRAGMENTED_LEN_MAX;
use crate::path::Path;
use crate::path::control::Control;
use crate::path::stage::cut_points;
use crate::rma::target::reply_record;
use crate::shared::Shared;
use crate::{
    Address, FlushHint, Instant, OpId, Refused, RemoteFault, RemoteSpec, SendSpec, Staging,
};
use portolan_wire::{Fragment, LaneId, Message, RemoteHead, Rts};

impl Peer {
    /// Returns the reason why nothing can be submitted while the session is not up, and requests
    /// the session.
    #[cold]
    pub(crate) fn refuse_submission(&mut self) -> Refused {
        let failure = self.session.failure();
        self.session.request();
        failure.map_or(Refused::NotUp, Refused::PeerFailed)
    }

    /// Accepts an eager message of `len` bytes and returns the memory to copy it into. `P4.5`
    #[inline]
    pub(crate) fn eager<'a>(
        &mut self,
        sh: &'a mut Shared,
        spec: &SendSpec,
        len: usize,
    ) -> Result<Staging<'a>, Refused> {
        if spec.best_effort
            && let Some(port) = self.best_effort_port(spec, len)
        {
            return self.best_effort(sh, spec, port, len);
        }
        let lane = spec.lane.index();
        let Some(path) = self.paths.small_mut() else {
            return Err(Refused::NotUp);
        };
        let record_len = spec.header_len() + len;
        let fits = path.fits_shared(record_len);
        if !fits && len > sh.ctx.eager_len_max(path.is_lossless()) {
            return Err(Refused::TooLong);
        }
        // P7.5, P11.1
        let best_effort = spec.best_effort && fits && matches!(spec.to, Address::Port(_));
        let (tx, has_room) = (self.lanes.tx(spec.lane), path.has_room(lane));
        let seq = match best_effort {
            true => tx.next_best_effort(has_room),
            false => tx.reserve_or_starve(has_room, charge(len)),
        };
        let seq = seq.ok_or(Refused::Busy)?;
        sh.ctx.counters_mut().messages_sent += 1;
        let message = Message {
            best_effort,
            ..spec.message(u16::try_from(len).unwrap_or(u16::MAX), seq)
        };
        let (slots, header_len) = (&mut sh.slots, message.header_len());
        if fits {
            let (out, hint) = match path.is_lossless() {
                true => path.stage_shared(slots, lane, record_len, !best_effort),
                false => {
                    let staged = self
                        .paths
                        .stage_small(slots, lane, record_len, !best_effort);
                    staged.expect("a path was checked")
                }
            };
            message.emit(out);
            return Ok(Staging::contiguous(&mut out[header_len..], hint));
        }
        if path.is_lossless() {
            let out = path.stage_alone(slots, lane, record_len);
            message.emit(out);
            return Ok(Staging::contiguous(&mut out[header_len..], FlushHint::Full));
        }
        if self.is_for_stream(self.last_seen, &mut sh.ctx, len) {
            return Ok(self.stage_for_stream(slots, as_fragment(message, len)));
        }
        let Some(path) = self.paths.run_path_mut(&sh.ctx, len) else {
            return Err(Refused::NotUp);
        };
        let division = path.division(&sh.ctx, len);
        let fragment = Fragment {
            message,
            message_len: narrow(len),
            offset: 0,
        };
        Ok(path.stage_run(slots, &fragment, len, division))
    }

    /// Sends a message in fragments that is longer than one frame of its lossless path. `P4.13`
    pub(crate) fn eager_in_parts(
        &mut self,
        sh: &mut Shared,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let (lane, len) = (spec.lane.index(), bytes.len());
        let Some(path) = self.paths.small_mut() else {
            return Err(Refused::NotUp);
        };
        if !path.is_lossless() || len > FRAGMENTED_LEN_MAX {
            return Err(Refused::TooLong);
        }
        let tx = self.lanes.tx(spec.lane);
        let seq = tx.reserve_or_starve(path.has_room(lane), charge(len));
        let seq = seq.ok_or(Refused::Busy)?;
        sh.ctx.counters_mut().messages_sent += 1;
        for (offset, part) in cut_points(len, sh.ctx.lossless_record_len_max()) {
            let fragment = Fragment {
                message: spec.message(narrow(part), seq),
                message_len: narrow(len),
                offset: narrow(offset),
            };
            let header_len = fragment.header_len();
            let out = path.stage_alone(&mut sh.slots, lane, header_len + part);
            fragment.emit(out);
            copy(&mut out[header_len..], &bytes[offset..offset + part]);
        }
        Ok(())
    }

    /// Accepts a message with nothing waiting before it; returns its header.
    #[inline(always)]
    pub(crate) fn direct<const N: usize>(
        &mut self,
        ctx: &mut Context,
        spec: &SendSpec,
        len: usize,
    ) -> Option<[u8; N]> {
        if self.direct != Direct::Yes && !self.becomes_direct() {
            return None;
        }
        debug_assert!(self.may_be_direct(), "something waits on the path");
        if len > ctx.limits().eager_len_max_lossless || spec.best_effort {
            return None;
        }
        let message = spec.message_as::<N>(u16::try_from(len).ok()?, 0)?;
        let seq = self.lanes.tx(spec.lane).reserve(charge(len))?;
        ctx.counters_mut().messages_sent += 1;
        let mut header = [0; N];
        Message { seq, ..message }.emit(&mut header);
        Some(header)
    }

    /// Returns true if nothing is known to wait before a message on its lossless path.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        self.direct == Direct::Yes
    }

    /// Checks whether messages may be sent directly from now on.
    #[inline]
    fn becomes_direct(&mut self) -> bool {
        debug_assert!(
            self.direct != Direct::No || !self.may_be_direct(),
            "a change of the paths was not noted"
        );
        self.direct == Direct::Unknown && self.find_direct()
    }

    #[cold]
    fn find_direct(&mut self) -> bool {
        self.direct = match self.paths.small_path() {
            Some(path) if !path.is_lossless() => Direct::No,
            _ if self.may_be_direct() => Direct::Yes,
            _ => Direct::Unknown,
        };
        self.direct == Direct::Yes
    }

    /// Returns true if the session is open, small messages use a lossless path, and nothing waits
    /// there.
    fn may_be_direct(&self) -> bool {
        let is_free = |path: &Path| {
            let is_idle = |lane: &LaneId| path.is_idle(lane.index());
            path.is_lossless() && LaneId::ALL.iter().all(is_idle)
        };
        self.session.is_up() && self.paths.small_path().is_some_and(is_free)
    }

    /// Appends a message to its lane's open frame, if there is one with room.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        sh: &mut Shared,
        spec: &SendSpec,
        [head, body]: [&[u8]; 2],
    ) -> Option<()> {
        if !self.session.is_up() || spec.best_effort {
            return None;
        }
        let (lane, header_len) = (spec.lane.index(), spec.header_len());
        let message_len = head.len() + body.len();
        let need = header_len + message_len;
        let len = u16::try_from(message_len).ok()?;
        let tx = self.lanes.tx(spec.lane);
        let number = || tx.reserve(charge(message_len));
        let (seq, out) = self.paths.append(&mut sh.slots, lane, need, number)?;
        sh.ctx.counters_mut().messages_sent += 1;
        spec.message(len, seq).emit(out);
        let (first, second) = out[header_len..].split_at_mut(head.len());
        copy(first, head);
        if !body.is_empty() {
            copy(second, body);
        }
        Some(())
    }

    /// Announces a message of `len` bytes in the buffer of `op`. Returns true if its first part
    /// leaves with the request. `P5.1`
    pub(crate) fn rendezvous(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        spec: &SendSpec,
        op: OpId,
        len: u64,
        remote_addr: u64,
    ) -> Result<bool, Refused> {
        let has_room = sh.transfers.has_tx_room() && self.paths.has_small_room(spec.lane.index());
        let tx = self.lanes.tx(spec.lane);
        let seq = tx.reserve_or_starve(has_room, charge(0));
        let seq = seq.ok_or(Refused::Busy)?;
        let announcement = Announcement {
            peer: self.id,
            role: TxRole::Send,
            op,
            base: 0,
            len,
        };
        let start = self.early_start(sh, len);
        let announced = sh.transfers.announce(&announcement, &self.paths);
        let (key, fragment_len) = announced.expect("room was checked");
        sh.ctx.counters_mut().messages_sent += 1;
        let rts = Rts {
            message: spec.message(fragment_len, seq),
            message_len: len,
            transfer: key,
            remote_addr,
            late_done: false,
        };
        let begin = |start| {
            let queue = &mut self.send_queue;
            let request = PushRequest::Message(rts);
            sh.transfers.begin_early(now, (key, request), start, queue)
        };
        let is_announced = start.is_none_or(begin);
        if is_announced {
            self.stage_request(sh, &rts);
        }
        Ok(!is_announced)
    }

    /// Adds a request to send to the next frame of its lane.
    pub(crate) fn stage_request(&mut self, sh: &mut Shared, rts: &Rts) {
        if let Some(path) = self.paths.small_mut() {
            let lane = rts.message.lane.index();
            let (out, _) = path.stage_shared(&mut sh.slots, lane, rts.wire_len(), true);
            rts.emit(out);
        }
    }

    /// Numbers and charges a request for remote memory; `len` bytes will be returned. `P12.2`
    pub(crate) fn begin_request(
        &mut self,
        sh: &mut Shared,
        spec: &RemoteSpec,
        charge: u32,
        (op, len, gets): (OpId, u64, bool),
    ) -> Result<(RemoteHead, u32), Refused> {
        let path = self.paths.small_path().ok_or(Refused::NotUp)?;
        let has_room =
            path.has_room(spec.lane.index()) && sh.remote.has_room() && sh.transfers.has_tx_room();
        let tx = self.lanes.tx(spec.lane);
        let seq = tx.reserve_or_starve(has_room, charge);
        let seq = seq.ok_or(Refused::Busy)?;
        let key = sh.remote.begin(self.id, op, len, gets);
        let key = key.expect("room was checked");
        let head = RemoteHead {
            lane: spec.lane,
            seq,
            op: key,
            key: spec.key,
            addr: spec.addr,
        };
        Ok((head, key))
    }

    /// Queues the reply to a request of the peer, without data.
    pub(crate) fn push_reply(&mut self, lane: LaneId, op: u32, result: Result<(), RemoteFault>) {
        if self.session.failure().is_none() {
            let reply = reply_record(lane, op, result);
            self.control.push(Control::Reply(reply));
        }
    }
}
