// SPDX-License-Identifier: MIT OR Apache-2.0
//! Run of a plan: moves frames and probes, and gives each process its turns, in virtual time.

use super::endpoint::EndpointProgram;
use super::job::JobProgram;
use super::oracle::Oracle;
use super::plan::{EnginePlan, Fault, FaultKind, Kind};
use super::process::{Carrier, Outbox, Process};
use super::{EngineFailure, EngineOptions, EngineReport};
use portolan::binding::simulated::{
    Pending, SimNet, SimulatedConfig, set_canary, set_virtual_ns, simulated_liveness,
    simulated_port,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Delays after which a helper continues urgent and other work, as in `portolan_sys::gate`.
const HELPER_URGENT_NS: u64 = 1_000_000;
const HELPER_PATIENT_NS: u64 = 20_000_000;

/// Time without work after which all memory must be free. It covers a delayed acknowledgement, and
/// retransmissions if that is lost.
const QUIET_NS: u64 = 3_000_000_000;

/// Distinguishes the randomness of the world from that of the plan.
const WORLD_STREAM: u64 = 0x7777_0000;

/// Interval of checks whether everything has ended.
const CHECK_INTERVAL_NS: u64 = 1_000_000;

/// Maximum number of turns of a run; more indicate a loop.
const TURNS_MAX: u64 = 20_000_000;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Turn of a process, unless its generation has changed.
    Turn {
        node: u32,
        generation: u64,
    },
    /// Pass of the helper of a process that computes.
    Helper {
        node: u32,
        generation: u64,
    },
    /// A probe, or its refusal, reaches a process.
    Probe {
        to: u32,
        from: SocketAddr,
        bytes: Vec<u8>,
        is_refusal: bool,
    },
    Fault {
        index: usize,
    },
}

/// Life of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// Completes what it has begun.
    Leaving,
    Closing,
    Ended {
        host_lives: bool,
    },
}

struct Slot {
    process: Option<Box<dyn Process>>,
    stage: Stage,
    is_asleep: bool,
    /// Set while a wake-up is on its way.
    is_waking: bool,
    paused_until: u64,
    /// Changes with each scheduled turn, so that earlier ones are void.
    generation: u64,
    idle_turns: u32,
}

struct World {
    plan: Rc<EnginePlan>,
    oracle: Oracle,
    net: SimNet,
    outbox: Outbox,
    slots: Vec<Slot>,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
    rng: ChaCha8Rng,
    turn_count: u64,
    /// Time of the last fault's end.
    calm_ns: u64,
    /// Time since which all programs have ended their work.
    done_since: Option<u64>,
    is_closing: bool,
    check_at_ns: u64,
}

pub(super) fn run(
    plan: EnginePlan,
    options: &EngineOptions,
) -> Result<EngineReport, Box<EngineFailure>> {
    let text = plan.to_string();
    set_canary(options.canary);
    let mut world = None;
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let world = world.insert(World::new(plan, options));
        world.run();
    }));
    set_canary(None);
    let Some(mut world) = world else {
        let panic = "a panic at the start".to_owned();
        return Err(failure(text, options.seed, 0, panic));
    };
    if let Err(panic) = outcome {
        let text = (panic.downcast_ref::<String>().map(String::as_str))
            .or_else(|| panic.downcast_ref::<&str>().copied());
        let why = format!("a panic: {}", text.unwrap_or("without a text"));
        world.oracle.violate(why);
        // The state after a panic must not be used again.
        for slot in &mut world.slots {
            std::mem::forget(slot.process.take());
        }
    }
    match world.oracle.take_violation() {
        Some((at_ns, violation)) => Err(failure(text, options.seed, at_ns, violation)),
        None => Ok(world.report()),
    }
}

fn failure(plan: String, seed: u64, at_ns: u64, violation: String) -> Box<EngineFailure> {
    Box::new(EngineFailure {
        plan,
        violation,
        at: Duration::from_nanos(at_ns),
        seed,
    })
}

impl World {
    fn new(plan: EnginePlan, options: &EngineOptions) -> World {
        let plan = Rc::new(plan);
        let end_of = |fault: &Fault| match fault.kind {
            FaultKind::Pause { for_ns } | FaultKind::Cut { for_ns } => fault.at_ns + for_ns,
            _ => fault.at_ns,
        };
        let starts = plan.flows.iter().map(|flow| {
            flow.start_ns + flow.post_ns + u64::from(flow.count) * (flow.gap_ns + 100_000)
        });
        let calm_ns = plan.faults.iter().map(end_of).chain(starts).max();
        let mut world = World {
            oracle: Oracle::new(&plan, options.trace),
            net: SimNet::new(plan.seed, plan.net.clone()),
            outbox: Outbox::default(),
            slots: Vec::new(),
            queue: BinaryHeap::new(),
            made: 0,
            rng: ChaCha8Rng::seed_from_u64(plan.seed ^ WORLD_STREAM),
            turn_count: 0,
            calm_ns: calm_ns.unwrap_or(0),
            done_since: None,
            is_closing: false,
            check_at_ns: 0,
            plan,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for node in 0..self.plan.nodes {
            self.set_clock(node);
            let config = self.config(node);
            let process: Box<dyn Process> = match self.plan.kind {
                Kind::Endpoints => Box::new(EndpointProgram::new(node, &self.plan, config)),
                Kind::Job { rounds } => Box::new(JobProgram::new(node, rounds, &self.plan, config)),
            };
            self.slots.push(Slot {
                process: Some(process),
                stage: Stage::Running,
                is_asleep: false,
                is_waking: false,
                paused_until: 0,
                generation: 0,
                idle_turns: 0,
            });
        }
        EndpointProgram::introduce(self.processes());
        for node in 0..self.plan.nodes {
            let at = self.rng.random_range(0..1_000_000);
            self.schedule_turn(node, at);
        }
        for index in 0..self.plan.faults.len() {
            self.push(self.plan.faults[index].at_ns, Event::Fault { index });
        }
    }

    /// Returns the processes for their introduction.
    fn processes(&mut self) -> Vec<&mut Box<dyn Process>> {
        let slots = self.slots.iter_mut();
        slots.filter_map(|slot| slot.process.as_mut()).collect()
    }

    fn config(&self, node: u32) -> SimulatedConfig {
        let link = self.net.port();
        SimulatedConfig {
            link: link.unwrap_or_else(|error| panic!("{error}")),
            probes: Arc::new(Carrier {
                port: node,
                outbox: Arc::clone(&self.outbox),
            }),
            seed: self.plan.seed << 16 | u64::from(node),
            options: self.plan.options.clone(),
        }
    }

    fn run(&mut self) {
        let mut woken = Vec::new();
        while !self.oracle.has_violation() && !self.is_over() {
            let next = self.queue.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            let arrival = self.net.next_arrival();
            let arrival_ns =
                arrival.map_or(u64::MAX, |at| u64::try_from(at.as_nanos()).unwrap_or(0));
            self.advance(next.min(arrival_ns));
            self.net.take_woken(&mut woken);
            for port in woken.drain(..) {
                self.on_arrival(port);
            }
            if next <= self.oracle.now_ns
                && let Some(Reverse((_, _, event))) = self.queue.pop()
            {
                self.happen(event);
            }
            self.check_progress();
        }
        for node in 0..self.plan.nodes {
            self.set_clock(node);
            self.slots[node as usize].process = None;
        }
    }

    fn advance(&mut self, to_ns: u64) {
        let now_ns = self.oracle.now_ns;
        if to_ns > now_ns {
            self.net.advance(Duration::from_nanos(to_ns - now_ns));
            self.oracle.now_ns = to_ns;
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn { node, generation } => {
                if self.is_current(node, generation) {
                    self.turn(node);
                }
            }
            Event::Helper { node, generation } => {
                if self.is_current(node, generation) {
                    self.run_helper(node, generation);
                }
            }
            Event::Probe {
                to,
                from,
                bytes,
                is_refusal,
            } => self.deliver_probe(to, from, bytes, is_refusal),
            Event::Fault { index } => self.strike(self.plan.faults[index]),
        }
    }

    fn is_current(&self, node: u32, generation: u64) -> bool {
        let slot = &self.slots[node as usize];
        slot.generation == generation && slot.process.is_some()
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.made += 1;
        self.queue.push(Reverse((at_ns, self.made, event)));
    }

    fn schedule_turn(&mut self, node: u32, at_ns: u64) {
        let slot = &mut self.slots[node as usize];
        slot.generation += 1;
        let generation = slot.generation;
        self.push(at_ns, Event::Turn { node, generation });
    }

    fn set_clock(&self, node: u32) {
        let clock = self.plan.clocks[node as usize];
        set_virtual_ns(clock.local(self.oracle.now_ns).as_nanos());
    }

    /// Wakes a process that sleeps.
    fn on_arrival(&mut self, port: u32) {
        let slot = &mut self.slots[port as usize];
        if slot.is_asleep && !slot.is_waking && slot.process.is_some() {
            slot.is_waking = true;
            let wake_ns = self.rng.random_range(1_000..=self.plan.wake_ns);
            self.schedule_turn(port, self.oracle.now_ns + wake_ns);
        }
    }

    fn turn(&mut self, node: u32) {
        self.turn_count += 1;
        if self.turn_count > TURNS_MAX {
            self.oracle.violate(format!("more than {TURNS_MAX} turns"));
        }
        let slot = &mut self.slots[node as usize];
        if slot.paused_until > self.oracle.now_ns {
            let at = slot.paused_until;
            return self.schedule_turn(node, at);
        }
        let (was_asleep, stage) = (slot.is_asleep, slot.stage);
        (slot.is_asleep, slot.is_waking) = (false, false);
        self.set_clock(node);
        let Some(process) = &mut self.slots[node as usize].process else {
            return;
        };
        if was_asleep {
            process.wake_up();
        }
        let moved = process.turn(&mut self.oracle);
        self.oracle.trace(node, "turn", moved as u64);
        match stage {
            Stage::Leaving => self.leave_if_done(node),
            Stage::Closing => self.continue_close(node),
            _ => {}
        }
        self.send_probes();
        self.schedule_next(node, moved);
    }

    /// Schedules the next turn of a process after one in which it `moved` something.
    fn schedule_next(&mut self, node: u32, moved: usize) {
        let now = self.oracle.now_ns;
        let cost = self.plan.turn_ns + moved as u64 * self.plan.item_ns;
        let computes = self.rng.random_bool(self.plan.compute_share);
        let compute_ns = self.rng.random_range(1_000..=self.plan.compute_ns);
        let slot = &mut self.slots[node as usize];
        let Some(process) = &mut slot.process else {
            return;
        };
        slot.idle_turns = if moved == 0 { slot.idle_turns + 1 } else { 0 };
        if computes {
            return self.compute(node, compute_ns);
        }
        if slot.idle_turns > self.plan.spin_turns
            && let Some(longest) = process.fall_asleep()
        {
            slot.is_asleep = true;
            let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
            let at = now.saturating_add(longest).min(process.acts_at());
            self.send_probes();
            return self.schedule_turn(node, at.max(now + cost));
        }
        self.send_probes();
        self.schedule_turn(node, now + cost);
    }

    /// Lets the program compute, while its helper continues the work that it has left.
    fn compute(&mut self, node: u32, compute_ns: u64) {
        let now = self.oracle.now_ns;
        self.schedule_turn(node, now + compute_ns);
        let slot = &mut self.slots[node as usize];
        let generation = slot.generation;
        self.schedule_helper(node, generation);
    }

    fn schedule_helper(&mut self, node: u32, generation: u64) {
        let Some(process) = &self.slots[node as usize].process else {
            return;
        };
        let after_ns = match process.left_to_helper() {
            Pending::Nothing => return,
            Pending::Patient => HELPER_PATIENT_NS,
            Pending::Urgent => HELPER_URGENT_NS,
        };
        let at = self.oracle.now_ns + after_ns;
        self.push(at, Event::Helper { node, generation });
    }

    fn run_helper(&mut self, node: u32, generation: u64) {
        self.set_clock(node);
        let slot = &mut self.slots[node as usize];
        if slot.paused_until > self.oracle.now_ns {
            let at = slot.paused_until;
            return self.push(at, Event::Helper { node, generation });
        }
        if let Some(process) = &mut slot.process {
            let moved = process.run_helper();
            self.oracle.trace(node, "helper", u64::from(moved));
        }
        self.schedule_helper(node, generation);
    }

    /// Sends what processes have given to their carriers of probes.
    fn send_probes(&mut self) {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        let probes = std::mem::take(&mut *outbox);
        drop(outbox);
        for probe in probes {
            let from = simulated_liveness(probe.from_port);
            let is_lost = self.rng.random_bool(self.plan.probe_loss);
            let Some(to) = simulated_port(probe.to).filter(|_| !is_lost) else {
                continue;
            };
            self.send_probe(probe.from_port, to, from, probe.bytes, false);
        }
    }

    fn send_probe(
        &mut self,
        from_port: u32,
        to: u32,
        from: SocketAddr,
        bytes: Vec<u8>,
        is_refusal: bool,
    ) {
        let is_cut = |node: u32| {
            self.plan.faults.iter().any(|fault| {
                matches!(fault.kind, FaultKind::Cut { for_ns } if fault.node == node
                    && (fault.at_ns..fault.at_ns + for_ns).contains(&self.oracle.now_ns))
            })
        };
        if is_cut(from_port) || is_cut(to) {
            return;
        }
        let (shortest, longest) = self.plan.net.delay;
        let delay = self.rng.random_range(shortest..=longest).as_nanos();
        let at = self.oracle.now_ns + u64::try_from(delay).unwrap_or(0);
        let event = Event::Probe {
            to,
            from,
            bytes,
            is_refusal,
        };
        self.push(at, event);
    }

    fn deliver_probe(&mut self, to: u32, from: SocketAddr, bytes: Vec<u8>, is_refusal: bool) {
        let slot = &self.slots[to as usize];
        if slot.paused_until > self.oracle.now_ns {
            let event = Event::Probe {
                to,
                from,
                bytes,
                is_refusal,
            };
            return self.push(slot.paused_until, event);
        }
        match (slot.stage, &slot.process) {
            (Stage::Ended { host_lives: true }, _) if !is_refusal => {
                // The kernel of the host answers: no process listens there.
                if let Some(back) = simulated_port(from) {
                    self.send_probe(to, back, simulated_liveness(to), bytes, true);
                }
            }
            (_, Some(process)) => {
                self.set_clock(to);
                match is_refusal {
                    true => process.receive_refusal(&bytes, from),
                    false => process.receive_probe(&bytes, from),
                }
                self.send_probes();
            }
            _ => {}
        }
    }

    fn strike(&mut self, fault: Fault) {
        let node = fault.node;
        self.oracle.trace(node, "fault", 0);
        let now = self.oracle.now_ns;
        match fault.kind {
            FaultKind::Kill { host_lives } => self.end(node, host_lives),
            FaultKind::Leave => {
                self.set_clock(node);
                let slot = &mut self.slots[node as usize];
                if let Some(process) = &mut slot.process {
                    slot.stage = Stage::Leaving;
                    process.leave(&mut self.oracle);
                }
            }
            FaultKind::Pause { for_ns } => {
                self.slots[node as usize].paused_until = now + for_ns;
            }
            FaultKind::Cut { for_ns } => {
                // Ends by the second strike.
                let is_begin = now == fault.at_ns;
                self.net.set_cut(node, is_begin);
                if is_begin {
                    let index = self.plan.faults.iter().position(|it| it.node == node);
                    let index = index.unwrap_or(0);
                    self.push(now + for_ns, Event::Fault { index });
                }
            }
        }
    }

    /// Ends a process.
    fn end(&mut self, node: u32, host_lives: bool) {
        self.set_clock(node);
        self.oracle.set_gone(node);
        if host_lives {
            self.net.refuse(node);
        }
        let slot = &mut self.slots[node as usize];
        slot.stage = Stage::Ended { host_lives };
        slot.process = None;
    }

    fn leave_if_done(&mut self, node: u32) {
        let slot = &mut self.slots[node as usize];
        let Some(process) = &mut slot.process else {
            return;
        };
        if process.unfinished(&self.oracle).is_none() {
            slot.stage = Stage::Closing;
            self.oracle.set_gone(node);
            process.begin_close();
        }
    }

    fn continue_close(&mut self, node: u32) {
        let slot = &mut self.slots[node as usize];
        let Some(process) = &mut slot.process else {
            return;
        };
        match process.poll_close() {
            None => {}
            Some(Ok(())) => self.end(node, true),
            Some(Err(error)) if !self.oracle.is_any_gone() => {
                self.oracle.violate(format!("{node} closed: {error}"));
            }
            Some(Err(_)) => self.end(node, true),
        }
    }

    fn is_over(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.all(|slot| matches!(slot.stage, Stage::Ended { .. }))
    }

    /// Closes all processes once their programs have ended their work, and detects those that never
    /// do.
    fn check_progress(&mut self) {
        let now = self.oracle.now_ns;
        if now < self.check_at_ns {
            return;
        }
        self.check_at_ns = self.calm_ns.max(now + CHECK_INTERVAL_NS);
        if now < self.calm_ns {
            return;
        }
        if now > self.calm_ns + self.plan.settle_ns {
            let what = self.unfinished().unwrap_or_else(|| "closing".to_owned());
            let after = Duration::from_nanos(self.plan.settle_ns).as_secs();
            self.oracle
                .violate(format!("{after} s after the last fault: {what}"));
            return;
        }
        if self.is_closing {
            return;
        }
        match (self.unfinished(), self.done_since) {
            (Some(_), _) => self.done_since = None,
            (None, None) => self.done_since = Some(now),
            (None, Some(since)) if now >= since + QUIET_NS => self.close_all(),
            _ => {}
        }
    }

    fn unfinished(&self) -> Option<String> {
        self.slots
            .iter()
            .zip(0..)
            .find_map(|(slot, node): (_, u32)| {
                let process = slot.process.as_ref()?;
                if slot.stage == Stage::Closing {
                    return Some(format!("{node} is closing"));
                }
                let what = process.unfinished(&self.oracle)?;
                Some(format!("{node} waits for {what}"))
            })
    }

    fn close_all(&mut self) {
        self.is_closing = true;
        // Later, every process has ended.
        self.oracle.check_arrivals();
        for node in 0..self.plan.nodes {
            self.set_clock(node);
            let slot = &mut self.slots[node as usize];
            if let Some(process) = &mut slot.process {
                process.check_free(&mut self.oracle);
                slot.stage = Stage::Closing;
                process.begin_close();
            }
            if self.slots[node as usize].process.is_some() {
                let at = self.oracle.now_ns + self.rng.random_range(0..50_000_000);
                self.schedule_turn(node, at);
            }
        }
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            processes: self.plan.nodes,
            frame_count: self.net.stats().sent,
            done_count: self.oracle.done_count,
            failed_count: self.oracle.failed_count,
            turn_count: self.turn_count,
            virtual_time: Duration::from_nanos(self.oracle.now_ns),
            trace_hash: self.oracle.trace_hash(),
        }
    }
}
