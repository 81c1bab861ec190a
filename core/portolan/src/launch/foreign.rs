// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joining a job through the key-value space of a launcher other than Portolan's.
//!
//! Every process publishes its host. Rank 0 adds the job's secret, which it generates, and its
//! settings, which then apply to all processes. After a fence each process has its place, and the
//! addresses are exchanged the same way.
//!
//! The invariant: a process that can read the launcher's space is in the job. The secret is as safe
//! as the launcher keeps its space (see docs/guide/launch.md).

mod blob;
mod pmi;
mod pmix;
mod slurm;

use super::{Job, LaunchError, PathChoice, Starter};
use crate::settings;
use portolan_link::HostId;
use rand::TryRngCore;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Version of the exchanged records. All processes must have the same.
const VERSION: u32 = 1;

/// Time for which a process waits for the other processes at a fence. Launchers end a job with a
/// failed process, so the limit matters only for processes that never join. On a big cluster,
/// processes may start minutes apart.
const FENCE_LIMIT: Duration = Duration::from_secs(300);

/// Time for the launcher to forward the reason of an abort. Hydra polls its descriptors in turn,
/// and drops unread output when it ends a job. The time is enough for several of its turns.
const REASON_TIME: Duration = Duration::from_millis(100);

/// Key-value space of a launcher: every process puts values, all pass a fence, then every process
/// gets values. Programs implement it for launchers that the library does not know.
pub trait Space: fmt::Debug + Send {
    /// Returns the name of the launcher, for the user.
    fn launcher(&self) -> &'static str;
    /// Returns the launcher's name of the job.
    fn job_name(&self) -> String;
    /// Returns the rank of this process, from 0.
    fn rank(&self) -> u32;
    /// Returns the number of processes in the job.
    fn size(&self) -> u32;
    /// Returns the length of the longest value, in bytes.
    fn value_len_max(&self) -> usize;
    /// Puts `value` under `key`.
    ///
    /// # Errors
    /// [`LaunchError::Foreign`], [`LaunchError::Closed`].
    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError>;
    /// Waits until all processes have called this. Afterwards their values can be read. Does nothing
    /// if [`Space::get`] waits for values.
    ///
    /// # Errors
    /// As [`Space::put`].
    fn fence(&mut self) -> Result<(), LaunchError>;
    /// Returns the value that `rank` has put under `key`.
    ///
    /// # Errors
    /// As [`Space::put`].
    fn get(&mut self, rank: u32, key: &str) -> Result<String, LaunchError>;
    /// Releases what only the exchange needed.
    fn settle(&mut self) {}
    /// Reports a regular exit.
    fn bye(&mut self);
    /// Requests the end of the job.
    fn abort(&mut self, status: i32, reason: &str);
}

/// First record of each process.
#[derive(Serialize, Deserialize)]
struct Hello {
    version: u32,
    host: HostId,
    /// Set for rank 0 only.
    #[serde(rename = "founding")]
    params: Option<JobParams>,
}

/// Values that rank 0 chooses for all processes.
#[derive(Serialize, Deserialize)]
struct JobParams {
    /// Makes the job's id different from that of an earlier job with the launcher's same name.
    #[serde(with = "hex::serde")]
    nonce: [u8; 16],
    #[serde(with = "hex::serde")]
    secret: [u8; 32],
    path: PathChoice,
    options: BTreeMap<String, String>,
}

/// Membership in a job that another launcher has started.
#[derive(Debug)]
pub(super) struct Foreign {
    space: Box<dyn Space>,
    job: Job,
    exchanged: bool,
}

impl Foreign {
    /// Joins the job of `starter`.
    pub(super) fn join(starter: &Starter) -> Result<Foreign, LaunchError> {
        let space: Box<dyn Space> = match starter {
            Starter::Pmi { fd } => Box::new(pmi::Pmi::connect(*fd)?),
            Starter::Pmix => Box::new(pmix::PmixSpace::connect()?),
            Starter::Slurm => Box::new(slurm::SlurmSpace::connect()?),
            Starter::Portolan | Starter::None => return Err(LaunchError::Closed),
        };
        Foreign::over(space, HostId::current()?)
    }

    /// Joins through `space`, as a process of `host`.
    pub(super) fn over(mut space: Box<dyn Space>, host: HostId) -> Result<Foreign, LaunchError> {
        let (rank, size) = (space.rank(), space.size());
        if rank >= size {
            let what = format!("this process is rank {rank} of {size}");
            return Err(refused(&*space, what));
        }
        let params = (rank == 0).then(JobParams::decide).transpose()?;
        let hello = Hello {
            version: VERSION,
            host: host.clone(),
            params,
        };
        blob::put(&mut *space, "hello", &hello)?;
        space.fence()?;
        let hellos: Vec<Hello> = (0..size)
            .map(|rank| blob::get(&mut *space, rank, "hello"))
            .collect::<Result<_, _>>()?;
        let job = found(&*space, &host, hellos)?;
        Ok(Foreign {
            space,
            job,
            exchanged: false,
        })
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    pub(super) fn exchange(&mut self, address: &Value) -> Result<Vec<Value>, LaunchError> {
        if std::mem::replace(&mut self.exchanged, true) {
            return Err(LaunchError::AlreadyExchanged);
        }
        blob::put(&mut *self.space, "addr", address)?;
        self.space.fence()?;
        let table = (0..self.job.size)
            .map(|rank| blob::get(&mut *self.space, rank, "addr"))
            .collect::<Result<_, _>>()?;
        self.space.settle();
        Ok(table)
    }

    pub(super) fn bye(&mut self) {
        self.space.bye();
    }

    pub(super) fn abort(&mut self, status: i32, reason: &str) {
        // These launchers show no reason, or not to every user.
        eprintln!("portolan: rank {} aborts the job: {reason}", self.job.rank);
        std::thread::sleep(REASON_TIME);
        self.space.abort(status, reason);
    }
}

impl JobParams {
    fn decide() -> Result<JobParams, LaunchError> {
        let (mut nonce, mut secret) = ([0; 16], [0; 32]);
        let mut system = rand::rngs::OsRng;
        for bytes in [&mut nonce[..], &mut secret[..]] {
            system
                .try_fill_bytes(bytes)
                .map_err(|error| LaunchError::System(std::io::Error::other(error)))?;
        }
        Ok(JobParams {
            nonce,
            secret,
            path: PathChoice::from_env()?,
            options: settings::options_from_env(),
        })
    }
}

/// Creates the job from the `hellos` of all processes, with this process's place in it.
fn found(space: &dyn Space, host: &HostId, hellos: Vec<Hello>) -> Result<Job, LaunchError> {
    let rank = space.rank();
    if let Some(other) = hellos.iter().find(|hello| hello.version != VERSION) {
        return Err(LaunchError::Version {
            ours: VERSION,
            theirs: other.version,
        });
    }
    let hosts: BTreeSet<(&str, u64)> = hellos
        .iter()
        .map(|hello| (hello.host.boot_id.as_str(), hello.host.netns))
        .collect();
    let neighbours = (0..).zip(&hellos).filter(|(_, hello)| hello.host == *host);
    let neighbours: Vec<u32> = neighbours.map(|(rank, _)| rank).collect();
    let before = neighbours.iter().filter(|other| **other < rank);
    let (local_rank, local_size) = (count(before.count()), count(neighbours.len()));
    let host_count = count(hosts.len());
    let params = hellos.into_iter().next().and_then(|hello| hello.params);
    let Some(params) = params else {
        return Err(refused(space, "rank 0 did not send the job's settings"));
    };
    Ok(Job {
        job_id: job_id(space, &params.nonce),
        rank,
        size: space.size(),
        local_rank,
        local_size,
        host_count,
        rivals: local_size,
        secret: params.secret,
        path: params.path,
        options: params.options,
        host_name: None,
        is_standalone: false,
    })
}

/// Derives the job's id from a nonce and the launcher's name of the job, which an earlier job may
/// have had too.
fn job_id(space: &dyn Space, nonce: &[u8; 16]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key("portolan 2026 job of another launcher");
    hasher.update(nonce);
    hasher.update(space.launcher().as_bytes());
    hasher.update(&[0]);
    hasher.update(space.job_name().as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    id
}

/// Converts a number of processes, which always fits.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn refused(space: &dyn Space, what: impl Into<String>) -> LaunchError {
    LaunchError::Foreign {
        launcher: space.launcher(),
        what: what.into(),
    }
}

#[cfg(test)]
mod tests;
