// SPDX-License-Identifier: MIT OR Apache-2.0
//! Windows of messages over the kernel's TCP.
//!
//! TCP is a competitor and is never handicapped. The kernel tunes its buffers, and the fastest
//! variant counts.

use crate::end::End;
use crate::measure::{Pass, Sample};
use crate::pattern::{Flags, stamp, verify};
use crate::socket;
use crate::spec::{Wait, Writes, window};
use crate::spin_wait::SpinWait;
use anyhow::{Result, bail, ensure};
use portolan::Region;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// Reply of the receiver after a complete window; four bytes, as in the OSU benchmarks.
pub(super) const ACK: [u8; 4] = *b"done";

/// Flag in the number of the last small message.
const LAST: u64 = 1 << 63;

/// Runs windows of large messages, with one write and one read each.
///
/// # Errors
/// A payload was wrong, or the connection failed.
pub(crate) fn stream(end: &mut End, wait: Wait) -> Result<Option<Sample>> {
    let pipe = Pipe::open(end, wait)?;
    windows(end, pipe)
}

/// A connection, with one method of sending and receiving.
pub(super) trait Bytes {
    /// Sends all of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Fills all of `bytes`.
    fn read(&mut self, bytes: &mut [u8]) -> Result<()>;

    /// Sends all written data that is still buffered.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits for the receiver's reply.
    fn await_ack(&mut self) -> Result<()> {
        self.flush()?;
        let mut ack = [0; ACK.len()];
        self.read(&mut ack)?;
        ensure!(ack == ACK, "the acknowledgement is {ack:?}");
        Ok(())
    }
}

/// Runs this end of windows of large messages over `pipe`.
///
/// # Errors
/// A payload was wrong, or the connection failed.
pub(super) fn windows(end: &mut End, mut pipe: impl Bytes) -> Result<Option<Sample>> {
    let mut message = Region::new(end.spec.size)?;
    let messages = window(message.len());
    let mut seq = 0;
    if end.drives() {
        return end.measure(Pass::one_way(messages), |last| {
            stamp(&mut message, seq, super::pass_flags(seq, last));
            seq += 1;
            for _ in 0..messages {
                pipe.write(&message)?;
            }
            pipe.await_ack()
        });
    }
    let mut flags = Flags::NONE;
    while !flags.last {
        for _ in 0..messages {
            pipe.read(&mut message)?;
            flags = verify(&message, seq)?;
        }
        pipe.write(&ACK)?;
        seq += 1;
        if !flags.last {
            end.meter.pass(messages * message.len() as u64);
        }
    }
    Ok(None)
}

/// Runs windows of small messages, with both ends spinning. The receiver reads a whole window at
/// once if it has arrived.
///
/// # Errors
/// A message was wrong, or the connection failed.
pub(crate) fn rate(end: &mut End, writes: Writes) -> Result<Option<Sample>> {
    let mut pipe = Pipe::open(end, Wait::Spin)?;
    let size = end.spec.size;
    let messages = window(size);
    let mut buffer = Region::new(size * usize::try_from(messages)?)?;
    let mut number = 0_u64;
    if !end.drives() {
        return take_windows(&mut pipe, &mut buffer, size);
    }
    end.measure(Pass::one_way(messages), |last| {
        for message in buffer.chunks_exact_mut(size) {
            number += 1;
            let mark = number | if last { LAST } else { 0 };
            message[..8].copy_from_slice(&mark.to_le_bytes());
            if writes == Writes::Each {
                pipe.write(message)?;
            }
        }
        if writes == Writes::Window {
            pipe.write(&buffer)?;
        }
        pipe.await_ack()
    })
}

fn take_windows(pipe: &mut Pipe, buffer: &mut [u8], size: usize) -> Result<Option<Sample>> {
    let mut number = 0_u64;
    let mut last = false;
    while !last {
        pipe.read(buffer)?;
        for message in buffer.chunks_exact(size) {
            number += 1;
            let mut word = [0; 8];
            word.copy_from_slice(&message[..8]);
            let mark = u64::from_le_bytes(word);
            ensure!(
                mark & !LAST == number,
                "received message {mark:#x} instead of {number:#x}"
            );
            last = mark & LAST != 0;
        }
        pipe.write(&ACK)?;
    }
    Ok(None)
}

struct Pipe {
    stream: TcpStream,
    wait: Wait,
    spin_wait: SpinWait,
}

impl Pipe {
    fn open(end: &mut End, wait: Wait) -> Result<Self> {
        let stream = socket::tcp(end)?;
        stream.set_nonblocking(wait == Wait::Spin)?;
        Ok(Pipe {
            stream,
            wait,
            spin_wait: end.spin_wait(),
        })
    }
}

impl Bytes for Pipe {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self.wait {
            Wait::Block => Ok(self.stream.write_all(bytes)?),
            Wait::Spin => write_spinning(&mut self.stream, bytes, &mut self.spin_wait),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.wait {
            Wait::Block => Ok(self.stream.read_exact(bytes)?),
            Wait::Spin => read_spinning(&mut self.stream, bytes, &mut self.spin_wait),
        }
    }
}

/// Writes all of `bytes` to a non-blocking stream.
///
/// # Errors
/// The connection failed, or was blocked for [`SpinWait`]'s limit.
#[inline]
pub(crate) fn write_spinning(
    stream: &mut TcpStream,
    mut bytes: &[u8],
    spin_wait: &mut SpinWait,
) -> Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => {
                bytes = &bytes[written..];
                spin_wait.reset();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_wait.wait()?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fills `bytes` from a non-blocking stream.
///
/// # Errors
/// The connection failed, or was silent for [`SpinWait`]'s limit.
#[inline]
pub(crate) fn read_spinning(
    stream: &mut TcpStream,
    bytes: &mut [u8],
    spin_wait: &mut SpinWait,
) -> Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => bail!("the other end closed the connection"),
            Ok(count) => {
                filled += count;
                spin_wait.reset();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_wait.wait()?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
