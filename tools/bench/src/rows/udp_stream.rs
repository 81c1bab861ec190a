// SPDX-License-Identifier: MIT OR Apache-2.0
//! Large messages over UDP with segmentation offload: 64 KB per call and a 24-byte header in each
//! datagram.
//!
//! As in any protocol, the header has the datagram's position in the stream. The receiver counts
//! the bytes received in order and acknowledges them after every few calls. The sender keeps as
//! many calls in flight as the receive buffer holds, which has the largest size without privileges.
//! There is no other mechanism: a lost datagram ends the row.

use crate::cpu::Meter;
use crate::end::End;
use crate::measure::{Pass, Sample};
use crate::pattern::{Flags, stamp, verify};
use crate::socket::{self, datagram_len, segments_max};
use crate::spec::{Gather, Scatter, window};
use crate::spin_wait::SpinWait;
use crate::sys;
use anyhow::{Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::uio::{readv, writev};
use portolan::Region;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

/// Header bytes in a datagram: its position in the stream, and room for the fields of a real
/// protocol.
const HEADER: usize = 24;

/// Receive buffer bytes that the kernel counts for a call: 64 KB of payload and its own structures.
const CALL_COST: usize = 70 << 10;

/// Maximum calls in flight. More would not help: the ends no longer wait for each other, and the
/// data in flight should fit a second-level cache.
const CALLS_MAX: usize = 4;

/// Runs this end.
///
/// # Errors
/// A datagram was lost, a payload was wrong, or nothing arrived.
pub(crate) fn run(end: &mut End, gather: Gather, scatter: Scatter) -> Result<Option<Sample>> {
    let segment = datagram_len(end.spec.mtu);
    let socket = socket::udp(end, Some(segment))?;
    let piece = segment - HEADER;
    let pieces = segments_max(segment);
    let calls = calls_in_flight(&socket)?;
    let flow = Flow {
        socket,
        spin_wait: end.spin_wait(),
        piece,
        pieces,
        calls,
        position: 0,
    };
    let message = Region::new(end.spec.size)?;
    let headers = vec![[0; HEADER]; pieces];
    let bounce = Region::new(pieces * segment)?;
    if end.drives() {
        Sender {
            flow,
            headers,
            bounce,
            acknowledged: 0,
        }
        .run(end, message, gather)
    } else {
        Receiver {
            flow,
            headers,
            bounce,
            acknowledged: 0,
        }
        .run(&mut end.meter, message, scatter)
    }
}

/// Returns the number of calls that fit the socket's buffer. Both ends compute the same value if
/// their kernels have the same limits.
fn calls_in_flight(socket: &OwnedFd) -> Result<usize> {
    let granted = getsockopt(socket, sockopt::RcvBuf)?;
    Ok((granted / CALL_COST).clamp(2, CALLS_MAX))
}

struct Flow {
    socket: OwnedFd,
    spin_wait: SpinWait,
    /// Payload bytes in a full datagram.
    piece: usize,
    /// Datagrams in a full call.
    pieces: usize,
    /// Calls in flight. The receiver acknowledges half as many at a time.
    calls: usize,
    /// Payload bytes sent or received in order so far.
    position: u64,
}

struct Sender {
    flow: Flow,
    headers: Vec<[u8; HEADER]>,
    bounce: Region,
    acknowledged: u64,
}

impl Sender {
    fn run(mut self, end: &End, mut message: Region, gather: Gather) -> Result<Option<Sample>> {
        let messages = window(message.len());
        let mut seq = 0;
        end.measure(Pass::one_way(messages), |last| {
            stamp(&mut message, seq, super::pass_flags(seq, last));
            seq += 1;
            for _ in 0..messages {
                self.send_message(&message, gather)?;
            }
            self.await_acknowledgement(self.flow.position)
        })
    }

    fn send_message(&mut self, message: &[u8], gather: Gather) -> Result<()> {
        let call_len = self.flow.piece * self.flow.pieces;
        for call in message.chunks(call_len) {
            let in_flight_max = ((self.flow.calls - 1) * call_len) as u64;
            self.await_acknowledgement(self.flow.position.saturating_sub(in_flight_max))?;
            match gather {
                Gather::List => self.send_list(call)?,
                Gather::Copy => self.send_copy(call)?,
            }
        }
        Ok(())
    }

    fn send_list(&mut self, call: &[u8]) -> Result<()> {
        let pieces = call.chunks(self.flow.piece);
        let mut list = Vec::with_capacity(2 * self.flow.pieces);
        for (header, piece) in self.headers.iter_mut().zip(pieces) {
            header[..8].copy_from_slice(&self.flow.position.to_le_bytes());
            self.flow.position += piece.len() as u64;
            list.push(IoSlice::new(header));
            list.push(IoSlice::new(piece));
        }
        loop {
            match writev(&self.flow.socket, &list) {
                Err(Errno::EAGAIN) => self.flow.spin_wait.wait()?,
                sent => return Ok(sent.map(|_| ())?),
            }
        }
    }

    fn send_copy(&mut self, call: &[u8]) -> Result<()> {
        let mut len = 0;
        for piece in call.chunks(self.flow.piece) {
            let datagram = &mut self.bounce[len..][..HEADER + piece.len()];
            datagram[..8].copy_from_slice(&self.flow.position.to_le_bytes());
            datagram[HEADER..].copy_from_slice(piece);
            self.flow.position += piece.len() as u64;
            len += datagram.len();
        }
        while !sys::try_send(self.flow.socket.as_fd(), &self.bounce[..len])? {
            self.flow.spin_wait.wait()?;
        }
        Ok(())
    }

    /// Waits until the receiver has acknowledged the first `position` bytes of the stream.
    fn await_acknowledgement(&mut self, position: u64) -> Result<()> {
        while self.acknowledged < position {
            let mut word = [0; 8];
            match sys::try_receive(self.flow.socket.as_fd(), &mut word)? {
                Some(_) => {
                    self.acknowledged = u64::from_le_bytes(word);
                    self.flow.spin_wait.reset();
                }
                None => self.flow.spin_wait.wait()?,
            }
        }
        Ok(())
    }
}

struct Receiver {
    flow: Flow,
    headers: Vec<[u8; HEADER]>,
    bounce: Region,
    acknowledged: u64,
}

impl Receiver {
    fn run(
        mut self,
        meter: &mut Meter,
        mut message: Region,
        scatter: Scatter,
    ) -> Result<Option<Sample>> {
        let messages = window(message.len());
        let mut flags = Flags::NONE;
        let mut seq = 0;
        while !flags.last {
            for _ in 0..messages {
                self.receive_message(&mut message, scatter)?;
                flags = verify(&message, seq)?;
            }
            self.acknowledge()?;
            seq += 1;
            if !flags.last {
                meter.pass(messages * message.len() as u64);
            }
        }
        Ok(None)
    }

    fn receive_message(&mut self, message: &mut [u8], scatter: Scatter) -> Result<()> {
        let mut filled = 0;
        while filled < message.len() {
            let rest = &mut message[filled..];
            let count = match scatter {
                Scatter::Bounce => self.receive_bounced(rest)?,
                Scatter::List => self.receive_scattered(rest)?,
            };
            if count == 0 {
                self.flow.spin_wait.wait()?;
                continue;
            }
            self.flow.spin_wait.reset();
            filled += count;
            let call_len = self.flow.piece * self.flow.pieces;
            if self.flow.position - self.acknowledged >= (self.flow.calls / 2 * call_len) as u64 {
                self.acknowledge()?;
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self) -> Result<()> {
        self.acknowledged = self.flow.position;
        let word = self.flow.position.to_le_bytes();
        while !sys::try_send(self.flow.socket.as_fd(), &word)? {
            self.flow.spin_wait.wait()?;
        }
        Ok(())
    }

    /// Receives into the bounce buffer and copies the fragments out.
    fn receive_bounced(&mut self, rest: &mut [u8]) -> Result<usize> {
        let received = sys::try_receive(self.flow.socket.as_fd(), &mut self.bounce)?;
        let mut filled = 0;
        for datagram in self.bounce[..received.unwrap_or(0)].chunks(HEADER + self.flow.piece) {
            let piece = &datagram[HEADER.min(datagram.len())..];
            check_header(datagram, self.flow.position)?;
            ensure!(
                piece.len() <= rest.len() - filled,
                "a datagram crosses the end of a message"
            );
            rest[filled..][..piece.len()].copy_from_slice(piece);
            filled += piece.len();
            self.flow.position += piece.len() as u64;
        }
        Ok(filled)
    }

    /// Receives each fragment directly into its position, assuming no loss. The headers then
    /// confirm it.
    fn receive_scattered(&mut self, rest: &mut [u8]) -> Result<usize> {
        let mut list = Vec::with_capacity(2 * self.flow.pieces);
        for (header, piece) in self
            .headers
            .iter_mut()
            .zip(rest.chunks_mut(self.flow.piece))
        {
            list.push(IoSliceMut::new(header));
            list.push(IoSliceMut::new(piece));
        }
        let received = match readv(&self.flow.socket, &mut list) {
            Err(Errno::EAGAIN) => return Ok(0),
            received => received?,
        };
        let datagrams = received.div_ceil(HEADER + self.flow.piece);
        for (index, header) in self.headers[..datagrams].iter().enumerate() {
            check_header(
                header,
                self.flow.position + (index * self.flow.piece) as u64,
            )?;
        }
        let filled = received - datagrams * HEADER;
        self.flow.position += filled as u64;
        Ok(filled)
    }
}

fn check_header(datagram: &[u8], position: u64) -> Result<()> {
    let mut word = [0; 8];
    ensure!(
        datagram.len() >= HEADER,
        "a datagram of {} bytes",
        datagram.len()
    );
    word.copy_from_slice(&datagram[..8]);
    let begins = u64::from_le_bytes(word);
    ensure!(
        begins == position,
        "byte {position} was lost: a datagram begins with byte {begins}"
    );
    Ok(())
}
