// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines over non-blocking descriptors, as exchanged between `run` and its agents.
//!
//! Neither end ever blocks on the other: a source reads what is available, a sink queues what
//! cannot be written. Code that fills a sink from a source must stop reading when
//! [`LineSink::pending_len`] grows.

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::PollTimeout;
use portolan::binding::launch::LineBuffer;
use serde::Serialize;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes of one read: the default capacity of a pipe (pipe(7)).
const READ_LEN: usize = 64 << 10;

/// Pending bytes in a sink from which the sources that feed it pause.
pub(crate) const SINK_LEN_HIGH: usize = 1 << 20;

/// The reading end of a pipe or socket.
#[derive(Debug)]
pub(crate) struct LineSource {
    file: Option<File>,
    lines: LineBuffer,
}

impl LineSource {
    /// Takes over a descriptor and makes it non-blocking.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        set_nonblocking(fd.as_fd())?;
        Ok(LineSource {
            file: Some(fd.into()),
            lines: LineBuffer::default(),
        })
    }

    /// Returns a source that is at its end.
    pub(crate) fn ended() -> Self {
        LineSource {
            file: None,
            lines: LineBuffer::default(),
        }
    }

    /// Returns the descriptor; `None` after the end.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(File::as_fd)
    }

    /// Returns true if the other end has closed or the connection broke.
    pub(crate) fn is_at_end(&self) -> bool {
        self.file.is_none()
    }

    /// Stops reading permanently.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    /// Reads available bytes once; returns `false` if there were none.
    pub(crate) fn fill(&mut self) -> bool {
        let Some(file) = &mut self.file else {
            return false;
        };
        let mut bytes = vec![0; READ_LEN];
        let result = match file.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => self.lines.append(&bytes[..len]),
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.file = None;
        }
        result.is_ok()
    }

    /// Returns the next whole line, without its end.
    pub(crate) fn next_line(&mut self) -> Option<&[u8]> {
        self.lines.next_line()
    }

    /// Returns the bytes after the last line, if they are more than `len_max` or the source is at
    /// its end.
    pub(crate) fn take_partial(&mut self, len_max: usize) -> Option<Vec<u8>> {
        let len = self.lines.partial_len();
        let due = len > len_max || (len > 0 && self.is_at_end());
        due.then(|| self.lines.take_partial())
    }
}

/// The writing end of a pipe or socket.
#[derive(Debug)]
pub(crate) struct LineSink {
    file: Option<File>,
    pending: Vec<u8>,
    written_len: usize,
}

impl LineSink {
    /// Takes over a descriptor and makes it non-blocking.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        set_nonblocking(fd.as_fd())?;
        Ok(LineSink {
            file: Some(fd.into()),
            pending: Vec::new(),
            written_len: 0,
        })
    }

    /// Returns the descriptor, if bytes are pending.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        let waiting = self.pending_len() > 0;
        self.file.as_ref().filter(|_| waiting).map(File::as_fd)
    }

    /// Returns the number of pending bytes.
    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len() - self.written_len
    }

    /// Closes the sink: the other end sees the end of its input.
    pub(crate) fn close(&mut self) {
        self.file = None;
        self.pending.clear();
        self.written_len = 0;
    }

    /// Queues a message as one line and writes what can be written.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        serde_json::to_writer(&mut self.pending, message).context("encoding a message")?;
        self.pending.push(b'\n');
        self.flush();
        Ok(())
    }

    /// Writes what can be written. A closed reader is no error here; its end is detected elsewhere.
    pub(crate) fn flush(&mut self) {
        while self.pending_len() > 0 {
            let Some(file) = &mut self.file else {
                return;
            };
            match file.write(&self.pending[self.written_len..]) {
                Ok(len) => self.written_len += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.close(),
            }
        }
        self.pending.drain(..self.written_len);
        self.written_len = 0;
    }
}

/// Converts the time until `deadline` for `poll(2)`, rounded up so that the deadline has passed
/// then.
pub(crate) fn poll_timeout(now: Instant, deadline: Option<Instant>) -> PollTimeout {
    /// Longest single wait; a later deadline is waited for again.
    const WAIT_MS_MAX: u16 = 60_000;
    let Some(deadline) = deadline else {
        return PollTimeout::NONE;
    };
    let left = deadline.saturating_duration_since(now) + Duration::from_micros(999);
    PollTimeout::from(
        u16::try_from(left.as_millis())
            .unwrap_or(WAIT_MS_MAX)
            .min(WAIT_MS_MAX),
    )
}

/// Waits until a descriptor of `fds` is ready or `deadline` passes, and returns the ready ones.
///
/// Each is waited for in the direction of its flag.
pub(crate) fn wait<T: Copy>(
    fds: &[(T, BorrowedFd<'_>, nix::poll::PollFlags)],
    deadline: Option<Instant>,
) -> Result<Vec<T>> {
    let mut polled: Vec<nix::poll::PollFd<'_>> = fds
        .iter()
        .map(|(_, fd, flags)| nix::poll::PollFd::new(*fd, *flags))
        .collect();
    match nix::poll::poll(&mut polled, poll_timeout(Instant::now(), deadline)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error).context("waiting for input"),
    }
    let ready = fds
        .iter()
        .zip(&polled)
        .filter(|(_, polled)| polled.any().unwrap_or(true));
    Ok(ready.map(|((token, ..), _)| *token).collect())
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<()> {
    let flags = fcntl(fd, FcntlArg::F_GETFL).context("reading flags of a descriptor")?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(fd, FcntlArg::F_SETFL(flags)).context("making a descriptor non-blocking")?;
    Ok(())
}

/// Duplicates a descriptor, for the other direction of a socket.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn sink_queues_bytes_that_do_not_fit() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut sink = LineSink::new(ours.into()).unwrap();
        let mut source = LineSource::new(theirs.into()).unwrap();
        let long = "x".repeat(1 << 20);
        sink.send(&long).unwrap();
        sink.send(&"end").unwrap();
        assert!(sink.pending_len() > 0, "a socket buffer holds no megabyte");
        let mut lines = Vec::new();
        while lines.len() < 2 {
            source.fill();
            while let Some(line) = source.next_line() {
                lines.push(line.len());
            }
            sink.flush();
        }
        assert_eq!(lines, [long.len() + 2, 5]);
        assert_eq!(sink.pending_len(), 0);
    }

    #[test]
    fn source_returns_unterminated_last_line_at_end() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut source = LineSource::new(theirs.into()).unwrap();
        assert!(!source.fill());
        ours.write_all(b"one\ntwo").unwrap();
        drop(ours);
        while source.fill() {}
        assert_eq!(source.next_line(), Some(&b"one"[..]));
        assert_eq!(source.next_line(), None);
        assert!(source.is_at_end());
        assert_eq!(source.take_partial(100), Some(b"two".to_vec()));
        assert_eq!(source.take_partial(100), None);
    }

    #[test]
    fn poll_timeout_rounds_up_and_does_not_overflow() {
        let now = Instant::now();
        assert_eq!(poll_timeout(now, None), PollTimeout::NONE);
        assert_eq!(poll_timeout(now, Some(now)), PollTimeout::from(0u16));
        let soon = now + Duration::from_micros(10);
        assert_eq!(poll_timeout(now, Some(soon)), PollTimeout::from(1u16));
        let late = now + Duration::from_secs(1 << 20);
        assert_eq!(poll_timeout(now, Some(late)), PollTimeout::from(60_000u16));
    }
}
