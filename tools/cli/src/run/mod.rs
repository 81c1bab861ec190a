// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan run`: starts a program as the processes of one job, and ends them together.
//!
//! One agent per host starts the ranks there. [`control`] decides without side effects; this module
//! moves its decisions and the agents' reports between descriptors.
//!
//! Invariant: when [`execute`] returns, or this process dies in any way, no process of the job is
//! left.

mod agents;
pub(crate) mod command;
mod control;
mod explanation;
mod failed_hosts;
pub(crate) mod hosts;
mod printer;
mod remote;
pub(crate) mod ssh;
pub(crate) mod wire;

use crate::error::UserError;
use crate::launch_io;
use crate::orphans;
use crate::signals::{self, Signals};
use agents::Agent;
pub(crate) use agents::{AgentOptions, cannot_start};
use anyhow::{Context, Result};
use control::Control;
pub(crate) use control::{Failure, OnFailure};
pub(crate) use failed_hosts::FailedHosts;
use hosts::{Host, MapBy};
use nix::poll::PollFlags;
use portolan::binding::launch::wire::{InquiryReply, VERSION};
use printer::Printer;
use rand::TryRngCore;
pub(crate) use remote::RemoteProgram;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
pub(crate) use wire::{OWN_PROGRAM, Stream, Workload};
use wire::{Order, Report, Start};

/// A job to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Number of processes.
    pub(crate) rank_count: u32,
    /// Hosts to use; [`hosts`] creates such lists.
    pub(crate) hosts: Vec<Host>,
    pub(crate) map_by: MapBy,
    /// Set to print `[rank] ` before each line of output.
    pub(crate) tag_output: bool,
    /// Set to return the ranks' standard output in [`Outcome::captured`] instead of printing it.
    pub(crate) capture: bool,
    /// Time for the other ranks to report errors of their own after a rank failed.
    pub(crate) grace: Duration,
    /// Effect of a rank's failure on other ranks.
    pub(crate) on_failure: OnFailure,
    /// Time limit of the job.
    pub(crate) limit: Option<Duration>,
    pub(crate) workload: Workload,
    pub(crate) agent: AgentOptions,
}

/// Result of a job.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// `None` if the job succeeded.
    pub(crate) failure: Option<Failure>,
    /// Set if all ranks had joined.
    pub(crate) has_begun: bool,
    /// Lines of standard output by rank, if capturing was requested.
    #[allow(
        dead_code,
        reason = "for callers inside the program that start jobs of their own"
    )]
    pub(crate) captured: Vec<(u32, Vec<u8>)>,
}

/// Runs a job to its end. Call it from the main thread, because the agents end with their thread.
///
/// # Errors
/// An error message for the user if the job cannot be started. A job that fails is no error but an
/// [`Outcome`].
pub(crate) fn execute(options: &Options) -> Result<Outcome> {
    execute_observed(options, None)
}

/// Runs a job as [`execute`] does. With an observer, ranks that fail after all have joined do not
/// end the others, and the observer receives the ranks' output.
///
/// # Errors
/// The errors of [`execute`]; with an observer, [`FailedHosts`] with all hosts that could not
/// start.
pub(crate) fn execute_observed(
    options: &Options,
    observer: Option<&mut dyn Observer>,
) -> Result<Outcome> {
    let ranks = hosts::place(options.rank_count, &options.hosts, options.map_by)?;
    let signals = Signals::block(&signals::ENDING)?;
    orphans::become_subreaper()?;
    let before = orphans::children();
    let result = Job::start(options, ranks, signals, observer).and_then(Job::finish);
    orphans::kill_all_but(&before);
    result
}

/// Observer of a job with ranks that may fail.
pub(crate) trait Observer {
    /// Handles output of a rank, mostly in whole lines.
    ///
    /// # Errors The output can no longer be written; the job ends.
    fn on_output(&mut self, rank: u32, stream: Stream, bytes: &[u8]) -> std::io::Result<()>;
    /// Handles the end of a rank, which succeeded if there is no cause.
    fn on_ended(&mut self, rank: u32, cause: Option<String>);
    /// Handles the passing of time.
    fn on_time(&mut self, now: Instant);
    /// Returns true if the remaining ranks need not be waited for.
    fn is_satisfied(&self) -> bool;
}

/// Interval between calls of [`Observer::on_time`]: frequent enough for a display.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(250);

struct Job<'a> {
    agent_options: AgentOptions,
    observer: Option<&'a mut dyn Observer>,
    signals: Signals,
    agents: Vec<Agent>,
    control: Control,
    printer: Printer,
    failed_hosts: FailedHosts,
}

/// Owner of a descriptor in the loop.
#[derive(Clone, Copy, Debug)]
enum Source {
    Signals,
    Orders(usize),
    Reports(usize),
    Errors(usize),
    Printer(Stream),
}

impl<'a> Job<'a> {
    fn start(
        options: &Options,
        ranks: Vec<Vec<u32>>,
        signals: Signals,
        observer: Option<&'a mut dyn Observer>,
    ) -> Result<Job<'a>> {
        let mut host_of = vec![String::new(); options.rank_count as usize];
        let mut start = start_order(options, &ranks)?;
        let mut agents = Vec::new();
        let rivals = hosts::rivals(&options.hosts, &ranks);
        for ((host, ranks), rivals) in options.hosts.iter().zip(ranks).zip(rivals) {
            if ranks.is_empty() {
                continue;
            }
            ranks
                .iter()
                .for_each(|rank| host_of[*rank as usize].clone_from(&host.name));
            start.ranks.clone_from(&ranks);
            start.host.clone_from(&host.name);
            start.rivals = rivals;
            let mut agent = Agent::spawn(host.clone(), ranks, &options.agent)?;
            // The order is copied into the pipe now; a slow ssh reads it when it is connected.
            let order = Order::Start(Box::new(start));
            agent.order(&order)?;
            let Order::Start(back) = order else {
                unreachable!("created as Start above")
            };
            start = *back;
            agents.push(agent);
        }
        let now = Instant::now();
        let mut control =
            Control::new(now, host_of, options.grace, options.limit).on_failure(options.on_failure);
        if observer.is_some() {
            control = control.on_failure(OnFailure::Observe);
        }
        let printer = Printer::new(options.tag_output, options.capture)?;
        Ok(Job {
            agent_options: options.agent.clone(),
            observer,
            signals,
            agents,
            control,
            printer,
            failed_hosts: FailedHosts::default(),
        })
    }

    /// Runs the job until all agents are done.
    fn finish(mut self) -> Result<Outcome> {
        while self.agents.iter().any(|agent| !agent.is_done) {
            for source in self.wait()? {
                self.handle(source)?;
            }
            self.control.handle_timeout(Instant::now());
            self.check_started(Instant::now())?;
            self.observe();
            self.give_orders()?;
            while let Some((host, line)) = self.control.poll_note() {
                self.printer.push_error(&host, &line);
            }
            if self.control.is_abandoned() {
                self.abandon();
            }
        }
        self.agents.clear();
        match self.printer.finish() {
            // A reader may close early once the job has ended.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                self.control.on_write_error(Instant::now(), error);
            }
            _ => {}
        }
        let captured = self.printer.take_captured();
        Ok(Outcome {
            failure: self.control.failure().cloned(),
            has_begun: self.control.has_begun(),
            captured,
        })
    }

    fn wait(&self) -> Result<Vec<Source>> {
        let mut fds: Vec<(Source, BorrowedFd<'_>, PollFlags)> = Vec::new();
        let mut add = |source, fd: Option<_>, flags| fds.extend(fd.map(|fd| (source, fd, flags)));
        add(Source::Signals, Some(self.signals.fd()), PollFlags::POLLIN);
        for (index, agent) in self
            .agents
            .iter()
            .enumerate()
            .filter(|(_, agent)| !agent.is_done)
        {
            add(Source::Orders(index), agent.orders.fd(), PollFlags::POLLOUT);
            add(Source::Errors(index), agent.errors.fd(), PollFlags::POLLIN);
            // A slow reader slows the agents down, and they slow the ranks down.
            if self.printer.has_capacity() {
                add(
                    Source::Reports(index),
                    agent.reports.fd(),
                    PollFlags::POLLIN,
                );
            }
        }
        for (stream, fd) in self.printer.fds() {
            add(Source::Printer(stream), Some(fd), PollFlags::POLLOUT);
        }
        let observe = self
            .observer
            .as_ref()
            .map(|_| Instant::now() + OBSERVE_INTERVAL);
        // With an observer, this also checks often enough for hosts that do not start.
        let starts = self.agents.iter().filter_map(Agent::start_deadline);
        let deadline = self
            .control
            .deadline()
            .into_iter()
            .chain(observe)
            .chain(starts);
        let deadline = deadline.min();
        launch_io::wait(&fds, deadline)
    }

    fn observe(&mut self) {
        let Some(observer) = &mut self.observer else {
            return;
        };
        let now = Instant::now();
        observer.on_time(now);
        if observer.is_satisfied() {
            self.control.on_cancel(now);
        }
    }

    fn handle(&mut self, source: Source) -> Result<()> {
        match source {
            Source::Signals => {
                while let Some(signal) = self.signals.next() {
                    match signal {
                        libc::SIGQUIT => self.control.on_explain(Instant::now()),
                        _ => self.control.on_signal(Instant::now(), signal),
                    }
                }
            }
            Source::Orders(index) => self.agents[index].orders.flush(),
            Source::Reports(index) => return self.handle_reports(index),
            Source::Errors(index) => {
                let agent = &mut self.agents[index];
                for line in agent.read_errors() {
                    self.printer.push_error(&agent.host.name, &line);
                }
            }
            Source::Printer(stream) => {
                if let Err(error) = self.printer.write(stream) {
                    match error.kind() {
                        // Act as the kernel does for a single program after its reader has closed.
                        ErrorKind::BrokenPipe => {
                            self.control.on_signal(Instant::now(), libc::SIGPIPE);
                        }
                        _ => self.control.on_write_error(Instant::now(), error),
                    }
                }
            }
        }
        Ok(())
    }

    fn handle_reports(&mut self, index: usize) -> Result<()> {
        for report in self.agents[index].read_reports() {
            self.handle_report(index, report)?;
        }
        let agent = &mut self.agents[index];
        if agent.is_done || !agent.reports.is_at_end() {
            return Ok(());
        }
        if !agent.is_up && self.control.failure().is_none() {
            let error = agent.start_error(&self.agent_options);
            return self.refuse(index, error);
        }
        let cause = agent.loss();
        let ranks = agent.ranks.clone();
        if let Some(observer) = &mut self.observer {
            ranks
                .iter()
                .for_each(|rank| observer.on_ended(*rank, Some(cause.clone())));
        }
        self.control.on_agent_lost(Instant::now(), &ranks, &cause);
        Ok(())
    }

    /// Handles a host on which nothing can be started. With an observer the others are waited for,
    /// so that all such hosts are reported together.
    fn refuse(&mut self, index: usize, error: UserError) -> Result<()> {
        if self.observer.is_none() {
            return Err(error.into());
        }
        let agent = &mut self.agents[index];
        if !agent.is_done {
            agent.end();
        }
        let host = agent.host.name.clone();
        self.failed_hosts
            .add(Instant::now() + agents::SETTLE_DELAY, host, error);
        Ok(())
    }

    fn check_started(&mut self, now: Instant) -> Result<()> {
        for index in 0..self.agents.len() {
            let agent = &mut self.agents[index];
            if agent
                .start_deadline()
                .is_some_and(|deadline| now >= deadline)
            {
                let error = agent.start_timeout_error(&self.agent_options);
                self.refuse(index, error)?;
            }
        }
        let is_open = |agent: &Agent| !agent.is_up && !agent.is_done;
        let is_waiting = self.agents.iter().any(is_open);
        if !self.failed_hosts.is_settled(now, is_waiting) {
            return Ok(());
        }
        // Close all inputs first, because each agent takes a moment to end.
        self.agents
            .iter_mut()
            .for_each(|agent| agent.orders.close());
        Err(std::mem::take(&mut self.failed_hosts).into())
    }

    fn handle_report(&mut self, index: usize, report: Report) -> Result<()> {
        let now = Instant::now();
        let agent = &mut self.agents[index];
        match report {
            Report::Hello { version } if version == VERSION => agent.is_up = true,
            Report::Hello { version } => {
                let host = &agent.host.name;
                let error = UserError::new(format!(
                    "portolan on host {host} has another version (launch protocol {version}, \
                     here {VERSION}): install the same version on all hosts"
                ));
                return self.refuse(index, error);
            }
            Report::Refused { sentence } => {
                let host = &agent.host.name;
                let error = UserError::new(format!("host {host}: {sentence}"));
                return self.refuse(index, error);
            }
            Report::Address { rank, address } => self.control.on_address(now, rank, address),
            Report::Trouble { rank, reason } => self.control.on_problem(rank, reason),
            Report::Abort {
                rank,
                status,
                reason,
            } => {
                self.control.on_abort(now, rank, status, &reason);
            }
            Report::Lost { rank, peer, why } => self.control.on_lost(rank, peer, why),
            Report::Waits { rank, waits } => self.control.on_waits(Instant::now(), rank, waits),
            Report::Inquire { asker, rank, asked } => {
                return self.order_host_of(rank, &Order::Inquire { asker, rank, asked });
            }
            Report::Standing {
                asker,
                rank,
                asked,
                state,
            } => {
                let word = InquiryReply { rank, asked, state };
                return self.order_host_of(asker, &Order::Word { asker, word });
            }
            Report::Output { rank, stream, data } => match &mut self.observer {
                Some(observer) => {
                    if let Err(error) = observer.on_output(rank, stream, &Vec::from(data)) {
                        self.control.on_write_error(now, error);
                    }
                }
                None => self.printer.push(rank, stream, data),
            },
            Report::Ended {
                rank, end, left, ..
            } => {
                self.control.on_ended(now, rank, end, left);
                if let Some(observer) = &mut self.observer {
                    let is_well = end == wire::End::Exit(0) && left;
                    observer.on_ended(rank, (!is_well).then(|| end.to_string()));
                }
            }
            Report::Done => {
                agent.end();
            }
        }
        Ok(())
    }

    /// Sends an order to the agent of `rank`.
    fn order_host_of(&mut self, rank: u32, order: &Order) -> Result<()> {
        let agents = self.agents.iter_mut().filter(|agent| !agent.is_done);
        let agent = agents.into_iter().find(|agent| agent.ranks.contains(&rank));
        agent.map_or(Ok(()), |agent| agent.order(order))
    }

    fn give_orders(&mut self) -> Result<()> {
        while let Some(order) = self.control.poll_order() {
            for agent in self.agents.iter_mut().filter(|agent| !agent.is_done) {
                agent.order(&order)?;
            }
        }
        Ok(())
    }

    /// Stops waiting for agents that do not answer SIGKILL: their hosts are disconnected.
    fn abandon(&mut self) {
        for agent in self.agents.iter_mut().filter(|agent| !agent.is_done) {
            let cause = agent.loss();
            self.printer.push_error(
                &agent.host.name,
                &format!("{cause}; not waiting for it any longer"),
            );
        }
    }
}

/// Builds the start order, without the ranks.
fn start_order(options: &Options, ranks: &[Vec<u32>]) -> Result<Start> {
    let mut job_id = [0; 16];
    let mut secret = [0; 32];
    let mut system = rand::rngs::OsRng;
    system
        .try_fill_bytes(&mut job_id)
        .context("reading random bytes from the system")?;
    system
        .try_fill_bytes(&mut secret)
        .context("reading random bytes from the system")?;
    let used = ranks.iter().filter(|ranks| !ranks.is_empty()).count();
    Ok(Start {
        version: VERSION,
        job_id,
        secret,
        size: options.rank_count,
        host_count: u32::try_from(used)?,
        host: String::new(),
        ranks: Vec::new(),
        rivals: 0,
        workload: options.workload.clone(),
    })
}
