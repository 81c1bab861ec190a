// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicts the result of each step of a program from the documentation.
//!
//! An abstract machine runs the program with the least help that the documentation allows: every
//! call that may wait does wait. A program that ends there ends everywhere, because more buffering
//! only helps. A program that does not end, or has results that depend on time, is rejected and
//! never run.

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

/// Possible results of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expected {
    Is(Outcome),
    /// Any of these, because processes race.
    OneOf(Vec<Outcome>),
    /// The next message of any sender; checked over all receives of its class.
    NextOfAny,
    Handled,
    Bursts(BTreeSet<u64>),
    /// No result, because the process is killed first.
    Never,
}

/// Messages with their places, by (sender, lane).
pub(crate) type Streams = BTreeMap<(u32, bool), VecDeque<(Message, Place)>>;

/// Receives that take the first message of any sender.
#[derive(Debug, Default)]
pub(crate) struct AnyClass {
    pub(crate) rank: u32,
    /// Step that reports the result, and bytes of the buffer, in the order of posting.
    pub(crate) receives: Vec<(usize, usize)>,
    /// Messages of each (sender, lane), in order.
    pub(crate) streams: Streams,
    /// Step that reports the messages of a handler.
    pub(crate) handled: Option<usize>,
}

/// Receives of a rank from a rank that is killed, in the order of the messages. After the first
/// failure all of them fail.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) rank: u32,
    pub(crate) links: Vec<Link>,
}

/// A step of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) step: usize,
    /// Set if the message may be lost although later ones arrive. These are matched by their tags
    /// while the message is announced and waits for its receive.
    pub(crate) may_fail_alone: bool,
}

/// Predicted behaviour of a program.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    pub(crate) steps: Vec<Vec<Expected>>,
    pub(crate) classes: Vec<AnyClass>,
    pub(crate) chains: Vec<Chain>,
    pub(crate) killed: Option<u32>,
}

/// Reason for which a program is not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsound(pub(crate) String);

type Verdict<T> = Result<T, Unsound>;

fn unsound<T>(why: impl Into<String>) -> Verdict<T> {
    Err(Unsound(why.into()))
}

/// Highest byte of the tags of messages that are received from any source.
pub(crate) const ANY_TAGS: u64 = 0xaa << 56;
/// Bits of a tag that distinguish such tags.
const TAG_CLASS: u64 = 0xff << 56;

/// Scope in which a message is matched: a port, all tags of one sender, or tags for any source.
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
    /// Waiting for credit.
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
    /// Set for a key, as its bytes are not known in advance.
    secret: bool,
    blocking: bool,
    /// Set if its completion is waited for, or needs no wait.
    promised: bool,
    receive: Option<usize>,
    state: State,
    /// Bytes that count as unread.
    charged: usize,
    clock: Vec<usize>,
}

/// A receive, from the step that posts it.
#[derive(Debug)]
struct Receive {
    rank: u32,
    /// Step that reports its end, if there is one.
    result: Option<usize>,
    which: Wanted,
    buffer: usize,
    message: Option<usize>,
    posted: bool,
    claimed: bool,
    /// Set if it has ended because no peer is left.
    orphaned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortUse {
    Open,
    Handled,
}

/// Contents of a slot.
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
    /// Steps in which the owner read it.
    looks: Vec<usize>,
    /// Step in which the owner closed it.
    deregistered: Option<usize>,
}

struct Machine<'a> {
    program: &'a Program,
    size: u32,
    pc: Vec<usize>,
    clocks: Vec<Vec<usize>>,
    messages: Vec<Sent>,
    receives: Vec<Receive>,
    /// Messages by (rank, step).
    message_at: HashMap<(u32, usize), usize>,
    receive_at: HashMap<(u32, usize), usize>,
    any: BTreeSet<(u32, Class)>,
    handled: BTreeSet<(u32, u16)>,
    ports: Vec<BTreeMap<u16, PortUse>>,
    slots: Vec<HashMap<u32, Slot>>,
    /// Number of messages sent to a class for any source.
    arrived: BTreeMap<(u32, Class), usize>,
    unread: BTreeMap<(u32, u32, bool), usize>,
    queues: BTreeMap<(u32, u32, bool), VecDeque<usize>>,
    regions: HashMap<u32, Region>,
    touches: Vec<Touch>,
    /// By (owner, user, lane): number of steps of the user known to have been sent before.
    lane_seen: HashMap<(u32, u32, bool), usize>,
    /// Sends with a result that depends on a receiver that may have ended: (rank, step, message).
    gambles: Vec<(u32, usize, usize)>,
    /// Accesses and collective operations: (rank, step, other rank). They must be over before the
    /// other rank ends.
    needs: Vec<(u32, usize, u32)>,
    /// Known ends of ranks: (rank that knows, ended rank).
    known_gone: BTreeSet<(u32, u32)>,
    expected: Vec<Vec<Expected>>,
}

/// Returns the predicted behaviour of `program`; an error if it is not determined.
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

    /// Lets every process continue as far as possible; returns true if any of them moved.
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

    /// Returns the clock of `rank` as carried by what it sends now: for each process, the number of
    /// its steps that are over, plus one.
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

    /// Returns true if `rank` knows that `step` of `other` is over.
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
                // The documentation does not specify which of two mistakes is reported.
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

/// Returns the result of receiving a message.
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
