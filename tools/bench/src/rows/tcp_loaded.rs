// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ping-pong over one TCP connection while a stream fills another between the same two processes.
//!
//! As in Portolan's row, there is one thread per end. It spins over both connections and always
//! polls the one of the ping-pong first. No better priority is possible outside the kernel.

use super::tcp::{read_spinning, write_spinning};
use crate::end::End;
use crate::loaded::{BULK_LEN, Report, halved};
use crate::measure::{Pass, Sample, drive};
use crate::pattern::{Flags, stamp, verify};
use crate::socket;
use crate::spec::Chunk;
use crate::spin_wait::SpinWait;
use anyhow::{Result, bail, ensure};
use portolan::Region;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// Reply of the receiver after the complete stream.
const ACK: [u8; 4] = *b"done";

/// Runs this end.
///
/// # Errors
/// A payload was wrong, or a connection failed.
pub(crate) fn run(end: &mut End, chunk: Chunk) -> Result<Option<Sample>> {
    let [small, large] = socket::tcp_pair(end)?;
    small.set_nonblocking(true)?;
    large.set_nonblocking(true)?;
    let spin_wait = end.spin_wait();
    let bulk = Bulk {
        stream: large,
        call_len: chunk.call_len(),
        message: Region::new(BULK_LEN)?,
        done: 0,
        seq: 0,
    };
    if end.drives() {
        measure(end, small, bulk, spin_wait).map(Some)
    } else {
        answer(end.spec.size, small, bulk, spin_wait)?;
        Ok(None)
    }
}

fn measure(
    end: &End,
    mut small: TcpStream,
    mut bulk: Bulk,
    mut spin_wait: SpinWait,
) -> Result<Sample> {
    let mut ping = vec![0; end.spec.size];
    let mut seq = 0;
    let shape = Pass::round_trips(1);
    let pace = halved(end.spec.pace);
    let idle = drive(pace, shape, |_| {
        exchange(&mut small, &mut ping, seq, &mut spin_wait, || Ok(()))?;
        seq += 1;
        Ok(())
    })?;
    bulk.begin();
    let mut report = Report::start(&idle);
    let loaded = drive(pace, shape, |_| {
        exchange(&mut small, &mut ping, seq, &mut spin_wait, || {
            bulk.write_some()
        })?;
        seq += 1;
        report.record_sent(bulk.seq);
        Ok(())
    })?;
    bulk.end(&mut spin_wait)?;
    Ok(report.finish(loaded))
}

/// Performs one round trip, and calls `meanwhile` until the answer arrives.
fn exchange(
    stream: &mut TcpStream,
    message: &mut [u8],
    seq: u64,
    spin_wait: &mut SpinWait,
    mut meanwhile: impl FnMut() -> Result<()>,
) -> Result<()> {
    let flags = super::pass_flags(seq, false);
    stamp(message, seq, flags);
    write_spinning(stream, message, spin_wait)?;
    let mut filled = 0;
    while filled < message.len() {
        match try_read(stream, &mut message[filled..])? {
            0 => {
                meanwhile()?;
                spin_wait.wait()?;
            }
            count => {
                filled += count;
                spin_wait.reset();
            }
        }
    }
    ensure!(
        verify(message, seq)? == flags,
        "the reply differs from the request"
    );
    Ok(())
}

fn answer(
    size: usize,
    mut small: TcpStream,
    mut bulk: Bulk,
    mut spin_wait: SpinWait,
) -> Result<()> {
    let mut ping = vec![0; size];
    let mut filled = 0;
    let mut last = false;
    while !last {
        let count = try_read(&mut small, &mut ping[filled..])?;
        filled += count;
        if filled == size {
            write_spinning(&mut small, &ping, &mut spin_wait)?;
            filled = 0;
        }
        let moved = bulk.read_some(&mut last)?;
        if count + moved == 0 {
            spin_wait.wait()?;
        } else {
            spin_wait.reset();
        }
    }
    write_spinning(&mut bulk.stream, &ACK, &mut spin_wait)
}

/// The stream, at either end.
struct Bulk {
    stream: TcpStream,
    call_len: usize,
    message: Region,
    /// Completed bytes of the current message.
    done: usize,
    /// Completed messages.
    seq: u64,
}

impl Bulk {
    fn begin(&mut self) {
        stamp(&mut self.message, 0, Flags::FIRST);
    }

    /// Writes as much as one call accepts.
    fn write_some(&mut self) -> Result<()> {
        let end = self.message.len().min(self.done + self.call_len);
        match self.stream.write(&self.message[self.done..end]) {
            Ok(count) => self.done += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if self.done == self.message.len() {
            self.done = 0;
            self.seq += 1;
            stamp(&mut self.message, self.seq, Flags::NONE);
        }
        Ok(())
    }

    /// Completes the current message, sends the last one and waits for the receiver's reply.
    fn end(&mut self, spin_wait: &mut SpinWait) -> Result<()> {
        if self.done > 0 {
            write_spinning(&mut self.stream, &self.message[self.done..], spin_wait)?;
            self.seq += 1;
        }
        stamp(&mut self.message, self.seq, Flags::LAST);
        write_spinning(&mut self.stream, &self.message, spin_wait)?;
        let mut ack = [0; ACK.len()];
        read_spinning(&mut self.stream, &mut ack, spin_wait)?;
        ensure!(ack == ACK, "the acknowledgement is {ack:?}");
        Ok(())
    }

    /// Reads with one call and returns the number of bytes. Sets `last` at the end of the stream.
    fn read_some(&mut self, last: &mut bool) -> Result<usize> {
        let end = self.message.len().min(self.done + self.call_len);
        let count = try_read(&mut self.stream, &mut self.message[self.done..end])?;
        self.done += count;
        if self.done == self.message.len() {
            *last = verify(&self.message, self.seq)?.last;
            self.done = 0;
            self.seq += 1;
        }
        Ok(count)
    }
}

/// Reads the available bytes and returns their number, which may be 0.
fn try_read(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<usize> {
    match stream.read(bytes) {
        Ok(0) => bail!("the other end closed the connection"),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        read => Ok(read?),
    }
}
