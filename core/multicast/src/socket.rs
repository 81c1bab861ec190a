// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket of multicast: sends runs of datagrams to the group, or receives from it.

use super::datagram::{Codec, Header, OVERHEAD_LEN};
use portolan_sys::net::{self, PortRange, Sender, SockAddr};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// Requested receive buffer in bytes: 30 ms of a gigabit Ethernet, within which a busy host returns
/// to receiving. A larger one would only delay the reports of losses.
const BUFFER_LEN: usize = 4 << 20;

/// Requested send buffer in bytes: some runs, so that the wire is never idle. A queue of the system
/// drops the excess silently, and ordinary queues hold a thousand packets.
const SEND_BUFFER_LEN: usize = 512 << 10;

/// Maximum number of bytes of a run: those of one UDP packet before the kernel cuts it (65,507),
/// with a margin.
const RUN_LEN_MAX: usize = 65_000;

/// Maximum number of datagrams that the kernel cuts a run into (`UDP_MAX_SEGMENTS` of
/// include/linux/udp.h before Linux 6.9).
const RUN_COUNT_MAX: usize = 64;

/// Longest packet used, that of a jumbo frame. A longer packet loses more at once.
const MTU_MAX: usize = 9000;

/// Bytes of the headers of IPv4 and UDP (RFC 791, RFC 768).
const IP_UDP_LEN: usize = 28;

/// Datagrams of one length, except the last, which may be shorter.
#[derive(Debug, Default)]
pub struct Run {
    bytes: Vec<u8>,
    datagram_len: usize,
    sent: usize,
    is_full: bool,
}

impl Run {
    /// Returns `true` if the run is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns `true` if another datagram of the same length fits.
    #[must_use]
    pub fn has_space(&self, count_max: usize) -> bool {
        let count = self.bytes.len() / self.datagram_len.max(1);
        let fits = self.bytes.len() + self.datagram_len <= RUN_LEN_MAX;
        !self.is_full && fits && count < count_max.clamp(1, RUN_COUNT_MAX)
    }

    /// Appends a datagram with pieces of `message`.
    pub fn push(&mut self, codec: &Codec, header: &Header, message: &[u8], piece_len: usize) {
        let before = self.bytes.len();
        codec.write(&mut self.bytes, header, message, piece_len);
        let len = self.bytes.len() - before;
        if before == 0 {
            self.datagram_len = len;
        }
        self.is_full |= len < OVERHEAD_LEN + piece_len;
    }

    /// Passes its datagrams to `sink` like a socket, for callers with a transport of their own. The
    /// run is then empty.
    pub fn drain(&mut self, sink: impl FnMut(&mut [u8])) {
        let (sent, len) = (self.sent, self.datagram_len.max(1));
        self.bytes[sent..].chunks_mut(len).for_each(sink);
        self.clear();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        (self.sent, self.is_full) = (0, false);
    }
}

/// Multicast socket of a source or a host.
pub struct Socket {
    socket: UdpSocket,
    sender: Sender,
    to: SockAddr,
    /// Set if the kernel cuts runs into datagrams.
    is_cutting: bool,
    memory: Vec<u8>,
}

impl Socket {
    /// Opens the socket of a source, at the interface with the address `own` and a port of `ports`.
    ///
    /// # Errors
    /// The errno of the failed call; the errors of [`PortRange::open`].
    pub fn casting(own: Ipv4Addr, group: SocketAddrV4, ports: PortRange) -> io::Result<Socket> {
        let socket = ports.open(|port| Socket::bind(SocketAddrV4::new(own, port), false))?;
        sockopt::set_ip_multicast_if(&socket, &own)?;
        // Datagrams stay on the Ethernet, but reach processes of this host.
        sockopt::set_ip_multicast_ttl(&socket, 1)?;
        sockopt::set_ip_multicast_loop(&socket, true)?;
        net::probe_path_mtu(socket.as_fd(), false)?;
        let _ = net::request_send_buffer(socket.as_fd(), SEND_BUFFER_LEN);
        Ok(Socket::of(socket, group))
    }

    /// Opens the socket of a host and joins the group at the interface with this address.
    ///
    /// # Errors
    /// Returns the error of the failed call.
    pub fn listening(own: Ipv4Addr, group: SocketAddrV4) -> io::Result<Socket> {
        let socket = Socket::bind(group, true)?;
        sockopt::set_ip_add_membership(&socket, group.ip(), &own)?;
        // Privileged processes may exceed the system's limit.
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_LEN).is_err() {
            let _ = net::request_receive_buffer(socket.as_fd(), BUFFER_LEN);
        }
        // If this fails, datagrams arrive one by one.
        let _ = net::enable_receive_offload(socket.as_fd());
        Ok(Socket::of(socket, group))
    }

    fn bind(at: SocketAddrV4, is_shared: bool) -> io::Result<UdpSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        // Several hosts may share a machine.
        sockopt::set_socket_reuseaddr(&socket, is_shared)?;
        rustix::net::bind(&socket, &at)?;
        Ok(UdpSocket::from(socket))
    }

    fn of(socket: UdpSocket, group: SocketAddrV4) -> Socket {
        Socket {
            is_cutting: net::segmentation_supported(socket.as_fd()),
            socket,
            sender: Sender::new(),
            to: SocketAddr::V4(group).into(),
            memory: vec![0; 1 << 16],
        }
    }

    /// Returns its descriptor, to wait for.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the size of the receive buffer in bytes, including the kernel's overhead.
    #[must_use]
    pub fn buffer_len(&self) -> u64 {
        net::receive_buffer_len(self.fd()).map_or(0, |len| len as u64)
    }

    /// Sends the run. Returns `false` if the socket cannot take all of it at present.
    ///
    /// # Errors
    /// Returns the error of the failed call.
    pub fn send(&mut self, run: &mut Run) -> io::Result<bool> {
        while run.sent < run.bytes.len() {
            let (fd, to) = (self.socket.as_fd(), Some(&self.to));
            let (bytes, len) = (&run.bytes[run.sent..], run.datagram_len);
            let sent = match self.is_cutting && bytes.len() > len {
                true => {
                    let cut = u16::try_from(len).ok();
                    let pieces = std::iter::once(bytes);
                    self.sender.send_gathered(fd, to, cut, pieces)
                }
                false => {
                    let pieces = bytes.chunks(len);
                    let count = self.sender.send_each(fd, to, len, pieces);
                    count.map(|count| (count * len).min(bytes.len()))
                }
            };
            match sent {
                Ok(sent) => run.sent += sent,
                Err(errno) => match Errno::from_io_error(&errno) {
                    Some(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
                    Some(Errno::INTR) => {}
                    // The route does not support segmentation.
                    Some(Errno::IO | Errno::INVAL) if self.is_cutting => self.is_cutting = false,
                    _ => return Err(errno),
                },
            }
        }
        run.clear();
        Ok(true)
    }

    /// Receives one run and passes those of its datagrams that are from this source to `sink`.
    /// Returns `false` if none is waiting.
    ///
    /// # Errors
    /// Returns the error of the failed call.
    pub fn receive(
        &mut self,
        codec: &Codec,
        mut sink: impl FnMut(&Header, &[u8]),
    ) -> io::Result<bool> {
        self.receive_any(|datagram| {
            if let Some((header, body)) = codec.read(datagram) {
                sink(&header, body);
            }
        })
    }

    /// Like [`Socket::receive`], for datagrams of any source.
    ///
    /// # Errors
    /// Returns the error of the failed call.
    pub fn receive_any(&mut self, mut sink: impl FnMut(&mut [u8])) -> io::Result<bool> {
        let fd = self.socket.as_fd();
        let Some(received) = net::recv_segments(fd, &mut self.memory)? else {
            return Ok(false);
        };
        let bytes = &mut self.memory[..received.len];
        bytes
            .chunks_mut(received.segment_len.max(1))
            .for_each(&mut sink);
        Ok(true)
    }
}

/// Returns the bytes of a datagram that fits a packet of `mtu` bytes.
#[must_use]
pub fn datagram_len(mtu: u32) -> usize {
    usize::try_from(mtu)
        .unwrap_or(MTU_MAX)
        .min(MTU_MAX)
        .saturating_sub(IP_UDP_LEN)
}

/// Returns the MTU of the interface with this address; 0 if there is none.
///
/// # Errors
/// Returns the error of the failed call.
pub fn mtu_of(own: Ipv4Addr) -> io::Result<u32> {
    let own = IpAddr::V4(own);
    let interfaces = net::interfaces()?;
    let mut found = interfaces.iter().filter(|interface| {
        let mut networks = interface.networks.iter();
        networks.any(|network| network.addr == own)
    });
    let mtu = found.next().map_or(0, |interface| interface.mtu);
    Ok(u32::try_from(mtu).unwrap_or(u32::MAX))
}
