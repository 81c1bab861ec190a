// SPDX-License-Identifier: MIT OR Apache-2.0
//! State machine of a job: joined and ended ranks, notifications to other ranks, and the end of the
//! job.
//!
//! It uses no processes, descriptors or clock. Events and the time are passed in, orders for all
//! agents are returned. Call a `on_` function, or [`Control::handle_timeout`] at
//! [`Control::deadline`], then drain [`Control::poll_order`].

use super::explanation::Explanation;
use super::wire::{self, End, Order};
use crate::output::WriteError;
use portolan::binding::launch::EndedRank;
use portolan::binding::launch::wire::Waits;
use portolan_sys::shortage::Shortage;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Time between SIGTERM and SIGKILL: enough to close files, and short for a waiting user.
const KILL_DELAY: Duration = Duration::from_secs(1);

/// Time from SIGKILL until a silent agent counts as lost: many times a network round trip and a
/// delay by the scheduler.
const ANSWER_DELAY: Duration = Duration::from_secs(3);

/// Exit status of a job ended by `--timeout`, as of timeout(1).
const TIMEOUT_STATUS: i32 = 124;

/// Exit status if the output of a job could not be written, as for other failures of this program.
const WRITE_ERROR_STATUS: i32 = 1;

const SIGKILL: i32 = libc::SIGKILL;
const SIGTERM: i32 = libc::SIGTERM;

/// Reason for which a job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A rank failed: the first one, as far as that can be determined.
    Rank {
        /// Rank, host and cause.
        gone: EndedRank,
        /// Exit status for the job.
        status: i32,
        /// Peer with a loss that was reported to its program before.
        lost: Option<Lost>,
    },
    /// A signal was received.
    Signal(i32),
    /// The time limit has passed.
    Timeout(Duration),
    /// Standard output cannot be written, for this reason.
    WriteError(String),
}

/// A peer that a rank lost before it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    peer: u32,
    /// Reason reported by the rank.
    why: String,
}

impl Failure {
    /// Returns the exit status of the job.
    pub(crate) fn status(&self) -> i32 {
        match self {
            Failure::Rank { status, .. } => *status,
            Failure::Signal(signal) => End::Signal(*signal).shell_status(),
            Failure::Timeout(_) => TIMEOUT_STATUS,
            Failure::WriteError(_) => WRITE_ERROR_STATUS,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Rank { gone, lost, .. } => {
                write!(
                    f,
                    "rank {} on {} failed: {}",
                    gone.rank, gone.host, gone.cause
                )?;
                match lost {
                    Some(Lost { peer, why }) => {
                        write!(f, ", after it had lost rank {peer} ({why})")
                    }
                    None => Ok(()),
                }
            }
            Failure::Signal(signal) => {
                write!(
                    f,
                    "the job was ended by {} sent to `portolan run`",
                    wire::signal_name(*signal)
                )
            }
            Failure::WriteError(why) => {
                write!(f, "the job was ended: {why}")
            }
            Failure::Timeout(limit) => {
                write!(
                    f,
                    "the job was ended after {} s, the limit of --timeout",
                    limit.as_secs_f64()
                )
            }
        }
    }
}

/// Returns the cause of a rank's end. A process that exhausts its memory and cannot report that
/// aborts.
fn cause_of(end: End) -> String {
    match (end, Shortage::memory().limit) {
        (End::Signal(libc::SIGABRT), Some(limit)) => format!(
            "{end}; if memory was exhausted: the limit of address space here is {limit} bytes; raise it \
             (ulimit -v)"
        ),
        _ => end.to_string(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RankState {
    Running,
    Joined,
    /// Ended successfully, after it `joined` or without joining.
    Ended {
        joined: bool,
    },
    /// Failed, or requested the end of the job.
    Failed {
        running: bool,
    },
}

/// Stage of a job on the way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// Other ranks may report errors of their own.
    Grace,
    /// The time limit has passed, and the ranks may report what they wait for.
    Explained,
    /// SIGTERM, or the user's signal, was sent.
    Terminated,
    /// SIGKILL was sent.
    Killed,
    /// Agents that have not answered SIGKILL are not waited for.
    Abandoned,
}

/// Effect of a rank's failure on the other ranks, once all have joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnFailure {
    /// The other ranks are notified, and ended after the grace period.
    #[default]
    End,
    /// The other ranks are notified and continue. The exit status is that of rank 0.
    Continue,
    /// As `Continue`, without messages to the user: the caller judges the ranks.
    #[value(skip)]
    Observe,
}

/// State of a job.
pub(crate) struct Control {
    /// Name of each rank's host.
    hosts: Vec<String>,
    ranks: Vec<RankState>,
    addresses: Vec<Option<Value>>,
    /// The first rank that reported a possible cause of failure, and its report.
    problem: Option<(u32, String)>,
    stage: Stage,
    deadline: Option<Instant>,
    on_failure: OnFailure,
    /// Collected reports of what the ranks wait for, while they are requested.
    explanation: Option<Explanation>,
    /// Lines for the user about failed ranks of a job that continues, with their hosts.
    notes: VecDeque<(String, String)>,
    grace: Duration,
    limit: Option<Duration>,
    failure: Option<Failure>,
    /// First peer that each rank has lost.
    lost: BTreeMap<u32, Lost>,
    orders: VecDeque<Order>,
}

impl Control {
    /// Creates a job that starts now; `hosts` names the host of each rank.
    pub(crate) fn new(
        now: Instant,
        hosts: Vec<String>,
        grace: Duration,
        limit: Option<Duration>,
    ) -> Self {
        Control {
            ranks: vec![RankState::Running; hosts.len()],
            addresses: vec![None; hosts.len()],
            problem: None,
            hosts,
            stage: Stage::Running,
            deadline: limit.map(|limit| now + limit),
            on_failure: OnFailure::End,
            explanation: None,
            notes: VecDeque::new(),
            grace,
            limit,
            failure: None,
            lost: BTreeMap::new(),
            orders: VecDeque::new(),
        }
    }

    /// Sets the effect of a rank's failure.
    pub(crate) fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Returns the next line for the user, and the host that it is about.
    pub(crate) fn poll_note(&mut self) -> Option<(String, String)> {
        self.notes.pop_front()
    }

    /// Returns true if all ranks have joined.
    pub(crate) fn has_begun(&self) -> bool {
        self.addresses.iter().all(Option::is_some)
    }

    /// Ends the job because its caller needs no more ranks.
    pub(crate) fn on_cancel(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Running | Stage::Grace | Stage::Explained) {
            self.order_kill(now);
        }
    }

    /// Handles a rank that joins.
    pub(crate) fn on_address(&mut self, now: Instant, rank: u32, address: Value) {
        let Some(state @ RankState::Running) = self.ranks.get_mut(rank as usize) else {
            return;
        };
        *state = RankState::Joined;
        self.addresses[rank as usize] = Some(address);
        if let Some(addresses) = self
            .addresses
            .iter()
            .cloned()
            .collect::<Option<Vec<Value>>>()
        {
            self.orders.push_back(Order::Table { addresses });
        }
        self.check_joinable(now);
    }

    /// Handles a rank's report of a possible cause of failure.
    pub(crate) fn on_problem(&mut self, rank: u32, reason: String) {
        if self.problem.is_some() || rank as usize >= self.hosts.len() {
            return;
        }
        self.problem = Some((rank, reason));
        // A peer that was notified of the problem may have failed sooner.
        let mut failure = self.failure.take();
        if let Some(Failure::Rank { gone, .. }) = &mut failure {
            gone.cause = self.with_problem(gone.rank, std::mem::take(&mut gone.cause));
        }
        self.failure = failure;
    }

    /// Extends the cause of a rank's end with the reported problem.
    fn with_problem(&self, rank: u32, cause: String) -> String {
        match &self.problem {
            None => cause,
            Some((who, reason)) if *who == rank => format!("{cause}; it had reported: {reason}"),
            Some((who, reason)) => {
                let host = &self.hosts[*who as usize];
                format!("{cause}; rank {who} on {host} had reported: {reason}")
            }
        }
    }

    /// Handles a rank's request to end the job.
    pub(crate) fn on_abort(&mut self, now: Instant, rank: u32, status: i32, reason: &str) {
        let state = self.ranks.get(rank as usize);
        if !matches!(state, Some(RankState::Running | RankState::Joined)) {
            return;
        }
        // Only the low byte reaches a shell; an abort must not appear as success.
        let status = if status & 0xff == 0 { 1 } else { status & 0xff };
        self.fail(
            now,
            rank,
            format!("aborted the job: {reason}"),
            status,
            true,
        );
    }

    /// Records that the loss of `peer` is about to be reported to a rank's program.
    pub(crate) fn on_lost(&mut self, rank: u32, peer: u32, why: String) {
        let size = self.ranks.len();
        // A process cannot have lost itself.
        if (rank as usize) < size && (peer as usize) < size && rank != peer {
            self.lost.entry(rank).or_insert(Lost { peer, why });
        }
    }

    /// Handles the end of a rank's process.
    pub(crate) fn on_ended(&mut self, now: Instant, rank: u32, end: End, left: bool) {
        let Some(state) = self.ranks.get_mut(rank as usize) else {
            return;
        };
        match (*state, end) {
            (RankState::Ended { .. }, _) => {}
            (RankState::Failed { .. }, _) => *state = RankState::Failed { running: false },
            (RankState::Running, End::Exit(0)) => {
                *state = RankState::Ended { joined: false };
                self.check_joinable(now);
            }
            (RankState::Joined, End::Exit(0)) if left => {
                *state = RankState::Ended { joined: true };
                // Notify the other ranks: one that waits for this rank would otherwise detect its
                // end only by inquiries, and one that receives from any rank would never detect it.
                self.orders.push_back(Order::Gone(EndedRank {
                    rank,
                    host: self.hosts[rank as usize].clone(),
                    cause: "it has left the job".into(),
                    is_success: true,
                }));
            }
            (_, End::Exit(0)) => {
                self.fail(now, rank, "ended without leaving the job".into(), 1, false);
            }
            (_, end) => self.fail(now, rank, cause_of(end), end.shell_status(), false),
        }
    }

    /// Handles the loss of an agent, and with it of these ranks.
    pub(crate) fn on_agent_lost(&mut self, now: Instant, ranks: &[u32], cause: &str) {
        for rank in ranks {
            match self.ranks[*rank as usize] {
                RankState::Ended { .. } | RankState::Failed { running: false } => {}
                RankState::Failed { running: true } => {
                    self.ranks[*rank as usize] = RankState::Failed { running: false };
                }
                RankState::Running | RankState::Joined => {
                    self.fail(now, *rank, cause.to_owned(), 1, false);
                }
            }
        }
    }

    /// Handles a signal. The second one kills the job.
    pub(crate) fn on_signal(&mut self, now: Instant, signal: i32) {
        self.failure.get_or_insert(Failure::Signal(signal));
        match self.stage {
            Stage::Running | Stage::Grace | Stage::Explained => {
                self.order_signal(signal, Stage::Terminated, Some(now + self.grace));
            }
            Stage::Terminated | Stage::Killed | Stage::Abandoned => self.order_kill(now),
        }
    }

    /// Starts to collect what the ranks wait for, at the user's request or at the time limit.
    pub(crate) fn on_explain(&mut self, now: Instant) {
        if self.explanation.is_none() {
            let is_running =
                |state: &RankState| matches!(state, RankState::Running | RankState::Joined);
            let ranks = (0..).zip(&self.ranks);
            let running = ranks.filter(|(_, state)| is_running(state));
            self.explanation = Some(Explanation::new(now, running.map(|(rank, _)| rank)));
            self.orders.push_back(Order::Explain);
        }
    }

    /// Handles a report of what a rank waits for, from the rank or its agent.
    pub(crate) fn on_waits(&mut self, now: Instant, rank: u32, waits: Waits) {
        if let Some(explanation) = &mut self.explanation {
            explanation.on_waits(rank, waits);
        }
        self.check_explanation(now);
    }

    /// Prints the explanation when it is complete or its time has passed.
    fn check_explanation(&mut self, now: Instant) {
        let Some(explanation) = self.explanation.take_if(|it| it.is_due(now)) else {
            return;
        };
        let hosts = &self.hosts;
        let host_of = |rank: u32| hosts.get(rank as usize).cloned().unwrap_or_default();
        let lines = explanation.lines();
        self.notes
            .extend(lines.into_iter().map(|(rank, line)| (host_of(rank), line)));
        if self.stage == Stage::Explained {
            self.deadline = Some(now);
        }
    }

    /// Handles a failure to write the processes' output.
    pub(crate) fn on_write_error(&mut self, now: Instant, error: io::Error) {
        let why = WriteError(error).to_string();
        self.failure.get_or_insert(Failure::WriteError(why));
        if matches!(self.stage, Stage::Running | Stage::Grace | Stage::Explained) {
            self.order_signal(SIGTERM, Stage::Terminated, Some(now + KILL_DELAY));
        }
    }

    /// Handles the time [`Control::deadline`].
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.check_explanation(now);
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.stage {
            Stage::Running => {
                self.failure = self.limit.map(Failure::Timeout);
                self.stage = Stage::Explained;
                self.deadline = None;
                self.on_explain(now);
            }
            Stage::Explained => {
                self.order_signal(SIGTERM, Stage::Terminated, Some(now + KILL_DELAY));
            }
            Stage::Grace => {
                self.order_signal(SIGTERM, Stage::Terminated, Some(now + KILL_DELAY));
            }
            Stage::Terminated => self.order_kill(now),
            Stage::Killed | Stage::Abandoned => {
                self.stage = Stage::Abandoned;
                self.deadline = None;
            }
        }
    }

    /// Returns true if agents that have not ended by now should not be waited for.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.stage == Stage::Abandoned
    }

    /// Returns the time at which to call [`Control::handle_timeout`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let explained = self.explanation.as_ref().map(Explanation::until);
        self.deadline.into_iter().chain(explained).min()
    }

    /// Returns the next order for all agents.
    pub(crate) fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Returns the job's failure, if it failed.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    fn order_kill(&mut self, now: Instant) {
        self.order_signal(SIGKILL, Stage::Killed, Some(now + ANSWER_DELAY));
    }

    fn order_signal(&mut self, signal: i32, stage: Stage, deadline: Option<Instant>) {
        self.stage = stage;
        self.deadline = deadline;
        self.orders.push_back(Order::Signal { signal });
    }

    /// Fails the job if a rank ended without joining while another joined: the table cannot be
    /// completed.
    fn check_joinable(&mut self, now: Instant) {
        let joined = |state: &RankState| {
            matches!(state, RankState::Joined | RankState::Ended { joined: true })
        };
        if !self.ranks.iter().any(joined) {
            return;
        }
        let never_joined = |state: &RankState| *state == RankState::Ended { joined: false };
        if let Some(rank) = self.ranks.iter().position(never_joined) {
            let rank = u32::try_from(rank).unwrap_or(u32::MAX);
            self.fail(
                now,
                rank,
                "ended without joining the job that others joined".into(),
                1,
                false,
            );
        }
    }

    fn fail(&mut self, now: Instant, rank: u32, cause: String, status: i32, running: bool) {
        let Some(state) = self.ranks.get_mut(rank as usize) else {
            return;
        };
        *state = RankState::Failed { running };
        let cause = self.with_problem(rank, cause);
        let gone = EndedRank {
            rank,
            host: self.hosts[rank as usize].clone(),
            cause,
            is_success: false,
        };
        self.orders.push_back(Order::Gone(gone.clone()));
        if self.continues_after(&gone, status, running) {
            return;
        }
        if self.stage == Stage::Running {
            self.stage = Stage::Grace;
            self.deadline = Some(now + self.grace);
        }
        let lost = self.lost.get(&rank).cloned();
        if self.is_earlier_cause(rank, lost.as_ref()) {
            self.failure = Some(Failure::Rank { gone, status, lost });
        }
    }

    /// Returns true if the other ranks continue after the failure of `gone`. `aborts` is set if it
    /// requested the end of the job.
    fn continues_after(&mut self, gone: &EndedRank, status: i32, aborts: bool) -> bool {
        let continues = match self.on_failure {
            OnFailure::End => false,
            OnFailure::Continue => self.has_begun() && !aborts,
            OnFailure::Observe => self.has_begun(),
        };
        if continues && self.on_failure == OnFailure::Continue && self.stage == Stage::Running {
            let lost = self.lost.get(&gone.rank).cloned();
            let gone = gone.clone();
            let host = gone.host.clone();
            let is_first = gone.rank == 0;
            let failure = Failure::Rank { gone, status, lost };
            match is_first {
                true => self.failure = Some(failure),
                false => self
                    .notes
                    .push_back((host, format!("{failure}; the other ranks continue"))),
            }
        }
        continues
    }

    /// Returns true if the new failure of `rank` explains the job's end better than the earlier
    /// one.
    ///
    /// - A failure without the loss of a peer wins over failures with one, because a victim's
    ///   process often ends before the culprit's.
    /// - Between victims, the one that the other had lost wins.
    /// - A process ended by the launcher's signals explains nothing.
    fn is_earlier_cause(&self, rank: u32, lost: Option<&Lost>) -> bool {
        let previous = match &self.failure {
            None => return true,
            Some(Failure::Rank { lost, .. }) if self.stage == Stage::Grace => lost.as_ref(),
            Some(_) => return false,
        };
        previous.is_some_and(|previous| lost.is_none() || previous.peer == rank)
    }
}

#[cfg(test)]
mod tests;
