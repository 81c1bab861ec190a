// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which part of which job a process is.

use super::LaunchError;
use super::wire::PathChoice;
use crate::settings::{self, BadVariable, Options, Setting};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which part of which job this process is.
#[derive(Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Job {
    /// Random; tells two jobs apart.
    #[serde(with = "hex::serde")]
    pub job_id: [u8; 16],
    /// This process, from 0.
    pub rank: u32,
    /// Processes in the job.
    pub size: u32,
    /// This process among those of its host, from 0.
    pub local_rank: u32,
    /// Processes of the job on this host.
    pub local_size: u32,
    /// Hosts in the job.
    pub host_count: u32,
    /// Processes of the job that want this one's cores, itself counted: those of other hosts as well, where
    /// the hosts are namespaces of one machine. 0 where the launcher does not say.
    #[serde(default)]
    pub rivals: u32,
    /// Known to the processes of the job and to nobody else. Debug output leaves it out.
    #[serde(with = "hex::serde")]
    pub secret: [u8; 32],
    /// Which links to use.
    pub path: PathChoice,
    /// Settings given to `portolan run --option NAME=VALUE`.
    #[serde(default)]
    pub options: Options,
    /// What the launcher calls this host, if it has a name for it: errors name it so, too.
    #[serde(default)]
    pub host_name: Option<String>,
}

impl Job {
    /// A job of one process, for programs that no launcher has started.
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
        }
    }

    /// Tests whether it stands for a libfabric endpoint, which is in no job and has no rank.
    pub(crate) fn is_endpoint(&self) -> bool {
        self.rank == u32::MAX
    }

    /// Returns the name of this host for errors and for the setting `network`: the launcher's name, or
    /// the host's own.
    pub(crate) fn host_name(&self) -> String {
        self.host_name.clone().unwrap_or_else(own_name)
    }

    /// Its numbers, for a person.
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

    /// Whether each number is below the count that it belongs to.
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
    /// The value for `job`: its option wins over the environment.
    pub(crate) fn of(&self, job: &Job) -> Option<String> {
        self.among(&job.options)
    }
}

impl PathChoice {
    /// The choice in this process's environment.
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
            wanted: "auto, shm, udp, packet or xdp",
        })
    }
}

/// Refuses variables in this process's environment that are no settings, and values that mean
/// nothing of those that may not be looked at otherwise.
pub(crate) fn check_env() -> Result<(), LaunchError> {
    settings::check_variables()?;
    PathChoice::from_env()?;
    for switch in [settings::VERBOSE, settings::FABRIC] {
        switch.is_on()?;
    }
    Ok(())
}

impl fmt::Debug for Job {
    /// Leaves the secret out: debug output ends in logs.
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
