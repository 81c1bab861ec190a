// SPDX-License-Identifier: MIT OR Apache-2.0
//! Windows of messages over the kernel's TCP with zero-copy sends: one copy in total, with the
//! types of the stream link itself ([`ZeroCopyWriter`], [`DirectReader`]).
//!
//! The work is that of [`super::tcp::stream`]. The receiver acknowledges a window after its program
//! has read it, so the sender may then change the message (rule L2 of
//! `portolan_sys::net::ZeroCopyWriter`).

use super::tcp::{Bytes, windows};
use crate::end::End;
use crate::measure::Sample;
use crate::socket;
use crate::spin_wait::SpinWait;
use anyhow::{Result, bail};
use portolan_sys::net::{DirectReader, ZeroCopyWriter};
use std::io::ErrorKind;
use std::net::TcpStream;

/// Maximum bytes exposed to the kernel at a time: the longest part of the stream link.
const AT_ONCE: usize = 256 << 10;

/// Runs one end.
///
/// # Errors
/// A payload was wrong, or the connection failed.
pub(crate) fn run(end: &mut End) -> Result<Option<Sample>> {
    let stream = socket::tcp(end)?;
    stream.set_nonblocking(true)?;
    let pipe = ZeroCopyPipe {
        stream,
        writer: ZeroCopyWriter::new(AT_ONCE),
        reader: DirectReader::default(),
        spin_wait: end.spin_wait(),
    };
    windows(end, pipe)
}

struct ZeroCopyPipe {
    stream: TcpStream,
    writer: ZeroCopyWriter,
    reader: DirectReader<0>,
    spin_wait: SpinWait,
}

impl Bytes for ZeroCopyPipe {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.writer.write(&self.stream, bytes) {
                Ok(taken) => {
                    bytes = &bytes[taken..];
                    self.spin_wait.reset();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.spin_wait.wait()?,
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
                    self.spin_wait.reset();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.spin_wait.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        while !self.writer.push(&self.stream)? {
            self.spin_wait.wait()?;
        }
        Ok(())
    }
}
