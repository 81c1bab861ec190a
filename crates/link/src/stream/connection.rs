// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: frames out, by lending pages, and frames in, to their place.
//!
//! On the wire each frame is its two lengths (head u16, two bytes 0, payload u32, little-endian), its head
//! and its payload. The heads that one end sends are all of one length.
//!
//! The one invariant: between two calls nothing is kept that belongs to somebody else, but pages in the
//! pipe; what of a frame could not be lent and did not leave is copied.

use super::{GATHER_MAX, HEAD_LEN_MAX, PAYLOAD_LEN_MAX};
use crate::{PeerId, TxFrame};
use portolan_sys::effort;
use portolan_sys::net::{self, Pipe};
use std::hash::Hasher;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes in front of a frame.
const PREFIX_LEN: usize = 8;

/// Longest payload that is sent by a copy: up to here the two system calls of lending cost the sender as
/// much processor time as copying does, see ARCHITECTURE.md.
const COPIED_LEN_MAX: usize = 16 * 1024;

/// Bytes of pages that a pipe is to hold: a frame's payload, which may begin and end within a page.
const PIPE_LEN: usize = 2 * PAYLOAD_LEN_MAX;

/// Bytes of what has no place that one call reads: as much as may lie on the stack, and is cleared, for
/// something rare.
const NOWHERE_LEN: usize = 16 * 1024;

/// A frame of which payload is being received.
pub struct Part {
    /// From whom.
    pub from: PeerId,
    head: [u8; HEAD_LEN_MAX],
    head_len: usize,
    /// Bytes of payload.
    pub len: usize,
    /// Bytes of these that have landed.
    pub landed: usize,
    /// What the receiver hashes as it lands; none at first.
    pub hash: Option<Box<dyn Hasher + Send>>,
}

impl Part {
    /// Its head.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }
}

/// Where the next bytes of a part go.
pub enum Place<'a> {
    /// There; at least one byte, at most what is left of the part.
    At(&'a mut [u8]),
    /// Nowhere: they are read and thrown away.
    Nowhere,
    /// The connection is not worth having.
    End,
}

/// Bytes of a part that have landed.
pub enum Landing<'a> {
    /// So many, where the receiver said.
    There(usize),
    /// These, which have no place.
    Lost(&'a [u8]),
}

/// Takes what comes by streams.
pub trait PartReceiver {
    /// Where the next bytes of `part` go. Asked before each call, since what was so may have changed;
    /// of a part without payload, once.
    fn place(&mut self, part: &Part) -> Place<'_>;

    /// Bytes of `part` have landed; `part.landed` does not count them. `false` ends the connection.
    fn landed(&mut self, part: &mut Part, bytes: Landing<'_>) -> bool;
}

/// See the module documentation.
pub(super) struct Connection {
    peer: PeerId,
    number: u32,
    socket: TcpStream,
    /// Made when pages are first lent; `None` too where they cannot be.
    pipe: Option<Pipe>,
    cannot_lend: bool,
    /// What of a frame has not left: its beginning, then what the pipe holds, then its end.
    unsent: Vec<u8>,
    in_pipe: usize,
    unsent_end: Vec<u8>,
    is_room_watched: bool,
    /// Lengths and head of the next frame.
    incoming: [u8; PREFIX_LEN + HEAD_LEN_MAX],
    incoming_len: usize,
    part: Option<Part>,
    /// Bytes of each frame's head from this peer, once one has come.
    head_len: Option<usize>,
    used: bool,
}

impl Connection {
    pub(super) fn new(peer: PeerId, number: u32, socket: TcpStream) -> Connection {
        Connection {
            peer,
            number,
            socket,
            pipe: None,
            cannot_lend: false,
            unsent: Vec::new(),
            in_pipe: 0,
            unsent_end: Vec::new(),
            is_room_watched: false,
            incoming: [0; PREFIX_LEN + HEAD_LEN_MAX],
            incoming_len: 0,
            part: None,
            head_len: None,
            used: true,
        }
    }

    pub(super) fn peer(&self) -> PeerId {
        self.peer
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn abort(self) {
        net::abort_stream(self.socket);
    }

    pub(super) fn timeouts(&self) -> u8 {
        net::stream_timeouts(self.socket.as_fd()).unwrap_or(0)
    }

    /// Whether it was used since this was asked last.
    pub(super) fn take_used(&mut self) -> bool {
        std::mem::take(&mut self.used) || self.has_unsent() || self.part.is_some()
    }

    /// No frame is under way in either direction, as far as this end knows.
    pub(super) fn is_between_frames(&self) -> bool {
        !self.has_unsent() && self.part.is_none() && self.incoming_len == 0
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.in_pipe > 0 || !self.unsent_end.is_empty()
    }

    /// Whether room is to be watched for, or no more; `None` where nothing changes.
    pub(super) fn room_wanted(&mut self) -> Option<bool> {
        let wanted = self.has_unsent();
        (std::mem::replace(&mut self.is_room_watched, wanted) != wanted).then_some(wanted)
    }

    /// Sends `frame`; `false` while the one before has not left.
    pub(super) fn send(&mut self, frame: &TxFrame<'_>, lends: bool) -> io::Result<bool> {
        if self.has_unsent() && !self.push()? {
            return Ok(false);
        }
        self.used = true;
        let payload = frame.payload.first().map_or(&[][..], |slice| slice);
        let mut front = [0; PREFIX_LEN + HEAD_LEN_MAX];
        // What does not fit the front goes as payload: only a caller without a use for placing has that.
        let (head, more_head) = frame.head.split_at(frame.head.len().min(HEAD_LEN_MAX));
        let payload_len = more_head.len() + frame.payload_len();
        let head_len = u16::try_from(head.len()).unwrap_or(u16::MAX);
        front[..2].copy_from_slice(&head_len.to_le_bytes());
        let len = u32::try_from(payload_len).unwrap_or(u32::MAX);
        front[4..8].copy_from_slice(&len.to_le_bytes());
        front[PREFIX_LEN..][..head.len()].copy_from_slice(head);
        let front = &front[..PREFIX_LEN + head.len()];
        let may_lend = lends && more_head.is_empty() && frame.payload.len() == 1;
        if may_lend && payload.len() > COPIED_LEN_MAX && self.lend(front, payload)? {
            return Ok(true);
        }
        let mut slices = [IoSlice::new(&[]); 2 + GATHER_MAX];
        slices[..2].copy_from_slice(&[IoSlice::new(front), IoSlice::new(more_head)]);
        slices[2..][..frame.payload.len()].copy_from_slice(frame.payload);
        let mut rest = &mut slices[..];
        // Those without bytes are skipped: what is left is what is to be sent.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match net::send_stream_gathered(self.socket.as_fd(), rest) {
                Ok(len) => IoSlice::advance_slices(&mut rest, len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        for slice in rest {
            self.unsent_end.extend_from_slice(slice);
        }
        Ok(true)
    }

    /// Lends `payload` behind `front`; `false` if that cannot be, and nothing has left.
    fn lend(&mut self, front: &[u8], payload: &[u8]) -> io::Result<bool> {
        if self.pipe.is_none() && !self.cannot_lend {
            self.pipe = Pipe::new(PIPE_LEN).ok();
            self.cannot_lend = self.pipe.is_none();
        }
        let Some(pipe) = &self.pipe else {
            return Ok(false);
        };
        let lent = match pipe.lend(payload) {
            Ok(lent) => lent,
            Err(error) => {
                log::debug!("stream link: pages cannot be lent: {error}");
                self.cannot_lend = true;
                self.pipe = None;
                return Ok(false);
            }
        };
        self.unsent.extend_from_slice(front);
        self.in_pipe = lent;
        let mut rest = &payload[lent..];
        while self.push_some(!rest.is_empty())? && !rest.is_empty() {
            let Some(pipe) = &self.pipe else { break };
            let Ok(lent) = pipe.lend(rest) else { break };
            self.in_pipe = lent;
            rest = &rest[lent..];
        }
        self.unsent_end.extend_from_slice(rest);
        self.push()?;
        Ok(true)
    }

    /// Sends what has not left; `true` if all of it has.
    pub(super) fn push(&mut self) -> io::Result<bool> {
        if !self.push_some(!self.unsent_end.is_empty())? {
            return Ok(false);
        }
        send_all(self.socket.as_fd(), &mut self.unsent_end, false)
    }

    /// The same but for what is behind the pipe, of which there is `more`.
    fn push_some(&mut self, more: bool) -> io::Result<bool> {
        let fd = self.socket.as_fd();
        if !send_all(fd, &mut self.unsent, more || self.in_pipe > 0)? {
            return Ok(false);
        }
        while self.in_pipe > 0 {
            let Some(pipe) = &self.pipe else { break };
            match pipe.pass_on(fd, self.in_pipe, more) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.in_pipe -= len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Receives by up to `budget` calls, each of `call_len_max` bytes of payload at most; returns how many
    /// brought something.
    pub(super) fn receive(
        &mut self,
        (budget, call_len_max): (usize, usize),
        receiver: &mut dyn PartReceiver,
    ) -> io::Result<usize> {
        for count in 0..budget {
            let received = match self.part {
                None => self.receive_front(),
                Some(_) => self.receive_payload(call_len_max, receiver),
            };
            match received {
                Ok(true) => self.used = true,
                Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(error) => return Err(error),
            }
            while self.part.is_none() && self.take_front()? {
                self.finish_if_landed(receiver)?;
            }
        }
        Ok(budget)
    }

    /// Bytes of lengths and head that are still to come. All heads that a peer sends are equally long, so
    /// both are received by one call.
    fn front_wanted(&self) -> usize {
        let head_len = match (self.head_len, self.incoming_len < PREFIX_LEN) {
            (Some(len), _) => len,
            (None, true) => 0,
            (None, false) => self.incoming_head_len(),
        };
        PREFIX_LEN + head_len - self.incoming_len
    }

    fn incoming_head_len(&self) -> usize {
        usize::from(u16::from_le_bytes([self.incoming[0], self.incoming[1]]))
    }

    /// `false` when the peer has closed.
    fn receive_front(&mut self) -> io::Result<bool> {
        let wanted = self.front_wanted();
        let into = &mut self.incoming[self.incoming_len..][..wanted];
        effort::calls(effort::Call::Recvfrom);
        let len = (&self.socket).read(into)?;
        self.incoming_len += len;
        Ok(len > 0)
    }

    /// Begins a part if its lengths and head are here.
    fn take_front(&mut self) -> io::Result<bool> {
        if self.incoming_len < PREFIX_LEN {
            return Ok(false);
        }
        let mut word = [0; 4];
        word.copy_from_slice(&self.incoming[4..8]);
        let (head_len, len) = (self.incoming_head_len(), u32::from_le_bytes(word) as usize);
        let is_sound = head_len <= HEAD_LEN_MAX
            && self.head_len.is_none_or(|all| head_len == all)
            && len <= HEAD_LEN_MAX + PAYLOAD_LEN_MAX
            && self.incoming[2..4] == [0; 2];
        if !is_sound {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.front_wanted() > 0 {
            return Ok(false);
        }
        let mut head = [0; HEAD_LEN_MAX];
        head[..head_len].copy_from_slice(&self.incoming[PREFIX_LEN..][..head_len]);
        self.incoming_len = 0;
        self.head_len = Some(head_len);
        self.part = Some(Part {
            from: self.peer,
            head,
            head_len,
            len,
            landed: 0,
            hash: None,
        });
        Ok(true)
    }

    /// Payload, and with its end what comes of the next frame's beginning: a call less for each.
    fn receive_payload(
        &mut self,
        call_len_max: usize,
        receiver: &mut dyn PartReceiver,
    ) -> io::Result<bool> {
        let front_len = self.front_wanted();
        let Some(part) = &mut self.part else {
            return Ok(true);
        };
        let left = part.len - part.landed;
        let (got, into_len) = match receiver.place(part) {
            Place::At(into) => {
                let into_len = into.len().min(left).min(call_len_max);
                let into = IoSliceMut::new(&mut into[..into_len]);
                let next = match into_len == left {
                    true => &mut self.incoming[..front_len],
                    false => &mut [][..],
                };
                effort::calls(effort::Call::Readv);
                let got = (&self.socket).read_vectored(&mut [into, IoSliceMut::new(next)])?;
                let there = got.min(into_len);
                if !receiver.landed(part, Landing::There(there)) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                (got, into_len)
            }
            Place::Nowhere => {
                let mut nowhere = [0; NOWHERE_LEN];
                let into = &mut nowhere[..left.min(NOWHERE_LEN)];
                effort::calls(effort::Call::Recvfrom);
                let got = (&self.socket).read(into)?;
                if !receiver.landed(part, Landing::Lost(&into[..got])) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                (got, left)
            }
            Place::End => return Err(io::ErrorKind::InvalidData.into()),
        };
        part.landed += got.min(into_len);
        self.incoming_len = got.saturating_sub(into_len);
        if part.landed == part.len {
            self.part = None;
        }
        Ok(got > 0)
    }

    /// A part without payload has ended as soon as it begins.
    fn finish_if_landed(&mut self, receiver: &mut dyn PartReceiver) -> io::Result<()> {
        let Some(part) = self.part.as_mut().filter(|part| part.len == 0) else {
            return Ok(());
        };
        let is_good =
            !matches!(receiver.place(part), Place::End) && receiver.landed(part, Landing::There(0));
        self.part = None;
        is_good
            .then_some(())
            .ok_or(io::ErrorKind::InvalidData.into())
    }
}

/// Sends `bytes` and takes off what has left; `true` if all of it has.
fn send_all(fd: BorrowedFd<'_>, bytes: &mut Vec<u8>, more: bool) -> io::Result<bool> {
    while !bytes.is_empty() {
        match net::send_stream(fd, bytes, more) {
            Ok(len) => drop(bytes.drain(..len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
