// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams in both directions of one full-duplex TCP connection. As in Portolan's row, one thread
//! per end spins and moves the data that each direction accepts.

use crate::bidir::{answer_windows, drive_windows};
use crate::end::End;
use crate::measure::Sample;
use crate::pattern::{Flags, stamp, verify};
use crate::socket;
use crate::spec::{Chunk, window};
use crate::spin_wait::SpinWait;
use anyhow::{Result, bail};
use portolan::Region;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// Runs this end.
///
/// # Errors
/// A payload was wrong, or the connection failed.
pub(crate) fn run(end: &mut End, chunk: Chunk) -> Result<Option<Sample>> {
    let stream = socket::tcp(end)?;
    stream.set_nonblocking(true)?;
    let size = end.spec.size;
    let mut both = Both {
        stream,
        call_len: chunk.call_len(),
        tx: Region::new(size)?,
        rx: Region::new(size)?,
        messages: usize::try_from(window(size))?,
        spin_wait: end.spin_wait(),
    };
    if end.drives() {
        return drive_windows(&end.spec, |seq, flags| both.exchange(seq, flags)).map(Some);
    }
    let meter = &mut end.meter;
    let bytes = 2 * window(size) * size as u64;
    answer_windows(|seq, flags| both.exchange(seq, flags), || meter.pass(bytes))?;
    Ok(None)
}

struct Both {
    stream: TcpStream,
    /// Maximum bytes of a call before the other direction is polled.
    call_len: usize,
    tx: Region,
    rx: Region,
    /// Messages per window.
    messages: usize,
    spin_wait: SpinWait,
}

impl Both {
    fn exchange(&mut self, seq: u64, flags: Flags) -> Result<Flags> {
        stamp(&mut self.tx, seq, flags);
        let total = self.messages * self.tx.len();
        let (mut sent, mut received) = (0, 0);
        let mut flags_received = Flags::NONE;
        while sent < total || received < total {
            let wrote = self.write_some(sent, total)?;
            let read = self.read_some(received, total)?;
            (sent, received) = (sent + wrote, received + read);
            if read > 0 && received.is_multiple_of(self.rx.len()) {
                flags_received = verify(&self.rx, seq)?;
            }
            match wrote + read {
                0 => self.spin_wait.wait()?,
                _ => self.spin_wait.reset(),
            }
        }
        Ok(flags_received)
    }

    /// Returns the range from byte `done` of the window to the end of its message, at most
    /// `call_len` bytes.
    fn part(&self, done: usize, total: usize) -> std::ops::Range<usize> {
        let len = self.tx.len();
        let from = done % len;
        let left = if done == total { 0 } else { len - from };
        from..from + left.min(self.call_len)
    }

    fn write_some(&mut self, sent: usize, total: usize) -> Result<usize> {
        let part = self.part(sent, total);
        if part.is_empty() {
            return Ok(0);
        }
        match self.stream.write(&self.tx[part]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            written => Ok(written?),
        }
    }

    fn read_some(&mut self, received: usize, total: usize) -> Result<usize> {
        let part = self.part(received, total);
        if part.is_empty() {
            return Ok(0);
        }
        match self.stream.read(&mut self.rx[part]) {
            Ok(0) => bail!("the other end closed the connection"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            read => Ok(read?),
        }
    }
}
