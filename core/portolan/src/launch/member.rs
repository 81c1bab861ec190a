// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection of a process to its launcher.

use super::agent::Agent;
use super::detect::{self, Starter};
use super::foreign::{Foreign, Space};
use super::wire::{InquiryReply, Waits};
use super::{EndedRank, Job, LaunchError, LossReporter};
use crate::settings;
use portolan_link::HostId;
use serde_json::Value;
use std::os::fd::RawFd;

/// Connection of a process to its launcher.
///
/// If it is dropped without [`Launch::bye`], the launcher counts the process as failed when it
/// exits.
#[derive(Debug)]
pub struct Launch(Kind);

#[derive(Debug)]
enum Kind {
    Agent(Box<Agent>),
    Foreign(Box<Foreign>),
}

impl Launch {
    /// Detects the launcher of this process and joins its job. Without a launcher returns `None`:
    /// this process is then a job of one. With `PORTOLAN_VERBOSE=1` prints the result on standard
    /// error.
    ///
    /// # Errors
    /// [`LaunchError::UnknownSetting`] for a name in the environment or among the job's options
    /// that is not a setting; [`LaunchError::BadVariable`] and [`LaunchError::NotInherited`] if a
    /// variable does not name a connection, for instance because this process has taken it already;
    /// [`LaunchError::Version`] if the launcher is of another version; [`LaunchError::Foreign`] if
    /// another launcher refuses.
    pub fn from_env() -> Result<Option<Launch>, LaunchError> {
        super::check_env()?;
        let found = detect::here()?;
        let kind = match &found.starter {
            Starter::None => {
                print_verbose(|| format!("{}; a job of one", found.why));
                return Ok(None);
            }
            Starter::Portolan => match Agent::from_env()? {
                Some(agent) => Kind::Agent(Box::new(agent)),
                None => return Ok(None),
            },
            other => Kind::Foreign(Box::new(Foreign::join(other)?)),
        };
        let launch = Launch(kind);
        settings::check_options(&launch.job().options)?;
        print_verbose(|| format!("{}; {}", found.why, launch.job().summary()));
        Ok(Some(launch))
    }

    /// Joins the processes that have the key-value space `space` in common, whatever has started this
    /// process.
    ///
    /// # Errors
    /// As [`Launch::from_env`], and those of the space.
    pub fn over(space: Box<dyn Space>) -> Result<Launch, LaunchError> {
        super::check_env()?;
        let why = format!("joined through {}", space.launcher());
        let foreign = Foreign::over(space, HostId::current()?)?;
        let launch = Launch(Kind::Foreign(Box::new(foreign)));
        settings::check_options(&launch.job().options)?;
        print_verbose(|| format!("{why}; {}", launch.job().summary()));
        Ok(launch)
    }

    /// Returns the job, with the place of this process in it.
    #[must_use]
    pub fn job(&self) -> &Job {
        match &self.0 {
            Kind::Agent(agent) => agent.job(),
            Kind::Foreign(foreign) => foreign.job(),
        }
    }

    /// Publishes this process's address, and waits for the addresses of all processes. They are
    /// ordered by rank.
    ///
    /// # Errors
    /// [`LaunchError::RankEnded`] when a rank ended before all addresses were known;
    /// [`LaunchError::Closed`] when the launcher ended; [`LaunchError::Foreign`] if another
    /// launcher refuses.
    pub fn exchange(&mut self, address: &Value) -> Result<Vec<Value>, LaunchError> {
        match &mut self.0 {
            Kind::Agent(agent) => agent.exchange(address),
            Kind::Foreign(foreign) => foreign.exchange(address),
        }
    }

    /// Returns the next rank that ended early, if the launcher has reported one. Does not wait.
    /// Only Portolan's own launcher reports this; other launchers end the job.
    ///
    /// Without a notice this is one system call. That is too expensive for every turn of a spin
    /// loop: wait for [`Launch::fd`] to become readable instead.
    pub fn poll(&mut self) -> Option<EndedRank> {
        match &mut self.0 {
            Kind::Agent(agent) => agent.poll(),
            Kind::Foreign(_) => None,
        }
    }

    /// Returns the next answer to an inquiry that [`Launch::poll`] has received.
    pub(crate) fn poll_inquiry_reply(&mut self) -> Option<InquiryReply> {
        match &mut self.0 {
            Kind::Agent(agent) => agent.poll_inquiry_reply(),
            Kind::Foreign(_) => None,
        }
    }

    /// Returns whether the job's hosts have agents, which report the state of its processes.
    pub(crate) fn has_agents(&self) -> bool {
        matches!(self.0, Kind::Agent(_))
    }

    /// Queries the agent of `rank` for the state of its process. The answer returns `asked`, the
    /// time of the inquiry. Only Portolan's own launcher supports this.
    pub(crate) fn inquire(&mut self, rank: u32, asked: u64) {
        if let Kind::Agent(agent) = &mut self.0 {
            agent.inquire(rank, asked);
        }
    }

    /// Returns whether the launcher has requested the process's pending waits since the last call.
    pub(crate) fn poll_explain(&mut self) -> bool {
        match &mut self.0 {
            Kind::Agent(agent) => agent.poll_explain(),
            Kind::Foreign(_) => false,
        }
    }

    /// Reports the process's pending waits to the launcher.
    pub(crate) fn report_waits(&mut self, waits: Waits) {
        if let Kind::Agent(agent) = &mut self.0 {
            agent.report_waits(waits);
        }
    }

    /// Reports to Portolan's launcher that this process has opened its links.
    pub(crate) fn ready(&mut self) {
        if let Kind::Agent(agent) = &mut self.0 {
            agent.ready();
        }
    }

    /// Returns the descriptor that becomes readable when [`Launch::poll`] has a notice. It is -1,
    /// which `poll(2)` ignores, if there will never be one.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        match &self.0 {
            Kind::Agent(agent) => agent.fd(),
            Kind::Foreign(_) => -1,
        }
    }

    /// Returns a reporter of lost peers; `None` for launchers other than Portolan's, which do not
    /// use it.
    pub(crate) fn loss_reporter(&self) -> Option<LossReporter> {
        match &self.0 {
            Kind::Agent(agent) => agent.loss_reporter(),
            Kind::Foreign(_) => None,
        }
    }

    /// Reports a regular exit: if the process now exits with status 0, it has not failed.
    ///
    /// A launcher that has exited is no error here; the process is about to be killed anyway.
    pub fn bye(&mut self) {
        match &mut self.0 {
            Kind::Agent(agent) => agent.bye(),
            Kind::Foreign(foreign) => foreign.bye(),
        }
    }

    /// Reports a reason for which this process may fail. The launcher prints it if the process
    /// fails. Only Portolan's own launcher uses it.
    pub fn report_problem(&mut self, reason: &str) {
        match &mut self.0 {
            Kind::Agent(agent) => agent.report_problem(reason),
            Kind::Foreign(_) => {}
        }
    }

    /// Requests the end of the whole job with exit status `status`, because of `reason`.
    ///
    /// The caller should exit by itself when this returns. Libraries of some launchers end the
    /// process in this call.
    pub fn abort(&mut self, status: i32, reason: &str) {
        match &mut self.0 {
            Kind::Agent(agent) => agent.abort(status, reason),
            Kind::Foreign(foreign) => foreign.abort(status, reason),
        }
    }
}

/// Prints on standard error if the user requested it: a program need not have a logger.
fn print_verbose(what: impl FnOnce() -> String) {
    if settings::VERBOSE.is_on().unwrap_or(false) {
        eprintln!("portolan: {}", what());
    }
}
