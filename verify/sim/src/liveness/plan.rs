// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plan of a run: hosts, processes, stalls and one trouble.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

const STALL_MAX_NS: u64 = 5 * SECOND;

/// Time for which a signal stops a process, in nanoseconds.
const STOP_NS: u64 = 120 * SECOND;

/// Trouble of a run, besides stalls and loss.
#[derive(Clone, Copy, Debug)]
pub(super) enum Disturbance {
    Nothing,
    /// A process is killed.
    Killed {
        process: usize,
        at: u64,
    },
    /// A host loses power.
    Off {
        host: usize,
        at: u64,
    },
    /// The cable of a host is cut; its agent is reached by another network.
    Cut {
        host: usize,
        at: u64,
    },
    /// An agent is stopped permanently.
    AgentStopped,
    /// A process is stopped for some time.
    Stopped {
        process: usize,
        at: u64,
    },
}

/// Plan of a run. Actors are numbered: processes, then agents by host, then the launcher.
#[derive(Debug)]
pub(super) struct Plan {
    /// Host of each process.
    pub(super) hosts_of: Vec<usize>,
    host_count: usize,
    pub(super) has_agents: bool,
    pub(super) loss_per_mille: u32,
    delay_ns: u64,
    pub(super) disturbance: Disturbance,
    /// Times when each actor does not run.
    stalls: Vec<Vec<(u64, u64)>>,
    pub(super) end: u64,
}

impl Plan {
    pub(super) fn draw(rng: &mut ChaCha8Rng) -> Plan {
        let host_count = rng.random_range(2..=4);
        let process_count = rng.random_range(2..=8);
        let mut hosts_of: Vec<usize> = (0..process_count)
            .map(|_| rng.random_range(0..host_count))
            .collect();
        (hosts_of[0], hosts_of[1]) = (0, 1);
        let end = 200 * SECOND;
        let mut plan = Plan {
            host_count,
            has_agents: rng.random_bool(0.8),
            loss_per_mille: [0, 10, 50, 200][rng.random_range(0..4)],
            delay_ns: [100_000, 5_000_000, 200_000_000][rng.random_range(0..3)],
            disturbance: Disturbance::Nothing,
            stalls: Vec::new(),
            end,
            hosts_of,
        };
        let gap_ns = [3, 10, 1000][rng.random_range(0..3)] * SECOND;
        plan.stalls = (0..=process_count + host_count)
            .map(|_| draw_stalls(rng, gap_ns, end))
            .collect();
        plan.disturbance = plan.draw_disturbance(rng);
        plan
    }

    fn draw_disturbance(&mut self, rng: &mut ChaCha8Rng) -> Disturbance {
        let at = rng.random_range(0..60 * SECOND);
        let process = rng.random_range(0..self.hosts_of.len());
        let host = self.hosts_of[process];
        match rng.random_range(0..6) {
            0 => Disturbance::Nothing,
            1 => Disturbance::Killed { process, at },
            2 => Disturbance::Off { host, at },
            3 => Disturbance::Cut { host, at },
            4 => {
                let agent = self.hosts_of.len() + host;
                self.stalls[agent].push((at, u64::MAX));
                Disturbance::AgentStopped
            }
            // Without agents, a stopped process cannot be identified as such.
            _ if self.has_agents => {
                self.stalls[process].push((at, at + STOP_NS));
                Disturbance::Stopped { process, at }
            }
            _ => Disturbance::Nothing,
        }
    }

    pub(super) fn agent_of(&self, process: usize) -> usize {
        self.hosts_of.len() + self.hosts_of[process]
    }

    pub(super) fn launcher(&self) -> usize {
        self.hosts_of.len() + self.host_count
    }

    /// Returns when `actor` runs next, or `None` if it never does.
    pub(super) fn runs_at(&self, actor: usize, now: u64) -> Option<u64> {
        if self.is_dead(actor, now) {
            return None;
        }
        let mut at = now;
        while let Some((_, end)) = self.stalls[actor]
            .iter()
            .find(|(begin, end)| (*begin..*end).contains(&at))
        {
            at = *end;
        }
        (at != u64::MAX).then_some(at)
    }

    /// Returns true if the process or agent has exited.
    pub(super) fn is_dead(&self, actor: usize, now: u64) -> bool {
        let agent = actor.checked_sub(self.hosts_of.len());
        let host_of = self.hosts_of.get(actor).copied().or(agent);
        match self.disturbance {
            Disturbance::Killed { process, at } => process == actor && now >= at,
            Disturbance::Off { host, at } => host_of == Some(host) && now >= at,
            _ => false,
        }
    }

    pub(super) fn is_stopped(&self, process: usize, now: u64) -> bool {
        matches!(self.disturbance, Disturbance::Stopped { process: stopped, at }
            if stopped == process && (at..at + STOP_NS).contains(&now))
    }

    /// Returns true if the network between two processes is cut.
    pub(super) fn is_cut(&self, a: usize, b: usize, now: u64) -> bool {
        let (a, b) = (self.hosts_of[a], self.hosts_of[b]);
        matches!(self.disturbance, Disturbance::Cut { host, at }
            if now >= at && a != b && (a == host || b == host))
    }

    /// Returns the time from which `observer`, which lives to the end, can no longer reach `peer`.
    pub(super) fn lost_since(&self, observer: usize, peer: usize) -> Option<u64> {
        if observer == peer || self.is_dead(observer, self.end) {
            return None;
        }
        let near = self.hosts_of[observer] == self.hosts_of[peer];
        match self.disturbance {
            Disturbance::Killed { at, .. } | Disturbance::Off { at, .. } => {
                self.is_dead(peer, self.end).then_some(at)
            }
            Disturbance::Cut { at, .. } if !near => {
                self.is_cut(observer, peer, self.end).then_some(at)
            }
            _ => None,
        }
    }

    /// Returns the time starting at `since` in which `actor` does not run.
    pub(super) fn stalled_ns(&self, actor: usize, since: u64) -> u64 {
        let stalls = self.stalls[actor].iter();
        stalls
            .map(|(begin, end)| end.saturating_sub(since.max(*begin)).min(end - begin))
            .sum()
    }

    /// Draws the transit time of a message, including waits for a core.
    pub(super) fn delay(&self, rng: &mut ChaCha8Rng) -> u64 {
        let share: f64 = rng.random_range(f64::EPSILON..1.0);
        let wait = Duration::from_nanos(self.delay_ns).mul_f64(-share.ln());
        50_000 + u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX / 2)
    }
}

fn draw_stalls(rng: &mut ChaCha8Rng, gap_ns: u64, end: u64) -> Vec<(u64, u64)> {
    let mut stalls = Vec::new();
    let mut at = rng.random_range(0..2 * gap_ns);
    while at < end {
        let until = at + rng.random_range(0..STALL_MAX_NS);
        stalls.push((at, until));
        at = until + rng.random_range(0..2 * gap_ns);
    }
    stalls
}
