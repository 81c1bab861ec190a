// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the simulated switch.

use super::SimParams;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
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
}

struct Port {
    open: bool,
    /// Frames by time of arrival, then by order of sending.
    queue: BTreeMap<(Duration, u64), Vec<u8>>,
    armed: bool,
    /// A byte written here makes the other end readable.
    ringer: UnixStream,
    bell: UnixStream,
}

impl Switch {
    pub(super) fn new(seed: u64, params: SimParams) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Switch {
            params,
            rng,
            now: Duration::ZERO,
            sequence: 0,
            ports: Vec::new(),
        }
    }

    pub(super) fn add_port(&mut self) -> io::Result<u32> {
        let (ringer, bell) = UnixStream::pair()?;
        ringer.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let queue = BTreeMap::new();
        self.ports.push(Port {
            open: true,
            queue,
            armed: false,
            ringer,
            bell,
        });
        Ok(u32::try_from(self.ports.len() - 1).unwrap_or(u32::MAX))
    }

    /// Closes a port. Frames to a closed port are lost, as on a network.
    pub(super) fn close_port(&mut self, port: u32) {
        let port = self.port(port);
        port.open = false;
        port.queue.clear();
    }

    pub(super) fn has_port(&self, port: u32) -> bool {
        (port as usize) < self.ports.len()
    }

    pub(super) fn has_space(&mut self, port: u32, count: usize) -> bool {
        let queue_frames_max = self.params.queue_frames_max;
        self.port(port).queue.len() + count <= queue_frames_max
    }

    /// Queues a copy of `frame` for delivery after its delay.
    pub(super) fn forward(&mut self, to: u32, frame: &[u8]) {
        let (shortest, longest) = self.params.delay;
        let delay = if shortest == longest {
            shortest
        } else {
            self.rng.random_range(shortest..=longest)
        };
        if !self.port(to).open || self.rng.random_bool(self.params.loss) {
            return;
        }
        self.sequence += 1;
        let key = (self.now + delay, self.sequence);
        self.port(to).queue.insert(key, frame.to_vec());
    }

    /// Returns the next frame that has arrived at `port`.
    pub(super) fn take(&mut self, port: u32) -> Option<Vec<u8>> {
        let now = self.now;
        let first = self.port(port).queue.first_entry()?;
        if first.key().0 <= now {
            Some(first.remove())
        } else {
            None
        }
    }

    pub(super) fn has_arrived(&mut self, port: u32) -> bool {
        let now = self.now;
        self.port(port)
            .queue
            .first_key_value()
            .is_some_and(|((due, _), _)| *due <= now)
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn next_arrival(&self) -> Option<Duration> {
        let first = |port: &Port| port.queue.first_key_value().map(|((due, _), _)| *due);
        self.ports.iter().filter_map(first).min()
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.now += by;
        for index in 0..self.ports.len() {
            self.ring_if_due(u32::try_from(index).unwrap_or(u32::MAX));
        }
    }

    /// Requests a wake-up; returns the descriptor that becomes readable.
    pub(super) fn arm(&mut self, port: u32) -> RawFd {
        let port = self.port(port);
        port.armed = true;
        port.bell.as_raw_fd()
    }

    pub(super) fn disarm(&mut self, port: u32) {
        let port = self.port(port);
        port.armed = false;
        while matches!((&port.bell).read(&mut [0; 16]), Ok(count) if count > 0) {}
    }

    pub(super) fn ring_if_due(&mut self, port: u32) {
        if self.has_arrived(port) {
            let port = self.port(port);
            if std::mem::take(&mut port.armed) {
                // A full pipe already holds unread wake-ups, so this one may be lost.
                let _ = (&port.ringer).write(&[1]);
            }
        }
    }

    fn port(&mut self, index: u32) -> &mut Port {
        &mut self.ports[index as usize]
    }
}
