// SPDX-License-Identifier: MIT OR Apache-2.0
//! LogP's loops over bare sockets, with both ends spinning.

use crate::end::End;
use crate::logp::{self, Endpoint};
use crate::measure::Sample;
use crate::rows::tcp::{read_spinning, write_spinning};
use crate::socket::{self, ETHERNET, datagram_len};
use crate::spin_wait::SpinWait;
use crate::sys;
use anyhow::{Result, ensure};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};

/// Runs the loops over a TCP connection without Nagle's algorithm.
///
/// # Errors
/// A payload was wrong, or the connection failed.
pub(crate) fn tcp(end: &mut End) -> Result<Option<Sample>> {
    let stream = socket::tcp(end)?;
    stream.set_nonblocking(true)?;
    let spin_wait = end.spin_wait();
    play(end, &mut Bytes { stream, spin_wait })
}

/// Runs the loops over connected UDP sockets, with one datagram per message.
///
/// # Errors
/// A payload was wrong, nothing arrived, or a message is longer than a datagram.
pub(crate) fn udp(end: &mut End) -> Result<Option<Sample>> {
    let (size, most) = (end.spec.size, datagram_len(end.spec.mtu));
    ensure!(
        size <= most,
        "a bare datagram carries {most} bytes, not {size}"
    );
    let socket = socket::udp(end, None)?;
    play(end, &mut Units::new(end, socket, Vec::new()))
}

/// Runs the loops over raw Ethernet, with one frame per message.
///
/// # Errors
/// A payload was wrong, nothing arrived, the socket cannot be opened, or a message is longer than a
/// frame.
pub(crate) fn packet(end: &mut End) -> Result<Option<Sample>> {
    let (size, most) = (end.spec.size, end.spec.mtu);
    ensure!(
        size <= most,
        "a bare frame carries {most} bytes, not {size}"
    );
    let (socket, header) = socket::packet(end)?;
    play(end, &mut Units::new(end, socket, header.to_vec()))
}

fn play(end: &End, endpoint: &mut impl Endpoint) -> Result<Option<Sample>> {
    if end.drives() {
        logp::measure(endpoint, &end.spec).map(Some)
    } else {
        logp::answer(endpoint, &end.spec)?;
        Ok(None)
    }
}

struct Bytes {
    stream: TcpStream,
    spin_wait: SpinWait,
}

impl Endpoint for Bytes {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        write_spinning(&mut self.stream, message, &mut self.spin_wait)
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        read_spinning(&mut self.stream, message, &mut self.spin_wait)
    }
}

/// Frames, or datagrams with an empty header.
struct Units {
    socket: OwnedFd,
    header_len: usize,
    /// Header and message.
    tx: Vec<u8>,
    rx: Vec<u8>,
    spin_wait: SpinWait,
}

impl Units {
    fn new(end: &End, socket: OwnedFd, header: Vec<u8>) -> Self {
        Units {
            socket,
            header_len: header.len(),
            tx: header,
            rx: vec![0; ETHERNET + end.spec.mtu],
            spin_wait: end.spin_wait(),
        }
    }
}

impl Endpoint for Units {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.tx.truncate(self.header_len);
        self.tx.extend_from_slice(message);
        while !sys::try_send(self.socket.as_fd(), &self.tx)? {
            self.spin_wait.wait()?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        loop {
            if let Some(len) = sys::try_receive(self.socket.as_fd(), &mut self.rx)? {
                let expected = self.header_len + message.len();
                ensure!(
                    len == expected,
                    "received {len} bytes instead of {expected}"
                );
                message.copy_from_slice(&self.rx[self.header_len..len]);
                self.spin_wait.reset();
                return Ok(());
            }
            self.spin_wait.wait()?;
        }
    }
}
