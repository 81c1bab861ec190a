// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job of a process, with the place of the process in it.

use super::LaunchError;
use super::wire::PathChoice;
use crate::settings::{self, BadVariable, Options, Setting};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The job of a process, with the place of the process in it.
#[derive(Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Job {
    /// Random number that distinguishes jobs.
    #[serde(with = "hex::serde")]
    pub job_id: [u8; 16],
    /// Rank of this process, from 0.
    pub rank: u32,
    /// Number of processes in the job.
    pub size: u32,
    /// Index of this process among those of its host, from 0.
    pub local_rank: u32,
    /// Number of processes of the job on this host.
    pub local_size: u32,
    /// Number of hosts in the job.
    pub host_count: u32,
    /// Number of the job's processes that compete for this one's cores, including itself. Processes
    /// of other hosts count if the hosts are namespaces of one machine. 0 if the launcher does not
    /// report it.
    #[serde(default)]
    pub rivals: u32,
    /// Secret that only the processes of the job have. Debug output omits it.
    #[serde(with = "hex::serde")]
    pub secret: [u8; 32],
    /// Links that the job may use.
    pub path: PathChoice,
    /// Settings given to `portolan run --option NAME=VALUE`.
    #[serde(default)]
    pub options: Options,
    /// The launcher's name of this host, if it has one. Errors use it too.
    #[serde(default)]
    pub host_name: Option<String>,
    /// Set for a standalone process: it is in no job, and its peers come and go.
    #[serde(skip)]
    pub(super) is_standalone: bool,
}

impl Job {
    /// Creates a job of one process, for programs without a launcher.
    #[must_use]
    pub fn alone(job_id: [u8; 16], secret: [u8; 32]) -> Job {
        Job {
            job_id,
            rank: 0,
            size: 1,
            local_rank: 0,
            local_size: 1,
            host_count: 1,
            rivals: 0,
            secret,
            path: PathChoice::Auto,
            options: Options::new(),
            host_name: None,
            is_standalone: false,
        }
    }

    /// Creates the job of a standalone process. Its peers may be on any host.
    pub(crate) fn standalone(job_id: [u8; 16], secret: [u8; 32]) -> Job {
        Job {
            host_count: 2,
            is_standalone: true,
            ..Job::alone(job_id, secret)
        }
    }

    pub(crate) fn is_standalone(&self) -> bool {
        self.is_standalone
    }

    /// Returns whether it stands for a libfabric endpoint, which is in no job and has no rank.
    pub(crate) fn is_endpoint(&self) -> bool {
        self.rank == u32::MAX
    }

    /// Returns whether its peers are not known at the start, and get its address in the short form
    /// of an endpoint.
    pub(crate) fn is_open(&self) -> bool {
        self.is_endpoint() || self.is_standalone
    }

    /// Returns the name of this host for errors and for the setting `network`: the launcher's name,
    /// or the host's own.
    pub(crate) fn host_name(&self) -> String {
        self.host_name.clone().unwrap_or_else(own_name)
    }

    /// Describes its numbers for the user.
    pub(super) fn summary(&self) -> String {
        format!(
            "rank {} of {}; {} of {} on this host; {} host{}; job {}",
            self.rank,
            self.size,
            self.local_rank,
            self.local_size,
            self.host_count,
            if self.host_count == 1 { "" } else { "s" },
            hex::encode(self.job_id),
        )
    }

    /// Returns whether each number is below its count.
    pub(super) fn is_sound(&self) -> bool {
        self.rank < self.size && self.local_rank < self.local_size
    }
}

/// Returns the host name that the kernel reports.
fn own_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(
        |_| "an unnamed host".to_owned(),
        |name| name.trim().to_owned(),
    )
}

impl Setting {
    /// Returns the value for `job`: its option wins over the environment.
    pub(crate) fn of(&self, job: &Job) -> Option<String> {
        self.among(&job.options)
    }
}

impl PathChoice {
    /// Reads the choice from this process's environment.
    pub(super) fn from_env() -> Result<PathChoice, BadVariable> {
        let Some(value) = settings::PATH.from_env() else {
            return Ok(PathChoice::Auto);
        };
        let choices = [
            PathChoice::Auto,
            PathChoice::Shm,
            PathChoice::Udp,
            PathChoice::Packet,
            PathChoice::Xdp,
        ];
        let choice = choices
            .into_iter()
            .find(|choice| choice.to_string() == value);
        choice.ok_or(BadVariable {
            variable: settings::PATH.variable,
            value,
            expected: "auto, shm, udp, packet or xdp",
        })
    }
}

/// Refuses variables in this process's environment that are not settings. Also refuses invalid
/// values of settings that may not be read otherwise.
pub(crate) fn check_env() -> Result<(), LaunchError> {
    settings::check_variables()?;
    PathChoice::from_env()?;
    for switch in [settings::VERBOSE, settings::FABRIC] {
        switch.is_on()?;
    }
    Ok(())
}

impl fmt::Debug for Job {
    /// Omits the secret, because debug output may be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("job_id", &hex::encode(self.job_id))
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("local_rank", &self.local_rank)
            .field("local_size", &self.local_size)
            .field("host_count", &self.host_count)
            .field("path", &self.path)
            .field("options", &self.options)
            .field("host_name", &self.host_name)
            .finish_non_exhaustive()
    }
}
