// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated processes: nodes and endpoints with their whole engine, many of them in one thread.
//!
//! The caller provides what a machine has: a port of a network in memory, a carrier of liveness
//! probes, randomness from a seed, and time, which is the virtual clock of its thread
//! ([`portolan_sys::clock::set_virtual_ns`]). It also does what threads and the kernel do
//! otherwise: it runs the helper's turns, delivers probes, and decides when a process sleeps and
//! wakes. No call of a simulated process may wait, because no other process runs meanwhile.
//!
//! The one invariant: the same seed, times and deliveries give the same run.

use crate::launch::Job;
use crate::liveness::ProbeWire;
use crate::start::Birth;
use portolan_link::sim::SimLink;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Place and parts of a simulated process.
pub struct SimulatedConfig {
    /// Its port of the network.
    pub link: SimLink,
    /// Carrier of its liveness probes.
    pub probes: Arc<dyn ProbeWire>,
    /// Seed of its randomness. It must differ between processes.
    pub seed: u64,
    /// Settings, by the names of `portolan run --option`.
    pub options: BTreeMap<String, String>,
}

/// Place of a simulated process in its job. Its ranks are at consecutive ports of the network.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedJob {
    /// Rank of the process.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Port of rank 0.
    pub first_port: u32,
    /// Seed of the job's secret, the same for all ranks.
    pub seed: u64,
}

/// Settings that would otherwise depend on this machine.
const FIXED: [(&str, &str); 3] = [
    ("unexpected_memory", "16777216"),
    ("multicast", "off"),
    ("stream", "off"),
];

impl SimulatedConfig {
    /// Sets the options of `job`.
    pub(crate) fn set_options(&self, job: &mut Job) {
        for (name, value) in FIXED {
            job.options.insert(name.to_owned(), value.to_owned());
        }
        job.options.extend(self.options.clone());
        // Peers are on other hosts.
        job.host_count = 2;
    }

    pub(crate) fn birth(&self) -> Birth {
        Birth::simulated(1, derived(self.seed, "birth"))
    }

    /// Returns the token in the address of an endpoint.
    pub(crate) fn token(&self) -> [u8; 16] {
        derived(self.seed, "token")
    }
}

impl SimulatedJob {
    pub(crate) fn job(&self) -> Job {
        let mut job = Job::alone(derived(self.seed, "job"), derived(self.seed, "secret"));
        (job.rank, job.size) = (self.rank, self.size);
        job
    }
}

/// Returns bytes that follow from a seed and their use.
fn derived<const N: usize>(seed: u64, usage: &str) -> [u8; N] {
    let mut hasher = blake3::Hasher::new_derive_key("portolan simulated process, version 1");
    hasher.update(&seed.to_le_bytes());
    hasher.update(usage.as_bytes());
    let mut bytes = [0; N];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}
