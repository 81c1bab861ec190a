// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of the shared memory link.

use super::directory::OpenConfig;
use crate::PeerId;
use std::fmt;

/// Default of [`ShmConfig::ring_len`]. A ring for each direction fits twice into the second-level
/// cache of a current core (1 MiB and more), and the ring holds 20 000 of the smallest frames.
pub const RING_LEN_DEFAULT: usize = 256 * 1024;

/// Default of [`ShmConfig::rank_count_max`]: more processes than a job ever has on one host. The
/// table of rings to peers then takes a few megabytes, if all are used.
const RANK_COUNT_MAX_DEFAULT: u32 = 1 << 16;

/// Placeholder for the job's id in hellos of processes without a job.
pub(super) const OPEN_JOB_ID: [u8; 16] = *b"portolan:address";

/// Settings of a shared memory link.
#[derive(Clone)]
pub struct ShmConfig {
    /// Id of the job; processes of other jobs are refused.
    pub job_id: [u8; 16],
    /// Rank of this process.
    pub rank: PeerId,
    /// The job's secret, which authenticates hellos.
    pub secret: [u8; 32],
    /// Bytes of each ring through which this process sends: a power of two, at least 16 KiB. Longer
    /// rings absorb longer bursts and carry longer frames (a quarter of the ring), but leave the
    /// caches sooner. Each destination takes one ring.
    pub ring_len: usize,
    /// Number of ranks. Higher ranks are refused, so that a hello cannot make tables grow without
    /// bound.
    pub rank_count_max: u32,
    /// Read large messages from the sender's memory (`process_vm_readv`) if the kernel permits it.
    /// Under Yama's `ptrace_scope` 1 this makes the process readable to all processes of its user.
    pub allow_pull: bool,
    /// Admit processes that have this process's address, instead of the ranks of a job.
    pub open: Option<OpenConfig>,
}

impl ShmConfig {
    /// Returns the defaults for process `rank` of a job.
    #[must_use]
    pub fn new(job_id: [u8; 16], rank: PeerId, secret: [u8; 32]) -> Self {
        ShmConfig {
            job_id,
            rank,
            secret,
            ring_len: RING_LEN_DEFAULT,
            rank_count_max: RANK_COUNT_MAX_DEFAULT,
            allow_pull: true,
            open: None,
        }
    }

    /// Returns the defaults for a process without a job. Peers have any number below 2^20.
    #[must_use]
    pub fn open(open: OpenConfig) -> Self {
        ShmConfig {
            rank_count_max: 1 << 20,
            open: Some(open.clone()),
            ..ShmConfig::new(OPEN_JOB_ID, 0, open.directory.own_key())
        }
    }
}

impl fmt::Debug for ShmConfig {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShmConfig")
            .field("rank", &self.rank)
            .field("ring_len", &self.ring_len)
            .field("rank_count_max", &self.rank_count_max)
            .field("allow_pull", &self.allow_pull)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
