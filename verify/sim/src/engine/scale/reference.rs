// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network of hosts with a published congestion control, for comparison.
//!
//! Cables and switch are those of the crowds. The switch marks frames above a threshold. A host
//! needs no processor time, an acknowledgement of each frame takes only the latency and its time on
//! one cable, and the flow of each pair of hosts is open from the start. Losses are detected by the
//! first later frame that arrives, or by a timeout. So the figures are the least times of these controls.

mod control;

use super::MESSAGE_OVERHEAD_LEN;
use super::crowd::{LATENCY_NS, PORT_BUFFER_LEN};
use super::traffic::{Message, PAYLOAD_MAX, Traffic, wire_ns};
use control::{Acked, Control};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Bytes queued for a port above which the switch marks frames: 20 full frames, twice the product
/// of bandwidth and round trip.
const MARK_LEN: u64 = 20 * (PAYLOAD_MAX + MESSAGE_OVERHEAD_LEN);

/// Bytes of an acknowledgement on the cable: the least frame of Ethernet, with preamble and gap.
const ACK_LEN: u64 = 84;

/// First timeout; it doubles with each further one. Data centers set 1 ms or more.
const TIMEOUT_NS: u64 = 1_000_000;
const BACKOFF_MAX: u32 = 6;

/// Name of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    Dctcp,
    Swift,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Time at which each message was complete.
    pub(super) ends_ns: Vec<u64>,
    /// Frames sent, and lost at a full buffer.
    pub(super) frames: u64,
    pub(super) overflowed: u64,
}

/// Frame of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    message: u32,
    index: u64,
}

/// Transmission of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moving {
    flow: u32,
    /// Counts the transmissions of the flow.
    number: u64,
    sent_at_ns: u64,
    frame: Frame,
    is_marked: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start(u32),
    AtSwitch(Moving),
    AtHost(Moving),
    Ack(Moving),
    Timer(u32),
    Resume(u32),
}

/// Messages from one host to another.
struct Flow {
    from: u32,
    to: u32,
    control: Control,
    unsent: VecDeque<Frame>,
    in_flight: BTreeMap<u64, Frame>,
    next_number: u64,
    last_sent_ns: u64,
    rtt_ns: u64,
    timeout_at_ns: u64,
    timeouts: u32,
    has_timer: bool,
    /// Set while an event resumes the flow after its pause.
    is_paused: bool,
}

/// See the module documentation.
struct Network<'a> {
    messages: &'a [Message],
    flows: Vec<Flow>,
    /// Flow of each message.
    flow_of: Vec<u32>,
    /// Time at which each host's cable, and the switch's to each host, is free.
    sent_at_ns: Vec<u64>,
    forwarded_at_ns: Vec<u64>,
    /// Frames of each message that have arrived.
    arrived: Vec<Vec<bool>>,
    missing: Vec<u64>,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
    now_ns: u64,
    outcome: Outcome,
}

/// Runs `traffic` under a reference.
pub(super) fn run(reference: Reference, traffic: &Traffic) -> Outcome {
    let mut network = Network::new(reference, traffic);
    while let Some(Reverse((at_ns, _, event))) = network.queue.pop() {
        network.now_ns = at_ns;
        network.handle(event);
    }
    network.outcome
}

impl<'a> Network<'a> {
    fn new(reference: Reference, traffic: &'a Traffic) -> Network<'a> {
        let mut network = Network {
            messages: &traffic.messages,
            flows: Vec::new(),
            flow_of: Vec::new(),
            sent_at_ns: vec![0; traffic.hosts as usize],
            forwarded_at_ns: vec![0; traffic.hosts as usize],
            arrived: Vec::new(),
            missing: Vec::new(),
            queue: BinaryHeap::new(),
            made: 0,
            now_ns: 0,
            outcome: Outcome {
                ends_ns: vec![0; traffic.messages.len()],
                ..Outcome::default()
            },
        };
        let mut known = BTreeMap::new();
        for (index, message) in (0..).zip(&traffic.messages) {
            let flow = *known.entry((message.from, message.to)).or_insert_with(|| {
                network.flows.push(Flow::new(reference, message));
                u32::try_from(network.flows.len() - 1).unwrap_or(u32::MAX)
            });
            network.flow_of.push(flow);
            let count = message.frame_count();
            let places = usize::try_from(count).unwrap_or(0);
            network.arrived.push(vec![false; places]);
            network.missing.push(count);
            network.push(message.at_ns, Event::Start(index));
        }
        network
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.made += 1;
        self.queue.push(Reverse((at_ns, self.made, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start(message) => self.start(message),
            Event::AtSwitch(moving) => self.pass_switch(moving),
            Event::AtHost(moving) => self.arrive(moving),
            Event::Ack(moving) => self.on_ack(moving),
            Event::Timer(flow) => self.on_timer(flow),
            Event::Resume(flow) => {
                self.flows[flow as usize].is_paused = false;
                self.send(flow);
            }
        }
    }

    fn start(&mut self, message: u32) {
        let flow = self.flow_of[message as usize];
        let count = self.messages[message as usize].frame_count();
        let frames = (0..count).map(|index| Frame { message, index });
        self.flows[flow as usize].unsent.extend(frames);
        self.send(flow);
    }

    /// Returns the time of a frame on a cable.
    fn frame_ns(&self, frame: Frame) -> u64 {
        let len = self.messages[frame.message as usize].len as u64;
        let payload = (len - frame.index * PAYLOAD_MAX).min(PAYLOAD_MAX);
        wire_ns(payload + MESSAGE_OVERHEAD_LEN)
    }

    /// Sends what the window of `index` permits.
    fn send(&mut self, index: u32) {
        loop {
            let now_ns = self.now_ns;
            let flow = &mut self.flows[index as usize];
            let may_send = flow.may_send(now_ns);
            if let Some(at_ns) = may_send.filter(|at_ns| *at_ns > now_ns) {
                if !std::mem::replace(&mut flow.is_paused, true) {
                    self.push(at_ns, Event::Resume(index));
                }
                return;
            }
            let Some(frame) = may_send.and_then(|_| flow.unsent.pop_front()) else {
                return;
            };
            let (from, number) = (flow.from as usize, flow.next_number);
            flow.next_number += 1;
            flow.last_sent_ns = now_ns;
            flow.in_flight.insert(number, frame);
            flow.timeout_at_ns = now_ns + flow.timeout_ns();
            let timer_ns = flow.timeout_at_ns;
            if !std::mem::replace(&mut flow.has_timer, true) {
                self.push(timer_ns, Event::Timer(index));
            }
            let moving = Moving {
                flow: index,
                number,
                sent_at_ns: now_ns,
                frame,
                is_marked: false,
            };
            let sent_at_ns = self.sent_at_ns[from].max(now_ns) + self.frame_ns(frame);
            self.sent_at_ns[from] = sent_at_ns;
            self.outcome.frames += 1;
            self.push(sent_at_ns + LATENCY_NS, Event::AtSwitch(moving));
        }
    }

    fn pass_switch(&mut self, mut moving: Moving) {
        let time_ns = self.frame_ns(moving.frame);
        let to = self.flows[moving.flow as usize].to as usize;
        let free_at_ns = self.forwarded_at_ns[to].max(self.now_ns);
        let queued_ns = free_at_ns - self.now_ns;
        if queued_ns + time_ns > wire_ns(PORT_BUFFER_LEN as u64) {
            self.outcome.overflowed += 1;
            return;
        }
        moving.is_marked = queued_ns > wire_ns(MARK_LEN);
        self.forwarded_at_ns[to] = free_at_ns + time_ns;
        self.push(free_at_ns + time_ns, Event::AtHost(moving));
    }

    fn arrive(&mut self, moving: Moving) {
        let Frame { message, index } = moving.frame;
        let message = message as usize;
        let place = usize::try_from(index).unwrap_or(usize::MAX);
        if !std::mem::replace(&mut self.arrived[message][place], true) {
            self.missing[message] -= 1;
            if self.missing[message] == 0 {
                self.outcome.ends_ns[message] = self.now_ns;
            }
        }
        let ack_at_ns = self.now_ns + wire_ns(ACK_LEN) + LATENCY_NS;
        self.push(ack_at_ns, Event::Ack(moving));
    }

    fn on_ack(&mut self, moving: Moving) {
        let flow = &mut self.flows[moving.flow as usize];
        if flow.in_flight.remove(&moving.number).is_none() {
            // It counted as lost and was sent again.
            return;
        }
        let rtt_ns = self.now_ns - moving.sent_at_ns;
        flow.rtt_ns = (flow.rtt_ns * 7 + rtt_ns) / 8;
        flow.timeouts = 0;
        flow.control.on_ack(Acked {
            now_ns: self.now_ns,
            rtt_ns,
            is_marked: moving.is_marked,
        });
        // Frames of a flow do not overtake each other.
        let later = flow.in_flight.split_off(&moving.number);
        let lost = std::mem::replace(&mut flow.in_flight, later);
        if !lost.is_empty() {
            flow.resend(lost);
            flow.control.on_loss(self.now_ns, flow.rtt_ns);
        }
        self.send(moving.flow);
    }

    fn on_timer(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        flow.has_timer = !flow.in_flight.is_empty();
        if !flow.has_timer {
            return;
        }
        if flow.timeout_at_ns > self.now_ns {
            let at_ns = flow.timeout_at_ns;
            return self.push(at_ns, Event::Timer(index));
        }
        flow.has_timer = false;
        flow.timeouts += 1;
        let lost = std::mem::take(&mut flow.in_flight);
        flow.resend(lost);
        flow.control.on_timeout(self.now_ns, flow.rtt_ns);
        self.send(index);
    }
}

impl Flow {
    fn new(reference: Reference, message: &Message) -> Flow {
        let frame_len = PAYLOAD_MAX + MESSAGE_OVERHEAD_LEN;
        let base_ns = 2 * wire_ns(frame_len) + 2 * LATENCY_NS + wire_ns(ACK_LEN);
        Flow {
            from: message.from,
            to: message.to,
            control: match reference {
                Reference::Dctcp => Control::dctcp(),
                Reference::Swift => Control::swift(base_ns),
            },
            unsent: VecDeque::new(),
            in_flight: BTreeMap::new(),
            next_number: 0,
            last_sent_ns: 0,
            rtt_ns: base_ns,
            timeout_at_ns: 0,
            timeouts: 0,
            has_timer: false,
            is_paused: false,
        }
    }

    /// Returns the time at which the next frame may be sent; `None` while only an acknowledgement or
    /// a timeout can permit it.
    fn may_send(&self, now_ns: u64) -> Option<u64> {
        let window = self.control.window();
        if self.unsent.is_empty() || self.in_flight.len() as f64 + 1.0 > window.max(1.0) {
            return None;
        }
        if window >= 1.0 || self.next_number == 0 {
            return Some(now_ns);
        }
        // Swift, section 3.4: a window below 1 is a pause between frames.
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a fraction of a nanosecond is not needed"
        )]
        let pause_ns = (self.rtt_ns as f64 / window) as u64;
        Some(now_ns.max(self.last_sent_ns + pause_ns))
    }

    /// Returns the time after which nothing in flight is expected to arrive. Swift's window falls
    /// instead of a longer time.
    fn timeout_ns(&self) -> u64 {
        match self.control {
            Control::Dctcp(_) => TIMEOUT_NS << self.timeouts.min(BACKOFF_MAX),
            Control::Swift(_) => TIMEOUT_NS,
        }
    }

    /// Puts lost frames before the unsent ones.
    fn resend(&mut self, lost: BTreeMap<u64, Frame>) {
        for frame in lost.into_values().rev() {
            self.unsent.push_front(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_frame_takes_two_cables_and_the_latency() {
        for reference in [Reference::Dctcp, Reference::Swift] {
            let outcome = run(reference, &Traffic::incast(1, 1, 1000));
            // 1098 bytes at 1.25 bytes/ns take 878 ns.
            assert_eq!(outcome.ends_ns, [2 * 878 + 5000]);
            assert_eq!((outcome.frames, outcome.overflowed), (1, 0));
        }
    }

    #[test]
    fn frames_beyond_the_buffer_are_lost_and_sent_again() {
        // Ten frames each arrive together; the buffer holds 43, and ten leave meanwhile.
        let traffic = Traffic::incast(10, 10, 1400);
        for reference in [Reference::Dctcp, Reference::Swift] {
            let outcome = run(reference, &traffic);
            assert!(outcome.overflowed > 0);
            assert_eq!(outcome.frames, 100 + outcome.overflowed);
            assert!(outcome.ends_ns.iter().all(|end_ns| *end_ns > 0));
            assert_eq!(outcome, run(reference, &traffic));
        }
    }

    #[test]
    fn swift_ends_a_large_incast_before_dctcp() {
        // DCTCP's least windows, of one frame each, exceed the buffer tenfold.
        let traffic = Traffic::incast(500, 20, 1400);
        let end_of = |reference| run(reference, &traffic).ends_ns.into_iter().max();
        assert!(end_of(Reference::Swift) < end_of(Reference::Dctcp));
    }

    #[test]
    fn permutation_has_no_loss() {
        let traffic = Traffic::permutation(8, 100_000);
        for reference in [Reference::Dctcp, Reference::Swift] {
            assert_eq!(run(reference, &traffic).overflowed, 0);
        }
    }
}
