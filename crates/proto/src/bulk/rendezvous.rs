// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rendezvous: a message beyond the eager limit asks first, and its bytes go straight from the
//! sender's memory to the receiver's buffer (`P5`).

use crate::base::credit::charge;
use crate::base::request::Request;
use crate::matching::port::Posted;
use crate::mem::slab::SLAB_LEN_MAX;
use crate::path::OpenFrame;
use crate::peer::{Control, Peer};
use crate::shared::Shared;
use crate::{
    Address, Cause, Core, Data, DropReason, Event, LinkId, OpError, OpId, PeerId, Refused, SendSpec,
};
use portolan_wire::{BULK_HEADER_LEN, Done, DoneStatus, Grant, LaneId, Rts};

/// Where the end of a transfer must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// To its lane: it was matched in its turn.
    Lane,
    /// To its port: its buffer came late.
    Port,
    /// To its receive alone: it has a label. `P11.4`
    Receive,
    /// To its lane: it fills a region.
    Region,
    /// To the request for remote memory with this number.
    Get(u32),
}

/// What a transfer from this process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxRole {
    /// A message; its end is that of the send.
    Send,
    /// A put, which ends when it is answered.
    Put,
    /// The answer to a get, which the peer knows by this number.
    Answer { op: u32 },
}

/// A transfer to this process.
#[derive(Debug)]
pub(crate) struct RxTransfer {
    pub(crate) peer: PeerId,
    pub(crate) link: LinkId,
    pub(crate) lossless: bool,
    pub(crate) sender_transfer: u32,
    pub(crate) posted: Posted,
    pub(crate) len: u64,
    pub(crate) received: u64,
    /// End of the highest byte that has arrived: what lies below is here, or was overtaken.
    pub(crate) frontier: u64,
    /// Which bytes; on a network only.
    pub(crate) arrived: crate::base::coverage::Coverage,
    pub(crate) granted: u64,
    /// Place in the order of grants: when the last was made, or the transfer began.
    pub(crate) served_at: u64,
    /// The transfer whose fragments came in the batch after the last one of this.
    pub(crate) followed_by: u32,
    pub(crate) fragment_len: u16,
    pub(crate) origin: Origin,
    pub(crate) to: Address,
    pub(crate) lane: LaneId,
}

impl RxTransfer {
    pub(crate) fn error(&self) -> Option<OpError> {
        OpError::truncated(self.len, self.posted.len)
    }
}

/// A transfer from this process.
#[derive(Debug)]
pub(crate) struct TxTransfer {
    pub(crate) peer: PeerId,
    pub(crate) op: OpId,
    pub(crate) role: TxRole,
    /// First byte in the memory of `op`.
    pub(crate) base: u64,
    /// By which its bytes go, whichever path is best by then: its fragments fit this one's frames.
    pub(crate) link: Option<LinkId>,
    pub(crate) len: u64,
    pub(crate) receiver_transfer: u32,
    /// The peer's session, for fragments that are sent again.
    pub(crate) session: u64,
    pub(crate) granted: u64,
    /// First byte that has not been handed to a link.
    pub(crate) next_off: u64,
    pub(crate) acked: u64,
    pub(crate) fragment_len: u16,
    /// Stands in the peer's queue of transfers to send.
    pub(crate) queued: bool,
}

impl TxTransfer {
    /// `len` bytes of `op` to `peer`, by its path for bulk data.
    pub(crate) fn new(peer: &Peer, op: OpId, len: u64, role: TxRole) -> Self {
        TxTransfer {
            peer: peer.id,
            op,
            role,
            base: 0,
            link: peer.bulk,
            len,
            receiver_transfer: 0,
            session: peer.session.token_theirs,
            granted: 0,
            next_off: 0,
            acked: 0,
            fragment_len: peer.fragment_len(),
            queued: false,
        }
    }
}

impl Shared {
    #[inline]
    pub(crate) fn has_transfer_room(&self) -> bool {
        self.rx_transfers.len() < SLAB_LEN_MAX
    }

    /// Begins a transfer into a posted buffer; the caller has checked that there is room for it.
    /// `P5.2`
    pub(crate) fn start_transfer(&mut self, req: &Request, posted: Posted, origin: Origin) -> u32 {
        let asked = &req.asked;
        let params = self.ctx.link(asked.link);
        let lossless = params.is_some_and(|params| params.lossless);
        let transfer = self.rx_transfers.insert(RxTransfer {
            peer: req.peer,
            link: asked.link,
            lossless,
            sender_transfer: asked.sender_transfer,
            posted,
            len: req.len,
            received: 0,
            frontier: 0,
            arrived: Default::default(),
            granted: 0,
            served_at: self.scheduler.stamp(),
            followed_by: 0,
            fragment_len: asked.fragment_len,
            origin,
            to: req.to,
            lane: req.lane,
        });
        let Ok(key) = transfer else { return 0 };
        // P8.5
        let pull = params.is_some_and(|params| params.pull) && asked.remote_addr != 0;
        if pull {
            self.ctx.emit(Event::Pull {
                transfer: key,
                peer: req.peer,
                remote_addr: asked.remote_addr,
                op: posted.op,
                off: posted.base,
                len: req.len.min(posted.len),
            });
        } else {
            self.scheduler.add(key);
        }
        key
    }

    /// A transfer from this process has ended: tells a message's sender.
    pub(crate) fn end_send(&mut self, transfer: &TxTransfer, result: Result<(), OpError>) {
        if transfer.role == TxRole::Send {
            let op = transfer.op;
            self.ctx.emit(Event::SendDone { op, result });
        }
    }

    /// Ends every transfer with a peer that is gone.
    pub(crate) fn abandon_transfers(&mut self, peer: PeerId, error: OpError) {
        for key in self
            .tx_transfers
            .keys_where(|transfer| transfer.peer == peer)
        {
            if let Some(transfer) = self.tx_transfers.remove(key) {
                self.end_send(&transfer, Err(error));
            }
        }
        for key in self
            .rx_transfers
            .keys_where(|transfer| transfer.peer == peer)
        {
            if let Some(transfer) = self.rx_transfers.remove(key) {
                self.scheduler.remove(key, &transfer);
                let op = transfer.posted.op;
                // Of remote memory, the operation is told elsewhere.
                match transfer.origin {
                    Origin::Lane | Origin::Port | Origin::Receive => {
                        self.ctx.emit(Event::RecvFailed { op, error });
                    }
                    Origin::Region | Origin::Get(_) => {}
                }
            }
        }
    }
}

impl Core {
    /// Announces a message of `len` bytes in the buffer of `op`; the end is an
    /// [`Event::SendDone`]. `remote_addr` is the buffer's address where the peer may pull it from,
    /// or 0.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    ///
    /// # Panics
    /// When `len` is 0: an empty message is eager.
    pub fn rendezvous(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        op: OpId,
        len: u64,
        remote_addr: u64,
    ) -> Result<(), Refused> {
        assert!(len > 0, "an empty message is eager");
        if !self.is_awake(peer) {
            return Err(Refused::Unknown);
        }
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        if !state.session.up {
            let refused = state.session.failed.map_or(Refused::NotUp, Refused::Gone);
            state.session.want();
            self.touch(peer);
            return Err(refused);
        }
        let transfer = TxTransfer::new(state, op, len, TxRole::Send);
        let fragment_len = transfer.fragment_len;
        let lane = &mut state.lanes_tx[spec.lane.index()];
        let room = self.sh.tx_transfers.len() < SLAB_LEN_MAX;
        let path_room = state
            .small
            .and_then(|link| state.paths[link.index()].as_deref())
            .is_some_and(|path| path.has_room(spec.lane.index()));
        if !lane.has_credit(charge(0)) || !room || !path_room {
            lane.starved = true;
            return Err(Refused::Busy);
        }
        let Ok(key) = self.sh.tx_transfers.insert(transfer) else {
            return Err(Refused::Busy);
        };
        let seq = lane.next_seq;
        lane.next_seq = seq.wrapping_add(1);
        lane.charged = lane.charged.wrapping_add(charge(0));
        self.sh.ctx.counters_mut().messages_sent += 1;
        let rts = Rts {
            message: spec.message(fragment_len, seq),
            message_len: len,
            transfer: key,
            remote_addr,
        };
        state.stage_rts(&mut self.sh, &rts);
        self.touch(peer);
        Ok(())
    }

    /// The engine has pulled a message ([`Event::Pull`]), or could not (`ok` false): then its bytes
    /// are asked for as frames.
    pub fn pull_done(&mut self, transfer: u32, ok: bool) {
        let Some(state) = self.sh.rx_transfers.get_mut(transfer) else {
            return;
        };
        if ok {
            state.received = state.len;
            self.finish_rx(transfer);
            self.serve_unblocked();
        } else {
            self.sh.scheduler.add(transfer);
            self.run_scheduler();
        }
    }

    /// Every byte of a transfer has arrived.
    pub(crate) fn finish_rx(&mut self, key: u32) {
        let Some(done) = self.sh.rx_transfers.remove(key) else {
            return;
        };
        self.sh.scheduler.remove(key, &done);
        let Some(Some(peer)) = self.peers.get_mut(done.peer.index()) else {
            return;
        };
        // P3.5
        for path in peer.paths.iter_mut().flatten() {
            path.rx.set_awaited();
        }
        // P8.4
        if done.lossless {
            let record = Done {
                status: DoneStatus::Complete,
                transfer: done.sender_transfer,
            };
            peer.control.push_back(Control::Done(record));
        }
        match done.origin {
            Origin::Lane => {
                peer.on_transferred(&mut self.sh, done.lane, key, done.posted.op, done.error());
            }
            Origin::Port => self.on_late_transferred(key, &done),
            Origin::Region => peer.on_put_transferred(&mut self.sh, done.lane, key, Ok(())),
            Origin::Get(request) => self.end_remote(request, Ok(())),
            Origin::Receive => {
                let (lane, op, error) = (done.lane, Some(done.posted.op), done.error());
                peer.deliver_to(
                    &mut self.sh,
                    lane,
                    &done.to,
                    op,
                    done.len,
                    Data::Placed,
                    error,
                );
            }
        }
        self.sh.start_late();
        self.touch(done.peer);
    }

    pub(crate) fn on_grant(&mut self, from: PeerId, grant: &Grant) -> Result<(), DropReason> {
        let transfer = self.sh.tx_transfers.get_mut(grant.transfer);
        // P5.5
        let transfer = transfer.filter(|transfer| transfer.peer == from);
        let Some(transfer) = transfer else {
            return Err(DropReason::StaleTransfer);
        };
        transfer.receiver_transfer = grant.receiver_transfer;
        transfer.granted = transfer.granted.max(grant.limit.min(transfer.len));
        if !transfer.queued && transfer.next_off < transfer.granted {
            transfer.queued = true;
            if let Some(Some(peer)) = self.peers.get_mut(from.index()) {
                peer.bulk_ready.push_back(grant.transfer);
            }
        }
        Ok(())
    }

    pub(crate) fn on_done(&mut self, from: PeerId, done: &Done) -> Result<(), DropReason> {
        let known = self
            .sh
            .tx_transfers
            .get(done.transfer)
            .is_some_and(|t| t.peer == from);
        if !known {
            return Err(DropReason::StaleTransfer);
        }
        if let Some(transfer) = self.sh.tx_transfers.remove(done.transfer) {
            let result = match done.status {
                DoneStatus::Complete => Ok(()),
                // P2.14
                DoneStatus::Refused => Err(OpError::PeerGone(from, Cause::Closed)),
                DoneStatus::Other(_) => Err(OpError::Refused),
            };
            self.sh.end_send(&transfer, result);
        }
        Ok(())
    }
}

impl Peer {
    /// Bytes of user data in each bulk datagram; 0 on a lossless path, whose chunks have any size.
    pub(crate) fn fragment_len(&self) -> u16 {
        let path = self
            .bulk
            .and_then(|link| self.paths[link.index()].as_deref());
        match path {
            // 60 KB per call is the most that segmentation offload takes; longer frames than that
            // exist on loopback only.
            Some(path) if !path.params.lossless => {
                u16::try_from(path.frame_len.min(60_000) - BULK_HEADER_LEN).unwrap_or(0)
            }
            _ => 0,
        }
    }

    fn stage_rts(&mut self, sh: &mut Shared, rts: &Rts) {
        let lane = rts.message.lane.index();
        let Some(path) = self.small_path() else {
            return;
        };
        let (capacity, rts_len) = (path.shared_frame_len(), rts.wire_len());
        if path.open[lane].is_some_and(|open| open.len + rts_len > open.len_max) {
            path.close(lane);
        }
        let header_len = path.header_len();
        let open = path.open[lane].get_or_insert_with(|| OpenFrame {
            slot: sh.slots.take(capacity + crate::path::ack::ACK_LEN_MAX),
            len: header_len,
            len_max: capacity,
            numbered: true,
        });
        open.numbered = true;
        rts.emit(&mut sh.slots.bytes_mut(open.slot)[open.len..]);
        open.len += rts_len;
    }
}
