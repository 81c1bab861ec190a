// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection of a process to whatever started it.

use super::agent::Agent;
use super::detect::{self, Starter};
use super::foreign::Foreign;
use super::wire::{Waits, Word};
use super::{Gone, Job, LaunchError, LossReporter};
use crate::settings;
use serde_json::Value;
use std::os::fd::RawFd;

/// The connection of a process to what started it.
///
/// Dropping it without [`Launch::bye`] means that the process has failed, once it ends.
#[derive(Debug)]
pub struct Launch(Kind);

#[derive(Debug)]
enum Kind {
    Agent(Box<Agent>),
    Foreign(Box<Foreign>),
}

impl Launch {
    /// Finds out what started this process, and joins its job there; `None` when nothing did, then
    /// this process is a job of one. With `PORTOLAN_VERBOSE=1` it says on standard error what it
    /// found.
    ///
    /// # Errors
    /// [`LaunchError::UnknownSetting`] for a name in the environment or among the job's options that
    /// is no setting's; [`LaunchError::BadVariable`] and [`LaunchError::NotInherited`] if a variable does not name
    /// a connection, for instance because this process has taken it already;
    /// [`LaunchError::Version`] if the launcher is of another version; [`LaunchError::Foreign`] for
    /// what another launcher refuses.
    pub fn from_env() -> Result<Option<Launch>, LaunchError> {
        super::check_env()?;
        let found = detect::here()?;
        let kind = match &found.starter {
            Starter::Nobody => {
                say(|| format!("{}; a job of one", found.why));
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
        say(|| format!("{}; {}", found.why, launch.job().summary()));
        Ok(Some(launch))
    }

    /// Which part of which job this process is.
    #[must_use]
    pub fn job(&self) -> &Job {
        match &self.0 {
            Kind::Agent(agent) => agent.job(),
            Kind::Foreign(foreign) => foreign.job(),
        }
    }

    /// Tells everybody this process's address and waits for all the others'; by rank.
    ///
    /// # Errors
    /// [`LaunchError::Gone`] when a rank ended before all addresses were known,
    /// [`LaunchError::Closed`] when the launcher ended, [`LaunchError::Foreign`] for what another
    /// launcher says.
    pub fn exchange(&mut self, address: &Value) -> Result<Vec<Value>, LaunchError> {
        match &mut self.0 {
            Kind::Agent(agent) => agent.exchange(address),
            Kind::Foreign(foreign) => foreign.exchange(address),
        }
    }

    /// The next rank that ended before its time, if the launcher has told of one. Does not wait.
    /// Only Portolan's own launcher tells; others end the job.
    ///
    /// One system call, and nothing else, when nothing is there: not for every turn of a spin loop.
    /// Wait for [`Launch::fd`] to become readable instead.
    pub fn poll(&mut self) -> Option<Gone> {
        match &mut self.0 {
            Kind::Agent(agent) => agent.poll(),
            Kind::Foreign(_) => None,
        }
    }

    /// Returns the next answer to an inquiry that [`Launch::poll`] has received.
    pub(crate) fn poll_word(&mut self) -> Option<Word> {
        match &mut self.0 {
            Kind::Agent(agent) => agent.poll_word(),
            Kind::Foreign(_) => None,
        }
    }

    /// Tests whether the agents of the job's hosts can be asked about its processes.
    pub(crate) fn has_agents(&self) -> bool {
        matches!(self.0, Kind::Agent(_))
    }

    /// Asks the agent of `rank` whether its process lives. The answer returns `asked`, the time of the inquiry.
    /// Only Portolan's own launcher can be asked.
    pub(crate) fn inquire(&mut self, rank: u32, asked: u64) {
        if let Kind::Agent(agent) = &mut self.0 {
            agent.inquire(rank, asked);
        }
    }

    /// Tests whether the launcher has asked what this process waits for since the last call.
    pub(crate) fn poll_explain(&mut self) -> bool {
        match &mut self.0 {
            Kind::Agent(agent) => agent.poll_explain(),
            Kind::Foreign(_) => false,
        }
    }

    /// Tells the launcher what this process waits for.
    pub(crate) fn tell_waits(&mut self, waits: Waits) {
        if let Kind::Agent(agent) = &mut self.0 {
            agent.tell_waits(waits);
        }
    }

    /// Tells Portolan's launcher that this process has opened its links.
    pub(crate) fn ready(&mut self) {
        if let Kind::Agent(agent) = &mut self.0 {
            agent.ready();
        }
    }

    /// The descriptor that becomes readable when [`Launch::poll`] has something to say; -1, which
    /// `poll(2)` ignores, when it never will have.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        match &self.0 {
            Kind::Agent(agent) => agent.fd(),
            Kind::Foreign(_) => -1,
        }
    }

    /// Tells the launcher of lost peers; other launchers than Portolan's have no use for that.
    pub(crate) fn loss_reporter(&self) -> Option<LossReporter> {
        match &self.0 {
            Kind::Agent(agent) => agent.loss_reporter(),
            Kind::Foreign(_) => None,
        }
    }

    /// Takes leave: if the process now ends with status 0, all is well.
    ///
    /// A launcher that is gone is no error here; the process is about to be killed then.
    pub fn bye(&mut self) {
        match &mut self.0 {
            Kind::Agent(agent) => agent.bye(),
            Kind::Foreign(foreign) => foreign.bye(),
        }
    }

    /// Tells why this process may fail, if it does: the launcher says so with its end. Only Portolan's
    /// own launcher listens.
    pub fn tell_trouble(&mut self, reason: &str) {
        match &mut self.0 {
            Kind::Agent(agent) => agent.tell_trouble(reason),
            Kind::Foreign(_) => {}
        }
    }

    /// Asks the launcher to end the whole job with exit status `status`, because of `reason`.
    ///
    /// The caller should end by itself when this returns; some launchers' libraries end it here.
    pub fn abort(&mut self, status: i32, reason: &str) {
        match &mut self.0 {
            Kind::Agent(agent) => agent.abort(status, reason),
            Kind::Foreign(foreign) => foreign.abort(status, reason),
        }
    }
}

/// Tells a person who wants to know, on standard error: a program need not have a logger.
fn say(what: impl FnOnce() -> String) {
    if settings::VERBOSE.is_on().unwrap_or(false) {
        eprintln!("portolan: {}", what());
    }
}
