// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of a trace to the steps of a replay: computation, and sends, receives and waits of
//! messages. A message is identified by its sender and receiver.
//!
//! The k-th send to a process with a tag matches the k-th receive from that sender with that tag,
//! as MPI defines for one communicator. Receives from any source match the sender of their recorded
//! message.

use crate::collective::Member;
use crate::trace::{Action, Event, Matching, Received, Shape, Trace};
use std::collections::{BTreeMap, HashMap};

/// Next action of a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Computation in microseconds.
    Compute(f64),
    /// Start of a message.
    Send(MessageIndex),
    /// Receive of a message is posted.
    Post(MessageIndex),
    /// Wait for all of these. An empty list polls.
    Wait(Vec<Part>),
    /// Operation on another process's memory.
    Remote {
        to: usize,
        bytes: u64,
        returns: bool,
    },
    /// Wait for the operations on remote memory.
    Flush,
}

/// Condition that a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The buffer of a sent message is free.
    Sent(MessageIndex),
    /// A message has arrived.
    Received(MessageIndex),
}

/// Index into [`Program::messages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MessageIndex(pub(crate) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Set when the send has been found.
    pub(crate) bytes: u64,
    pub(crate) has_send: bool,
    pub(crate) has_receive: bool,
}

/// Steps of all processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Program {
    /// Steps by process.
    pub(crate) steps: Vec<Vec<Step>>,
    pub(crate) messages: Vec<Message>,
}

/// Scope in which messages of the same sender and receiver keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Channel {
    Matched(Matching),
    /// Collective operation with this number in a group.
    Collective(u32, usize),
    Fence(usize),
}

/// Reason why a trace cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The trace has no process.
    #[error("the trace has no process: profile the program with --events")]
    Empty,
    /// A rank does not exist in the trace.
    #[error(
        "process {process} refers to process {named}, but the trace has only {count}: a record is missing"
    )]
    Process {
        /// Process of the event.
        process: usize,
        /// Rank in the event.
        named: usize,
        /// Number of processes in the trace.
        count: usize,
    },
    /// Times decrease.
    #[error(
        "event {event} of process {process} starts before the end of the previous one, or ends before its start: the record is damaged"
    )]
    Times {
        /// Process of the event.
        process: usize,
        /// Index of the event.
        event: usize,
    },
    /// A process waits for something that never happens.
    #[error(
        "process {process} would wait forever for process {other}: events are missing (profile it again with a larger --events), or the program relies on buffered sends that are too long for this network"
    )]
    Stuck {
        /// The waiting process.
        process: usize,
        /// The process that it waits for.
        other: usize,
    },
}

impl Program {
    /// Converts a trace.
    ///
    /// # Errors
    /// Returns an error if the trace is empty, names processes that it does not contain, or has
    /// times that decrease.
    pub(crate) fn of(trace: &Trace) -> Result<Program, TraceError> {
        if trace.processes.is_empty() {
            return Err(TraceError::Empty);
        }
        let mut builder = Builder::new(trace);
        for (process, run) in trace.processes.iter().enumerate() {
            check(trace, process)?;
            let steps = Converter::new(&mut builder, process).convert(&run.events, run.end_ns);
            builder.program.steps.push(steps);
        }
        Ok(builder.program)
    }

    /// Returns the microseconds that each process computes.
    pub(crate) fn computing_us(&self) -> Vec<f64> {
        let of = |step: &Step| match step {
            Step::Compute(us) => *us,
            _ => 0.0,
        };
        let steps = self.steps.iter();
        steps.map(|steps| steps.iter().map(of).sum()).collect()
    }
}

/// Checks the events of `process`.
fn check(trace: &Trace, process: usize) -> Result<(), TraceError> {
    let count = trace.processes.len();
    let run = &trace.processes[process];
    let mut before: Option<&Event> = None;
    for (event, this) in run.events.iter().enumerate() {
        let follows = before.is_none_or(|before| {
            let is_same_call = before.start_ns == this.start_ns && before.end_ns == this.end_ns;
            is_same_call || before.end_ns <= this.start_ns
        });
        if !follows || this.start_ns > this.end_ns || this.end_ns > run.end_ns {
            return Err(TraceError::Times { process, event });
        }
        before = Some(this);
        let named = match this.action {
            Action::Send { to, .. } | Action::Remote { to, .. } => Some(to),
            Action::Receive(received) => Some(received.from),
            Action::Complete { received, .. } => received.map(|received| received.from),
            Action::Collective { root, .. } => root,
            _ => None,
        };
        if let Some(named) = named.filter(|named| *named >= count) {
            return Err(TraceError::Process {
                process,
                named,
                count,
            });
        }
    }
    Ok(())
}

/// Processes with collective operations in a group, in ascending order, and the expected number of
/// members.
#[derive(Default)]
struct Group {
    members: Vec<usize>,
    count: usize,
}

struct Builder {
    program: Program,
    groups: BTreeMap<u32, Group>,
    /// Processes that call fences.
    fencing: Vec<usize>,
    /// Bytes of each broadcast or scatter at its root, by group and number of the operation.
    from_roots: HashMap<(u32, usize), u64>,
    /// Messages by sender, receiver and channel, with the number of sends and receives found so
    /// far.
    ends: HashMap<(usize, usize, Channel), Ends>,
}

/// Messages of a channel in order.
#[derive(Default)]
struct Ends {
    messages: Vec<MessageIndex>,
    sends: usize,
    receives: usize,
}

/// Effect of a request's completion.
enum Pending {
    Part(Part),
    Collective(Vec<Step>),
}

impl Builder {
    fn new(trace: &Trace) -> Builder {
        let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
        let mut from_roots: HashMap<(u32, usize), u64> = HashMap::new();
        let mut fencing = Vec::new();
        for (process, run) in trace.processes.iter().enumerate() {
            let mut operations: HashMap<u32, usize> = HashMap::new();
            for event in &run.events {
                match event.action {
                    Action::Collective {
                        group,
                        members,
                        bytes,
                        ..
                    } => {
                        let known = groups.entry(group).or_default();
                        if known.members.last() != Some(&process) {
                            known.members.push(process);
                        }
                        known.count = members;
                        let number = operations.entry(group).or_default();
                        let most = from_roots.entry((group, *number)).or_default();
                        *most = bytes.max(*most);
                        *number += 1;
                    }
                    Action::Fence if fencing.last() != Some(&process) => fencing.push(process),
                    _ => {}
                }
            }
        }
        Builder {
            program: Program::default(),
            groups,
            fencing,
            from_roots,
            ends: HashMap::new(),
        }
    }

    fn send(&mut self, ends: (usize, usize), channel: Channel, bytes: u64) -> MessageIndex {
        let index = self.end(ends, channel, |ends| &mut ends.sends);
        let message = &mut self.program.messages[index.0];
        message.bytes = bytes;
        message.has_send = true;
        index
    }

    fn receive(&mut self, ends: (usize, usize), channel: Channel) -> MessageIndex {
        let index = self.end(ends, channel, |ends| &mut ends.receives);
        self.program.messages[index.0].has_receive = true;
        index
    }

    /// Returns the next message of a channel for one of its ends.
    fn end(
        &mut self,
        (from, to): (usize, usize),
        channel: Channel,
        count: impl Fn(&mut Ends) -> &mut usize,
    ) -> MessageIndex {
        let ends = self.ends.entry((from, to, channel)).or_default();
        let number = *count(ends);
        *count(ends) += 1;
        if number == ends.messages.len() {
            ends.messages
                .push(MessageIndex(self.program.messages.len()));
            self.program.messages.push(Message {
                from,
                to,
                bytes: 0,
                has_send: false,
                has_receive: false,
            });
        }
        ends.messages[number]
    }
}

/// Conversion of one process's events.
struct Converter<'a> {
    builder: &'a mut Builder,
    process: usize,
    steps: Vec<Step>,
    /// Conditions that the current call waits for.
    waits: Vec<Part>,
    requests: HashMap<u32, Pending>,
    /// Number of collective operations of each group so far.
    operations: HashMap<u32, usize>,
    fences: usize,
}

impl<'a> Converter<'a> {
    fn new(builder: &'a mut Builder, process: usize) -> Converter<'a> {
        Converter {
            builder,
            process,
            steps: Vec::new(),
            waits: Vec::new(),
            requests: HashMap::new(),
            operations: HashMap::new(),
            fences: 0,
        }
    }

    fn convert(mut self, events: &[Event], end_ns: u64) -> Vec<Step> {
        let posted = posted(events);
        let mut last_ns = 0;
        let mut at = 0;
        let is_one_call = |a: &Event, b: &Event| (a.start_ns, a.end_ns) == (b.start_ns, b.end_ns);
        for call in events.chunk_by(is_one_call) {
            self.compute(call[0].start_ns - last_ns);
            last_ns = call[0].end_ns;
            for event in call {
                self.add(event.action, posted.get(&at).copied());
                at += 1;
            }
            // A call that waits for nothing is a poll.
            let waits = std::mem::take(&mut self.waits);
            self.steps.push(Step::Wait(waits));
        }
        self.compute(end_ns - last_ns);
        self.steps
    }

    fn compute(&mut self, ns: u64) {
        if ns > 0 {
            self.steps.push(Step::Compute(ns as f64 / 1e3));
        }
    }

    /// Adds the steps of one event. `posted` is the message that a posted receive obtained later.
    fn add(&mut self, action: Action, posted: Option<Received>) {
        match action {
            Action::Send {
                to,
                matching,
                bytes,
                request,
            } => {
                let ends = (self.process, to);
                let message = self.builder.send(ends, Channel::Matched(matching), bytes);
                self.steps.push(Step::Send(message));
                match request {
                    Some(request) => self.begin(request, Pending::Part(Part::Sent(message))),
                    None => self.waits.push(Part::Sent(message)),
                }
            }
            Action::Receive(received) => {
                let message = self.post(received);
                self.waits.push(Part::Received(message));
            }
            Action::Post { request } => {
                // A receive that never completed requests nothing.
                if let Some(received) = posted {
                    let message = self.post(received);
                    self.begin(request, Pending::Part(Part::Received(message)));
                }
            }
            Action::Complete { request, .. } => match self.requests.remove(&request) {
                Some(Pending::Part(part)) => self.waits.push(part),
                Some(Pending::Collective(rounds)) => self.steps.extend(rounds),
                None => {}
            },
            Action::Collective {
                shape,
                group,
                root,
                bytes,
                request,
                ..
            } => {
                let rounds = self.collective(shape, group, root, bytes);
                match request {
                    Some(request) => self.begin(request, Pending::Collective(rounds)),
                    None => self.steps.extend(rounds),
                }
            }
            Action::Remote { to, bytes, returns } => {
                self.steps.push(Step::Remote { to, bytes, returns });
            }
            Action::Flush => self.steps.push(Step::Flush),
            Action::Fence => self.fence(),
            Action::Poll => {}
        }
    }

    fn begin(&mut self, request: u32, pending: Pending) {
        self.requests.insert(request, pending);
    }

    fn post(&mut self, received: Received) -> MessageIndex {
        let ends = (received.from, self.process);
        let message = self
            .builder
            .receive(ends, Channel::Matched(received.matching));
        self.steps.push(Step::Post(message));
        message
    }

    /// Returns the rounds of the group's next operation.
    fn collective(
        &mut self,
        shape: Shape,
        group: u32,
        root: Option<usize>,
        bytes: u64,
    ) -> Vec<Step> {
        let number = self.operations.entry(group).or_default();
        let of_root = self.builder.from_roots[&(group, *number)];
        let channel = Channel::Collective(group, *number);
        *number += 1;
        let known = &self.builder.groups[&group];
        // A group that is not entirely in the trace, such as that of an intercommunicator, cannot
        // be replayed.
        if known.members.len() != known.count {
            return vec![];
        }
        let members = known.members.clone();
        let member = Member {
            index: position(&members, self.process),
            count: members.len(),
            root: root.map_or(0, |root| position(&members, root)),
            bytes: match shape {
                Shape::Broadcast | Shape::Scatter => of_root,
                _ => bytes,
            },
        };
        self.rounds(&members, member, shape, channel)
    }

    fn fence(&mut self) {
        self.steps.push(Step::Flush);
        let channel = Channel::Fence(self.fences);
        self.fences += 1;
        let members = self.builder.fencing.clone();
        let member = Member {
            index: position(&members, self.process),
            count: members.len(),
            root: 0,
            bytes: 0,
        };
        let rounds = self.rounds(&members, member, Shape::Barrier, channel);
        self.steps.extend(rounds);
    }

    fn rounds(
        &mut self,
        members: &[usize],
        member: Member,
        shape: Shape,
        channel: Channel,
    ) -> Vec<Step> {
        let me = members[member.index];
        let mut steps = Vec::new();
        for round in member.rounds(shape) {
            let mut waits = Vec::new();
            for from in round.receives {
                let message = self.builder.receive((members[from], me), channel);
                steps.push(Step::Post(message));
                waits.push(Part::Received(message));
            }
            for (to, bytes) in round.sends {
                let message = self.builder.send((me, members[to]), channel, bytes);
                steps.push(Step::Send(message));
                waits.push(Part::Sent(message));
            }
            steps.push(Step::Wait(waits));
        }
        steps
    }
}

fn position(members: &[usize], process: usize) -> usize {
    // The root of an intercommunicator is not a member; the first member replaces it.
    members.binary_search(&process).unwrap_or(0)
}

/// Returns the message of each posted receive, by the index of the event that posted it.
fn posted(events: &[Event]) -> HashMap<usize, Received> {
    let mut open: HashMap<u32, usize> = HashMap::new();
    let mut found = HashMap::new();
    for (at, event) in events.iter().enumerate() {
        match event.action {
            Action::Post { request } => {
                open.insert(request, at);
            }
            Action::Complete { request, received } => {
                if let (Some(at), Some(received)) = (open.remove(&request), received) {
                    found.insert(at, received);
                }
            }
            _ => {}
        }
    }
    found
}
