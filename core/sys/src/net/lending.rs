// SPDX-License-Identifier: MIT OR Apache-2.0
//! A byte stream over a connected TCP socket whose writer lends the pages of what it sends, and whose reader
//! receives to the final place: one copy in all.
//!
//! It knows no frames; whoever has frames puts them into the stream. Rules for whoever lends:
//!
//! - **L1** What is lent is read when the receiving program takes it, not when it is given here. Whoever changes
//!   it before it has come back may change what arrives; freed memory is changed when the allocator gives it out
//!   again. Nothing else can go wrong: the kernel only reads, and holds pages, not addresses, so memory may be
//!   unmapped at any time.
//! - **L2** It has come back when the peer's *program* has said, in whatever way, that it has the bytes. What
//!   the kernel still keeps then is for sending again what the peer's TCP has, and drops.
//! - **L3** Without such a word: when the peer's TCP has acknowledged it ([`LendingWriter::acknowledged`]), *if
//!   the two are on different machines*, where a NIC has read the pages. On one machine (loopback, veth, a
//!   bridge between namespaces or virtual machines that share memory) the receiving socket holds these very
//!   pages until its program reads (64 KiB over loopback that changed after the acknowledgement all arrived changed):
//!   there only L2 counts.
//! - **L4** When a connection has failed, it never comes back by word or acknowledgement. It may be changed, and
//!   bytes that the peer has not yet read may then arrive changed, even behind the failure: a peer that has met
//!   an error believes nothing that it had not read before.
//! - **L5** Short writes, and all where the system lends nothing, are copied: they are free when the call
//!   returns. Nobody is told, so that nobody relies on it.
//!
//! The one invariant: between two calls nothing of the caller's is kept but pages in the pipe and in the socket.

use super::stream::{Pipe, send_stream, send_stream_gathered, unacknowledged_len};
use super::{wait_readable, wait_writable};
use crate::effort::{self, Call};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Longest write that is copied. Up to this length the two system calls that pass pages by reference cost
/// the sender as much processor time as the copy, see docs/design/streams.md.
const COPIED_LEN_MAX: usize = 16 * 1024;

/// How long the blocking forms sleep before they look again, should a wake-up be missing.
const NAP: Duration = Duration::from_secs(1);

/// The writing end; see the module documentation. Who has it writes to the socket by it alone.
#[derive(Debug)]
pub struct LendingWriter {
    /// Made when pages are first lent; `None` too where they cannot be.
    pipe: Option<Pipe>,
    pipe_len: usize,
    cannot_lend: bool,
    /// What was taken and has not left: copied bytes, then what the pipe holds, then copied bytes.
    unsent: Vec<u8>,
    in_pipe: usize,
    unsent_end: Vec<u8>,
    /// Bytes that have left for the socket.
    sent_len: u64,
}

impl LendingWriter {
    /// A writer that lends about `at_once_len` bytes at a time; more wait until these have left for the socket.
    #[must_use]
    pub fn new(at_once_len: usize) -> LendingWriter {
        LendingWriter {
            // What is lent may begin and end within a page.
            pipe_len: at_once_len.saturating_mul(2),
            pipe: None,
            cannot_lend: false,
            unsent: Vec::new(),
            in_pipe: 0,
            unsent_end: Vec::new(),
            sent_len: 0,
        }
    }

    /// Whether something that was taken has not left for the socket.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.in_pipe > 0 || !self.unsent_end.is_empty()
    }

    /// Bytes that have been taken, from the beginning: a position in the stream, to compare with
    /// [`LendingWriter::acknowledged`].
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.sent_len + (self.unsent.len() + self.in_pipe + self.unsent_end.len()) as u64
    }

    /// Bytes, from the beginning, that the peer's TCP has acknowledged; what may be changed then, says L3.
    ///
    /// # Errors
    /// The errno of `ioctl`.
    pub fn acknowledged(&self, socket: &TcpStream) -> io::Result<u64> {
        let under_way = unacknowledged_len(socket.as_fd())?;
        Ok(self.sent_len.saturating_sub(under_way))
    }

    /// Takes some of `bytes`, by lending them where that pays; returns how many. The socket is non-blocking.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be taken now: call again when the socket is writable. Otherwise the
    /// connection has failed.
    pub fn write(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        if self.has_unsent() && !self.push(socket)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let lent = match bytes.len() > COPIED_LEN_MAX {
            true => self.lend_some(bytes),
            false => None,
        };
        let Some(mut taken) = lent else {
            let len = send_stream(socket.as_fd(), bytes, false)?;
            self.sent_len += len as u64;
            return Ok(len);
        };
        while self.push_some(socket.as_fd(), taken < bytes.len())? && taken < bytes.len() {
            match self.lend_some(&bytes[taken..]) {
                Some(lent) => taken += lent,
                None => break,
            }
        }
        Ok(taken)
    }

    /// Writes all of `bytes`, and returns when they have left for the socket, which may be a blocking one or not.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn write_all(&mut self, socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(socket, bytes) {
                Ok(taken) => bytes = &bytes[taken..],
                Err(error) => wait_after(error, || wait_writable(socket.as_fd(), NAP))?,
            }
        }
        self.flush(socket)
    }

    /// Returns when all that was taken has left for the socket.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while !self.push(socket)? {
            wait_writable(socket.as_fd(), NAP)?;
        }
        Ok(())
    }

    /// Takes a whole frame when nothing is unsent: `front`, which is copied, and `payload`, which is lent; what
    /// cannot be lent now is copied. `false`, with nothing taken, where lending does not pay or cannot be.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn lend(&mut self, socket: &TcpStream, front: &[u8], payload: &[u8]) -> io::Result<bool> {
        debug_assert!(!self.has_unsent(), "a frame behind one that has not left");
        if payload.len() <= COPIED_LEN_MAX {
            return Ok(false);
        }
        let Some(lent) = self.lend_some(payload) else {
            return Ok(false);
        };
        self.unsent.extend_from_slice(front);
        let mut rest = &payload[lent..];
        while self.push_some(socket.as_fd(), !rest.is_empty())? && !rest.is_empty() {
            let Some(lent) = self.lend_some(rest) else {
                break;
            };
            rest = &rest[lent..];
        }
        self.unsent_end.extend_from_slice(rest);
        self.push(socket)?;
        Ok(true)
    }

    /// Takes a whole frame when nothing is unsent, by copies of all `slices`.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn copy(&mut self, socket: &TcpStream, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        debug_assert!(!self.has_unsent(), "a frame behind one that has not left");
        // Those without bytes are skipped: what is left is what is to be sent.
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
        for slice in slices {
            self.unsent_end.extend_from_slice(slice);
        }
        Ok(())
    }

    /// Sends what was taken and has not left; `true` if all of it has.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn push(&mut self, socket: &TcpStream) -> io::Result<bool> {
        let fd = socket.as_fd();
        let all = self.push_some(fd, !self.unsent_end.is_empty())?
            && send_all(fd, &mut self.unsent_end, false, &mut self.sent_len)?;
        Ok(all)
    }

    /// The same but for what is behind the pipe, of which there is `more`.
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
            match pipe.pass_on(fd, self.in_pipe, more) {
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

    /// Lends as many of `bytes` as the empty pipe has room for; `None` where none can be.
    fn lend_some(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.pipe.is_none() && !self.cannot_lend {
            self.pipe = Pipe::new(self.pipe_len).ok();
            self.cannot_lend = self.pipe.is_none();
        }
        match self.pipe.as_ref()?.lend(bytes) {
            Ok(lent) => {
                self.in_pipe = lent;
                Some(lent)
            }
            Err(_) => {
                // It is empty, so this is no want of room: the system does not do it.
                self.cannot_lend = true;
                self.pipe = None;
                None
            }
        }
    }
}

/// The reading end: bytes to where they belong, and with the last of them what comes ahead of being asked for,
/// up to `AHEAD` bytes: a call less for each frame.
#[derive(Debug)]
pub struct DirectReader<const AHEAD: usize> {
    ahead: [u8; AHEAD],
    ahead_len: usize,
}

impl<const AHEAD: usize> Default for DirectReader<AHEAD> {
    fn default() -> Self {
        DirectReader {
            ahead: [0; AHEAD],
            ahead_len: 0,
        }
    }
}

impl<const AHEAD: usize> DirectReader<AHEAD> {
    /// What has come ahead.
    #[must_use]
    pub fn ahead(&self) -> &[u8] {
        &self.ahead[..self.ahead_len]
    }

    /// The first `len` bytes of what has come ahead are done with.
    ///
    /// # Panics
    /// When less has come ahead.
    pub fn consume(&mut self, len: usize) {
        self.ahead.copy_within(len..self.ahead_len, 0);
        self.ahead_len -= len;
    }

    /// Receives by one call, until `wanted` bytes have come ahead; `false` when the peer has closed.
    ///
    /// # Errors
    /// `WouldBlock` when a non-blocking socket has nothing. Otherwise the connection has failed.
    ///
    /// # Panics
    /// When `wanted` is more than `AHEAD`, or less than has come.
    pub fn fill(&mut self, socket: &TcpStream, wanted: usize) -> io::Result<bool> {
        if wanted == self.ahead_len {
            return Ok(true);
        }
        let into = &mut self.ahead[self.ahead_len..wanted];
        effort::calls(Call::Recvfrom);
        let len = { socket }.read(into)?;
        self.ahead_len += len;
        Ok(len > 0)
    }

    /// Receives some bytes into `into`, and if that is filled, up to `ahead` of those behind them; returns how
    /// many of `into` there are, 0 when the peer has closed. What had come ahead comes first, without a call.
    ///
    /// # Errors
    /// As [`DirectReader::fill`].
    ///
    /// # Panics
    /// When `ahead` is more than `AHEAD`.
    pub fn read(&mut self, socket: &TcpStream, into: &mut [u8], ahead: usize) -> io::Result<usize> {
        if self.ahead_len > 0 || into.is_empty() {
            let len = self.ahead_len.min(into.len());
            into[..len].copy_from_slice(&self.ahead[..len]);
            self.consume(len);
            return Ok(len);
        }
        let into_len = into.len();
        let mut pieces = [
            IoSliceMut::new(into),
            IoSliceMut::new(&mut self.ahead[..ahead]),
        ];
        effort::calls(Call::Readv);
        let got = { socket }.read_vectored(&mut pieces)?;
        self.ahead_len = got.saturating_sub(into_len);
        Ok(got.min(into_len))
    }

    /// Fills `into`; sleeps where a non-blocking socket has nothing.
    ///
    /// # Errors
    /// `UnexpectedEof` when the peer closes before that. Otherwise the connection has failed.
    pub fn read_exact(&mut self, socket: &TcpStream, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match self.read(socket, into, 0) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => into = &mut into[len..],
                Err(error) => {
                    wait_after(error, || {
                        wait_readable(&[socket.as_raw_fd()], NAP).map(drop)
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Waits where `error` says that the socket is not ready.
fn wait_after(error: io::Error, wait: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock => wait(),
        ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// Sends `bytes` and takes off what has left; `true` if all of it has.
fn send_all(
    fd: BorrowedFd<'_>,
    bytes: &mut Vec<u8>,
    more: bool,
    sent_len: &mut u64,
) -> io::Result<bool> {
    while !bytes.is_empty() {
        match send_stream(fd, bytes, more) {
            Ok(len) => {
                *sent_len += len as u64;
                drop(bytes.drain(..len));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
