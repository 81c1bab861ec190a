// SPDX-License-Identifier: MIT OR Apache-2.0
//! A byte stream over a connected TCP socket. Its writer passes pages by reference, and its reader
//! receives directly to the destination: one copy in all.
//!
//! The stream has no notion of frames; the caller puts frames into it. Rules for passing memory
//! by reference:
//!
//! - **L1** The memory is read when the receiving program reads the data, not when it is passed
//!   here. If it changes before it is returned, the arriving data may change; freed memory changes
//!   when the allocator reuses it. Nothing else can go wrong: the kernel only reads, and holds
//!   pages, not addresses, so memory may be unmapped at any time.
//! - **L2** The memory is returned when the peer's *program* has reported, in any way, that it has
//!   the bytes. The kernel may still hold it, but only to retransmit data that the peer's TCP
//!   already has and discards.
//! - **L3** Without such a report, the memory is returned when the peer's TCP has acknowledged the
//!   data ([`ZeroCopyWriter::acknowledged`]), *if the two processes are on different machines*,
//!   where a NIC has read the pages. On one machine (loopback, veth, a bridge between namespaces or
//!   virtual machines that share memory) the receiving socket holds these very pages until its
//!   program reads them. In a test over loopback, 64 KiB that were changed after the
//!   acknowledgement arrived changed. There, only L2 applies.
//! - **L4** After a connection has failed, the memory is never returned by a report or an
//!   acknowledgement. It may be changed, and bytes that the peer has not read yet may then arrive
//!   changed, even after the failure. A peer that got an error must therefore discard everything
//!   that it had not read before.
//! - **L5** Short writes are copied, and so are all writes if the system does not support passing
//!   pages. That memory is free when the call returns. This is not reported, so that no caller
//!   relies on it.
//!
//! Invariant: between two calls no memory of the caller is referenced, except pages in the pipe and
//! in the socket.

use super::stream::{Pipe, send_stream, send_stream_gathered, unacknowledged_len};
use super::{wait_readable, wait_writable};
use crate::usage::{self, Call};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Longest write that is copied. Up to this length, the two system calls that pass pages by
/// reference cost the sender as much processor time as the copy; see docs/design/streams.md.
const COPIED_LEN_MAX: usize = 16 * 1024;

/// Interval at which the blocking functions poll again, in case a wake-up was missed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Copied bytes that have not left. They stay where they are until all have left, because a long
/// frame leaves in many pieces.
#[derive(Debug, Default)]
struct Copied {
    bytes: Vec<u8>,
    /// Number of bytes that have left.
    sent: usize,
}

impl Copied {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn consume(&mut self, len: usize) {
        self.sent += len;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}

/// Writing end; see the module documentation. All writes to the socket must go through it.
#[derive(Debug)]
pub struct ZeroCopyWriter {
    /// Created when pages are first passed; `None` also if the system does not support that.
    pipe: Option<Pipe>,
    pipe_len: usize,
    is_unsupported: bool,
    /// Accepted bytes that have not left: copied bytes, then the contents of the pipe, then copied
    /// bytes.
    unsent: Copied,
    in_pipe: usize,
    unsent_end: Copied,
    /// Bytes passed to the socket.
    sent_len: u64,
}

impl ZeroCopyWriter {
    /// Creates a writer that passes about `at_once_len` bytes by reference at a time. More must
    /// wait until these have left for the socket.
    #[must_use]
    pub fn new(at_once_len: usize) -> ZeroCopyWriter {
        ZeroCopyWriter {
            // The memory may begin and end within a page.
            pipe_len: at_once_len.saturating_mul(2),
            pipe: None,
            is_unsupported: false,
            unsent: Copied::default(),
            in_pipe: 0,
            unsent_end: Copied::default(),
            sent_len: 0,
        }
    }

    /// Returns `true` if payload of `len` bytes may be passed by reference. Shorter payload is
    /// copied.
    #[must_use]
    pub fn passes(len: usize) -> bool {
        len > COPIED_LEN_MAX
    }

    /// Returns `true` if accepted data has not left for the socket.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.in_pipe > 0 || !self.unsent_end.is_empty()
    }

    /// Returns the bytes accepted since the beginning: a position in the stream, comparable with
    /// [`ZeroCopyWriter::acknowledged`].
    #[must_use]
    pub fn accepted_len(&self) -> u64 {
        self.sent_len + (self.unsent.len() + self.in_pipe + self.unsent_end.len()) as u64
    }

    /// Returns the bytes acknowledged by the peer's TCP since the beginning. L3 defines which
    /// memory may then be changed.
    ///
    /// # Errors
    /// The errno of `ioctl`.
    pub fn acknowledged(&self, socket: &TcpStream) -> io::Result<u64> {
        let in_flight = unacknowledged_len(socket.as_fd())?;
        Ok(self.sent_len.saturating_sub(in_flight))
    }

    /// Accepts some of `bytes`, by reference if that is cheaper, and returns how many. The socket
    /// is non-blocking.
    ///
    /// # Errors
    /// `WouldBlock` if no byte can be accepted now: retry when the socket is writable. Any other
    /// error means that the connection has failed.
    pub fn write(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        if self.has_unsent() && !self.push(socket)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let spliced = match bytes.len() > COPIED_LEN_MAX {
            true => self.splice_some(bytes),
            false => None,
        };
        let Some(mut accepted) = spliced else {
            let len = send_stream(socket.as_fd(), bytes, false)?;
            self.sent_len += len as u64;
            return Ok(len);
        };
        while self.push_some(socket.as_fd(), accepted < bytes.len())? && accepted < bytes.len() {
            match self.splice_some(&bytes[accepted..]) {
                Some(spliced) => accepted += spliced,
                None => break,
            }
        }
        Ok(accepted)
    }

    /// Writes all of `bytes`, and returns when they have left for the socket, which may be blocking
    /// or non-blocking.
    ///
    /// # Errors
    /// Fails if the connection has failed.
    pub fn write_all(&mut self, socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(socket, bytes) {
                Ok(accepted) => bytes = &bytes[accepted..],
                Err(error) => wait_after(error, || wait_writable(socket.as_fd(), POLL_INTERVAL))?,
            }
        }
        self.flush(socket)
    }

    /// Waits until all accepted data has left for the socket.
    ///
    /// # Errors
    /// Fails if the connection has failed.
    pub fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while !self.push(socket)? {
            wait_writable(socket.as_fd(), POLL_INTERVAL)?;
        }
        Ok(())
    }

    /// Accepts a whole frame while nothing is unsent: copies `front`, and passes `payload` by
    /// reference; the part of it that does not fit now is copied. Returns `false`, with nothing
    /// accepted, if passing by reference is not cheaper or not supported.
    ///
    /// # Errors
    /// Fails if the connection has failed.
    pub fn write_frame(
        &mut self,
        socket: &TcpStream,
        front: &[u8],
        payload: &[u8],
    ) -> io::Result<bool> {
        debug_assert!(!self.has_unsent(), "a frame is still unsent");
        if !ZeroCopyWriter::passes(payload.len()) {
            return Ok(false);
        }
        let Some(spliced) = self.splice_some(payload) else {
            return Ok(false);
        };
        self.unsent.extend(front);
        let mut rest = &payload[spliced..];
        while self.push_some(socket.as_fd(), !rest.is_empty())? && !rest.is_empty() {
            let Some(spliced) = self.splice_some(rest) else {
                break;
            };
            rest = &rest[spliced..];
        }
        self.unsent_end.extend(rest);
        self.push(socket)?;
        Ok(true)
    }

    /// Accepts a whole frame while nothing is unsent, by copying all `slices`.
    ///
    /// # Errors
    /// Fails if the connection has failed.
    pub fn copy_frame(&mut self, socket: &TcpStream, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        for slice in self.send_some(socket, slices)? {
            self.unsent_end.extend(slice);
        }
        Ok(())
    }

    /// Accepts a frame like [`ZeroCopyWriter::copy_frame`], but keeps only its `front`. Returns the
    /// number of payload bytes that the socket has accepted; the caller sends the rest by
    /// [`ZeroCopyWriter::continue_frame`].
    ///
    /// # Errors
    /// Fails if the connection has failed.
    pub fn begin_frame(
        &mut self,
        socket: &TcpStream,
        front: &[u8],
        payload: &[u8],
    ) -> io::Result<usize> {
        let mut slices = [IoSlice::new(front), IoSlice::new(payload)];
        let unsent_len = match self.send_some(socket, &mut slices)? {
            [front, payload] => {
                self.unsent_end.extend(front);
                payload.len()
            }
            [payload] => payload.len(),
            _ => 0,
        };
        Ok(payload.len() - unsent_len)
    }

    /// Sends more of a frame that was begun. Returns how many bytes the socket has accepted.
    ///
    /// # Errors
    /// Fails if the connection has failed.
    pub fn continue_frame(&mut self, socket: &TcpStream, payload: &[u8]) -> io::Result<usize> {
        if self.has_unsent() && !self.push(socket)? {
            return Ok(0);
        }
        let mut slices = [IoSlice::new(payload)];
        let unsent = self.send_some(socket, &mut slices)?;
        Ok(payload.len() - unsent.first().map_or(0, |slice| slice.len()))
    }

    /// Sends as much of `slices` as the socket accepts. Returns the rest.
    fn send_some<'a, 'b>(
        &mut self,
        socket: &TcpStream,
        mut slices: &'b mut [IoSlice<'a>],
    ) -> io::Result<&'b mut [IoSlice<'a>]> {
        debug_assert!(!self.has_unsent(), "a frame is still unsent");
        // Skips empty slices, so that the loop ends when all bytes were sent.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match send_stream_gathered(socket.as_fd(), slices) {
                Ok(len) => {
                    self.sent_len += len as u64;
                    IoSlice::advance_slices(&mut slices, len);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(slices)
    }

    /// Continues to send accepted data. Returns `true` once all of it has left.
    ///
    /// # Errors
    /// Fails if the connection has failed.
    pub fn push(&mut self, socket: &TcpStream) -> io::Result<bool> {
        let fd = socket.as_fd();
        let all = self.push_some(fd, !self.unsent_end.is_empty())?
            && send_all(fd, &mut self.unsent_end, false, &mut self.sent_len)?;
        Ok(all)
    }

    /// Like [`ZeroCopyWriter::push`], except for the data after the pipe; `more` is set if there is
    /// some.
    fn push_some(&mut self, fd: BorrowedFd<'_>, more: bool) -> io::Result<bool> {
        if !send_all(
            fd,
            &mut self.unsent,
            more || self.in_pipe > 0,
            &mut self.sent_len,
        )? {
            return Ok(false);
        }
        while self.in_pipe > 0 {
            let Some(pipe) = &self.pipe else { break };
            match pipe.splice_to(fd, self.in_pipe, more) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    self.in_pipe -= len;
                    self.sent_len += len as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Passes as many of `bytes` as fit the empty pipe, or returns `None` if that is not supported.
    fn splice_some(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.pipe.is_none() && !self.is_unsupported {
            self.pipe = Pipe::new(self.pipe_len).ok();
            self.is_unsupported = self.pipe.is_none();
        }
        match self.pipe.as_ref()?.splice_in(bytes) {
            Ok(spliced) => {
                self.in_pipe = spliced;
                Some(spliced)
            }
            Err(_) => {
                // The pipe is empty, so this is not back-pressure: the system does not support it.
                self.is_unsupported = true;
                self.pipe = None;
                None
            }
        }
    }
}

/// Reading end. It receives bytes to their destination and, with the last of them, reads ahead up
/// to `AHEAD` bytes. This saves one call per frame.
#[derive(Debug, Default)]
pub struct DirectReader<const AHEAD: usize> {
    /// Memory for bytes read ahead, which are at `start..end`. Grows as needed.
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// Set if the last call received less than it could.
    is_drained: bool,
}

impl<const AHEAD: usize> DirectReader<AHEAD> {
    /// Returns the bytes read ahead.
    #[must_use]
    pub fn ahead(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Returns `true` if the last call received all that the socket had.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Removes the first `len` bytes read ahead.
    ///
    /// # Panics
    /// Panics if fewer were read ahead.
    pub fn consume(&mut self, len: usize) {
        assert!(len <= self.end - self.start, "not read ahead");
        self.start += len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes room for `len` bytes read ahead, including those already there.
    fn reserve(&mut self, len: usize) {
        assert!(len <= AHEAD, "too much to read ahead");
        self.memory.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if len > self.memory.len() {
            self.memory.resize(len, 0);
        }
    }

    /// Receives with one call until `ahead_len` bytes were read ahead. Returns `false` if the peer
    /// has closed.
    ///
    /// # Errors
    /// `WouldBlock` if a non-blocking socket has no data. Any other error means that the connection
    /// has failed.
    ///
    /// # Panics
    /// Panics if `ahead_len` is more than `AHEAD`, or less than the bytes already read ahead.
    pub fn fill(&mut self, socket: &TcpStream, ahead_len: usize) -> io::Result<bool> {
        if ahead_len == self.end - self.start {
            return Ok(true);
        }
        self.reserve(ahead_len);
        let into = &mut self.memory[self.end..ahead_len];
        usage::count_call(Call::Recvfrom);
        let most = into.len();
        let len = { socket }.read(into)?;
        self.is_drained = len < most;
        self.end += len;
        Ok(len > 0)
    }

    /// Receives some bytes into `into` and, if that is filled, up to `ahead` of the bytes behind
    /// them. Returns how many bytes of `into` were filled, 0 if the peer has closed. Bytes read
    /// ahead are returned first, without a call.
    ///
    /// # Errors
    /// As for [`DirectReader::fill`].
    ///
    /// # Panics
    /// Panics if `ahead` is more than `AHEAD`.
    pub fn read(&mut self, socket: &TcpStream, into: &mut [u8], ahead: usize) -> io::Result<usize> {
        let read = self.ahead();
        if !read.is_empty() || into.is_empty() {
            let len = read.len().min(into.len());
            into[..len].copy_from_slice(&read[..len]);
            self.consume(len);
            return Ok(len);
        }
        let into_len = into.len();
        self.reserve(ahead);
        let mut pieces = [
            IoSliceMut::new(into),
            IoSliceMut::new(&mut self.memory[..ahead]),
        ];
        usage::count_call(Call::Readv);
        let got = { socket }.read_vectored(&mut pieces)?;
        self.is_drained = got < into_len + ahead;
        self.end = got.saturating_sub(into_len);
        Ok(got.min(into_len))
    }

    /// Fills `into`; sleeps while a non-blocking socket has no data.
    ///
    /// # Errors
    /// `UnexpectedEof` if the peer closes before that. Any other error means that the connection
    /// has failed.
    pub fn read_exact(&mut self, socket: &TcpStream, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match self.read(socket, into, 0) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => into = &mut into[len..],
                Err(error) => {
                    wait_after(error, || {
                        wait_readable(&[socket.as_raw_fd()], POLL_INTERVAL).map(drop)
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Waits if `error` means that the socket is not ready.
fn wait_after(error: io::Error, wait: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock => wait(),
        ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// Sends `bytes` and removes those that left. Returns `true` if all of them did.
fn send_all(
    fd: BorrowedFd<'_>,
    bytes: &mut Copied,
    more: bool,
    sent_len: &mut u64,
) -> io::Result<bool> {
    while !bytes.is_empty() {
        match send_stream(fd, bytes.rest(), more) {
            Ok(len) => {
                *sent_len += len as u64;
                bytes.consume(len);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
