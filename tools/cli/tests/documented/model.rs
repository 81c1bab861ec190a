// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicts what each step of a program results in, by what is documented.
//!
//! The program is played by an abstract machine that is as unhelpful as the documentation allows:
//! what may wait does wait. A program that ends there ends everywhere, because more buffering only
//! helps; one that does not end, or whose results depend on time, is refused and never run.

mod ends;
mod receives;
mod remote;
mod sends;
mod streams;
mod together;

use crate::plan::{
    Fault, Goal, How, Members, Message, Outcome, Pick, Place, Program, Reducer, Remote, Step,
    Wanted, sum, sum_received, sum_values, values,
};
use crate::rules::{BUFFERED_MAX, CHARGE, CREDIT, UNASKED_MAX};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// What a step may result in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expected {
    Is(Outcome),
    /// Any of these: processes race.
    OneOf(Vec<Outcome>),
    /// The next message of any sender; checked over all receives of its class.
    NextOfAny,
    Handled,
    Bursts(BTreeSet<u64>),
    /// The process does not live to tell.
    Never,
}

/// By (sender, lane): messages with their places.
pub(crate) type Streams = BTreeMap<(u32, bool), VecDeque<(Message, Place)>>;

/// Receives that take what comes first, whoever sent it.
#[derive(Debug, Default)]
pub(crate) struct AnyClass {
    pub(crate) rank: u32,
    /// In the order of posting: the step that tells the result, and the bytes of the buffer.
    pub(crate) receives: Vec<(usize, usize)>,
    /// What each (sender, lane) sends, in order.
    pub(crate) streams: Streams,
    /// The step that tells what a handler got.
    pub(crate) handled: Option<usize>,
}

/// Receives of a rank from one that is killed, in the order of the messages: after the first that
/// fails all do.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) rank: u32,
    pub(crate) links: Vec<Link>,
}

/// A step of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) step: usize,
    /// Its message may be lost without those behind it: they are matched by their tags while it
    /// waits, announced, for a receive that asks for it.
    pub(crate) may_fail_alone: bool,
}

/// What a program should do.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    pub(crate) steps: Vec<Vec<Expected>>,
    pub(crate) classes: Vec<AnyClass>,
    pub(crate) chains: Vec<Chain>,
    pub(crate) killed: Option<u32>,
}

/// Why a program is not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsound(pub(crate) String);

type Verdict<T> = Result<T, Unsound>;

fn unsound<T>(why: impl Into<String>) -> Verdict<T> {
    Err(Unsound(why.into()))
}

/// Tags of messages that are received from anybody have this in their highest byte.
pub(crate) const ANY_TAGS: u64 = 0xaa << 56;
/// Bits of a tag that tell such tags from others.
const TAG_CLASS: u64 = 0xff << 56;

/// What a message is matched among: a port, all tags of one sender, or those for anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Port(u16),
    Tags,
    AnyTags,
}

fn class_of(place: Place) -> Class {
    match place {
        Place::Port(port) => Class::Port(port),
        Place::Tag { tag, .. } if tag & TAG_CLASS == ANY_TAGS => Class::AnyTags,
        Place::Tag { .. } => Class::Tags,
    }
}

fn class_wanted(which: Wanted) -> Class {
    class_of(match which.pick {
        Pick::Port(port) => Place::Port(port),
        Pick::Tag { tag, .. } => Place::Tag { tag, imm: None },
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unsent,
    /// Held back by credit.
    Queued,
    Sent,
}

/// A message, from the step that sends it.
#[derive(Debug)]
struct Sent {
    from: u32,
    step: usize,
    to: Goal,
    message: Message,
    /// A key: its bytes are not known beforehand.
    secret: bool,
    blocking: bool,
    /// Its end is waited for, or none is to be waited for.
    promised: bool,
    receive: Option<usize>,
    state: State,
    /// Its bytes count as unread.
    charged: usize,
    clock: Vec<usize>,
}

/// A receive, from the step that posts it.
#[derive(Debug)]
struct Receive {
    rank: u32,
    /// The step that tells how it ended, if one does.
    result: Option<usize>,
    which: Wanted,
    buffer: usize,
    message: Option<usize>,
    posted: bool,
    claimed: bool,
    /// It has ended because nobody is left.
    orphaned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortUse {
    Open,
    Handled,
}

/// How a slot was filled.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Send(usize),
    Receive(usize),
    Access(usize),
    Refused,
}

/// An access to remote memory.
#[derive(Debug)]
struct Touch {
    user: u32,
    issued: usize,
    done: Option<usize>,
    high: bool,
    len: usize,
    result: Outcome,
}

#[derive(Debug)]
struct Region {
    owner: u32,
    read: bool,
    write: bool,
    bytes: Vec<u8>,
    touches: Vec<usize>,
    /// Steps of the owner that looked at it.
    looks: Vec<usize>,
    /// The step of the owner that closed it.
    deregistered: Option<usize>,
}

struct Machine<'a> {
    program: &'a Program,
    size: u32,
    pc: Vec<usize>,
    clocks: Vec<Vec<usize>>,
    messages: Vec<Sent>,
    receives: Vec<Receive>,
    /// By (rank, step).
    message_at: HashMap<(u32, usize), usize>,
    receive_at: HashMap<(u32, usize), usize>,
    any: BTreeSet<(u32, Class)>,
    handled: BTreeSet<(u32, u16)>,
    ports: Vec<BTreeMap<u16, PortUse>>,
    slots: Vec<HashMap<u32, Slot>>,
    /// Messages to a class of anybody that were sent.
    arrived: BTreeMap<(u32, Class), usize>,
    unread: BTreeMap<(u32, u32, bool), usize>,
    queues: BTreeMap<(u32, u32, bool), VecDeque<usize>>,
    regions: HashMap<u32, Region>,
    touches: Vec<Touch>,
    /// By (owner, user, lane): how many steps of the user are known to have been sent before.
    lane_seen: HashMap<(u32, u32, bool), usize>,
    /// Sends whose result depends on whether the receiver still lives: (rank, step, message).
    gambles: Vec<(u32, usize, usize)>,
    /// Accesses and collective operations: (rank, step, other rank), to be over before that ends.
    needs: Vec<(u32, usize, u32)>,
    /// Ranks known to be gone, to whom.
    known_gone: BTreeSet<(u32, u32)>,
    expected: Vec<Vec<Expected>>,
}

/// What `program` should do; an error if that is not determined.
pub(crate) fn predict(program: &Program) -> Verdict<Prediction> {
    let mut machine = Machine::new(program)?;
    machine.match_streams()?;
    while machine.turn()? {}
    for (rank, steps) in program.processes.iter().enumerate() {
        if machine.pc[rank] < steps.len() {
            let at = machine.pc[rank];
            return unsound(format!(
                "rank {rank} waits for ever in step {at}: {:?}",
                steps[at]
            ));
        }
    }
    machine.finish()
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program) -> Verdict<Self> {
        let count = program.processes.len();
        let size = u32::try_from(count).unwrap();
        let mut machine = Machine {
            program,
            size,
            pc: vec![0; count],
            clocks: vec![vec![0; count]; count],
            messages: Vec::new(),
            receives: Vec::new(),
            message_at: HashMap::new(),
            receive_at: HashMap::new(),
            any: BTreeSet::new(),
            handled: BTreeSet::new(),
            ports: vec![BTreeMap::new(); count],
            slots: vec![HashMap::new(); count],
            arrived: BTreeMap::new(),
            unread: BTreeMap::new(),
            queues: BTreeMap::new(),
            regions: HashMap::new(),
            touches: Vec::new(),
            lane_seen: HashMap::new(),
            gambles: Vec::new(),
            needs: Vec::new(),
            known_gone: BTreeSet::new(),
            expected: vec![Vec::new(); count],
        };
        for rank in 0..size {
            machine.collect(rank)?;
        }
        Ok(machine)
    }

    /// Lets every process go as far as it can; whether any moved.
    fn turn(&mut self) -> Verdict<bool> {
        let mut moved = false;
        for rank in 0..self.size {
            while let Some(step) = self.program.processes[rank as usize].get(self.pc(rank)) {
                self.move_queues();
                let Some(expected) = self.advance(rank, step)? else {
                    break;
                };
                self.done(rank, expected);
                moved = true;
            }
        }
        Ok(moved)
    }

    fn pc(&self, rank: u32) -> usize {
        self.pc[rank as usize]
    }

    fn done(&mut self, rank: u32, expected: Expected) {
        if let Expected::Is(Outcome::Fault(Fault::PeerGone { rank: gone })) = expected {
            self.known_gone.insert((rank, gone));
        }
        self.expected[rank as usize].push(expected);
        self.pc[rank as usize] += 1;
    }

    fn has_ended(&self, rank: u32) -> bool {
        self.pc(rank) == self.program.processes[rank as usize].len()
    }

    fn is_killed(&self, rank: u32) -> bool {
        self.program.processes[rank as usize].last() == Some(&Step::Kill)
    }

    /// The clock of `rank` as what it sends now carries it: of each process, how many of its steps
    /// are over, and one.
    fn stamp(&mut self, rank: u32) -> Vec<usize> {
        let own = self.pc(rank) + 1;
        let clock = &mut self.clocks[rank as usize];
        clock[rank as usize] = own;
        clock.clone()
    }

    fn learn(&mut self, rank: u32, clock: &[usize]) {
        for (own, other) in self.clocks[rank as usize].iter_mut().zip(clock) {
            *own = (*own).max(*other);
        }
    }

    /// Whether `rank` knows that `step` of `other` is over.
    fn knows(&self, rank: u32, other: u32, step: usize) -> bool {
        rank == other || self.clocks[rank as usize][other as usize] >= step + 2
    }

    fn advance(&mut self, rank: u32, step: &Step) -> Verdict<Option<Expected>> {
        let done = Expected::Is(Outcome::Done);
        let fault = |fault| Ok(Some(Expected::Is(Outcome::Fault(fault))));
        match *step {
            Step::Open(port) | Step::ExpectBursts { port, .. } => {
                return Ok(Some(self.open(rank, port, PortUse::Open)));
            }
            Step::OpenActive { port, .. } => {
                return Ok(Some(self.open(rank, port, PortUse::Handled)));
            }
            Step::Send { to, .. } | Step::GiveKey { to, .. } => return self.send(rank, to),
            Step::Start { slot, to, .. } => return self.start(rank, slot, to),
            Step::Recv { which, .. } | Step::TakeKey { which, .. } => {
                return self.receive(rank, which);
            }
            Step::Post { slot, which, .. } => return self.post(rank, slot, which),
            Step::Claim { slot, which, .. } => return self.claim(rank, slot, which),
            Step::PostShared(port) => {
                let mut faults = vec![Outcome::Fault(Fault::BufferShared)];
                // Which of two mistakes is told is not said.
                if !self.ports[rank as usize].contains_key(&port) {
                    faults.push(Outcome::Fault(Fault::PortClosed(port)));
                }
                return Ok(Some(Expected::OneOf(faults)));
            }
            Step::Wait(slot) | Step::Test(slot) => return self.wait(rank, slot),
            Step::Cancel(slot) => return self.cancel(rank, slot),
            Step::Peek(which) => return self.peek(rank, which),
            Step::PeekNothing(which) => return self.peek_nothing(rank, which),
            Step::Handled { port, count } => return self.wait_handled(rank, port, count),
            Step::Barrier(_) | Step::Broadcast { .. } | Step::Reduce { .. } | Step::Group(_) => {
                return self.together(rank, step);
            }
            Step::RegisterShared => return fault(Fault::RegionShared),
            Step::Register {
                region,
                len,
                read,
                write,
            } => self.register(rank, region, (len, read, write))?,
            Step::Access { .. } | Step::StartAccess { .. } => return self.access(rank, step),
            Step::Trespass(to) => {
                if to >= self.size {
                    let size = self.size;
                    return fault(Fault::NoSuchRank { rank: to, size });
                }
                self.needs.push((rank, self.pc(rank), to));
                return fault(refused(to, "NoSuchKey"));
            }
            Step::Look(region) | Step::Deregister(region) => {
                let closes = matches!(step, Step::Deregister(_));
                return self.look(rank, region, closes).map(Some);
            }
            Step::Burst { to, .. } => self.needs.push((rank, self.pc(rank), to)),
            Step::TakeBursts(port) => return Ok(Some(self.bursts(rank, port))),
            Step::Kill => {
                self.stamp(rank);
                return Ok(Some(Expected::Never));
            }
            Step::Close => {
                if !self.may_close(rank)? {
                    return Ok(None);
                }
                self.stamp(rank);
            }
            Step::Flush | Step::Progress | Step::SleepUs(_) => {}
        }
        Ok(Some(done))
    }

    fn open(&mut self, rank: u32, port: u16, how: PortUse) -> Expected {
        match self.ports[rank as usize].entry(port) {
            Entry::Occupied(_) => Expected::Is(Outcome::Fault(Fault::PortInUse(port))),
            Entry::Vacant(place) => {
                place.insert(how);
                Expected::Is(Outcome::Done)
            }
        }
    }

    fn check_rank(&self, rank: u32) -> Option<Expected> {
        let size = self.size;
        let fault = Fault::NoSuchRank { rank, size };
        (rank >= size).then_some(Expected::Is(Outcome::Fault(fault)))
    }
}

fn gone_outcome(rank: u32) -> Outcome {
    Outcome::Fault(Fault::PeerGone { rank })
}

fn gone(rank: u32) -> Expected {
    Expected::Is(gone_outcome(rank))
}

fn refused(rank: u32, why: &str) -> Fault {
    Fault::RemoteRefused {
        rank,
        why: why.to_owned(),
    }
}

/// What the receive of a message results in.
pub(crate) fn received(
    message: Message,
    place: Place,
    source: u32,
    buffer: usize,
    keeps_buffer: bool,
) -> Outcome {
    let bytes = sum_received(message, buffer);
    let label = match place {
        Place::Tag { tag, imm } => Some((tag, imm)),
        Place::Port(_) => None,
    };
    if message.len <= buffer {
        return Outcome::Got {
            len: message.len,
            source,
            label,
            bytes,
        };
    }
    let message_len = message.len as u64;
    let fault = match place {
        Place::Port(port) => Fault::Truncated {
            port,
            message_len,
            buffer_len: buffer,
        },
        Place::Tag { tag, .. } => Fault::TruncatedTagged {
            source,
            tag,
            message_len,
            buffer_len: buffer,
        },
    };
    match keeps_buffer {
        true => Outcome::Cut { fault, bytes },
        false => Outcome::Fault(fault),
    }
}
