// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's TCP does with windows of messages whose pages are lent to it: one copy in all, by the
//! types that the stream link itself uses ([`LendingWriter`], [`DirectReader`]).
//!
//! The work is that of [`super::tcp::stream`]. The receiver's word for a window is its program's, so that the
//! sender may change the message then (rule L2 of `portolan_sys::net::LendingWriter`).

use super::tcp::ACK;
use crate::end::End;
use crate::measure::{Sample, Turn};
use crate::patience::Patience;
use crate::pattern::{Flags, stamp, verify};
use crate::socket;
use crate::spec::window;
use anyhow::{Result, bail, ensure};
use portolan::Region;
use portolan_sys::net::{DirectReader, LendingWriter};
use std::io::ErrorKind;
use std::net::TcpStream;

/// Bytes that are lent at a time, at most: the longest part of the stream link.
const AT_ONCE: usize = 256 << 10;

/// Runs one end.
///
/// # Errors
/// A payload was wrong, or the connection broke.
pub(crate) fn run(end: &mut End) -> Result<Option<Sample>> {
    let stream = socket::tcp(end)?;
    stream.set_nonblocking(true)?;
    let mut pipe = LentPipe {
        stream,
        writer: LendingWriter::new(AT_ONCE),
        reader: DirectReader::default(),
        patience: end.patience(),
    };
    let mut message = Region::new(end.spec.size)?;
    let messages = window(message.len());
    let mut seq = 0;
    if end.drives() {
        return end.measure(Turn::one_way(messages), |last| {
            stamp(&mut message, seq, super::turn_flags(seq, last));
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
            end.meter.turn(messages * message.len() as u64);
        }
    }
    Ok(None)
}

struct LentPipe {
    stream: TcpStream,
    writer: LendingWriter,
    reader: DirectReader<0>,
    patience: Patience,
}

impl LentPipe {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.writer.write(&self.stream, bytes) {
                Ok(taken) => {
                    bytes = &bytes[taken..];
                    self.patience.reward();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.patience.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.reader.read(&self.stream, &mut bytes[filled..], 0) {
                Ok(0) => bail!("the other end closed the connection"),
                Ok(count) => {
                    filled += count;
                    self.patience.reward();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.patience.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for the receiver's word, and sees meanwhile that all leaves that was taken.
    fn await_ack(&mut self) -> Result<()> {
        while !self.writer.push(&self.stream)? {
            self.patience.wait()?;
        }
        let mut ack = [0; ACK.len()];
        self.read(&mut ack)?;
        ensure!(ack == ACK, "the acknowledgement is {ack:?}");
        Ok(())
    }
}
