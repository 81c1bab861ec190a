// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test before a multicast cast of whether the source's datagrams reach all hosts.
//!
//! The source invites all hosts to a group, sends trial datagrams, and asks how many were received.
//! If a host cannot join or receives too few, the cast uses a chain and reports that.

use super::Word;
use crate::control::Control;
use crate::event::Event;
use crate::fault::Fault;
use crate::member::{CONTROL, Inbox, Signals, WATCH};
use crate::nap::nap;
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
const HEARD_LEAST: f64 = 0.8;

/// Number of trials. A switch with IGMP snooping may need a moment after a join.
const ATTEMPTS: u64 = 3;

/// Time that a host waits for trial datagrams that were sent before the query.
const TRIAL_DELAY: Duration = Duration::from_millis(100);

/// Longest sleep. It bounds the delay of a signal that arrived just before it.
const NAP: Duration = Duration::from_millis(20);

/// Communication of a process with the others of its job.
pub(crate) struct Desks<'a> {
    pub(crate) node: &'a mut Node,
    pub(crate) inbox: &'a Inbox,
    pub(crate) signals: &'a Signals,
}

/// Result of the test.
pub(crate) enum Muster {
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
pub(crate) fn muster(desks: Desks<'_>) -> Result<Muster, Fault> {
    let rank = desks.node.rank();
    let mut call = Call {
        desks,
        watches: BTreeMap::new(),
        later: VecDeque::new(),
    };
    let outcome = match rank {
        0 => call.lead(),
        _ => call.follow(),
    };
    for request in call.watches.into_values() {
        call.desks.node.cancel(request);
    }
    // Other processes may have started already, so their messages are kept for the cast.
    let mut inbox = lock(call.desks.inbox);
    call.later.append(&mut inbox);
    *inbox = call.later;
    drop(inbox);
    outcome
}

fn lock(inbox: &Inbox) -> std::sync::MutexGuard<'_, VecDeque<(u32, Vec<u8>)>> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reason for a chain.
type Why = String;

/// A socket and the codec of its datagrams.
type Way = (Box<Socket>, Box<Codec>);

struct Call<'a> {
    desks: Desks<'a>,
    /// Live processes, with the receives that fail when they fail.
    watches: BTreeMap<u32, Request>,
    /// Messages that are not about multicast.
    later: VecDeque<(u32, Vec<u8>)>,
}

impl Call<'_> {
    fn lead(&mut self) -> Result<Muster, Fault> {
        for rank in 1..self.desks.node.size() {
            self.watch(rank)?;
        }
        let tried = self.try_group()?;
        let terms = tried.as_ref().ok().map(|(_, terms)| *terms);
        self.tell_all(&Word::Begin(terms))?;
        Ok(match tried {
            Ok(((socket, codec), terms)) => Muster::Multicast {
                socket,
                codec,
                terms,
            },
            Err(why) => {
                let text = format!("no multicast: {why}; the data goes by a chain");
                Event::Warning { text }.tell();
                Muster::Chain
            }
        })
    }

    /// Opens a group that all live processes receive.
    fn try_group(&mut self) -> Result<Result<(Way, Terms), Why>, Fault> {
        let ports = self.desks.node.port_range();
        let at = multicast::group_of(self.desks.node.job_id(), 0, ports);
        let keys = draw()?;
        let opened = own_addr(self.desks.node).and_then(|own| {
            let socket = Socket::casting(own, at, ports).map_err(|errno| refused(own, &errno))?;
            let mtu = multicast::mtu_of(own).map_err(|errno| refused(own, &errno))?;
            Ok((Box::new(socket), mtu))
        });
        let (socket, mtu) = match opened {
            Ok(opened) => opened,
            Err(why) => return Ok(Err(format!("the source {why}"))),
        };
        let codec = Box::new(codec(&keys)?);
        self.tell_all(&Word::Invite {
            group: at.ip().octets(),
            port: at.port(),
            keys,
        })?;
        let (buffer_len, mtu) = match self.gather_ready(mtu)? {
            Ok(least) => least,
            Err(why) => return Ok(Err(why)),
        };
        let piece_len = multicast::datagram_len(mtu).saturating_sub(OVERHEAD_LEN);
        if piece_len < multicast::PIECE_LEN_MIN {
            return Ok(Err(format!("packets of {mtu} bytes are too short")));
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
        mut way: Way,
        mut terms: Terms,
    ) -> Result<Result<(Way, Terms), Why>, Fault> {
        let mut why = String::new();
        let mut before = BTreeMap::new();
        for _ in 0..ATTEMPTS {
            if let Err(errno) = send_trials(&mut way, &mut terms) {
                return Ok(Err(format!("the source cannot send: {errno}")));
            }
            let count = terms.serial;
            self.tell_all(&Word::Trial { count })?;
            why.clear();
            for (rank, word) in self.gather()? {
                let Word::Heard { count } = word else {
                    continue;
                };
                let heard = count - before.insert(rank, count).unwrap_or(0).min(count);
                if (heard as f64) < HEARD_LEAST * TRIALS as f64 {
                    let host = self.desks.node.host_name(rank).unwrap_or_default();
                    why = format!("{host} hears {heard} of {TRIALS} datagrams");
                }
            }
            if why.is_empty() {
                return Ok(Ok((way, terms)));
            }
        }
        Ok(Err(why))
    }

    /// Returns the smallest buffer and MTU of the hosts.
    fn gather_ready(&mut self, own_mtu: u32) -> Result<Result<(u64, u32), Why>, Fault> {
        let mut least = (u64::MAX, own_mtu);
        for (rank, word) in self.gather()? {
            match word {
                Word::Ready { buffer_len, mtu } => {
                    least = (least.0.min(buffer_len), least.1.min(mtu));
                }
                Word::Refused { why } => {
                    let host = self.desks.node.host_name(rank).unwrap_or_default();
                    return Ok(Err(format!("{host} {why}")));
                }
                _ => return Err(Fault::Protocol("an answer to another question")),
            }
        }
        Ok(Ok(least))
    }

    fn follow(&mut self) -> Result<Muster, Fault> {
        self.watch(0)?;
        let (mut way, mut heard): (Option<Way>, u64) = (None, 0);
        loop {
            match self.next_word()? {
                Word::Invite { group, port, keys } => {
                    let at = SocketAddrV4::new(group.into(), port);
                    let word = match join(self.desks.node, at) {
                        Ok((socket, mtu)) => {
                            let buffer_len = socket.buffer_len();
                            way = Some((Box::new(socket), Box::new(codec(&keys)?)));
                            Word::Ready { buffer_len, mtu }
                        }
                        Err(why) => Word::Refused { why },
                    };
                    self.tell(0, &word)?;
                }
                Word::Trial { count } => {
                    if let Some(way) = &mut way {
                        heard += hear(way, count - heard.min(count));
                    }
                    self.tell(0, &Word::Heard { count: heard })?;
                }
                Word::Begin(None) => return Ok(Muster::Chain),
                Word::Begin(Some(terms)) => {
                    let (socket, codec) = way.ok_or(Fault::Protocol("no group was named"))?;
                    return Ok(Muster::Multicast {
                        socket,
                        codec,
                        terms,
                    });
                }
                _ => return Err(Fault::Protocol("a word for the source")),
            }
        }
    }

    /// Returns the next message from the source.
    fn next_word(&mut self) -> Result<Word, Fault> {
        loop {
            if let Some((_, word)) = self.take_word(|rank| rank == 0)? {
                return Ok(word);
            }
            self.rest()?;
            if self.watches.is_empty() {
                return Err(Fault::SourceGone);
            }
        }
    }

    /// Returns an answer from each live process.
    fn gather(&mut self) -> Result<BTreeMap<u32, Word>, Fault> {
        let mut answers = BTreeMap::new();
        loop {
            while let Some((rank, word)) = self.take_word(|rank| rank > 0)? {
                answers.insert(rank, word);
            }
            let alive: BTreeSet<u32> = self.watches.keys().copied().collect();
            if alive.iter().all(|rank| answers.contains_key(rank)) {
                answers.retain(|rank, _| alive.contains(rank));
                return Ok(answers);
            }
            self.rest()?;
        }
    }

    fn take_word(&mut self, is_from: impl Fn(u32) -> bool) -> Result<Option<(u32, Word)>, Fault> {
        loop {
            let letter = lock(self.desks.inbox).pop_front();
            let Some((rank, bytes)) = letter else {
                return Ok(None);
            };
            match Control::parse(&bytes)? {
                Control::Multicast(word) if is_from(rank) => return Ok(Some((rank, word))),
                _ => self.later.push_back((rank, bytes)),
            }
        }
    }

    fn rest(&mut self) -> Result<(), Fault> {
        self.desks.signals.check()?;
        let asked: Vec<(u32, Request)> = self.watches.iter().map(|(a, b)| (*a, *b)).collect();
        for (rank, request) in asked {
            match self.desks.node.test(request) {
                Ok(None) => {}
                Ok(Some(_)) => return Err(Fault::Protocol("a message where none goes")),
                Err(error) => self.lose(rank, error)?,
            }
        }
        // The lock must be released, because the handler takes it during the nap.
        let is_empty = lock(self.desks.inbox).is_empty();
        match is_empty {
            true => nap(self.desks.node, [], NAP),
            false => Ok(()),
        }
    }

    fn watch(&mut self, rank: u32) -> Result<(), Fault> {
        match self.desks.node.post_recv_from(rank, WATCH, vec![0]) {
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

    fn tell_all(&mut self, word: &Word) -> Result<(), Fault> {
        let alive: Vec<u32> = self.watches.keys().copied().collect();
        alive.into_iter().try_for_each(|rank| self.tell(rank, word))
    }

    fn tell(&mut self, rank: u32, word: &Word) -> Result<(), Fault> {
        let control = Control::Multicast(word.clone());
        let target = Target::new(rank, CONTROL).lane(Lane::High);
        match self.desks.node.isend_copy(target, &control.to_bytes()) {
            Ok(()) => Ok(()),
            Err(error) => self.lose(rank, error),
        }
    }
}

fn draw() -> Result<Keys, Fault> {
    Keys::draw().map_err(|errno| Fault::System {
        what: "drawing a key",
        errno,
    })
}

fn codec(keys: &Keys) -> Result<Codec, Fault> {
    Codec::new(keys).ok_or(Fault::Protocol("a key that is none"))
}

/// Returns the address of the interface to use. A job on one host uses the loopback interface.
fn own_addr(node: &Node) -> Result<Ipv4Addr, Why> {
    match node.network_addr() {
        Some(IpAddr::V4(own)) => Ok(own),
        Some(IpAddr::V6(own)) => Err(format!("has {own} alone, and only IPv4 is supported")),
        None => Ok(Ipv4Addr::LOCALHOST),
    }
}

fn refused(own: Ipv4Addr, errno: &io::Error) -> Why {
    format!("cannot use the interface with {own} for it: {errno}")
}

fn join(node: &Node, at: SocketAddrV4) -> Result<(Socket, u32), Why> {
    let own = own_addr(node)?;
    let socket = Socket::listening(own, at).map_err(|errno| refused(own, &errno))?;
    let mtu = multicast::mtu_of(own).map_err(|errno| refused(own, &errno))?;
    Ok((socket, mtu))
}

fn send_trials((socket, codec): &mut Way, terms: &mut Terms) -> io::Result<()> {
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
fn hear((socket, codec): &mut Way, due: u64) -> u64 {
    let deadline = Instant::now() + TRIAL_DELAY;
    let mut heard = 0;
    while heard < due {
        match socket.receive(codec, |header, _| {
            heard += u64::from(header.pieces.is_empty())
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
    heard
}
