// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-shot regions, as MPI libraries use them for active messages: a process registers a buffer
//! and sends its key, the peer gets or puts the bytes and reports that, and the process deregisters
//! the buffer. Many are in flight in both directions, with each setting of `stream`, with and
//! without loss. Every byte is compared.

use crate::common::{ANY, PLAIN, Side, bytes, piece};
use crate::lab::{Lab, ROLE, introduce, open, print_line, read_line_after};
use portolan::PathChoice;
use portolan::binding::{Cookie, PeerIndex, RawAccess, RawKind, RawPiece, RawRemote, RawSend};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Environment variable for `host`: regions in flight.
const AT_ONCE: &str = "ENDPOINT_TEST_AT_ONCE";

/// Environment variable for `host`: it uses UDP, and streams, but no raw Ethernet.
const UDP_ONLY: &str = "ENDPOINT_TEST_UDP_ONLY";

/// Regions of each process.
const COUNT: u64 = 96;

/// Ends a hanging exchange. It takes seconds, with loss on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(120);

const MESSAGE_LEN: usize = 32;
/// More than the messages that can be in flight.
const RECEIVES: usize = 256;

/// The send completes on delivery, as those of MPICH's active messages do.
const DELIVERED: RawSend = RawSend {
    delivered: true,
    ..PLAIN
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Get,
    Put,
    Done,
}

/// A message of the exchange.
#[derive(Clone, Copy, Debug)]
struct Note {
    what: What,
    key: u64,
    len: usize,
    /// Count of earlier messages.
    number: u64,
}

impl Note {
    fn to_bytes(self) -> Vec<u8> {
        let words = [self.what as u64, self.key, self.len as u64, self.number];
        words.map(u64::to_le_bytes).concat()
    }

    fn of(bytes: &[u8]) -> Note {
        let word = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap());
        Note {
            what: [What::Get, What::Put, What::Done][word(0) as usize],
            key: word(1),
            len: word(2) as usize,
            number: word(3),
        }
    }
}

/// One process of the exchange.
struct Party {
    side: Side,
    peer: PeerIndex,
    at_once: usize,
    /// Contexts and buffers of the receives, in the order of posting.
    posted: VecDeque<(u64, Vec<u8>)>,
    next_context: u64,
    /// Registered regions by key, and whether the peer writes them.
    regions: HashMap<u64, (Vec<u8>, bool)>,
    /// Operations in flight by context: the key and the buffer.
    in_flight: HashMap<u64, (u64, Vec<u8>)>,
    /// Messages in flight by context.
    sends: HashMap<u64, Vec<u8>>,
    opened: u64,
    closed: u64,
    served: u64,
    said: u64,
    heard: u64,
}

/// Returns a length between one frame and some parts of a stream.
fn len_of(key: u64) -> usize {
    [300_000, 20_000, 100_000, 1_000, 66_000, 41_818][key as usize % 6]
}

fn access(is_put: bool) -> RawAccess {
    RawAccess {
        read: !is_put,
        write: is_put,
    }
}

impl Party {
    fn new(mut side: Side, peer: PeerIndex, at_once: usize) -> Party {
        let mut posted = VecDeque::new();
        for context in 0..RECEIVES as u64 {
            let mut buf = vec![0; MESSAGE_LEN];
            side.recv(&ANY, &mut buf, context);
            posted.push_back((context, buf));
        }
        Party {
            side,
            peer,
            at_once,
            posted,
            next_context: RECEIVES as u64,
            regions: HashMap::new(),
            in_flight: HashMap::new(),
            sends: HashMap::new(),
            opened: 0,
            closed: 0,
            served: 0,
            said: 0,
            heard: 0,
        }
    }

    fn context(&mut self) -> u64 {
        self.next_context += 1;
        self.next_context
    }

    fn send(&mut self, what: What, key: u64, len: usize) {
        let number = self.said;
        self.said += 1;
        let context = self.context();
        let note = Note {
            what,
            key,
            len,
            number,
        };
        let bytes = note.to_bytes();
        self.side.send(self.peer, &DELIVERED, &bytes, context);
        self.sends.insert(context, bytes);
    }

    fn register_some(&mut self) {
        while self.opened < COUNT && self.regions.len() < self.at_once {
            let key = self.opened;
            self.opened += 1;
            let (len, is_put) = (len_of(key), key % 3 == 1);
            let mut memory = match is_put {
                true => vec![0; len],
                false => bytes(len, key as u8),
            };
            // SAFETY: the memory is kept until the region is closed.
            unsafe {
                let memory = piece(&mut memory);
                self.side.end.register(memory, access(is_put), key, 0)
            }
            .unwrap();
            self.regions.insert(key, (memory, is_put));
            let what = if is_put { What::Put } else { What::Get };
            self.send(what, key, len);
        }
    }

    fn handle_completions(&mut self) {
        self.side.poll();
        for done in std::mem::take(&mut self.side.done) {
            let context = done.cookie.context;
            assert_eq!(done.error, None, "{done:?}");
            match done.kind {
                RawKind::Recv => self.handle_message(context),
                RawKind::Send => drop(self.sends.remove(&context).unwrap()),
                _ => self.finish(context, done.kind),
            }
        }
    }

    /// Handles a received message; checks that receives complete in order.
    fn handle_message(&mut self, context: u64) {
        let (first, buf) = self.posted.pop_front().unwrap();
        assert_eq!(context, first, "receives complete in the order of posting");
        let note = Note::of(&buf);
        assert_eq!(
            note.number, self.heard,
            "messages come in the order of sending"
        );
        self.heard += 1;
        let (context, mut buf) = (self.context(), vec![0; MESSAGE_LEN]);
        self.side.recv(&ANY, &mut buf, context);
        self.posted.push_back((context, buf));
        match note.what {
            What::Done => self.deregister(note.key),
            what => self.serve(what, note),
        }
    }

    fn deregister(&mut self, key: u64) {
        let (mut memory, is_put) = self.regions.remove(&key).unwrap();
        assert!(self.side.end.deregister(key));
        let wanted = bytes(memory.len(), key as u8 + u8::from(is_put));
        assert!(memory == wanted, "region {key}, put: {is_put}");
        // Bytes that are read from now on differ.
        memory.fill(0x5a);
        self.closed += 1;
    }

    fn serve(&mut self, what: What, note: Note) {
        let context = self.context();
        let key = note.key;
        let at = RawRemote { addr: 0, key };
        let mut memory = match what {
            What::Put => bytes(note.len, key as u8 + 1),
            _ => vec![0xa5; note.len],
        };
        let pieces: [RawPiece; 1] = [piece(&mut memory)];
        let (end, peer) = (&mut self.side.end, self.peer);
        // SAFETY: the memory is kept until the completion.
        unsafe {
            match what {
                What::Put => end.put(peer, at, &pieces, None, Cookie::new(context)),
                _ => end.get(peer, at, &pieces, Cookie::new(context)),
            }
        }
        .unwrap();
        self.in_flight.insert(context, (key, memory));
    }

    fn finish(&mut self, context: u64, kind: RawKind) {
        let (key, memory) = self.in_flight.remove(&context).unwrap();
        let is_right = kind == RawKind::Put || memory == bytes(memory.len(), key as u8);
        assert!(is_right, "a get of {} bytes differs", memory.len());
        self.served += 1;
        self.send(What::Done, key, 0);
    }

    fn run(&mut self) {
        let begin = Instant::now();
        while self.closed < COUNT || self.served < COUNT || !self.sends.is_empty() {
            self.register_some();
            self.handle_completions();
            for sent in std::mem::take(&mut self.side.sent) {
                self.sends.remove(&sent).unwrap();
            }
            let (closed, served, heard) = (self.closed, self.served, self.heard);
            assert!(
                begin.elapsed() < PATIENCE,
                "closed {closed}, served {served} of {COUNT}, heard {heard}"
            );
        }
    }
}

/// Runs one of the two processes; does nothing as a test of its own.
#[test]
fn host() {
    let (Ok(_), Ok(at_once)) = (std::env::var(ROLE), std::env::var(AT_ONCE)) else {
        return;
    };
    let path = match std::env::var_os(UDP_ONLY) {
        Some(_) => PathChoice::Udp,
        None => PathChoice::Auto,
    };
    let (mut side, other) = open(path);
    let peer = side.end.insert(&other).unwrap();
    let mut party = Party::new(side, peer, at_once.parse().unwrap());
    party.run();
    let end = &party.side.end;
    let (links, streamed) = (end.links_to(peer), end.counters().stream_bytes);
    print_line(&format!("streamed {streamed} by {}", links.join(" ")));
    // The peer may need acknowledgements until the test closes the input.
    let input = std::thread::spawn(|| std::io::stdin().lines().count());
    while !input.is_finished() {
        party.side.poll();
    }
}

/// An exchange between two processes.
struct Exchange<'a> {
    lab: &'a Lab,
    /// Hosts of the processes 0 and 1.
    hosts: [usize; 2],
    /// Percentage of packets that are lost.
    percent: u32,
    stream: &'a str,
    at_once: &'a str,
}

impl Exchange<'_> {
    fn run(&self) {
        let env = [("PORTOLAN_STREAM", self.stream), (AT_ONCE, self.at_once)];
        // Raw Ethernet frames do not pass the rule that loses packets.
        let udp_only = (self.percent > 0).then_some((UDP_ONLY, "1"));
        let env: Vec<_> = env.into_iter().chain(udp_only).collect();
        let start = |role: usize| {
            let place = (self.hosts[role], role);
            self.lab.start(place, "one_shot::host", &env)
        };
        let mut children = [0, 1].map(start);
        let mut lines = introduce(&mut children);
        for out in &mut lines {
            self.check_links(&read_line_after(out, "streamed "));
        }
        for child in &mut children {
            drop(child.stdin.take());
        }
        for child in &mut children {
            let status = child.wait().unwrap();
            let Exchange {
                stream, at_once, ..
            } = self;
            assert!(status.success(), "stream={stream}, {at_once} in flight");
        }
    }

    /// Checks that the exchange used the links under test.
    fn check_links(&self, report: &str) {
        let may_stream = self.hosts[0] != self.hosts[1] && self.stream != "off";
        let streamed = !report.starts_with("0 ");
        assert!(may_stream || !streamed, "{report}");
        // With loss, a connection may open too late; `auto` may prefer datagrams.
        if may_stream && self.stream == "on" && self.percent == 0 {
            assert!(streamed, "{report}");
        }
        assert!(self.percent == 0 || !report.contains("packet"), "{report}");
    }
}

/// Runs exchanges on `hosts` with each setting, while `percent` of the packets are lost.
fn exchange_all(hosts: [usize; 2], percent: u32) {
    let lab = Lab::try_new().and_then(|lab| match percent {
        0 => Ok(lab),
        _ => lab.lose(percent).map(|()| lab),
    });
    let lab = match lab {
        Ok(lab) => lab,
        Err(why) => return println!("SKIPPED: loss {percent} %: {why}"),
    };
    for stream in ["on", "auto", "off"] {
        for at_once in ["2", "12", "64"] {
            let exchange = Exchange {
                lab: &lab,
                hosts,
                percent,
                stream,
                at_once,
            };
            exchange.run();
        }
    }
}

#[test]
fn one_shot_regions_on_one_host_transfer_completely() {
    exchange_all([0, 0], 0);
}

#[test]
fn one_shot_regions_of_two_hosts_transfer_completely() {
    exchange_all([0, 1], 0);
}

#[test]
fn one_shot_regions_survive_loss() {
    exchange_all([0, 1], 3);
}
