// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays the steps of all processes in the order of time, on a model of a network.
//!
//! The model includes the work of sender and receiver, the latency, and the gap between messages at
//! a host's port in each direction. A long message is sent after its receiver has requested it.
//! Unless the network makes progress by itself, that handshake advances only during calls of the
//! two processes. The model excludes congested switches, losses, caches, and cores shared by
//! several processes.

use crate::network::{Network, Parts, Point, Progress};
use crate::program::{MessageIndex, Part, Program, Step, TraceError};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Hosts and networks of the replay.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) between_hosts: &'a Network,
    pub(crate) within_host: &'a Network,
    /// Processes per host; the last host may have fewer.
    pub(crate) per_host: usize,
    /// Parts of the networks' cost to include.
    pub(crate) parts: Parts,
}

/// Returns the program's predicted run time, in microseconds.
///
/// # Errors
/// Returns an error if a process waits for a message that no process sends.
pub(crate) fn replay(program: &Program, place: &Place) -> Result<f64, TraceError> {
    let mut replay = Replay::new(program, place);
    replay.run();
    replay.ended()
}

/// A message in flight. Times are absent until they are known.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    /// Time when the sender announced a long message.
    announced_us: Option<f64>,
    /// Time when the receive was posted.
    posted_us: Option<f64>,
    /// Arrival time; only the receiver's work remains.
    arrived_us: Option<f64>,
    /// Time when the sender's buffer is free.
    sent_us: Option<f64>,
}

/// Work for a message that a process does within a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// Receiver: grant the announced message.
    Grant,
    /// Sender: send the requested data.
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The process continues.
    Run(usize),
    /// A message needs work of its sender or receiver.
    Service(MessageIndex, Service),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_us: f64,
    /// Sequence number; entries with equal times are handled in this order.
    number: u64,
    due: Due,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_us.total_cmp(&other.at_us)).then(self.number.cmp(&other.number))
    }
}

/// State of a process's current call. Requests of other processes are served at once in a call that
/// waits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Call {
    #[default]
    None,
    /// Waiting since this time, with an unknown end.
    Waiting { since_us: f64 },
    /// The end of the call is known.
    Ending,
}

/// State of a process.
#[derive(Clone, Debug, Default)]
struct Process {
    next: usize,
    call: Call,
    /// Requests that arrived while it computed.
    deferred: Vec<(MessageIndex, Service)>,
    /// Time when its operations on remote memory are complete.
    remote_us: f64,
    end_us: Option<f64>,
}

/// Times from which the two directions of a host's port, or of a process's memory, are free.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    out_us: f64,
    in_us: f64,
}

struct Replay<'a> {
    program: &'a Program,
    place: &'a Place<'a>,
    processes: Vec<Process>,
    flights: Vec<Flight>,
    /// Ports by host, for messages between hosts.
    hosts: Vec<Port>,
    /// Ports by process, for messages within a host.
    memories: Vec<Port>,
    due: BinaryHeap<Reverse<Entry>>,
    numbers: u64,
}

impl<'a> Replay<'a> {
    fn new(program: &'a Program, place: &'a Place<'a>) -> Replay<'a> {
        let count = program.steps.len();
        let mut replay = Replay {
            program,
            place,
            processes: vec![Process::default(); count],
            flights: vec![Flight::default(); program.messages.len()],
            hosts: vec![Port::default(); count.div_ceil(place.per_host)],
            memories: vec![Port::default(); count],
            due: BinaryHeap::new(),
            numbers: 0,
        };
        for process in 0..count {
            replay.schedule(0.0, Due::Run(process));
        }
        replay
    }

    fn schedule(&mut self, at_us: f64, due: Due) {
        self.numbers += 1;
        let number = self.numbers;
        self.due.push(Reverse(Entry { at_us, number, due }));
    }

    fn run(&mut self) {
        while let Some(Reverse(Entry { at_us, due, .. })) = self.due.pop() {
            match due {
                Due::Run(process) => self.step(process, at_us),
                Due::Service(message, service) => self.request(message, service, at_us),
            }
        }
    }

    fn ended(&self) -> Result<f64, TraceError> {
        let mut last_us: f64 = 0.0;
        for (process, state) in self.processes.iter().enumerate() {
            let Some(end_us) = state.end_us else {
                return Err(TraceError::Stuck {
                    process,
                    other: self.awaited(process),
                });
            };
            last_us = last_us.max(end_us);
        }
        Ok(last_us)
    }

    /// Returns the process that a blocked process waits for.
    fn awaited(&self, process: usize) -> usize {
        let step = &self.program.steps[process][self.processes[process].next];
        let Step::Wait(parts) = step else {
            return process;
        };
        let open = parts.iter().find(|part| self.done_us(**part).is_none());
        open.map_or(process, |part| match part {
            Part::Sent(message) => self.program.messages[message.0].to,
            Part::Received(message) => self.program.messages[message.0].from,
        })
    }

    /// Performs the next step of a process.
    fn step(&mut self, process: usize, now_us: f64) {
        self.processes[process].call = Call::None;
        let program = self.program;
        let Some(step) = program.steps[process].get(self.processes[process].next) else {
            self.processes[process].end_us = Some(now_us);
            // In MPI_Finalize, the process still serves requests.
            self.processes[process].call = Call::Ending;
            self.serve(process, now_us);
            return;
        };
        if let Step::Compute(us) = step {
            self.schedule_next(process, now_us + us);
            return;
        }
        self.serve(process, now_us);
        match step {
            Step::Compute(_) => {}
            Step::Send(message) => {
                let free_us = self.begin(*message, now_us);
                self.schedule_next(process, free_us);
            }
            Step::Post(message) => {
                self.post(*message, now_us);
                self.schedule_next(process, now_us);
            }
            Step::Wait(_) => {
                self.processes[process].call = Call::Waiting { since_us: now_us };
                self.try_to_end_wait(process);
            }
            Step::Remote { to, bytes, returns } => {
                let free_us = self.remote(process, (*to, *bytes, *returns), now_us);
                self.schedule_next(process, free_us);
            }
            Step::Flush => {
                let done_us = self.processes[process].remote_us.max(now_us);
                self.processes[process].call = Call::Ending;
                self.schedule_next(process, done_us);
            }
        }
    }

    fn schedule_next(&mut self, process: usize, at_us: f64) {
        self.processes[process].next += 1;
        self.schedule(at_us, Due::Run(process));
    }

    /// Serves the requests that arrived while this process computed.
    fn serve(&mut self, process: usize, now_us: f64) {
        for (message, service) in std::mem::take(&mut self.processes[process].deferred) {
            self.provide(message, service, now_us);
        }
    }

    fn cost(&self, message: MessageIndex) -> Point {
        let message = &self.program.messages[message.0];
        self.network(message.from, message.to)
            .with(self.place.parts, message.bytes)
    }

    fn host(&self, process: usize) -> usize {
        process / self.place.per_host
    }

    fn network(&self, one: usize, other: usize) -> &'a Network {
        if self.host(one) == self.host(other) {
            self.place.within_host
        } else {
            self.place.between_hosts
        }
    }

    /// Returns the ports of a message's sender and receiver.
    fn ports(&mut self, from: usize, to: usize) -> (&mut Port, &mut Port) {
        let (from_host, to_host) = (self.host(from), self.host(to));
        let both = if from_host == to_host {
            self.memories.get_disjoint_mut([from, to])
        } else {
            self.hosts.get_disjoint_mut([from_host, to_host])
        };
        let [from, to] = both.expect("they differ: a message to oneself has no ports");
        (from, to)
    }

    /// Returns the departure and arrival times of a message that is ready at `now_us`. Each of the
    /// two ports handles one message at a time.
    fn travel(&mut self, (from, to): (usize, usize), cost: Point, now_us: f64) -> (f64, f64) {
        if from == to {
            return (now_us, now_us + cost.os_us);
        }
        let (out, into) = self.ports(from, to);
        let leaves_us = now_us.max(out.out_us);
        out.out_us = leaves_us + cost.g_us;
        let arrived_us = (leaves_us + cost.os_us + cost.l_us).max(leaves_us);
        let arrived_us = arrived_us.max(into.in_us + cost.g_us);
        into.in_us = arrived_us;
        (leaves_us, arrived_us)
    }

    fn is_long(&self, message: MessageIndex) -> bool {
        let message = self.program.messages[message.0];
        message.from != message.to
            && message.bytes > self.network(message.from, message.to).eager_max
    }

    /// Starts a send. Returns the time until which it occupies its process.
    fn begin(&mut self, message: MessageIndex, now_us: f64) -> f64 {
        let ends = self.program.messages[message.0];
        let cost = self.cost(message);
        if !self.is_long(message) {
            let (_, arrived_us) = self.travel((ends.from, ends.to), cost, now_us);
            let flight = &mut self.flights[message.0];
            flight.arrived_us = Some(arrived_us);
            flight.sent_us = Some(now_us + cost.os_us);
            self.try_to_end_wait(ends.to);
            return now_us + cost.os_us;
        }
        let hint = self.short(message);
        let announced_us = now_us + announcement_us(&hint);
        let flight = &mut self.flights[message.0];
        flight.announced_us = Some(announced_us);
        // A receiver without a matching receive in the trace accepts the message at once.
        if flight.posted_us.is_some() || !ends.has_receive {
            self.schedule(announced_us, Due::Service(message, Service::Grant));
        }
        now_us + hint.os_us
    }

    /// Returns the cost of a message's announcement or grant.
    fn short(&self, message: MessageIndex) -> Point {
        let message = &self.program.messages[message.0];
        self.network(message.from, message.to)
            .with(self.place.parts, 0)
    }

    fn post(&mut self, message: MessageIndex, now_us: f64) {
        let ends = self.program.messages[message.0];
        let flight = &mut self.flights[message.0];
        flight.posted_us = Some(now_us);
        if !ends.has_send {
            flight.arrived_us = Some(now_us);
        }
        match flight.announced_us {
            // The receiver is in a call now.
            Some(announced_us) if announced_us <= now_us => {
                self.provide(message, Service::Grant, now_us);
            }
            Some(announced_us) => {
                self.schedule(announced_us, Due::Service(message, Service::Grant));
            }
            None => {}
        }
    }

    /// Handles a request of a message, now or in the process's next call.
    fn request(&mut self, message: MessageIndex, service: Service, now_us: f64) {
        let ends = self.program.messages[message.0];
        let process = match service {
            Service::Grant => ends.to,
            Service::Data => ends.from,
        };
        let by_itself = self.network(ends.from, ends.to).progress == Progress::Always;
        if by_itself || self.processes[process].call != Call::None {
            self.provide(message, service, now_us);
        } else {
            self.processes[process].deferred.push((message, service));
        }
    }

    fn provide(&mut self, message: MessageIndex, service: Service, now_us: f64) {
        let ends = self.program.messages[message.0];
        let hint = self.short(message);
        match service {
            Service::Grant => {
                let granted_us = now_us + hint.delay_us();
                self.schedule(granted_us, Due::Service(message, Service::Data));
            }
            Service::Data => {
                let cost = self.cost(message);
                // The measured latency includes announcement and grant.
                let data = Point {
                    l_us: (cost.l_us - announcement_us(&hint) - hint.delay_us()).max(0.0),
                    ..cost
                };
                let (_, arrived_us) = self.travel((ends.from, ends.to), data, now_us);
                let flight = &mut self.flights[message.0];
                flight.arrived_us = Some(arrived_us);
                flight.sent_us = Some(arrived_us);
                self.try_to_end_wait(ends.to);
                self.try_to_end_wait(ends.from);
            }
        }
    }

    fn remote(
        &mut self,
        process: usize,
        (to, bytes, returns): (usize, u64, bool),
        now_us: f64,
    ) -> f64 {
        let network = self.network(process, to);
        let cost = network.with(self.place.parts, bytes);
        let hint = network.with(self.place.parts, 0);
        let (_, arrived_us) = if returns && to != process {
            let (_, requested_us) = self.travel((process, to), hint, now_us);
            self.travel((to, process), cost, requested_us)
        } else {
            self.travel((process, to), cost, now_us)
        };
        // A write is complete when its acknowledgement has returned.
        let back_us = if returns { 0.0 } else { hint.delay_us() };
        let state = &mut self.processes[process];
        state.remote_us = state.remote_us.max(arrived_us + cost.or_us + back_us);
        now_us + hint.os_us
    }

    /// Returns the time when a part of a wait is complete, if known. For a receive, the receiver's
    /// work is not included.
    fn done_us(&self, part: Part) -> Option<f64> {
        match part {
            Part::Sent(message) => self.flights[message.0].sent_us,
            Part::Received(message) => self.flights[message.0].arrived_us,
        }
    }

    /// Ends the wait of `process` if the times of all its parts are known.
    fn try_to_end_wait(&mut self, process: usize) {
        let state = &self.processes[process];
        let Call::Waiting { since_us } = state.call else {
            return;
        };
        let program = self.program;
        let Some(Step::Wait(parts)) = program.steps[process].get(state.next) else {
            return;
        };
        let mut free_us = since_us;
        let mut arrivals = Vec::new();
        for part in parts {
            let Some(done_us) = self.done_us(*part) else {
                return;
            };
            match part {
                Part::Sent(_) => free_us = free_us.max(done_us),
                Part::Received(message) => arrivals.push((done_us, self.cost(*message).or_us)),
            }
        }
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut work_us = since_us;
        for (arrived_us, or_us) in arrivals {
            work_us = work_us.max(arrived_us) + or_us;
        }
        self.processes[process].call = Call::Ending;
        self.schedule_next(process, free_us.max(work_us));
    }
}

/// Returns the time until the receiver can see a short message. The receiver's work is part of its
/// next action.
fn announcement_us(hint: &Point) -> f64 {
    hint.os_us + hint.l_us.max(0.0)
}
