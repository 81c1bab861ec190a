// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of `run` on each host: starts the ranks and connects them with `run`.
//!
//! It has one thread and one loop, which waits only in [`launch_io::wait`].
//!
//! Invariant: no rank outlives the agent. The agent is the parent and subreaper of the ranks. The
//! kernel kills them when the agent dies, and the agent kills them when its input closes.

mod rank;

use crate::error::{UserError, user_error};
use crate::launch_io::{self, LineSink, LineSource, SINK_LEN_HIGH};
use crate::run::wire::{OWN_PROGRAM, Order, Report, Start, Stream};
use crate::signals::{self, Signals};
use crate::{ambient, orphans, program};
use anyhow::{Context, Result, bail};
use nix::poll::PollFlags;
use nix::sys::signal::Signal;
use portolan::binding::launch::wire::{ProcessState, ToProcess, VERSION, Waits};
use rank::Rank;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time to keep reading from pipes after all known processes have ended. A pipe that is still open
/// is held by a process outside the job.
const LAST_OUTPUT_DELAY: Duration = Duration::from_millis(500);

/// Owner of a descriptor in the loop.
#[derive(Clone, Copy, Debug)]
enum Source {
    Signals,
    Orders,
    Reports,
    Socket(usize),
    SocketWrite(usize),
    Output(usize, Stream),
}

/// Serves one `run` over standard input and output.
pub(crate) fn main() -> Result<ExitCode> {
    let mut kinds = signals::ENDING.to_vec();
    kinds.push(Signal::SIGCHLD);
    let signals = Signals::block(&kinds)?;
    orphans::become_subreaper()?;
    ambient::keep_net_raw();
    let mut agent = Agent {
        signals,
        orders: LineSource::new(launch_io::duplicate(std::io::stdin().as_fd())?)?,
        reports: LineSink::new(launch_io::duplicate(std::io::stdout().as_fd())?)?,
        ranks: Vec::new(),
        is_ending: false,
        last_output: None,
    };
    agent.reports.send(&Report::Hello { version: VERSION })?;
    let result = agent.serve();
    agent.kill_everything();
    result.map(|()| ExitCode::SUCCESS)
}

struct Agent {
    signals: Signals,
    orders: LineSource,
    reports: LineSink,
    ranks: Vec<Rank>,
    /// Set by a signal, or by the end of the input.
    is_ending: bool,
    /// Deadline for reading the output of processes that have all ended.
    last_output: Option<Instant>,
}

impl Agent {
    /// Runs until all ranks have ended and all reports are written, or until the agent must end.
    fn serve(&mut self) -> Result<()> {
        loop {
            if self.is_complete() {
                self.reports.send(&Report::Done)?;
                return self.finish();
            }
            for source in self.wait()? {
                self.handle(source)?;
            }
            if self.is_ending {
                return Ok(());
            }
        }
    }

    fn is_complete(&mut self) -> bool {
        if self.ranks.is_empty() || self.ranks.iter().any(|rank| rank.end().is_none()) {
            return false;
        }
        let now = Instant::now();
        let Some(deadline) = self.last_output else {
            orphans::kill_all_but(&HashSet::new());
            self.last_output = Some(now + LAST_OUTPUT_DELAY);
            return false;
        };
        now >= deadline || self.ranks.iter().all(Rank::is_silent)
    }

    /// Writes the last reports, and waits until `run` has read them.
    fn finish(&mut self) -> Result<()> {
        self.last_output = None;
        while self.reports.pending_len() > 0 && !self.is_ending {
            for source in self.wait()? {
                self.handle(source)?;
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<Vec<Source>> {
        let mut fds: Vec<(Source, BorrowedFd<'_>, PollFlags)> = Vec::new();
        let mut add = |source, fd: Option<_>, flags| fds.extend(fd.map(|fd| (source, fd, flags)));
        add(Source::Signals, Some(self.signals.fd()), PollFlags::POLLIN);
        add(Source::Orders, self.orders.fd(), PollFlags::POLLIN);
        add(Source::Reports, self.reports.fd(), PollFlags::POLLOUT);
        // While `run` is slow, the ranks block in their writes, as they would with any slow reader.
        let has_capacity = self.reports.pending_len() < SINK_LEN_HIGH;
        for (index, rank) in self.ranks.iter().enumerate() {
            add(Source::Socket(index), rank.socket.fd(), PollFlags::POLLIN);
            add(
                Source::SocketWrite(index),
                rank.messages.fd(),
                PollFlags::POLLOUT,
            );
            if has_capacity {
                add(
                    Source::Output(index, Stream::Out),
                    rank.out.fd(),
                    PollFlags::POLLIN,
                );
                add(
                    Source::Output(index, Stream::Err),
                    rank.err.fd(),
                    PollFlags::POLLIN,
                );
            }
        }
        launch_io::wait(&fds, self.last_output)
    }

    fn handle(&mut self, source: Source) -> Result<()> {
        match source {
            Source::Signals => self.handle_signals(),
            Source::Orders => self.handle_orders(),
            Source::Reports => {
                self.reports.flush();
                Ok(())
            }
            Source::Socket(index) => self.ranks[index].handle_socket(&mut self.reports),
            Source::SocketWrite(index) => {
                self.ranks[index].messages.flush();
                Ok(())
            }
            Source::Output(index, stream) => {
                self.ranks[index].forward(stream, 1, &mut self.reports)
            }
        }
    }

    fn handle_signals(&mut self) -> Result<()> {
        while let Some(signal) = self.signals.next() {
            self.is_ending |= signal != libc::SIGCHLD;
        }
        for rank in &mut self.ranks {
            rank.check_end(&mut self.reports)?;
        }
        let running = self.ranks.iter().filter(|rank| rank.end().is_none());
        orphans::reap_all_but(&running.map(Rank::pid).collect());
        Ok(())
    }

    fn handle_orders(&mut self) -> Result<()> {
        self.orders.fill();
        while let Some(line) = self.orders.next_line() {
            let order = serde_json::from_slice(line).context("reading an order")?;
            self.handle_order(order)?;
        }
        self.is_ending |= self.orders.is_at_end();
        Ok(())
    }

    fn handle_order(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Start(start) => self.start(&start),
            Order::Table { addresses } => self.send_all(&ToProcess::Table { addresses }),
            Order::Gone(gone) => self.send_all(&ToProcess::Gone(gone)),
            Order::Inquire { asker, rank, asked } => self.report_state(asker, rank, asked),
            Order::Word { asker, word } => {
                let rank = self.ranks.iter_mut().find(|rank| rank.number() == asker);
                rank.map_or(Ok(()), |rank| rank.send(&ToProcess::Word(word)))
            }
            Order::Explain => self.explain(),
            Order::Signal { signal } => {
                self.ranks.iter().for_each(|rank| rank.signal(signal));
                Ok(())
            }
        }
    }

    /// Reports the state of `rank`, unless it has ended; its end is reported separately.
    fn report_state(&mut self, asker: u32, rank: u32, asked: u64) -> Result<()> {
        let process = self.ranks.iter().find(|process| process.number() == rank);
        let Some(state) = process.and_then(Rank::state) else {
            return Ok(());
        };
        self.reports.send(&Report::Standing {
            asker,
            rank,
            asked,
            state,
        })
    }

    /// Requests each running process to report what it waits for, and reports the state of each
    /// other process.
    fn explain(&mut self) -> Result<()> {
        for rank in &mut self.ranks {
            let text = match rank.state() {
                None => continue,
                Some(ProcessState::Running) => {
                    rank.send(&ToProcess::Explain)?;
                    continue;
                }
                Some(ProcessState::Starting) => "has not joined the job",
                Some(ProcessState::Stopped) => "is stopped by a signal or a debugger",
            };
            let (text, on) = (text.to_owned(), Vec::new());
            self.reports.send(&Report::Waits {
                rank: rank.number(),
                waits: Waits { text, on },
            })?;
        }
        Ok(())
    }

    fn send_all(&mut self, message: &ToProcess) -> Result<()> {
        self.ranks
            .iter_mut()
            .try_for_each(|rank| rank.send(message))
    }

    /// Starts all ranks, or none.
    fn start(&mut self, start: &Start) -> Result<()> {
        if !self.ranks.is_empty() {
            bail!("received a second start order");
        }
        if let Err(error) = self.try_start(start) {
            self.kill_everything();
            self.reports.send(&Report::Refused {
                sentence: format!("{error:#}"),
            })?;
            self.finish()?;
            self.is_ending = true;
        }
        Ok(())
    }

    fn try_start(&mut self, start: &Start) -> Result<()> {
        if start.version != VERSION {
            user_error!(
                "portolan there has another version ({VERSION}, here {}): install the same version \
                 on all hosts",
                start.version
            );
        }
        if let Err(error) = std::env::set_current_dir(&start.workload.directory) {
            user_error!(
                "the working directory {} cannot be entered: {error}; start from a directory that \
                 all hosts have, or give one with --directory",
                start.workload.directory
            );
        }
        let program = match start.workload.program.as_str() {
            OWN_PROGRAM => std::env::current_exe().context("finding the file of this program")?,
            program => program::find(program).map_err(UserError::new)?,
        };
        for local_rank in 0..start.ranks.len() {
            self.ranks.push(Rank::spawn(start, &program, local_rank)?);
        }
        Ok(())
    }

    /// Kills all ranks, their process groups and all other descendants of this agent.
    fn kill_everything(&mut self) {
        for rank in &self.ranks {
            rank.signal(libc::SIGKILL);
        }
        orphans::kill_all_but(&HashSet::new());
    }
}
