// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: sends frames by passing pages to the kernel, and receives frames at their
//! destination.
//!
//! On the wire a frame is a front of fixed length and its payload. The front has two lengths (head
//! u16, two bytes 0, payload u32, little-endian), the head, and zeros.
//!
//! Invariant: between two calls the link holds no memory of a caller, except pages passed by the
//! rules of [`ZeroCopyWriter`]. The part of a frame that did not leave is copied, or provided again
//! by the caller.

use super::lending::{self, Lending};
use super::{FRONT_LEN, GATHER_MAX, HEAD_LEN_MAX, LENGTHS_LEN, PAYLOAD_LEN_MAX};
use crate::{PeerId, TxFrame};
use portolan_sys::net::{self, DirectReader, ZeroCopyWriter};
use std::hash::Hasher;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Instant;

/// Bytes without a destination that one call reads. The buffer is cleared and on the stack, so it
/// is small; discarding is rare.
const DISCARD_LEN: usize = 16 * 1024;

/// Most bytes of payload that are read ahead and copied. A copy of 64 KiB within the cache takes
/// about as long as two system calls, and is made while the sender's next bytes arrive.
const AHEAD_PAYLOAD_LEN_MAX: usize = 64 * 1024;

/// A frame with a payload that is being received.
pub struct Part {
    /// Sender.
    pub from: PeerId,
    head: [u8; HEAD_LEN_MAX],
    head_len: usize,
    /// Bytes of payload.
    pub len: usize,
    /// Bytes of payload that have landed.
    pub landed: usize,
    /// Hash that the receiver updates as bytes land; `None` at first.
    pub hash: Option<Box<dyn Hasher + Send>>,
}

impl Part {
    /// Returns the head of the frame.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }
}

/// Destination of the next bytes of a part.
pub enum Place<'a> {
    /// Memory for the bytes: at least one byte, at most the rest of the part.
    At(&'a mut [u8]),
    /// Discard the bytes.
    Nowhere,
    /// Leave the bytes in the socket; ask again in the next call of
    /// [`Stream::receive`](super::Stream::receive).
    Later,
    /// Close the connection.
    End,
}

/// Bytes of a part that have landed.
pub enum Landing<'a> {
    /// Number of bytes at the receiver's destination.
    There(usize),
    /// Bytes that have no destination.
    Lost(&'a [u8]),
}

/// Consumer of the data received by streams.
pub trait PartReceiver {
    /// Returns the destination of the next bytes of `part`. Called before each system call, because
    /// the destination may have changed; for a part without payload, called once. The system writes
    /// to the destination, except up to `copied_len` bytes, which this process copies there.
    fn place(&mut self, part: &Part, copied_len: usize) -> Place<'_>;

    /// Handles a destination of `part` that the system could not write. Returns `false` to close the
    /// connection; otherwise the part must have another place.
    fn faulted(&mut self, part: &Part) -> bool;

    /// Handles landed bytes of `part`, which `part.landed` does not count yet. Returns `false` to
    /// close the connection.
    fn landed(&mut self, part: &mut Part, bytes: Landing<'_>) -> bool;
}

/// Way of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The part that the socket does not accept is copied.
    Copied,
    /// The caller keeps that part, and provides it when the socket has room.
    Lent,
    /// Like `Lent`, or by passing pages by reference where that is cheaper.
    Cheaper,
}

/// A verified connection with one peer.
pub(super) struct Connection {
    peer: PeerId,
    number: u32,
    socket: TcpStream,
    writer: ZeroCopyWriter,
    /// Choice of the way of each payload, and the time from which its times count.
    lending: Lending,
    opened_at: Instant,
    /// Bytes at the end of the last frame that its sender still has to provide.
    owed_len: usize,
    is_write_watched: bool,
    /// Reader that also reads ahead the front of the next frame, or a whole short frame.
    reader: DirectReader<{ FRONT_LEN + AHEAD_PAYLOAD_LEN_MAX + FRONT_LEN }>,
    part: Option<Part>,
    /// Set if the part had to wait in the last call.
    is_waiting: bool,
    /// Length of the last frame's payload in bytes.
    last_len: usize,
    used: bool,
}

impl Connection {
    pub(super) fn new(peer: PeerId, number: u32, socket: TcpStream) -> Connection {
        Connection {
            peer,
            number,
            socket,
            writer: ZeroCopyWriter::new(PAYLOAD_LEN_MAX),
            lending: Lending::default(),
            opened_at: Instant::now(),
            owed_len: 0,
            is_write_watched: false,
            reader: DirectReader::default(),
            part: None,
            is_waiting: false,
            last_len: 0,
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

    /// Returns `true` if the connection was used since the previous call.
    pub(super) fn take_used(&mut self) -> bool {
        std::mem::take(&mut self.used) || self.has_unsent() || self.part.is_some()
    }

    /// Returns `true` if no frame is in flight in either direction, as far as this end can see.
    pub(super) fn is_between_frames(&self) -> bool {
        !self.has_unsent() && self.part.is_none() && self.reader.ahead().is_empty()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.owed_len > 0 || self.writer.has_unsent()
    }

    pub(super) fn owed_len(&self) -> usize {
        self.owed_len
    }

    /// Returns the new setting if watching for writability must start or stop, otherwise `None`.
    pub(super) fn take_watch_change(&mut self) -> Option<bool> {
        let needed = self.has_unsent();
        (std::mem::replace(&mut self.is_write_watched, needed) != needed).then_some(needed)
    }

    /// Sends `frame`. Returns `false` while the previous frame has not left.
    pub(super) fn send(&mut self, frame: &TxFrame<'_>, way: Way) -> io::Result<bool> {
        if self.has_unsent() && !self.push()? {
            return Ok(false);
        }
        self.used = true;
        let payload = frame.payload.first().map_or(&[][..], |slice| slice);
        let mut front = [0; FRONT_LEN];
        // The rest of an oversized head is sent as payload. Only callers that do not use placement
        // send such heads.
        let (head, more_head) = frame.head.split_at(frame.head.len().min(HEAD_LEN_MAX));
        let payload_len = more_head.len() + frame.payload_len();
        let head_len = u16::try_from(head.len()).unwrap_or(u16::MAX);
        front[..2].copy_from_slice(&head_len.to_le_bytes());
        let len = u32::try_from(payload_len).unwrap_or(u32::MAX);
        front[4..8].copy_from_slice(&len.to_le_bytes());
        front[LENGTHS_LEN..][..head.len()].copy_from_slice(head);
        if more_head.is_empty() && frame.payload.len() == 1 {
            match way {
                Way::Cheaper if ZeroCopyWriter::passes(payload.len()) => {
                    self.send_cheaper(&front, payload)?;
                    return Ok(true);
                }
                Way::Cheaper | Way::Lent => {
                    let sent = self.writer.begin_frame(&self.socket, &front, payload)?;
                    self.owed_len = payload.len() - sent;
                    return Ok(true);
                }
                Way::Copied => {}
            }
        }
        let mut slices = [IoSlice::new(&[]); 2 + GATHER_MAX];
        slices[..2].copy_from_slice(&[IoSlice::new(&front), IoSlice::new(more_head)]);
        slices[2..][..frame.payload.len()].copy_from_slice(frame.payload);
        self.writer.copy_frame(&self.socket, &mut slices)?;
        Ok(true)
    }

    /// Sends a frame by a copy or by passing its pages by reference, whichever was cheaper.
    fn send_cheaper(&mut self, front: &[u8], payload: &[u8]) -> io::Result<()> {
        let begin = self.opened_at.elapsed();
        let lends = self.lending.way(payload.len()) == lending::Way::Pages;
        if !lends || !self.writer.write_frame(&self.socket, front, payload)? {
            let mut slices = [IoSlice::new(front), IoSlice::new(payload)];
            self.writer.copy_frame(&self.socket, &mut slices)?;
        }
        let end = self.opened_at.elapsed();
        self.lending.on_sent(payload.len(), (begin, end));
        Ok(())
    }

    /// Sends more of the last frame: `bytes` are those that are owed.
    pub(super) fn resume(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.owed_len -= self.writer.continue_frame(&self.socket, bytes)?;
        Ok(())
    }

    /// Continues to send. Returns `true` once all data has left.
    pub(super) fn push(&mut self) -> io::Result<bool> {
        Ok(self.writer.push(&self.socket)? && self.owed_len == 0)
    }

    /// Receives with up to `budget` calls of at most `call_len_max` bytes of payload each. Returns
    /// how many calls received data.
    pub(super) fn receive(
        &mut self,
        (budget, call_len_max): (usize, usize),
        receiver: &mut dyn PartReceiver,
    ) -> io::Result<usize> {
        self.is_waiting = false;
        // Bytes that were read ahead come first, if their part had to wait. Their place is checked as
        // memory that this process writes.
        let mut earlier = 0;
        while self.take_ahead(receiver)? {
            (earlier, self.used) = (1, true);
        }
        if self.is_waiting {
            return Ok(earlier);
        }
        for count in earlier..budget + earlier {
            let received = match self.part {
                None => {
                    let len = self.len_ahead(call_len_max);
                    self.reader.fill(&self.socket, len)
                }
                Some(_) => self.receive_payload(call_len_max, receiver),
            };
            match received {
                _ if self.is_waiting => return Ok(count),
                Ok(true) => self.used = true,
                Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(error) => return Err(error),
            }
            while self.take_ahead(receiver)? {}
            if self.is_waiting || self.reader.is_drained() {
                return Ok(count + 1);
            }
        }
        Ok(budget + earlier)
    }

    /// Returns the number of bytes to read ahead while nothing is known of the next frame. A short
    /// frame like the last one then takes a single call and one copy. The front of the frame behind
    /// it comes too if it is there, and the payload of that one is received at its place. The rest
    /// of a long frame is received at its place.
    fn len_ahead(&self, call_len_max: usize) -> usize {
        let payload_len = self.last_len.min(call_len_max);
        match payload_len {
            0 => FRONT_LEN,
            1..=AHEAD_PAYLOAD_LEN_MAX => FRONT_LEN + payload_len + FRONT_LEN,
            _ => FRONT_LEN + AHEAD_PAYLOAD_LEN_MAX,
        }
    }

    /// Handles some of the bytes read ahead. Returns `false` if nothing can be done with them.
    fn take_ahead(&mut self, receiver: &mut dyn PartReceiver) -> io::Result<bool> {
        let Some(part) = &mut self.part else {
            let is_begun = self.take_front()?;
            if is_begun {
                self.finish_if_landed(receiver)?;
            }
            return Ok(is_begun);
        };
        let ahead = self.reader.ahead();
        if ahead.is_empty() {
            return Ok(false);
        }
        let len = ahead.len().min(part.len - part.landed);
        let (got, is_good) = match receiver.place(part, len) {
            Place::At(into) => {
                let got = len.min(into.len());
                into[..got].copy_from_slice(&ahead[..got]);
                (got, receiver.landed(part, Landing::There(got)))
            }
            Place::Nowhere => (len, receiver.landed(part, Landing::Lost(&ahead[..len]))),
            Place::Later => {
                self.is_waiting = true;
                return Ok(false);
            }
            Place::End => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.reader.consume(got);
        self.end_piece(got, is_good)?;
        Ok(true)
    }

    /// Counts `got` landed bytes of the part, which ends with its last byte.
    fn end_piece(&mut self, got: usize, is_good: bool) -> io::Result<()> {
        if !is_good {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if let Some(part) = &mut self.part {
            part.landed += got;
            if part.landed == part.len {
                self.last_len = part.len;
                self.part = None;
            }
        }
        Ok(())
    }

    /// Begins a part if its front has arrived.
    fn take_front(&mut self) -> io::Result<bool> {
        let Some(front) = self.reader.ahead().first_chunk::<FRONT_LEN>() else {
            return Ok(false);
        };
        let [a, b, zero, other, l0, l1, l2, l3, head @ ..] = *front;
        let head_len = usize::from(u16::from_le_bytes([a, b]));
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let behind = head.get(head_len..);
        let is_sound = behind.is_some_and(|behind| behind.iter().all(|byte| *byte == 0))
            && len <= HEAD_LEN_MAX + PAYLOAD_LEN_MAX
            && [zero, other] == [0; 2];
        if !is_sound {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.reader.consume(FRONT_LEN);
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

    /// Receives payload and, with its end, the beginning of the next frame. This saves one call per
    /// frame.
    fn receive_payload(
        &mut self,
        call_len_max: usize,
        receiver: &mut dyn PartReceiver,
    ) -> io::Result<bool> {
        let Some(part) = &mut self.part else {
            return Ok(true);
        };
        let left = part.len - part.landed;
        let (got, is_good) = match receiver.place(part, 0) {
            Place::At(into) => {
                let len = into.len().min(left).min(call_len_max);
                let ahead = if len == left { FRONT_LEN } else { 0 };
                let got = match self.reader.read(&self.socket, &mut into[..len], ahead) {
                    Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                        let has_other_place = receiver.faulted(part);
                        return has_other_place.then_some(true).ok_or(error);
                    }
                    got => got?,
                };
                (got, receiver.landed(part, Landing::There(got)))
            }
            Place::Nowhere => {
                let mut discarded = [0; DISCARD_LEN];
                let into = &mut discarded[..left.min(DISCARD_LEN)];
                let got = self.reader.read(&self.socket, into, 0)?;
                (got, receiver.landed(part, Landing::Lost(&into[..got])))
            }
            Place::Later => {
                self.is_waiting = true;
                return Ok(true);
            }
            Place::End => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.end_piece(got, is_good)?;
        Ok(got > 0)
    }

    /// Completes a part without payload, which ends as soon as it begins.
    fn finish_if_landed(&mut self, receiver: &mut dyn PartReceiver) -> io::Result<()> {
        let Some(part) = self.part.as_mut().filter(|part| part.len == 0) else {
            return Ok(());
        };
        let is_good = !matches!(receiver.place(part, 0), Place::End)
            && receiver.landed(part, Landing::There(0));
        self.part = None;
        is_good
            .then_some(())
            .ok_or(io::ErrorKind::InvalidData.into())
    }
}
