// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ranks that measure a path. Rank 0 sends first, reads the clock, and announces the end of
//! the rounds. Both perform the same tasks in the same order.
//!
//! The stages of a path are measured by separating them in time. The sender's call is timed while
//! the receiver is idle, and the receiver's call after everything has arrived.

use super::points::{Kind, Points, Task, quantile, tasks};
use anyhow::{Context, Result, ensure};
use portolan::binding::Plumbing as _;
use portolan::{Node, PortConfig, Target};
use portolan_bench::{Path, pin};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ports for the measured messages, and for values that the ranks exchange.
const DATA: u16 = 1;
const VALUES: u16 = 2;

/// Total bytes of a task's round trips in a round, within the bounds of [`ROUND_TRIPS`].
const ROUND_LEN: u64 = 1 << 20;
/// Bounds of round trips: few suffice for a quartile, and many short ones take little time.
const ROUND_TRIPS: std::ops::RangeInclusive<u64> = 5..=40;

/// Bytes of a window, and bounds of its messages.
const WINDOW_LEN: u64 = 4 << 20;
const WINDOW: std::ops::RangeInclusive<u64> = 3..=64;
/// Windows in a round.
const WINDOWS: usize = 3;

/// Number of separate stage timings in a round.
const SEPARATIONS: usize = 4;

/// Pause until earlier acknowledgements have passed; they are delayed by 50 µs.
const SETTLED: Duration = Duration::from_micros(120);
/// Pause until everything has arrived, after the sender may begin.
const ARRIVED: Duration = Duration::from_micros(300);
/// Time limit for the announcement of a message, which is retransmitted if it was lost.
const ANNOUNCED: Duration = Duration::from_millis(20);

/// Instructions for the ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) path: Path,
    /// Time limit for the start of a round; there is at least one round.
    pub(super) seconds: f64,
    pub(super) cores: Option<[usize; 2]>,
    /// File for the points of rank 0.
    pub(super) result: PathBuf,
}

/// Options of the hidden command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    /// Instructions as JSON.
    #[arg(long)]
    order: String,
}

/// Runs one rank.
///
/// # Errors
/// The order is invalid, the other rank has failed, or the result cannot be written.
pub(crate) fn work(args: &WorkerArgs) -> Result<ExitCode> {
    let order: Order = serde_json::from_str(&args.order).context("parsing --order")?;
    let mut node = Node::join()?;
    ensure!(
        node.size() == 2,
        "the measurement needs two ranks, not {}",
        node.size()
    );
    let rank = node.rank() as usize;
    if let Some(cores) = order.cores {
        pin(cores[rank]).context("cannot pin to a core")?;
    }
    node.open(DATA, PortConfig::default())?;
    node.open(VALUES, PortConfig::default())?;
    node.barrier()?;
    let mut end = End {
        peer: 1 - node.rank(),
        node,
        path: order.path,
        points: Points::default(),
    };
    end.run(Duration::from_secs_f64(order.seconds))?;
    end.node.barrier()?;
    if end.is_driver() {
        fs::write(&order.result, serde_json::to_vec(&end.points)?)
            .with_context(|| format!("cannot write {}", order.result.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

struct End {
    node: Node,
    peer: u32,
    path: Path,
    points: Points,
}

impl End {
    fn is_driver(&self) -> bool {
        self.peer == 1
    }

    fn run(&mut self, limit: Duration) -> Result<()> {
        let tasks = tasks(self.path);
        let start = Instant::now();
        // The first round warms caches, and determines the path's frame length.
        let mut round = 0;
        loop {
            for task in &tasks {
                self.task(*task, round > 0)?;
            }
            round += 1;
            let go_on = round < 2 || start.elapsed() < limit;
            let value = self.broadcast(if go_on { 1.0 } else { 0.0 })?;
            if value == 0.0 {
                return Ok(());
            }
        }
    }

    /// Returns the value of rank 0 at both ranks.
    fn broadcast(&mut self, value: f64) -> Result<f64> {
        if self.is_driver() {
            self.send_value(value)?;
            return Ok(value);
        }
        self.recv_value()
    }

    fn send_value(&mut self, value: f64) -> Result<()> {
        Ok(self
            .node
            .send(Target::new(self.peer, VALUES), &value.to_le_bytes())?)
    }

    fn recv_value(&mut self) -> Result<f64> {
        let mut value = [0; 8];
        self.node.recv(VALUES, &mut value)?;
        Ok(f64::from_le_bytes(value))
    }

    fn task(&mut self, task: Task, counts: bool) -> Result<()> {
        self.node.choose(&task.variant.choices());
        let len = usize::try_from(task.len)?;
        let message: Arc<[u8]> = vec![0x5a; len].into();
        let lone = self.lone(task, &message)?;
        self.record(task, Kind::Lone, lone, counts);
        if task.has_stream() {
            let stream = self.stream(&message)?;
            self.record(task, Kind::Stream, stream, counts);
        }
        if task.has_stages() {
            let (sender, receiver) = self.stages(task, &message)?;
            self.record(task, Kind::Sender, sender, counts);
            self.record(task, Kind::Receiver, receiver, counts);
        }
        Ok(())
    }

    /// Records the lower quartile: disturbances by other processes only make times longer.
    fn record(&mut self, task: Task, kind: Kind, times_us: Vec<f64>, counts: bool) {
        if let Some(us) = quantile(times_us, 0.25).filter(|_| counts) {
            self.points.add(task, kind, us);
        }
    }

    /// Returns half round-trip times.
    fn lone(&mut self, task: Task, message: &Arc<[u8]>) -> Result<Vec<f64>> {
        let round_trips =
            (ROUND_LEN / message.len() as u64).clamp(*ROUND_TRIPS.start(), *ROUND_TRIPS.end());
        let mut reply = vec![0; message.len()];
        let mut times = Vec::new();
        for _ in 0..round_trips {
            let start = Instant::now();
            if self.is_driver() {
                self.send_lone(task, message)?;
            }
            let got = self.node.recv(DATA, &mut reply)?;
            if !self.is_driver() {
                self.send_lone(task, message)?;
            }
            times.push(micros(start) / 2.0);
            ensure!(
                got.len == message.len() && reply.last() == message.last(),
                "a message of {} bytes arrived with {} bytes",
                message.len(),
                got.len
            );
        }
        Ok(times)
    }

    /// Sends a lone message, with a request if the task is a rendezvous: a blocking send through
    /// shared memory would copy instead.
    fn send_lone(&mut self, task: Task, message: &Arc<[u8]>) -> Result<()> {
        let to = Target::new(self.peer, DATA);
        if !task.is_rendezvous(self.path) {
            return Ok(self.node.send(to, message)?);
        }
        let request = self.node.isend(to, Arc::clone(message))?;
        self.node.wait(request)?;
        Ok(())
    }

    /// Sends windows of messages, each acknowledged by a value; returns the time per message.
    fn stream(&mut self, message: &Arc<[u8]>) -> Result<Vec<f64>> {
        let count = (WINDOW_LEN / message.len() as u64).clamp(*WINDOW.start(), *WINDOW.end());
        let mut times = Vec::new();
        let mut posted = VecDeque::new();
        if !self.is_driver() {
            for _ in 0..2 {
                posted.push_back(self.node.post_recv(DATA, vec![0; message.len()])?);
            }
        }
        for window in 1..=WINDOWS {
            let start = Instant::now();
            if self.is_driver() {
                self.send_window(message, count)?;
            } else {
                let extra = if window == WINDOWS { 2 } else { 0 };
                self.receive_window(&mut posted, count, extra)?;
            }
            #[allow(clippy::cast_precision_loss, reason = "64 at most")]
            times.push(micros(start) / count as f64);
        }
        Ok(times)
    }

    fn send_window(&mut self, message: &Arc<[u8]>, count: u64) -> Result<()> {
        let to = Target::new(self.peer, DATA);
        let mut requests = Vec::new();
        for _ in 0..count {
            requests.push(self.node.isend(to, Arc::clone(message))?);
        }
        for request in requests {
            self.node.wait(request)?;
        }
        self.recv_value().map(|_| ())
    }

    /// Receives a window. Two receives stay posted, except for the last `extra` messages.
    fn receive_window(
        &mut self,
        posted: &mut VecDeque<portolan::Request>,
        count: u64,
        extra: u64,
    ) -> Result<()> {
        for done in 1..=count {
            let request = posted.pop_front().context("a receive is always posted")?;
            let buffer = self.node.wait(request)?.buffer;
            if done + extra <= count {
                let buffer = buffer.context("a receive returns its buffer")?;
                posted.push_back(self.node.post_recv(DATA, buffer)?);
            }
        }
        self.send_value(1.0)
    }

    /// Times the sender's call and the receiver's call separately.
    fn stages(&mut self, task: Task, message: &Arc<[u8]>) -> Result<(Vec<f64>, Vec<f64>)> {
        let granted = self.path != Path::Shm && task.is_rendezvous(self.path);
        let (mut sender, mut receiver) = (Vec::new(), Vec::new());
        // The buffer is written first, because a page's first touch is not a cost of the path.
        let mut buffer = message.to_vec();
        for _ in 0..SEPARATIONS {
            if self.is_driver() {
                self.recv_value()?;
                self.settle(SETTLED + SETTLED / 2)?;
                sender.push(self.timed_send(message, granted)?);
                receiver.push(self.recv_value()?);
            } else {
                let request = self.node.post_recv(DATA, buffer)?;
                self.send_value(1.0)?;
                self.settle(SETTLED)?;
                if granted {
                    self.await_announcement()?;
                }
                spin(ARRIVED);
                let start = Instant::now();
                let completion = self.node.wait(request)?;
                let us = micros(start);
                let back = completion.buffer.context("a receive returns its buffer")?;
                buffer = back.into_vec();
                self.send_value(us)?;
            }
        }
        Ok((sender, receiver))
    }

    /// Sends, and returns the time of the call that sends the bytes. With a grant, that is the
    /// longest call.
    fn timed_send(&mut self, message: &Arc<[u8]>, granted: bool) -> Result<f64> {
        let start = Instant::now();
        let request = self
            .node
            .isend(Target::new(self.peer, DATA), Arc::clone(message))?;
        let mut longest = if granted { 0.0 } else { micros(start) };
        if granted {
            let end = start + ARRIVED;
            while Instant::now() < end {
                let start = Instant::now();
                self.node.progress()?;
                longest = micros(start).max(longest);
            }
        }
        self.node.wait(request)?;
        Ok(longest)
    }

    fn settle(&mut self, time: Duration) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.node.progress()?;
        }
        Ok(())
    }

    /// Waits for a frame: the announcement, which the same call answers.
    fn await_announcement(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.node.progress()? == 0 && start.elapsed() < ANNOUNCED {}
        Ok(())
    }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
