// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ping-pong through a socket, with both ends spinning.

use crate::end::End;
use crate::measure::{Pass, Sample};
use crate::pattern::{Flags, stamp, verify};
use crate::socket::{self, ETHERNET, datagram_len, segments_max};
use crate::spec::{Aim, Hook, Intake};
use crate::spin_wait::SpinWait;
use crate::sys::{self, Ring, Xdp};
use anyhow::{Result, ensure};
use nix::sys::socket::SockaddrStorage;
use portolan::Region;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};

/// Maximum bytes of a message that fits default socket buffers without flow control.
pub(crate) const UDP_SIZE_MAX: usize = 64 << 10;

/// Runs the row with raw Ethernet frames.
///
/// # Errors
/// A payload was wrong, nothing arrived, or the socket cannot be opened.
pub(crate) fn packet(end: &mut End, intake: Intake) -> Result<Option<Sample>> {
    let size = end.spec.size;
    let mtu = end.spec.mtu;
    ensure!(size <= mtu, "a bare frame carries {mtu} bytes, not {size}");
    let (socket, ring, header) = match intake {
        Intake::Ring => {
            let (socket, ring, header) = socket::packet_ring(end, ETHERNET + mtu)?;
            (socket, Some(ring), header)
        }
        Intake::Call => {
            let (socket, header) = socket::packet(end)?;
            (socket, None, header)
        }
    };
    let mut tx = vec![0; ETHERNET + size];
    tx[..ETHERNET].copy_from_slice(&header);
    let rx = vec![0; ETHERNET + size];
    let spin_wait = end.spin_wait();
    play(
        end,
        Frames {
            socket,
            ring,
            tx,
            rx,
            spin_wait,
        },
    )
}

/// Runs the row with raw Ethernet frames through AF_XDP.
///
/// # Errors
/// A payload was wrong, nothing arrived, or the socket or its program cannot be set up.
pub(crate) fn xdp(end: &mut End, hook: Hook) -> Result<Option<Sample>> {
    let size = end.spec.size;
    let mtu = end.spec.mtu;
    ensure!(size <= mtu, "a bare frame carries {mtu} bytes, not {size}");
    let (socket, header) = socket::xdp(end, hook)?;
    let mut tx = vec![0; ETHERNET + size];
    tx[..ETHERNET].copy_from_slice(&header);
    let rx = vec![0; ETHERNET + size];
    let spin_wait = end.spin_wait();
    play(
        end,
        XdpFrames {
            socket,
            tx,
            rx,
            spin_wait,
        },
    )
}

/// Runs the row with UDP sockets, using segmentation offload if the message is longer than a
/// datagram.
///
/// # Errors
/// A payload was wrong, or nothing arrived.
pub(crate) fn udp(end: &mut End, aim: Aim) -> Result<Option<Sample>> {
    let size = end.spec.size;
    ensure!(
        size <= UDP_SIZE_MAX,
        "more than {UDP_SIZE_MAX} bytes would overflow a socket's buffer"
    );
    let segment = datagram_len(end.spec.mtu);
    let offload = (size > segment).then_some(segment);
    let (socket, to) = match aim {
        Aim::Connected => (socket::udp(end, offload)?, None),
        Aim::Each => {
            let (socket, to) = socket::udp_apart(end, offload)?;
            (socket.into(), Some(to.into()))
        }
    };
    let datagrams = Datagrams {
        socket,
        to,
        tx: Region::new(size)?,
        rx: Region::new(size)?,
        call_len: segment * segments_max(segment),
        spin_wait: end.spin_wait(),
    };
    play(end, datagrams)
}

/// Runs the row with a TCP connection without Nagle's algorithm.
///
/// # Errors
/// A payload was wrong, or the connection failed.
pub(crate) fn tcp(end: &mut End) -> Result<Option<Sample>> {
    let stream = socket::tcp(end)?;
    stream.set_nonblocking(true)?;
    let size = end.spec.size;
    play(
        end,
        Bytes {
            stream,
            tx: Region::new(size)?,
            rx: Region::new(size)?,
            spin_wait: end.spin_wait(),
        },
    )
}

/// A socket with its message buffers.
pub(super) trait Channel {
    /// Returns the buffer of the message to send.
    fn outbox(&mut self) -> &mut [u8];
    /// Sends the message.
    fn send(&mut self) -> Result<()>;
    /// Spins until a whole message has arrived.
    fn receive(&mut self) -> Result<&[u8]>;
}

pub(super) fn play(end: &End, mut channel: impl Channel) -> Result<Option<Sample>> {
    if end.drives() {
        serve(end, &mut channel)
    } else {
        answer(&mut channel)
    }
}

fn serve(end: &End, channel: &mut impl Channel) -> Result<Option<Sample>> {
    let mut seq = 0;
    end.measure(Pass::round_trips(1), |last| {
        let flags = super::pass_flags(seq, last);
        stamp(channel.outbox(), seq, flags);
        channel.send()?;
        let answered = verify(channel.receive()?, seq)?;
        ensure!(
            answered == flags,
            "the reply's flags differ from the request's"
        );
        seq += 1;
        Ok(())
    })
}

/// Returns each received message, so that the driver's check covers both directions.
fn answer(channel: &mut impl Channel) -> Result<Option<Sample>> {
    let mut flags = Flags::NONE;
    let mut seq = 0;
    while !flags.last {
        flags = verify(channel.receive()?, seq)?;
        stamp(channel.outbox(), seq, flags);
        channel.send()?;
        seq += 1;
    }
    Ok(None)
}

struct Frames {
    socket: OwnedFd,
    /// Receive ring; without one, frames are received by system calls.
    ring: Option<Ring>,
    /// Header and message.
    tx: Vec<u8>,
    rx: Vec<u8>,
    spin_wait: SpinWait,
}

impl Channel for Frames {
    #[inline]
    fn outbox(&mut self) -> &mut [u8] {
        &mut self.tx[ETHERNET..]
    }

    #[inline]
    fn send(&mut self) -> Result<()> {
        while !sys::try_send(self.socket.as_fd(), &self.tx)? {
            self.spin_wait.wait()?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<&[u8]> {
        loop {
            let received = match &mut self.ring {
                Some(ring) => ring.try_receive(&mut self.rx),
                None => sys::try_receive(self.socket.as_fd(), &mut self.rx)?,
            };
            if let Some(len) = received {
                ensure!(
                    len == self.rx.len(),
                    "received a frame of {len} bytes instead of {}",
                    self.rx.len()
                );
                self.spin_wait.reset();
                return Ok(&self.rx[ETHERNET..]);
            }
            self.spin_wait.wait()?;
        }
    }
}

struct XdpFrames {
    socket: Xdp,
    /// Header and message.
    tx: Vec<u8>,
    rx: Vec<u8>,
    spin_wait: SpinWait,
}

impl Channel for XdpFrames {
    #[inline]
    fn outbox(&mut self) -> &mut [u8] {
        &mut self.tx[ETHERNET..]
    }

    #[inline]
    fn send(&mut self) -> Result<()> {
        while !self.socket.try_send(&self.tx)? {
            self.spin_wait.wait()?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<&[u8]> {
        loop {
            if let Some(len) = self.socket.try_receive(&mut self.rx) {
                ensure!(
                    len == self.rx.len(),
                    "received a frame of {len} bytes instead of {}",
                    self.rx.len()
                );
                self.spin_wait.reset();
                return Ok(&self.rx[ETHERNET..]);
            }
            self.spin_wait.wait()?;
        }
    }
}

struct Datagrams {
    socket: OwnedFd,
    /// Destination, if the socket is not connected.
    to: Option<SockaddrStorage>,
    tx: Region,
    rx: Region,
    /// Maximum bytes per call.
    call_len: usize,
    spin_wait: SpinWait,
}

impl Channel for Datagrams {
    #[inline]
    fn outbox(&mut self) -> &mut [u8] {
        &mut self.tx
    }

    #[inline]
    fn send(&mut self) -> Result<()> {
        for call in self.tx.chunks(self.call_len) {
            while !match &self.to {
                Some(to) => sys::try_send_to(self.socket.as_fd(), call, to)?,
                None => sys::try_send(self.socket.as_fd(), call)?,
            } {
                self.spin_wait.wait()?;
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<&[u8]> {
        let mut received = 0;
        while received < self.rx.len() {
            match sys::try_receive(self.socket.as_fd(), &mut self.rx[received..])? {
                Some(len) => {
                    received += len;
                    self.spin_wait.reset();
                }
                None => self.spin_wait.wait()?,
            }
        }
        Ok(&self.rx)
    }
}

struct Bytes {
    stream: TcpStream,
    tx: Region,
    rx: Region,
    spin_wait: SpinWait,
}

impl Channel for Bytes {
    #[inline]
    fn outbox(&mut self) -> &mut [u8] {
        &mut self.tx
    }

    #[inline]
    fn send(&mut self) -> Result<()> {
        super::tcp::write_spinning(&mut self.stream, &self.tx, &mut self.spin_wait)
    }

    #[inline]
    fn receive(&mut self) -> Result<&[u8]> {
        super::tcp::read_spinning(&mut self.stream, &mut self.rx, &mut self.spin_wait)?;
        Ok(&self.rx)
    }
}
