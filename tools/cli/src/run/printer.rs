// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of the ranks on its way to this process's standard output and standard error.

use super::wire::{Data, Stream};
use crate::launch_io::{self, SINK_LEN_HIGH};
use anyhow::Result;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of one write: a pipe that `poll` reports as writable takes this many without blocking
/// (PIPE_BUF, pipe(7)). The descriptors stay in blocking mode, because other processes share them.
const WRITE_LEN_MAX: usize = 4096;

/// Destination of the ranks' output.
#[derive(Debug)]
pub(super) struct Printer {
    tagged: bool,
    out: Target,
    err: Target,
    /// Captured lines of standard output by rank, instead of printing them.
    captured: Option<Vec<(u32, Vec<u8>)>>,
}

#[derive(Debug)]
struct Target {
    file: Option<File>,
    pending: Vec<u8>,
}

impl Printer {
    /// Creates a printer that puts `[rank] ` before each line if `tagged`, and keeps standard
    /// output for [`Printer::take_captured`] if `capture`.
    pub(super) fn new(tagged: bool, capture: bool) -> Result<Printer> {
        Ok(Printer {
            tagged,
            out: Target::new(std::io::stdout().as_fd())?,
            err: Target::new(std::io::stderr().as_fd())?,
            captured: capture.then(Vec::new),
        })
    }

    /// Queues output of a rank: whole lines, a part of an overlong line, or the last line.
    pub(super) fn push(&mut self, rank: u32, stream: Stream, data: Data) {
        let bytes = Vec::from(data);
        if let (Stream::Out, Some(captured)) = (stream, &mut self.captured) {
            let lines = bytes
                .strip_suffix(b"\n")
                .unwrap_or(&bytes)
                .split(|byte| *byte == b'\n');
            captured.extend(lines.map(|line| (rank, line.to_vec())));
            return;
        }
        let target = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        if target.file.is_none() {
            // It can never be written. Discard it, because pending bytes would stop the agents.
            return;
        }
        if !self.tagged {
            target.pending.extend_from_slice(&bytes);
            return;
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            target
                .pending
                .extend_from_slice(format!("[{rank}] ").as_bytes());
            target.pending.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                target.pending.push(b'\n');
            }
        }
    }

    /// Queues a line from an agent itself.
    pub(super) fn push_error(&mut self, host: &str, line: &str) {
        self.err
            .pending
            .extend_from_slice(format!("{host}: {line}\n").as_bytes());
    }

    /// Returns the descriptors for which output is pending.
    pub(super) fn fds(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let out = self.out.fd().map(|fd| (Stream::Out, fd));
        out.into_iter()
            .chain(self.err.fd().map(|fd| (Stream::Err, fd)))
    }

    /// Returns true if more output can be queued.
    pub(super) fn has_capacity(&self) -> bool {
        self.out.pending.len().max(self.err.pending.len()) < SINK_LEN_HIGH
    }

    /// Writes some of the pending output.
    ///
    /// # Errors Once, when standard output can no longer be written: its reader has closed, or its
    /// disk is full.
    pub(super) fn write(&mut self, stream: Stream) -> io::Result<()> {
        match stream {
            Stream::Out => self.out.write(),
            Stream::Err => {
                // A closed standard error is no reason to end a job.
                let _ = self.err.write();
                Ok(())
            }
        }
    }

    /// Writes everything, blocking as long as necessary.
    ///
    /// # Errors
    /// The error of [`Printer::write`].
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let mut written = Ok(());
        while self.out.fd().is_some() {
            written = self.out.write();
        }
        while self.err.fd().is_some() {
            // Ignored for the same reason as in `write`.
            let _ = self.err.write();
        }
        written
    }

    /// Returns the captured lines.
    pub(super) fn take_captured(&mut self) -> Vec<(u32, Vec<u8>)> {
        self.captured.take().unwrap_or_default()
    }
}

impl Target {
    fn new(fd: BorrowedFd<'_>) -> Result<Target> {
        Ok(Target {
            file: Some(launch_io::duplicate(fd)?.into()),
            pending: Vec::new(),
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let waiting = !self.pending.is_empty();
        self.file.as_ref().filter(|_| waiting).map(File::as_fd)
    }

    /// Writes once; does nothing after a failure.
    fn write(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            self.pending.clear();
            return Ok(());
        };
        let len = self.pending.len().min(WRITE_LEN_MAX);
        match file.write(&self.pending[..len]) {
            Ok(len) => {
                self.pending.drain(..len);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            // Another process made the shared descriptor non-blocking; poll reports when to
            // continue.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => {
                self.file = None;
                self.pending.clear();
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(pieces: &[&str]) -> String {
        let mut printer = Printer::new(true, false).unwrap();
        for piece in pieces {
            printer.push(3, Stream::Out, Data::Text((*piece).into()));
        }
        String::from_utf8(std::mem::take(&mut printer.out.pending)).unwrap()
    }

    #[test]
    fn tag_precedes_each_line() {
        assert_eq!(tagged(&["one\ntwo\n", "\n"]), "[3] one\n[3] two\n[3] \n");
        assert_eq!(tagged(&["no end"]), "[3] no end\n");
    }

    #[test]
    fn captured_output_is_returned_and_not_printed() {
        let mut printer = Printer::new(false, true).unwrap();
        printer.push(1, Stream::Out, Data::Text("a\nb\n".into()));
        assert_eq!(printer.fds().count(), 0);
        assert_eq!(
            printer.take_captured(),
            [(1, b"a".to_vec()), (1, b"b".to_vec())]
        );
    }
}
