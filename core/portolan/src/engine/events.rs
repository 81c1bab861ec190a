// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles the core's events while the frame that they refer to is still in memory.

use super::Inner;
use super::delivery::{Arrival, Handlers, Inbox, copy_part};
use super::stream::StreamCall;
use crate::checksum;
use crate::ops::{OpKind, Owner};
use crate::seal::Opened;
use portolan_link::RxFrame;
use portolan_proto::{
    Admitted, Dest, Event, LinkId, MessageDest, OpError, OpId, PeerId, PeerStatus, copy,
};
use portolan_sys::usage;

/// Message to pull from a peer's memory.
pub(crate) struct Pull {
    pub(super) transfer: u32,
    pub(super) peer: PeerId,
    pub(super) remote_addr: u64,
    pub(super) op: OpId,
    pub(super) off: u64,
    pub(super) len: u64,
}

impl Inner {
    /// Handles a frame from a link that loses nothing.
    #[inline(always)]
    pub(super) fn on_frame(
        &mut self,
        handlers: &mut Handlers,
        link: LinkId,
        frame: &RxFrame<'_>,
        mut inbox: Option<&mut Inbox<'_>>,
    ) {
        // Copy out of the ring.
        usage::count_copy();
        let body_len = frame.body.map_or(0, |body| body.len());
        let from = PeerId(frame.from.unwrap_or(u32::MAX));
        let total_len = frame.head.len() + body_len;
        let admitted = self.core.admit_lossless(self.now, link, from, total_len);
        let Some(mut admitted) = admitted else {
            return self.drain(handlers, Some(frame));
        };
        let is_taken = self.take_awaited(&mut admitted, frame.head, inbox.as_deref_mut());
        if !is_taken || !admitted.is_done() {
            self.on_records(handlers, admitted, true, frame, inbox);
        }
    }

    /// Handles a frame from a network.
    #[inline(always)]
    pub(super) fn on_datagram(
        &mut self,
        handlers: &mut Handlers,
        link: LinkId,
        frame: &[u8],
        mut inbox: Option<&mut Inbox<'_>>,
    ) {
        if !self.rest.is_empty() {
            self.settle_rest(handlers);
        }
        let Some(mut admitted) = self.core.admit(self.now, link, frame) else {
            // Bulk data may have completed an earlier message.
            if let Some(inbox) = inbox {
                inbox.is_quiet = false;
            }
            return self.drain(handlers, Some(&whole(frame)));
        };
        let is_taken = self.take_awaited(&mut admitted, frame, inbox.as_deref_mut());
        if is_taken {
            self.note_short();
            if admitted.is_done() || self.keep_rest(&admitted, frame, inbox.as_deref()) {
                return;
            }
        }
        self.on_records(handlers, admitted, false, &whole(frame), inbox);
    }

    /// Takes the next message of a frame for the receive that waits. That is most often all there
    /// is.
    #[inline(always)]
    fn take_awaited(
        &mut self,
        admitted: &mut Admitted,
        head: &[u8],
        inbox: Option<&mut Inbox<'_>>,
    ) -> bool {
        if let Some(inbox) = inbox.filter(|inbox| inbox.is_next())
            && let Some(payload) = self.core.take_next(admitted, head, &inbox.want)
        {
            inbox.fill(admitted.from, &head[payload], None);
            return true;
        }
        false
    }

    /// Handles the remaining records of a frame.
    pub(super) fn on_records(
        &mut self,
        handlers: &mut Handlers,
        mut admitted: Admitted,
        lossless: bool,
        frame: &RxFrame<'_>,
        mut inbox: Option<&mut Inbox<'_>>,
    ) {
        if let Some(inbox) = &mut inbox {
            inbox.is_quiet = false;
        }
        if !handlers.is_empty() && self.run_handlers(handlers, &mut admitted, lossless, frame.head)
        {
            return;
        }
        loop {
            let open = inbox.as_deref_mut().filter(|inbox| inbox.got.is_none());
            let want = open.as_ref().map(|inbox| &inbox.want);
            let Some(whole) = self.core.take_message(&mut admitted, frame.head, want) else {
                if !self.take_tagged(&mut admitted, frame.head, open) {
                    break;
                }
                if !lossless {
                    self.note_short();
                }
                if admitted.is_done() {
                    return;
                }
                continue;
            };
            let bytes = &frame.head[whole.off..whole.off + whole.len];
            let mut is_kept = false;
            match (whole.dest, open) {
                (MessageDest::Waiting, Some(inbox)) => {
                    inbox.fill(admitted.from, bytes, None);
                    is_kept = !lossless && self.keep_rest(&admitted, frame.head, Some(inbox));
                }
                (MessageDest::Held, _) => usage::count_copy(),
                _ => self.deliver_whole(handlers, admitted.from, &whole, bytes),
            }
            if !lossless {
                self.note_short();
            }
            if is_kept || admitted.is_done() {
                return;
            }
        }
        if self.core.take_ack(self.now, &mut admitted, frame.head) && admitted.is_done() {
            return;
        }
        self.core.handle_rest(self.now, &admitted, frame.head);
        self.drain(handlers, Some(frame));
    }

    /// Passes the next messages of a frame to their handlers, as long as these take them in place.
    /// Returns true if nothing is left in the frame.
    #[inline(always)]
    fn run_handlers(
        &mut self,
        handlers: &mut Handlers,
        admitted: &mut Admitted,
        lossless: bool,
        head: &[u8],
    ) -> bool {
        let mut count = 0;
        if let Handlers::Active(hook) = handlers {
            let from = admitted.from;
            let pass = |port, bytes: &[u8]| hook(from, port, bytes);
            count = self.core.pass_in_place(admitted, head, pass);
        } else {
            while let Some((port, payload)) = self.core.take_in_place(admitted, head) {
                self.run_in_place(handlers, admitted.from, port, &head[payload]);
                // The handler may have posted a buffer, or opened a port, for a waiting message.
                self.drain(handlers, None);
                count += 1;
            }
        }
        if count > 0 && !lossless {
            self.note_shorts(count);
        }
        count > 0 && admitted.is_done()
    }

    /// Handles a run of frames of `frame_len` bytes each; the last may be shorter. Returns how many
    /// leading frames were fragments of one message and are now in place.
    pub(super) fn on_run(
        &mut self,
        handlers: &mut Handlers,
        link: LinkId,
        frames: &[u8],
        frame_len: usize,
    ) -> usize {
        if !self.rest.is_empty() {
            self.settle_rest(handlers);
        }
        let datagrams = || frames.chunks(frame_len);
        // Opened one by one, as far as they are needed.
        let opened = datagrams().map_while(|datagram| checksum::open(datagram).ok());
        let Some(run) = self.core.handle_run(self.now, link, opened) else {
            return 0;
        };
        if !self.can_place_run(&run) {
            self.drain(handlers, None);
            return run.count;
        }
        let dst = match run.dest {
            Dest::Op(op, off) => {
                let off = usize::try_from(off).unwrap_or(usize::MAX);
                self.ops.bytes_mut(op).get_mut(off..)
            }
            Dest::Held(id, off) => self.core.held_mut(id).get_mut(off..),
        };
        let dst = dst.unwrap_or_default().chunks_mut(run.part_len);
        for (dst, piece) in dst.zip(run.pieces(datagrams().map(checksum::behind_sum))) {
            usage::count_copy();
            copy(&mut dst[..piece.len()], piece);
        }
        self.placement.count(run.count * frame_len);
        self.drain(handlers, None);
        run.count
    }

    /// Handles a frame from a network in a job that seals its frames. `P10.3`
    pub(super) fn on_sealed(
        &mut self,
        handlers: &mut Handlers,
        link: LinkId,
        frame: &[u8],
        inbox: Option<&mut Inbox<'_>>,
    ) {
        let Inner { core, seals, .. } = self;
        let Some(seals) = seals else { return };
        match seals.open(core, link, frame) {
            Err(reason) => core.note_dropped(reason),
            Ok(Opened::Handshake) => self.on_unsealed(handlers, link, frame, inbox),
            Ok(Opened::Frame(plain)) => {
                self.on_unsealed(handlers, link, &plain, inbox);
                if let Some(seals) = &mut self.seals {
                    seals.put_back(plain);
                }
            }
        }
    }

    fn on_unsealed(
        &mut self,
        handlers: &mut Handlers,
        link: LinkId,
        frame: &[u8],
        inbox: Option<&mut Inbox<'_>>,
    ) {
        self.on_datagram(handlers, link, frame, inbox);
    }

    /// Handles all events of the core.
    #[inline]
    pub(crate) fn drain(&mut self, handlers: &mut Handlers, frame: Option<&RxFrame<'_>>) {
        if self.core.has_event() {
            self.drain_events(handlers, frame);
        }
    }

    fn drain_events(&mut self, handlers: &mut Handlers, frame: Option<&RxFrame<'_>>) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Place {
                    dest: Dest::Op(op, off),
                    src,
                } => {
                    self.place(frame, op, off, src);
                }
                Event::Place {
                    dest: Dest::Held(id, off),
                    src,
                } => {
                    let dst = &mut self.core.held_mut(id)[off..off + src.len()];
                    copy_part(frame, src, dst);
                }
                Event::Deliver {
                    peer,
                    port,
                    op,
                    len,
                    data,
                    error,
                    ..
                } => {
                    let arrival = Arrival {
                        peer,
                        port,
                        op,
                        len,
                        data,
                        error,
                    };
                    self.deliver(handlers, frame, arrival);
                }
                Event::Matched {
                    peer,
                    op,
                    match_bits,
                    len,
                    data,
                    truncated,
                } => {
                    self.place_whole(frame, op, data);
                    self.complete_tagged(op, peer, match_bits, len, truncated);
                }
                other => self.on_rare(handlers, frame, other),
            }
        }
    }

    #[cold]
    fn on_rare(&mut self, handlers: &mut Handlers, frame: Option<&RxFrame<'_>>, event: Event) {
        match event {
            Event::SendDone { op, result } => {
                self.forget_exposed(op);
                if let Some(OpKind::Send(peer)) = self.ops.kind(op) {
                    self.complete_send(op, peer, result);
                }
            }
            Event::RecvFailed { op, error } => self.fail_recv(op, error),
            Event::SourceFault { op, peer } => self.note_fault(op, OpError::PeerFault(peer)),
            Event::Pull {
                transfer,
                peer,
                remote_addr,
                op,
                off,
                len,
            } => {
                self.pulls.push(Pull {
                    transfer,
                    peer,
                    remote_addr,
                    op,
                    off,
                    len,
                });
            }
            Event::BufferNeeded { port, peer, len } => {
                self.allocate_buffer(handlers, port, peer, len)
            }
            Event::PortUnopened { port, peer } => self.note_unopened(port, peer),
            Event::MultiRecvSegment {
                op,
                part,
                off,
                len,
                is_last,
            } => self.begin_raw_part(op, part, off..off + len, is_last),
            other => self.on_peer_event(frame, other),
        }
    }

    /// Handles events about a peer rather than about an operation.
    fn on_peer_event(&mut self, frame: Option<&RxFrame<'_>>, event: Event) {
        match event {
            Event::Writable(peer) => self.pending.wake(peer),
            Event::StreamNeeded(peer) => self.call_streams(StreamCall::Open(peer)),
            Event::PeerUp(peer) => {
                self.pending.wake(peer);
                // The peer may have been given up since this event was queued.
                if self.core.peer_status(peer) == PeerStatus::Up {
                    self.peers[peer.0 as usize].on_up();
                }
                if let Some(seals) = &mut self.seals
                    && let Some(ids) = self.core.session_ids(peer)
                {
                    seals.on_session(peer, ids);
                }
            }
            Event::Suspect { peer, .. } => {
                let since = self.core.last_seen(peer).unwrap_or(self.now);
                self.watch_since(peer, since);
            }
            Event::PeerFailed {
                peer,
                cause,
                has_unacked,
            } => {
                self.call_streams(StreamCall::Close(peer));
                if has_unacked {
                    self.note_undelivered(peer, cause);
                }
                self.fail_operations_of(peer);
            }
            Event::MemoryFull { peer, error } => {
                let error = self.op_error(OpId(u64::MAX), error);
                log::warn!("{peer} on {} is held back: {error}", self.host_of(peer));
            }
            Event::Unsolicited { endpoint_id } => self.register_unsolicited(&endpoint_id),
            other => self.on_remote(frame, other),
        }
    }

    /// Completes a receive without a message.
    pub(super) fn fail_recv(&mut self, op: OpId, error: OpError) {
        match self.ops.owner(op) {
            None => {}
            Some(Owner::Caller(_)) => self.end_raw_recv_failed(op, error),
            Some(Owner::Request(_)) => {
                let error = self.op_error(op, error);
                self.ops.fail(op, error);
            }
            Some(Owner::None) => {
                log::warn!("posted buffer: {}", self.op_error(op, error));
                self.ops.forget(op);
            }
        }
    }
}

/// Returns a frame of a network, which lies in one piece.
#[inline]
pub(super) fn whole(head: &[u8]) -> RxFrame<'_> {
    RxFrame {
        from: None,
        head,
        body: None,
        marked: false,
    }
}
