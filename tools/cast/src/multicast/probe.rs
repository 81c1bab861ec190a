// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test before a multicast cast of whether the source's datagrams reach all hosts.
//!
//! The source invites all hosts to a group, sends trial datagrams, and queries how many were
//! received. If a host cannot join or receives too few, the cast uses a chain and reports that.

use super::Message;
use crate::control::Control;
use crate::event::Event;
use crate::fault::Fault;
use crate::member::{CONTROL, Inbox, Signals, WATCH};
use crate::wait::wait_for_event;
use portolan::binding::Plumbing as _;
use portolan::{Error, Lane, Node, Request, Target};
use portolan_multicast::{
    self as multicast, Codec, Header, Keys, OVERHEAD_LEN, Run, Socket, Terms,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Number of trial datagrams. They fit the smallest buffers, and a path that loses many of them is
/// unsuitable.
const TRIALS: u64 = 32;

/// Minimum share that each host must receive.
const RECEIVED_SHARE_MIN: f64 = 0.8;

/// Number of trials. A switch with IGMP snooping may need a moment after a join.
const ATTEMPTS: u64 = 3;

/// Time that a host waits for trial datagrams that were sent before the query.
const TRIAL_DELAY: Duration = Duration::from_millis(100);

/// Longest sleep. It bounds the delay of a signal that arrived just before it.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// Communication of a process with the other processes of its job.
pub(crate) struct Job<'a> {
    pub(crate) node: &'a mut Node,
    pub(crate) inbox: &'a Inbox,
    pub(crate) signals: &'a Signals,
}

/// Result of the test.
pub(crate) enum ProbeResult {
    /// The cast uses a chain.
    Chain,
    /// The cast uses multicast with these terms.
    Multicast {
        socket: Box<Socket>,
        codec: Box<Codec>,
        terms: Terms,
    },
}

/// Agrees with all other processes on multicast or a chain.
pub(crate) fn probe(job: Job<'_>) -> Result<ProbeResult, Fault> {
    let rank = job.node.rank();
    let mut prober = Prober {
        job,
        watches: BTreeMap::new(),
        deferred: VecDeque::new(),
    };
    let outcome = match rank {
        0 => prober.run_source(),
        _ => prober.run_receiver(),
    };
    for request in prober.watches.into_values() {
        prober.job.node.cancel(request);
    }
    // Other processes may have started already, so their messages are queued for the cast.
    let mut inbox = lock(prober.job.inbox);
    prober.deferred.append(&mut inbox);
    *inbox = prober.deferred;
    drop(inbox);
    outcome
}

fn lock(inbox: &Inbox) -> std::sync::MutexGuard<'_, VecDeque<(u32, Vec<u8>)>> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reason for a chain.
type Reason = String;

/// A socket and the codec of its datagrams.
type Channel = (Box<Socket>, Box<Codec>);

struct Prober<'a> {
    job: Job<'a>,
    /// Live processes, with the receives that fail when they fail.
    watches: BTreeMap<u32, Request>,
    /// Messages that are not about multicast.
    deferred: VecDeque<(u32, Vec<u8>)>,
}

impl Prober<'_> {
    fn run_source(&mut self) -> Result<ProbeResult, Fault> {
        for rank in 1..self.job.node.size() {
            self.watch(rank)?;
        }
        let tried = self.try_group()?;
        let terms = tried.as_ref().ok().map(|(_, terms)| *terms);
        self.send_to_all(&Message::Begin(terms))?;
        Ok(match tried {
            Ok(((socket, codec), terms)) => ProbeResult::Multicast {
                socket,
                codec,
                terms,
            },
            Err(why) => {
                let text = format!("no multicast: {why}; the data is sent by a chain");
                Event::Warning { text }.emit();
                ProbeResult::Chain
            }
        })
    }

    /// Opens a group that all live processes receive.
    fn try_group(&mut self) -> Result<Result<(Channel, Terms), Reason>, Fault> {
        let ports = self.job.node.port_range();
        let at = multicast::group_of(self.job.node.job_id(), 0, ports);
        let keys = draw()?;
        let opened = own_addr(self.job.node).and_then(|own| {
            let socket = Socket::casting(own, at, ports).map_err(|errno| refused(own, &errno))?;
            let mtu = multicast::mtu_of(own).map_err(|errno| refused(own, &errno))?;
            Ok((Box::new(socket), mtu))
        });
        let (socket, mtu) = match opened {
            Ok(opened) => opened,
            Err(why) => return Ok(Err(format!("the source {why}"))),
        };
        let codec = Box::new(codec(&keys)?);
        self.send_to_all(&Message::Invite {
            group: at.ip().octets(),
            port: at.port(),
            keys,
        })?;
        let (buffer_len, mtu) = match self.gather_ready(mtu)? {
            Ok(smallest) => smallest,
            Err(why) => return Ok(Err(why)),
        };
        let piece_len = multicast::datagram_len(mtu).saturating_sub(OVERHEAD_LEN);
        if piece_len < multicast::PIECE_LEN_MIN {
            return Ok(Err(format!("an MTU of {mtu} bytes is too small")));
        }
        let terms = Terms {
            piece_len,
            window: multicast::window_of(buffer_len, piece_len),
            serial: 0,
        };
        self.try_datagrams((socket, codec), terms)
    }

    /// Sends trial datagrams until all hosts receive enough, or the attempts are used up.
    fn try_datagrams(
        &mut self,
        mut channel: Channel,
        mut terms: Terms,
    ) -> Result<Result<(Channel, Terms), Reason>, Fault> {
        let mut why = String::new();
        let mut before = BTreeMap::new();
        for _ in 0..ATTEMPTS {
            if let Err(errno) = send_trials(&mut channel, &mut terms) {
                return Ok(Err(format!("the source cannot send: {errno}")));
            }
            let count = terms.serial;
            self.send_to_all(&Message::Trial { count })?;
            why.clear();
            for (rank, message) in self.gather()? {
                let Message::Received { count } = message else {
                    continue;
                };
                let received = count - before.insert(rank, count).unwrap_or(0).min(count);
                if (received as f64) < RECEIVED_SHARE_MIN * TRIALS as f64 {
                    let host = self.job.node.host_name(rank).unwrap_or_default();
                    why = format!("{host} received {received} of {TRIALS} datagrams");
                }
            }
            if why.is_empty() {
                return Ok(Ok((channel, terms)));
            }
        }
        Ok(Err(why))
    }

    /// Returns the smallest buffer and MTU of the hosts.
    fn gather_ready(&mut self, own_mtu: u32) -> Result<Result<(u64, u32), Reason>, Fault> {
        let mut smallest = (u64::MAX, own_mtu);
        for (rank, message) in self.gather()? {
            match message {
                Message::Ready { buffer_len, mtu } => {
                    smallest = (smallest.0.min(buffer_len), smallest.1.min(mtu));
                }
                Message::Refused { why } => {
                    let host = self.job.node.host_name(rank).unwrap_or_default();
                    return Ok(Err(format!("{host} {why}")));
                }
                _ => return Err(Fault::Protocol("an unexpected multicast reply")),
            }
        }
        Ok(Ok(smallest))
    }

    fn run_receiver(&mut self) -> Result<ProbeResult, Fault> {
        self.watch(0)?;
        let (mut channel, mut received): (Option<Channel>, u64) = (None, 0);
        loop {
            match self.next_message()? {
                Message::Invite { group, port, keys } => {
                    let at = SocketAddrV4::new(group.into(), port);
                    let message = match join(self.job.node, at) {
                        Ok((socket, mtu)) => {
                            let buffer_len = socket.buffer_len();
                            channel = Some((Box::new(socket), Box::new(codec(&keys)?)));
                            Message::Ready { buffer_len, mtu }
                        }
                        Err(why) => Message::Refused { why },
                    };
                    self.send(0, &message)?;
                }
                Message::Trial { count } => {
                    if let Some(channel) = &mut channel {
                        received += receive_trials(channel, count - received.min(count));
                    }
                    self.send(0, &Message::Received { count: received })?;
                }
                Message::Begin(None) => return Ok(ProbeResult::Chain),
                Message::Begin(Some(terms)) => {
                    let (socket, codec) =
                        channel.ok_or(Fault::Protocol("multicast without an invitation"))?;
                    return Ok(ProbeResult::Multicast {
                        socket,
                        codec,
                        terms,
                    });
                }
                _ => {
                    return Err(Fault::Protocol(
                        "a multicast message that only receivers send",
                    ));
                }
            }
        }
    }

    /// Returns the next message from the source.
    fn next_message(&mut self) -> Result<Message, Fault> {
        loop {
            if let Some((_, message)) = self.take_message(|rank| rank == 0)? {
                return Ok(message);
            }
            self.wait()?;
            if self.watches.is_empty() {
                return Err(Fault::SourceGone);
            }
        }
    }

    /// Returns an answer from each live process.
    fn gather(&mut self) -> Result<BTreeMap<u32, Message>, Fault> {
        let mut replies = BTreeMap::new();
        loop {
            while let Some((rank, message)) = self.take_message(|rank| rank > 0)? {
                replies.insert(rank, message);
            }
            let alive: BTreeSet<u32> = self.watches.keys().copied().collect();
            if alive.iter().all(|rank| replies.contains_key(rank)) {
                replies.retain(|rank, _| alive.contains(rank));
                return Ok(replies);
            }
            self.wait()?;
        }
    }

    fn take_message(
        &mut self,
        is_from: impl Fn(u32) -> bool,
    ) -> Result<Option<(u32, Message)>, Fault> {
        loop {
            let received = lock(self.job.inbox).pop_front();
            let Some((rank, bytes)) = received else {
                return Ok(None);
            };
            match Control::parse(&bytes)? {
                Control::Multicast(message) if is_from(rank) => return Ok(Some((rank, message))),
                _ => self.deferred.push_back((rank, bytes)),
            }
        }
    }

    fn wait(&mut self) -> Result<(), Fault> {
        self.job.signals.check()?;
        let watches: Vec<(u32, Request)> = self.watches.iter().map(|(a, b)| (*a, *b)).collect();
        for (rank, request) in watches {
            match self.job.node.test(request) {
                Ok(None) => {}
                Ok(Some(_)) => return Err(Fault::Protocol("a message on the watch port")),
                Err(error) => self.lose(rank, error.into())?,
            }
        }
        // The lock must be released, because the handler takes it during the wait.
        let is_empty = lock(self.job.inbox).is_empty();
        match is_empty {
            true => wait_for_event(self.job.node, [], SLEEP_MAX),
            false => Ok(()),
        }
    }

    fn watch(&mut self, rank: u32) -> Result<(), Fault> {
        match self.job.node.post_recv_from(rank, WATCH, vec![0]) {
            Ok(request) => drop(self.watches.insert(rank, request)),
            Err(error) => self.lose(rank, error)?,
        }
        Ok(())
    }

    /// Handles a failed operation on `rank`. The cast itself reports failed processes.
    fn lose(&mut self, rank: u32, error: Error) -> Result<(), Fault> {
        self.watches.remove(&rank);
        match error {
            Error::PeerGone { .. }
            | Error::NoAnswer { .. }
            | Error::NoPath { .. }
            | Error::OutOfResource { .. } => Ok(()),
            _ => Err(error.into()),
        }
    }

    fn send_to_all(&mut self, message: &Message) -> Result<(), Fault> {
        let alive: Vec<u32> = self.watches.keys().copied().collect();
        alive
            .into_iter()
            .try_for_each(|rank| self.send(rank, message))
    }

    fn send(&mut self, rank: u32, message: &Message) -> Result<(), Fault> {
        let control = Control::Multicast(message.clone());
        let target = Target::new(rank, CONTROL).lane(Lane::High);
        match self.job.node.isend_copy(target, &control.to_bytes()) {
            Ok(()) => Ok(()),
            Err(error) => self.lose(rank, error),
        }
    }
}

fn draw() -> Result<Keys, Fault> {
    Keys::draw().map_err(|errno| Fault::System {
        what: "generating a key",
        errno,
    })
}

fn codec(keys: &Keys) -> Result<Codec, Fault> {
    Codec::new(keys).ok_or(Fault::Protocol("an invalid key"))
}

/// Returns the address of the interface to use. A job on one host uses the loopback interface.
fn own_addr(node: &Node) -> Result<Ipv4Addr, Reason> {
    match node.network_addr() {
        Some(IpAddr::V4(own)) => Ok(own),
        Some(IpAddr::V6(own)) => Err(format!("has only the address {own}; multicast needs IPv4")),
        None => Ok(Ipv4Addr::LOCALHOST),
    }
}

fn refused(own: Ipv4Addr, errno: &io::Error) -> Reason {
    format!("cannot use the interface with {own} for multicast: {errno}")
}

fn join(node: &Node, at: SocketAddrV4) -> Result<(Socket, u32), Reason> {
    let own = own_addr(node)?;
    let socket = Socket::listening(own, at).map_err(|errno| refused(own, &errno))?;
    let mtu = multicast::mtu_of(own).map_err(|errno| refused(own, &errno))?;
    Ok((socket, mtu))
}

fn send_trials((socket, codec): &mut Channel, terms: &mut Terms) -> io::Result<()> {
    for _ in 0..TRIALS {
        terms.serial += 1;
        let header = Header {
            serial: terms.serial,
            block: 0,
            len: 0,
            pieces: Vec::new(),
        };
        let mut run = Run::default();
        run.push(codec, &header, &[], terms.piece_len);
        while !socket.send(&mut run)? {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Counts the trial datagrams received, up to `due`.
fn receive_trials((socket, codec): &mut Channel, due: u64) -> u64 {
    let deadline = Instant::now() + TRIAL_DELAY;
    let mut received = 0;
    while received < due {
        match socket.receive(codec, |header, _| {
            received += u64::from(header.pieces.is_empty())
        }) {
            Ok(true) => {}
            Ok(false) if Instant::now() < deadline => {
                let _ = portolan_sys::net::wait_readable(
                    &[std::os::fd::AsRawFd::as_raw_fd(&socket.fd())],
                    Duration::from_millis(5),
                );
            }
            _ => break,
        }
    }
    received
}
