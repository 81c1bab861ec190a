// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of `doctor --between`: UDP and raw frames at each address, and TCP in [`TcpEnds`]. They
//! send from each address to each address of the other process, and record in [`Results`] what
//! arrives.

use super::report::{By, End, Failure, MARK_LEN, Offer, ProbePath};
use super::results::{ENDS_MAX, Results};
use super::tcp::TcpEnds;
use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};
use portolan::binding::PortRange;
use portolan::binding::launch::Job;
use portolan_link::packet::{InterfaceRef, Packet, PacketConfig, lease};
use portolan_link::{Interface, Link, LinkAddr, LinkError, Network, TxFrame};
use portolan_sys::net::{self, ErrorOrigin, is_of_one_link};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Duration of probing: TCP retransmits a SYN after 1 and 3 s (RFC 6298).
const SPAN: Duration = Duration::from_secs(5);

/// Interval between rounds of datagrams. The span has a dozen rounds, so a lost datagram hardly
/// matters.
const ROUND: Duration = Duration::from_millis(400);

/// Pause between polls of the sockets.
const PAUSE: Duration = Duration::from_millis(5);

/// Lengths of IP packets to probe in addition to the interface's MTU: the minimum of IPv4 and IPv6,
/// the MTUs of tunnels (WireGuard 1420, VXLAN 1450, PPPoE 1492), Ethernet, and steps towards jumbo
/// frames.
const PACKET_LENS: [usize; 10] = [576, 1280, 1400, 1420, 1450, 1492, 1500, 4000, 8000, 9000];

/// Bytes of the headers of UDP, and of IPv4 and IPv6 without options (RFC 768, 791, 8200).
const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

/// Upper bound of a datagram's length in bytes.
const DATAGRAM_LEN_MAX: usize = 1 << 16;

/// Largest number of packets that one poll takes from a socket.
const BUDGET: usize = 64;

/// All sockets of this process.
pub(super) struct Sockets {
    udp: Vec<UdpSocket>,
    tcp: TcpEnds,
    /// Raw links, by the index of their end.
    raw: BTreeMap<usize, Packet>,
    /// Reason for which raw Ethernet cannot be used here.
    pub(super) raw_refused: Option<String>,
}

impl Sockets {
    /// Opens the sockets at the addresses that `job` may use.
    ///
    /// # Errors
    /// A setting selects no address, or the system refuses a call.
    pub(super) fn open(job: &Job, ports: PortRange) -> Result<(Offer, Sockets)> {
        let mut sockets = Sockets {
            udp: Vec::new(),
            tcp: TcpEnds::new(ports),
            raw: BTreeMap::new(),
            raw_refused: None,
        };
        let mut ends: Vec<End> = Vec::new();
        let all = portolan::binding::candidates(job)?;
        for (interface, network) in all.iter().take(ENDS_MAX).cloned() {
            let at = scoped(network.addr, 0, interface.index);
            let (udp, port) = match sockets.tcp.listen_beside_udp(at) {
                // IPv6: another host has the address, or duplicate address detection has not
                // finished.
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => continue,
                bound => bound.with_context(|| format!("binding to {at}"))?,
            };
            let is_ambiguous = is_ambiguous(&interface, network, &all);
            prepare(&udp, is_ambiguous.then_some(&interface.name))?;
            sockets.udp.push(udp);
            let is_first = ends.iter().all(|end| end.index != interface.index);
            let is_ethernet = interface.mac.is_some() && !interface.loopback;
            let raw =
                (is_first && is_ethernet).then(|| sockets.open_raw(&interface, port, ends.len()));
            ends.push(End {
                interface: interface.name,
                index: interface.index,
                addr: network.addr,
                prefix_len: network.prefix_len,
                mtu: interface.mtu,
                port,
                is_ambiguous,
                raw: raw.flatten(),
            });
        }
        let token = rand::random();
        Ok((Offer { token, ends }, sockets))
    }

    /// Opens the link for raw frames as a job would; records the reason if that fails.
    fn open_raw(&mut self, interface: &Interface, port: u16, place: usize) -> Option<LinkAddr> {
        let opened: Result<Packet, LinkError> = {
            let mut config = PacketConfig::new(InterfaceRef::Index(interface.index), port);
            config.broker = lease::broker_address(portolan::binding::settings::BROKER.from_env());
            Packet::open(&config)
        };
        match opened {
            Ok(link) => {
                let addr = link.local_addr();
                self.raw.insert(place, link);
                Some(addr)
            }
            Err(error) => {
                self.raw_refused.get_or_insert(error.to_string());
                None
            }
        }
    }

    /// Sends and receives for the whole span.
    pub(super) fn probe(&mut self, own: &[End], results: &mut Results<'_>) -> Result<()> {
        let connects = |(_, end): &(usize, &End)| !end.is_ambiguous;
        for (from, end) in own.iter().enumerate().filter(connects) {
            for (to, there) in reachable(end, &results.other.ends) {
                let path = ProbePath {
                    by: By::Tcp,
                    from,
                    to,
                };
                self.tcp.connect(path, end, target(end, there), results);
            }
        }
        let begin = Instant::now();
        let mut next_round = begin;
        while begin.elapsed() < SPAN {
            if Instant::now() >= next_round {
                self.send_datagrams(own, results);
                self.send_frames(results)?;
                next_round += ROUND;
            }
            self.receive(own, results);
            self.tcp.poll(results);
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn send_datagrams(&mut self, own: &[End], results: &mut Results<'_>) {
        let other = results.other;
        for (from, end) in own.iter().enumerate() {
            for (to, there) in reachable(end, &other.ends) {
                let path = ProbePath {
                    by: By::Udp,
                    from,
                    to,
                };
                for len in datagram_lens(end) {
                    let mut bytes = vec![0; len];
                    bytes[..MARK_LEN].copy_from_slice(&results.mark(path, len).to_bytes());
                    let sent = self.udp[from].send_to(&bytes, target(end, there));
                    // The error may belong to an earlier datagram; the error queue reports it with
                    // its destination.
                    if let Some(errno) = sent.err().and_then(|error| error.raw_os_error())
                        && !matches!(
                            errno,
                            libc::EMSGSIZE | libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::EAGAIN
                        )
                    {
                        let is_remote = false;
                        results.record_failure(path, Failure { errno, is_remote });
                    }
                }
                self.read_errors(own, from, results);
            }
        }
    }

    /// Reads the ICMP errors for datagrams sent from an end.
    fn read_errors(&mut self, own: &[End], from: usize, results: &mut Results<'_>) {
        while let Ok(Some(error)) = net::recv_error(self.udp[from].as_fd()) {
            let Some(destination) = error.destination else {
                continue;
            };
            let is_it = |end: &&End| (end.addr, end.port) == (destination.ip(), destination.port());
            let places = results.other.ends.iter().enumerate();
            let to = places.clone().find(|(_, end)| is_it(end));
            // Errors of this host carry no port.
            let to = to.or_else(|| places.clone().find(|(_, end)| end.addr == destination.ip()));
            let is_size = error.errno == libc::EMSGSIZE;
            if let (Some((to, _)), false) = (to, is_size) {
                let path = ProbePath {
                    by: By::Udp,
                    from,
                    to,
                };
                // If address resolution gets no answer, this host itself generates the ICMP error.
                let is_own = own.iter().any(|end| Some(end.addr) == error.offender);
                let is_remote = error.origin == ErrorOrigin::Icmp && !is_own;
                let errno = error.errno;
                results.record_failure(path, Failure { errno, is_remote });
            }
        }
    }

    fn send_frames(&mut self, results: &mut Results<'_>) -> Result<()> {
        let others = results.other.ends.iter().enumerate();
        let raw: Vec<_> = others
            .filter_map(|(to, end)| Some((to, end.raw.clone()?)))
            .collect();
        for (&from, link) in &mut self.raw {
            for (to, addr) in &raw {
                let peer = u32::try_from(*to)?;
                link.connect(peer, addr)?;
                let path = ProbePath {
                    by: By::Raw,
                    from,
                    to: *to,
                };
                for len in [MARK_LEN, link.caps().frame_len_max] {
                    let mut bytes = vec![0; len];
                    bytes[..MARK_LEN].copy_from_slice(&results.mark(path, len).to_bytes());
                    // A full queue drains before the next round.
                    let _ = link.transmit(peer, &TxFrame::contiguous(&bytes));
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, own: &[End], results: &mut Results<'_>) {
        let mut bytes = vec![0; DATAGRAM_LEN_MAX];
        for (socket, end) in self.udp.iter().zip(own) {
            let overhead_len = UDP_LEN + ip_len(end.addr);
            // After an error, the next datagram may still be received.
            for _ in 0..BUDGET {
                match socket.recv_from(&mut bytes) {
                    Ok((len, _)) => results.record_packet(By::Udp, &bytes[..len], overhead_len),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(_) => {}
                }
            }
        }
        for link in self.raw.values_mut() {
            link.receive(BUDGET, &mut |frame| {
                results.record_packet(By::Raw, frame.head, 0)
            });
        }
    }
}

/// Sets the options of a UDP socket: no fragmentation, errors with their destinations, and, if
/// given, the only interface to send from.
fn prepare(udp: &UdpSocket, only: Option<&String>) -> Result<()> {
    let is_ipv6 = udp.local_addr()?.is_ipv6();
    net::probe_path_mtu(udp.as_fd(), is_ipv6)?;
    net::enable_error_queue(udp.as_fd(), is_ipv6)?;
    udp.set_nonblocking(true)?;
    if let Some(name) = only {
        setsockopt(udp, sockopt::BindToDevice, &name.into())
            .with_context(|| format!("binding to {name}"))?;
    }
    Ok(())
}

/// Returns the ends of the other host that `end` may reach: those of the same address family. A
/// link-local address reaches only link-local addresses.
fn reachable<'a>(
    end: &'a End,
    others: &'a [End],
) -> impl Iterator<Item = (usize, &'a End)> + use<'a> {
    let is_alike = |other: &End| {
        other.addr.is_ipv4() == end.addr.is_ipv4()
            && is_of_one_link(other.addr) == is_of_one_link(end.addr)
    };
    others
        .iter()
        .enumerate()
        .filter(move |(_, other)| is_alike(other))
}

/// Returns the socket address of `there`; a link-local address gets the interface of `end` as
/// scope.
fn target(end: &End, there: &End) -> SocketAddr {
    scoped(there.addr, there.port, end.index)
}

fn scoped(addr: IpAddr, port: u16, index: u32) -> SocketAddr {
    match addr {
        IpAddr::V6(v6) if is_of_one_link(addr) => SocketAddrV6::new(v6, port, 0, index).into(),
        _ => SocketAddr::new(addr, port),
    }
}

/// Returns the address to connect from. For a link-local address the system selects it by the
/// target's scope.
pub(super) fn source(end: &End) -> IpAddr {
    match is_of_one_link(end.addr) {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => end.addr,
    }
}

/// Returns true if another interface among `all` has an address of the same subnet.
fn is_ambiguous(interface: &Interface, network: Network, all: &[(Interface, Network)]) -> bool {
    let mut others = all
        .iter()
        .filter(|(other, _)| other.index != interface.index);
    let is_of_one_link = is_of_one_link(network.addr);
    !is_of_one_link && others.any(|(_, other)| network.contains(other.addr))
}

fn ip_len(addr: IpAddr) -> usize {
    match addr {
        IpAddr::V4(_) => IPV4_LEN,
        IpAddr::V6(_) => IPV6_LEN,
    }
}

/// Returns the lengths of the datagrams that are sent from `end`.
fn datagram_lens(end: &End) -> Vec<usize> {
    let headers_len = UDP_LEN + ip_len(end.addr);
    let fitting = PACKET_LENS.into_iter().filter(|len| *len < end.mtu);
    let packets = fitting.chain([end.mtu.min(DATAGRAM_LEN_MAX - 1)]);
    let lens = packets.map(|len| len.saturating_sub(headers_len).max(MARK_LEN));
    std::iter::once(MARK_LEN).chain(lens).collect()
}
