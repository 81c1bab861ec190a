// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data path of the UDP link.

use super::place::{Landed, SLOTS_MAX};
use super::socket::{BUSY, COMMON};
use super::{DATAGRAM_LEN_MAX, Notice, RxFrame, SEGMENTS_MAX, SockAddr, TxError, TxFrame, Udp};
use crate::cut::Run;
use crate::notice::is_refused_permanently;
use crate::{PeerId, Receiver};
use portolan_sys::net::{self, Received};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Index of a socket, and the destination, which only the common socket needs.
type Route<'a> = (usize, &'a SockAddr);

impl Udp {
    pub(super) fn send_frame(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        if frame.payload.is_empty() && frame.segments.is_none() {
            return self.send_whole(peer, frame.head);
        }
        let to = *self.peers.find(peer)?;
        let mut place = self.busy.place_of(peer);
        if self.busy.has_changed() {
            self.on_busy(peer, &to);
            place = self.busy.place_of(peer);
        }
        let run = Run::new(frame);
        let too_long = run.datagram_len() > self.caps.frame_len_max
            || run.count > SEGMENTS_MAX
            || run.total_len() > DATAGRAM_LEN_MAX;
        if too_long {
            return Err(self.too_long());
        }
        match self.attempt((place, &to), &run) {
            Ok(()) => Ok(()),
            Err(error) => self.send_again((place, &to), &run, error),
        }
    }

    /// Sends a frame that lies in one piece.
    #[inline]
    pub(super) fn send_whole(&mut self, peer: PeerId, frame: &[u8]) -> Result<(), TxError> {
        let to = self.peers.find(peer)?;
        let place = self.busy.place_of(peer);
        if self.busy.has_changed() {
            let to = *to;
            self.on_busy(peer, &to);
            return self.send_whole(peer, frame);
        }
        if frame.len() > self.caps.frame_len_max {
            return Err(self.too_long());
        }
        let socket = &mut self.sockets[place];
        let sent = socket.cut_datagram(frame.len()).and_then(|()| {
            let fd = socket.as_fd();
            send_piece(fd, (place == COMMON).then_some(to), frame)
        });
        match sent {
            Ok(_) => {
                self.refusals = 0;
                Ok(())
            }
            Err(error) => {
                let to = *to;
                let frame = TxFrame::contiguous(frame);
                self.send_again((place, &to), &Run::new(&frame), error)
            }
        }
    }

    #[cold]
    fn too_long(&self) -> TxError {
        TxError::TooLong {
            frame_len_max: self.caps.frame_len_max,
        }
    }

    fn attempt(&mut self, (place, to): Route<'_>, run: &Run<'_>) -> io::Result<()> {
        let to = (place == COMMON).then_some(to);
        let segment_len = run.datagram_len();
        let socket = &mut self.sockets[place];
        match u16::try_from(segment_len) {
            Ok(cut) if run.count > 1 && self.segmentation => socket.cut_run(cut)?,
            _ => socket.cut_datagram(run.total_len())?,
        }
        let fd = socket.as_fd();
        if run.count > 1 && !self.segmentation {
            let sent = self.sender.send_each(fd, to, segment_len, run.pieces())?;
            // The queue filled up halfway. Frames already sent cannot be recalled, so the rest
            // counts as lost.
            for _ in sent..run.count {
                self.push_notice(Notice::Dropped("udp_send_queue_full"));
            }
            return Ok(());
        }
        match (run.one_piece(), run.uncut()) {
            (Some(piece), _) => send_piece(fd, to, piece)?,
            (None, Some(slices)) => self.sender.send_gathered(fd, to, None, slices)?,
            (None, None) => self.sender.send_gathered(fd, to, None, run.pieces())?,
        };
        self.refusals = 0;
        Ok(())
    }

    /// Handles a failed attempt. Returns back-pressure, or retries once if the error belonged to an
    /// earlier datagram; the socket reports such errors instead of sending.
    #[cold]
    fn send_again(
        &mut self,
        route: Route<'_>,
        run: &Run<'_>,
        error: io::Error,
    ) -> Result<(), TxError> {
        if is_full(&error) {
            return Err(self.refuse(error));
        }
        if error.raw_os_error() == Some(libc::EIO) {
            // The route includes a device that cannot fill in checksums (udp_send_skb of
            // net/ipv4/udp.c): from now on runs are cut in this process.
            self.segmentation = false;
        }
        // A segment length left by an earlier run must not make the kernel refuse this datagram.
        self.sockets[route.0].cut_nothing();
        let destination = route.1.to_std().map(|to| to.ip());
        self.drain_errors(destination);
        let Err(error) = self.attempt(route, run) else {
            return Ok(());
        };
        let passes = self.drain_errors(destination);
        match error.raw_os_error() {
            _ if is_full(&error) => Err(self.refuse(error)),
            // Older kernels return EINVAL for a run with segments longer than the interface's MTU.
            Some(libc::EMSGSIZE) => Err(TxError::TooLong {
                frame_len_max: passes.unwrap_or(0),
            }),
            Some(libc::EINVAL) if run.count > 1 => Err(TxError::TooLong {
                frame_len_max: passes.unwrap_or(0),
            }),
            _ => Err(TxError::System(error)),
        }
    }

    #[cold]
    fn refuse(&mut self, error: io::Error) -> TxError {
        if is_refused_permanently(&error, &mut self.refusals) {
            TxError::System(error)
        } else {
            TxError::Full
        }
    }

    /// Receives as [`Link::receive_placed`](crate::Link::receive_placed) does, without calls by
    /// pointer: from the sockets of both address families.
    #[inline]
    pub fn receive_for<R: Receiver + ?Sized>(&mut self, budget: usize, receiver: &mut R) -> usize {
        let delivered = self.receive_runs(budget, receiver);
        match &mut self.second {
            Some(second) => delivered + second.receive_if_due(budget, receiver),
            None => delivered,
        }
    }

    /// Receives from the busy peer's socket, if there is one, and from the common socket. While a
    /// busy peer exists, the common socket is polled less often.
    #[inline]
    pub(super) fn receive_runs<R: Receiver + ?Sized>(
        &mut self,
        budget: usize,
        receiver: &mut R,
    ) -> usize {
        if self.sockets.len() == 1 {
            return self.receive_at(COMMON, budget, receiver);
        }
        let delivered = self.receive_at(BUSY, budget, receiver);
        if !self.busy.common_is_due() {
            return delivered;
        }
        let more = self.receive_at(COMMON, budget, receiver);
        self.busy.on_common_poll(more > 0);
        delivered + more
    }

    /// Receives from one socket. A frame found right after an empty poll is most likely alone. It
    /// is delivered without polling again, so that its reply does not wait for an empty system
    /// call. The next call finds frames that arrived later.
    #[inline]
    fn receive_at<R: Receiver + ?Sized>(
        &mut self,
        place: usize,
        budget: usize,
        receiver: &mut R,
    ) -> usize {
        if self.capacity_meter.is_due() && self.sockets[place].polled_empty {
            return self.receive_measured(place, budget, receiver);
        }
        self.receive_until_empty(place, budget, true, receiver)
    }

    /// Receives until the socket is empty and measures what the kernel charges for the data.
    #[cold]
    fn receive_measured<R: Receiver + ?Sized>(
        &mut self,
        place: usize,
        budget: usize,
        receiver: &mut R,
    ) -> usize {
        let charged = net::receive_charged_len(self.sockets[place].as_fd()).unwrap_or(0);
        let before = self.capacity_meter.received();
        // A run, and the empty poll after it.
        let budget = budget.max(SEGMENTS_MAX + 1);
        let delivered = self.receive_until_empty(place, budget, false, receiver);
        if delivered == 0 {
            self.capacity_meter.on_empty();
        } else if self.sockets[place].polled_empty {
            let len = self.capacity_meter.received().wrapping_sub(before);
            self.capacity_meter.on_measurement(charged, len);
        }
        delivered
    }

    #[inline]
    fn receive_until_empty<R: Receiver + ?Sized>(
        &mut self,
        place: usize,
        budget: usize,
        may_be_alone: bool,
        receiver: &mut R,
    ) -> usize {
        let mut delivered = 0;
        let mut failed = false;
        while delivered < budget && (delivered == 0 || !receiver.has_enough()) {
            match self.receive_run(place, receiver) {
                Ok(None) => {
                    self.sockets[place].polled_empty = true;
                    break;
                }
                Ok(Some(count)) => {
                    delivered += count;
                    let was_empty = &mut self.sockets[place].polled_empty;
                    if std::mem::replace(was_empty, false) && may_be_alone {
                        break;
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                    receiver.faulted();
                    break;
                }
                // The error belongs to an earlier datagram: drain the error queue, then retry once.
                Err(_) if !failed => {
                    failed = true;
                    self.drain_errors_of(place, None);
                }
                Err(_) => break,
            }
        }
        delivered
    }

    /// Receives once. Returns `None` if nothing was waiting.
    #[inline(always)]
    fn receive_run<R: Receiver + ?Sized>(
        &mut self,
        place: usize,
        receiver: &mut R,
    ) -> io::Result<Option<usize>> {
        if let Some(plan) = receiver.plan()
            && self.slots.divide(&plan, self.rx_buf.len())
        {
            let fd = self.sockets[place].as_fd();
            let pieces = self.slots.pieces(plan.dst, &mut self.rx_buf);
            let Some(got) = self.scatter.receive(fd, pieces)? else {
                return Ok(None);
            };
            let landed = self.slots.settle(&plan, &got, &mut self.rx_buf);
            self.note_received(place, &got);
            return Ok(Some(self.deliver_landed(&got, &landed, receiver)));
        }
        let socket = &mut self.sockets[place];
        let Some(datagram_len) = self
            .config
            .datagram_len
            .filter(|_| !socket.requests_marks())
        else {
            return self.receive_with_marks(place, receiver);
        };
        let Some(len) = net::recv(socket.as_fd(), &mut self.rx_buf)? else {
            return Ok(None);
        };
        socket.mark_schedule.on_call(len);
        let bytes = self.rx_buf.get(..len);
        let first_len = bytes.and_then(datagram_len).unwrap_or(len);
        if let Some(head) = bytes
            && !is_run(len, first_len)
            && len > 0
        {
            // One datagram.
            self.capacity_meter.on_received(len);
            receiver.frame(RxFrame {
                from: None,
                head,
                body: None,
                marked: false,
            });
            return Ok(Some(1));
        }
        let got = Received {
            len,
            segment_len: first_len,
            truncated: bytes.is_none(),
            marked: false,
        };
        self.note_received(place, &got);
        Ok(Some(self.deliver(&got, got.len, receiver)))
    }

    /// Receives once, with the length of the datagrams and their marks from the kernel.
    fn receive_with_marks<R: Receiver + ?Sized>(
        &mut self,
        place: usize,
        receiver: &mut R,
    ) -> io::Result<Option<usize>> {
        let socket = &mut self.sockets[place];
        let Some(got) = net::recv_segments(socket.as_fd(), &mut self.rx_buf)? else {
            return Ok(None);
        };
        socket.mark_schedule.on_request(got.len, got.marked);
        self.note_received(place, &got);
        Ok(Some(self.deliver(&got, got.len, receiver)))
    }

    fn note_received(&mut self, place: usize, got: &Received) {
        self.capacity_meter.on_received(got.len);
        if got.segment_len < got.len && !self.sockets[place].reports_marks {
            self.enable_mark_reports(place);
        }
    }

    fn deliver_landed<R: Receiver + ?Sized>(
        &mut self,
        got: &Received,
        landed: &Landed,
        receiver: &mut R,
    ) -> usize {
        for index in 0..landed.placed_count {
            let is_last = index + 1 == landed.placed_count;
            let payload_len = match is_last {
                true => landed.last_len,
                false => self.slots.fragment_len(),
            };
            receiver.placed(self.slots.header(index), payload_len, got.marked);
        }
        if landed.missed_count > 0 {
            receiver.missed(landed.missed_count, landed.copied_len);
        }
        if landed.placed_count > 0 && landed.rest_len == 0 {
            return landed.placed_count;
        }
        landed.placed_count + self.deliver(got, landed.rest_len, receiver)
    }

    /// Delivers the first `len` bytes of the buffer, datagram by datagram.
    fn deliver<R: Receiver + ?Sized>(
        &mut self,
        got: &Received,
        len: usize,
        receiver: &mut R,
    ) -> usize {
        if got.truncated || len == 0 {
            let why = if got.truncated {
                "udp_truncated"
            } else {
                "udp_empty"
            };
            self.push_notice(Notice::Dropped(why));
            return 0;
        }
        let segment_len = got.segment_len.max(1);
        let (mut rest, mut count) = (&self.rx_buf[..len], 0);
        while !rest.is_empty() {
            let taken = match rest.len() > segment_len {
                true => receiver.run(rest, segment_len, got.marked),
                false => 0,
            };
            if taken == 0 {
                let (head, behind) = rest.split_at(segment_len.min(rest.len()));
                receiver.frame(RxFrame {
                    from: None,
                    head,
                    body: None,
                    marked: got.marked,
                });
                (rest, count) = (behind, count + 1);
            } else {
                rest = rest.get(taken * segment_len..).unwrap_or_default();
                count += taken;
            }
        }
        count
    }
}

/// Sends `bytes` to `to`, or without it to the peer that `fd` is connected to.
#[inline]
fn send_piece(fd: BorrowedFd<'_>, to: Option<&SockAddr>, bytes: &[u8]) -> io::Result<usize> {
    match to {
        Some(to) => net::send_to(fd, to, bytes),
        None => net::send(fd, bytes),
    }
}

/// Returns `true` if `len` bytes can be a run with a first datagram of `segment_len` bytes. A run
/// is never longer than the kernel merges.
#[inline]
fn is_run(len: usize, segment_len: usize) -> bool {
    segment_len < len && len <= segment_len * SLOTS_MAX
}

/// Returns `true` if the socket's buffer is full, or a queue below it (reported because
/// `IP_RECVERR` is on).
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}
