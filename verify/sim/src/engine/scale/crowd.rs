// SPDX-License-Identifier: MIT OR Apache-2.0
//! World of many equal processes on one switch.

use super::super::process::{Carrier, Outbox};
use portolan::binding::simulated::{
    SimNet, SimParams, SimStats, SimulatedConfig, set_virtual_ns, simulated_liveness,
    simulated_port,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Rate of a cable.
pub(super) const RATE_BYTES_PER_SEC: u64 = 1_250_000_000;

/// Time of a frame between two processes, beside that on the cables.
pub(super) const LATENCY_NS: u64 = 5_000;

/// Processor time of a turn, and of each frame or completion in it.
pub(super) const TURN_NS: u64 = 300;
const ITEM_NS: u64 = 500;

/// Time from an event to the turn of a process that sleeps.
const WAKE_NS: u64 = 1_000;

/// Bytes that the switch buffers for a port.
pub(super) const PORT_BUFFER_LEN: usize = 64 << 10;

/// Longest run, in virtual time.
const TIME_MAX_NS: u64 = 900_000_000_000;

/// A process of a crowd.
pub(super) trait Member {
    fn turn(&mut self) -> usize;
    /// Returns the time of the program's next action.
    fn acts_at(&self) -> u64;
    fn is_done(&self) -> bool;
    fn fall_asleep(&mut self) -> Option<Duration>;
    fn wake_up(&mut self);
    fn receive_probe(&self, bytes: &[u8], from: SocketAddr);
    fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr);
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Turn {
        node: u32,
        generation: u64,
    },
    Probe {
        to: u32,
        from: SocketAddr,
        bytes: Vec<u8>,
        is_refusal: bool,
    },
    Kill {
        node: u32,
    },
}

struct Place<M> {
    member: Option<M>,
    generation: u64,
    is_asleep: bool,
    /// Set while a wake-up is on its way.
    is_waking: bool,
    is_done: bool,
}

/// See the module documentation.
pub(super) struct Crowd<M> {
    net: SimNet,
    outbox: Outbox,
    places: Vec<Place<M>>,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
    now_ns: u64,
    undone_count: usize,
}

/// Network of a crowd, and the settings of its processes.
#[derive(Clone, Debug)]
pub(super) struct CrowdConfig {
    pub(super) net: SimParams,
    pub(super) options: BTreeMap<String, String>,
}

impl Default for CrowdConfig {
    fn default() -> CrowdConfig {
        let latency = Duration::from_nanos(LATENCY_NS);
        let net = SimParams {
            delay: (latency, latency),
            rate_bytes_per_sec: NonZeroU64::new(RATE_BYTES_PER_SEC),
            port_buffer_len: PORT_BUFFER_LEN,
            ..SimParams::default()
        };
        let options = BTreeMap::new();
        CrowdConfig { net, options }
    }
}

impl<M: Member> Crowd<M> {
    /// Creates `nodes` processes with the start function `create`.
    pub(super) fn new(
        nodes: u32,
        crowd_config: &CrowdConfig,
        mut create: impl FnMut(u32, SimulatedConfig) -> M,
    ) -> Crowd<M> {
        let mut crowd = Crowd {
            net: SimNet::new(1, crowd_config.net.clone()),
            outbox: Outbox::default(),
            places: Vec::new(),
            queue: BinaryHeap::new(),
            made: 0,
            now_ns: 1,
            undone_count: nodes as usize,
        };
        set_virtual_ns(crowd.now_ns);
        for node in 0..nodes {
            let config = SimulatedConfig {
                link: crowd.net.port().unwrap_or_else(|error| panic!("{error}")),
                probes: Arc::new(Carrier {
                    port: node,
                    outbox: Arc::clone(&crowd.outbox),
                }),
                seed: u64::from(node) + 1,
                options: crowd_config.options.clone(),
            };
            crowd.places.push(Place {
                member: Some(create(node, config)),
                generation: 0,
                is_asleep: false,
                is_waking: false,
                is_done: false,
            });
        }
        for node in 0..nodes {
            crowd.schedule(node, 1_000);
        }
        crowd
    }

    pub(super) fn members(&mut self) -> impl Iterator<Item = &mut M> {
        self.places
            .iter_mut()
            .filter_map(|place| place.member.as_mut())
    }

    pub(super) fn stats(&self) -> SimStats {
        self.net.stats()
    }

    /// Ends a process at a time. Its host answers for it.
    pub(super) fn kill_at(&mut self, at_ns: u64, node: u32) {
        self.push(at_ns, Event::Kill { node });
    }

    /// Runs until all programs have ended their work.
    pub(super) fn run_until_done(&mut self) {
        while self.undone_count > 0 {
            assert!(
                self.now_ns < TIME_MAX_NS && self.step(),
                "{} processes have not ended their work",
                self.undone_count
            );
        }
    }

    /// Runs for a time.
    pub(super) fn run_for(&mut self, time_ns: u64) {
        let end = self.now_ns + time_ns;
        while self.now_ns < end && self.step() {}
    }

    /// Handles the next event; returns `false` if there is none.
    fn step(&mut self) -> bool {
        let next = self.queue.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        let arrival = self.net.next_arrival();
        let arrival = arrival.map_or(u64::MAX, |at| u64::try_from(at.as_nanos()).unwrap_or(0) + 1);
        let at = next.min(arrival);
        if at == u64::MAX {
            return false;
        }
        if at > self.now_ns {
            self.net.advance(Duration::from_nanos(at - self.now_ns));
            self.now_ns = at;
        }
        let mut woken = Vec::new();
        self.net.take_woken(&mut woken);
        for node in woken {
            let place = &mut self.places[node as usize];
            if std::mem::take(&mut place.is_asleep) {
                place.is_waking = true;
                self.schedule(node, self.now_ns + WAKE_NS);
            }
        }
        if next <= self.now_ns
            && let Some(Reverse((_, _, event))) = self.queue.pop()
        {
            self.happen(event);
        }
        true
    }

    fn happen(&mut self, event: Event) {
        set_virtual_ns(self.now_ns);
        match event {
            Event::Turn { node, generation } => {
                if self.places[node as usize].generation == generation {
                    self.turn(node);
                }
            }
            Event::Probe {
                to,
                from,
                bytes,
                is_refusal,
            } => self.deliver(to, from, bytes, is_refusal),
            Event::Kill { node } => {
                self.net.refuse(node);
                let place = &mut self.places[node as usize];
                place.member = None;
                if !std::mem::replace(&mut place.is_done, true) {
                    self.undone_count -= 1;
                }
            }
        }
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.made += 1;
        self.queue.push(Reverse((at_ns, self.made, event)));
    }

    fn schedule(&mut self, node: u32, at_ns: u64) {
        let place = &mut self.places[node as usize];
        place.generation += 1;
        let generation = place.generation;
        self.push(at_ns, Event::Turn { node, generation });
    }

    fn turn(&mut self, node: u32) {
        let now = self.now_ns;
        let place = &mut self.places[node as usize];
        let was_asleep =
            std::mem::take(&mut place.is_asleep) || std::mem::take(&mut place.is_waking);
        let Some(member) = &mut place.member else {
            return;
        };
        if was_asleep {
            member.wake_up();
        }
        let moved = member.turn();
        if !place.is_done && member.is_done() {
            place.is_done = true;
            self.undone_count -= 1;
        }
        let mut at = now + TURN_NS + moved as u64 * ITEM_NS;
        if moved == 0
            && let Some(longest) = member.fall_asleep()
        {
            place.is_asleep = true;
            let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX / 2);
            at = at.max((now + longest).min(member.acts_at()));
        }
        self.send_probes();
        self.schedule(node, at);
    }

    fn send_probes(&mut self) {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        let probes = std::mem::take(&mut *outbox);
        drop(outbox);
        for probe in probes {
            if let Some(to) = simulated_port(probe.to) {
                let event = Event::Probe {
                    to,
                    from: simulated_liveness(probe.from_port),
                    bytes: probe.bytes,
                    is_refusal: false,
                };
                self.push(self.now_ns + LATENCY_NS, event);
            }
        }
    }

    fn deliver(&mut self, to: u32, from: SocketAddr, bytes: Vec<u8>, is_refusal: bool) {
        match &self.places[to as usize].member {
            Some(member) if is_refusal => member.receive_refusal(&bytes, from),
            Some(member) => member.receive_probe(&bytes, from),
            None => {
                if let Some(back) = simulated_port(from).filter(|_| !is_refusal) {
                    let event = Event::Probe {
                        to: back,
                        from: simulated_liveness(to),
                        bytes,
                        is_refusal: true,
                    };
                    self.push(self.now_ns + LATENCY_NS, event);
                }
            }
        }
        self.send_probes();
    }
}
