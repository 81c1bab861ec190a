// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests the state of all processes, and computes rates from two answers.

use super::find::{self, Key, Source};
use portolan::status::Status;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for the answers: a sleeping process wakes up every 200 ms, and may wait for a core then.
const ANSWER_TIME: Duration = Duration::from_millis(500);

/// Interval between polls for answers.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// State of one process, with its rates.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    pub(super) pid: u32,
    pub(super) program: String,
    /// Rank in the job, or the one that the launcher gave the process.
    pub(super) rank: Option<u32>,
    /// Set if the process has answered this request. Otherwise it computes, is stopped or starts.
    pub(super) answered: bool,
    /// Rates between the last two answers; `None` with fewer answers.
    pub(super) rates: Option<Rates>,
    pub(super) status: Status,
}

/// Rates per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) messages_sent: f64,
    pub(super) messages_received: f64,
    pub(super) bytes_received: f64,
    pub(super) retransmits: f64,
}

/// Pages of processes, with their last answers.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    sources: BTreeMap<Key, Source>,
    last: BTreeMap<Key, (Status, Option<Rates>)>,
}

impl Sampler {
    /// Requests the state of every process that runs now, waits for the answers, and returns all
    /// states that are known, in the order of jobs and ranks.
    pub(super) fn take(&mut self) -> Vec<Sample> {
        find::update(&mut self.sources);
        self.last.retain(|key, _| self.sources.contains_key(key));
        let sources = self.sources.iter();
        let mut open: Vec<(Key, u32)> = sources
            .map(|(key, source)| (*key, source.reader.request()))
            .collect();
        let begin = Instant::now();
        let mut answered = Vec::new();
        while !open.is_empty() && begin.elapsed() < ANSWER_TIME {
            std::thread::sleep(POLL_INTERVAL);
            open.retain(|&(key, request)| {
                let Some(status) = self.answer(key, request) else {
                    return true;
                };
                self.note(key, status);
                answered.push(key);
                false
            });
        }
        for (key, _) in open {
            // The text of an earlier request, or of the start.
            if !self.last.contains_key(&key)
                && let Some((_, status)) = self.published(key)
            {
                self.note(key, status);
            }
        }
        let mut samples: Vec<Sample> = self
            .last
            .iter()
            .filter_map(|(key, (status, rates))| {
                let source = self.sources.get(key)?;
                Some(Sample {
                    pid: key.0,
                    program: source.program.clone(),
                    rank: status.rank.or(source.launcher_rank),
                    answered: answered.contains(key),
                    rates: rates.filter(|_| answered.contains(key)),
                    status: status.clone(),
                })
            })
            .collect();
        samples.sort_by_key(|sample| (sample.status.job.clone(), sample.rank, sample.pid));
        samples
    }

    /// Returns the answer to the request, if it has arrived.
    fn answer(&self, key: Key, request: u32) -> Option<Status> {
        let (served, status) = self.published(key)?;
        // Another tool's later request has a later number.
        (served.wrapping_sub(request) < 1 << 31).then_some(status)
    }

    /// Returns the state that a process has published last, and the number of its request.
    fn published(&self, key: Key) -> Option<(u32, Status)> {
        let (served, text) = self.sources.get(&key)?.reader.read()?;
        Some((served, serde_json::from_slice(&text).ok()?))
    }

    fn note(&mut self, key: Key, status: Status) {
        let rates = self.last.get(&key).and_then(|(old, _)| rates(old, &status));
        self.last.insert(key, (status, rates));
    }
}

/// Returns the rates between two states of a process; `None` if no time has passed.
fn rates(old: &Status, new: &Status) -> Option<Rates> {
    let passed_ns = new.time_ns.checked_sub(old.time_ns).filter(|ns| *ns > 0)?;
    let seconds = Duration::from_nanos(passed_ns).as_secs_f64();
    let rate = |name: &str| {
        let of = |status: &Status| status.counters.get(name).copied().unwrap_or(0);
        #[allow(clippy::cast_precision_loss, reason = "counts below 2^53")]
        let counted = of(new).saturating_sub(of(old)) as f64;
        counted / seconds
    };
    Some(Rates {
        messages_sent: rate("messages_sent"),
        messages_received: rate("messages_received"),
        bytes_received: rate("bytes_received"),
        retransmits: rate("retransmits"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_counts_per_second_of_the_process() {
        let at = |time_ns: u64, sent: u64| Status {
            time_ns,
            counters: BTreeMap::from([("messages_sent".to_owned(), sent)]),
            ..Status::default()
        };
        let (old, new) = (at(1_000, 10), at(500_001_000, 60));
        let rates = rates(&old, &new).unwrap();
        assert!((rates.messages_sent - 100.0).abs() < 1e-9, "{rates:?}");
        assert_eq!(super::rates(&new, &new), None);
    }
}
