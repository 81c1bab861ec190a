// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the simulated switch: ports, and frames on their way between them.
//!
//! Without a rate, a frame takes its delay from port to port. With a rate, it leaves its sender
//! behind that port's earlier frames, takes its delay to the switch, waits there for the receiver's
//! cable, and is lost if the buffer of that port is full.

use super::{SimParams, SimStats};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub(super) struct Switch {
    params: SimParams,
    rng: ChaCha8Rng,
    now: Duration,
    /// Counts frames, so that frames with equal arrival times keep their order.
    sequence: u64,
    ports: Vec<Port>,
    /// Frames on their way, the next one first.
    moving: BinaryHeap<Reverse<Moving>>,
    /// Ports at which something has arrived since they were last reported.
    woken: Vec<u32>,
    stats: SimStats,
}

/// Frame on its way. Compared by time, then by order of sending.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Moving {
    at: Duration,
    sequence: u64,
    from: u32,
    to: u32,
    place: Place,
    frame: Vec<u8>,
}

/// Place that a frame reaches next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Switch,
    Port,
}

#[derive(Default)]
struct Port {
    is_open: bool,
    /// Set if the host of a closed port answers frames to it.
    refuses: bool,
    is_cut: bool,
    /// Frames that have arrived.
    arrived: VecDeque<Vec<u8>>,
    /// Frames on their way to it.
    moving_count: usize,
    /// Closed ports to which frames from this one were not deliverable.
    refusals: VecDeque<u32>,
    /// Time at which the port has sent all its frames to the switch.
    sent_at: Duration,
    /// Times at which the further stages of the port have forwarded all its frames.
    stages_at: Vec<Duration>,
    /// Time at which the switch has sent all frames for the port.
    forwarded_at: Duration,
    is_woken: bool,
    armed: bool,
    /// Created when a process first sleeps on the port.
    bell: Option<Bell>,
}

struct Bell {
    /// A byte written here makes the other end readable.
    ringer: UnixStream,
    bell: UnixStream,
}

impl Bell {
    fn new() -> io::Result<Bell> {
        let (ringer, bell) = UnixStream::pair()?;
        ringer.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        Ok(Bell { ringer, bell })
    }
}

impl Switch {
    pub(super) fn new(seed: u64, params: SimParams) -> Self {
        Switch {
            params,
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: Duration::ZERO,
            sequence: 0,
            ports: Vec::new(),
            moving: BinaryHeap::new(),
            woken: Vec::new(),
            stats: SimStats::default(),
        }
    }

    pub(super) fn add_port(&mut self) -> u32 {
        self.ports.push(Port {
            is_open: true,
            stages_at: vec![Duration::ZERO; self.params.stage_count],
            ..Port::default()
        });
        u32::try_from(self.ports.len() - 1).unwrap_or(u32::MAX)
    }

    /// Closes a port. Frames to a closed port are lost, as on a network.
    pub(super) fn close_port(&mut self, port: u32) {
        let port = self.port(port);
        port.is_open = false;
        port.arrived = VecDeque::new();
    }

    pub(super) fn refuse(&mut self, port: u32) {
        self.port(port).refuses = true;
    }

    pub(super) fn set_cut(&mut self, port: u32, is_cut: bool) {
        self.port(port).is_cut = is_cut;
    }

    pub(super) fn has_port(&self, port: u32) -> bool {
        (port as usize) < self.ports.len()
    }

    pub(super) fn stats(&self) -> SimStats {
        self.stats
    }

    /// Tests whether `from` may send `count` frames to `to` now.
    pub(super) fn has_space(&mut self, from: u32, to: u32, count: usize) -> bool {
        if self.params.rate_bytes_per_sec.is_some() {
            let backlog = self.port(from).sent_at.saturating_sub(self.now);
            return backlog < self.time_of(self.params.send_buffer_len);
        }
        let queue_frames_max = self.params.queue_frames_max;
        let port = self.port(to);
        port.arrived.len() + port.moving_count + count <= queue_frames_max
    }

    /// Sends a copy of `frame` on its way.
    pub(super) fn forward(&mut self, from: u32, to: u32, frame: &[u8]) {
        self.stats.sent += 1;
        let mut sent_at = self.now;
        if self.params.rate_bytes_per_sec.is_some() {
            let time = self.time_of(frame.len() + self.params.frame_overhead_len);
            let now = self.now;
            let port = self.port(from);
            port.sent_at = port.sent_at.max(now) + time;
            sent_at = port.sent_at;
            // Frames of a port keep their order, so a stage's times follow from the previous one's.
            for stage_at in &mut port.stages_at {
                *stage_at = sent_at.max(*stage_at) + time;
                sent_at = *stage_at;
            }
        }
        let copies = 1 + u32::from(self.is_drawn(self.params.duplicate));
        for _ in 0..copies {
            let at = sent_at + self.draw_delay();
            if self.is_drawn(self.params.loss) || self.port(from).is_cut {
                self.stats.lost += 1;
                continue;
            }
            self.sequence += 1;
            self.port(to).moving_count += 1;
            let moving = Moving {
                at,
                sequence: self.sequence,
                from,
                to,
                place: match self.params.rate_bytes_per_sec {
                    Some(_) => Place::Switch,
                    None => Place::Port,
                },
                frame: frame.to_vec(),
            };
            self.moving.push(Reverse(moving));
        }
        self.settle();
    }

    /// Returns the next frame that has arrived at `port`.
    pub(super) fn take(&mut self, port: u32) -> Option<Vec<u8>> {
        self.port(port).arrived.pop_front()
    }

    /// Returns the next closed port that has refused a frame from `port`.
    pub(super) fn take_refusal(&mut self, port: u32) -> Option<u32> {
        self.port(port).refusals.pop_front()
    }

    pub(super) fn has_arrived(&mut self, port: u32) -> bool {
        let port = self.port(port);
        !port.arrived.is_empty() || !port.refusals.is_empty()
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn next_arrival(&self) -> Option<Duration> {
        self.moving.peek().map(|Reverse(next)| next.at)
    }

    pub(super) fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(at) = self.next_arrival().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.settle();
        }
        self.now = end;
    }

    /// Appends the ports at which something has arrived since the last call, each once.
    pub(super) fn take_woken(&mut self, woken: &mut Vec<u32>) {
        for port in std::mem::take(&mut self.woken) {
            self.port(port).is_woken = false;
            woken.push(port);
        }
    }

    /// Moves all frames that are due.
    fn settle(&mut self) {
        while (self.next_arrival()).is_some_and(|at| at <= self.now)
            && let Some(Reverse(moving)) = self.moving.pop()
        {
            match moving.place {
                Place::Switch => self.pass_switch(moving),
                Place::Port => self.arrive(moving),
            }
        }
    }

    /// Queues a frame in the switch for its receiver's cable.
    fn pass_switch(&mut self, mut moving: Moving) {
        let len = moving.frame.len() + self.params.frame_overhead_len;
        let (now, time) = (self.now, self.time_of(len));
        let buffer_time = self.time_of(self.params.port_buffer_len);
        let port = self.port(moving.to);
        let queued = port.forwarded_at.saturating_sub(now);
        if queued + time > buffer_time {
            port.moving_count -= 1;
            self.stats.overflowed += 1;
            return;
        }
        port.forwarded_at = port.forwarded_at.max(now) + time;
        moving.at = port.forwarded_at;
        moving.place = Place::Port;
        self.moving.push(Reverse(moving));
    }

    fn arrive(&mut self, moving: Moving) {
        let Moving {
            from, to, frame, ..
        } = moving;
        let queue_frames_max = self.params.queue_frames_max;
        let has_rate = self.params.rate_bytes_per_sec.is_some();
        let port = self.port(to);
        port.moving_count -= 1;
        if port.is_cut {
            self.stats.lost += 1;
            return;
        }
        if !port.is_open {
            if port.refuses && self.port(from).is_open {
                self.port(from).refusals.push_back(to);
                self.wake(from);
            }
            return;
        }
        if has_rate && port.arrived.len() >= queue_frames_max {
            self.stats.unreceived += 1;
            return;
        }
        port.arrived.push_back(frame);
        self.stats.arrived += 1;
        self.wake(to);
    }

    fn wake(&mut self, index: u32) {
        let port = self.port(index);
        if !std::mem::replace(&mut port.is_woken, true) {
            self.woken.push(index);
        }
        self.ring_if_due(index);
    }

    fn draw_delay(&mut self) -> Duration {
        let (shortest, longest) = self.params.delay;
        match shortest == longest {
            true => shortest,
            false => self.rng.random_range(shortest..=longest),
        }
    }

    fn is_drawn(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random_bool(probability)
    }

    /// Returns the time that `len` bytes take on a cable; none without a rate.
    fn time_of(&self, len: usize) -> Duration {
        let Some(rate) = self.params.rate_bytes_per_sec else {
            return Duration::ZERO;
        };
        Duration::from_nanos((len as u64).saturating_mul(1_000_000_000) / rate.get())
    }

    /// Requests a wake-up; returns the descriptor that becomes readable, unless the process has none
    /// left.
    pub(super) fn arm(&mut self, port: u32) -> Option<RawFd> {
        let port = self.port(port);
        if port.bell.is_none() {
            port.bell = Bell::new().ok();
        }
        port.armed = true;
        port.bell.as_ref().map(|bell| bell.bell.as_raw_fd())
    }

    pub(super) fn disarm(&mut self, port: u32) {
        let port = self.port(port);
        port.armed = false;
        if let Some(bell) = &port.bell {
            while matches!((&bell.bell).read(&mut [0; 16]), Ok(count) if count > 0) {}
        }
    }

    fn ring_if_due(&mut self, port: u32) {
        let port = self.port(port);
        if std::mem::take(&mut port.armed)
            && let Some(bell) = &port.bell
        {
            // A full pipe already holds unread wake-ups, so this one may be lost.
            let _ = (&bell.ringer).write(&[1]);
        }
    }

    fn port(&mut self, index: u32) -> &mut Port {
        &mut self.ports[index as usize]
    }
}
