// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program as a job of real processes, and compares the reported outcomes with the
//! prediction.

use crate::common::{Ended, portolan};
use crate::model::{AnyClass, Chain, Expected, Link, Prediction};
use crate::plan::{Fault, Outcome, Path, Program, Step};
use crate::play;
use crate::{anybody, as_rank_args};
use std::collections::BTreeSet;
use std::fs::{File, read_to_string, write};
use std::io::Write;
use std::path::PathBuf;

/// Environment variable with the directory of a job.
const DIRECTORY: &str = "DOCUMENTED_DIRECTORY";

/// Time limit of a job in seconds, generous for a busy machine; a hanging job counts as a
/// difference.
pub(crate) const JOB_SECONDS: u64 = 40;
/// Time limit while a program is shrunk: if a job hung, most of the smaller ones hang as well.
pub(crate) const SMALL_JOB_SECONDS: u64 = 6;

/// Time in milliseconds for which other processes continue after a kill, enough to finish.
const GRACE_MS: &str = "40000";

/// Exit status of a job after one of its processes was ended by SIGKILL.
const KILLED_STATUS: i32 = 128 + 9;

/// Plays the part of a process of a job; returns `false` in the test program itself.
pub(crate) fn play_as_rank() -> bool {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        return false;
    };
    let plan = read_to_string(directory.join("plan")).unwrap();
    let program: Program = serde_json::from_str(&plan).unwrap();
    let mut results: Option<File> = None;
    play::play(&program, |rank, outcome| {
        let file =
            results.get_or_insert_with(|| File::create(directory.join(rank.to_string())).unwrap());
        let mut line = serde_json::to_vec(outcome).unwrap();
        line.push(b'\n');
        // Written in one call, so that a killed process leaves whole lines.
        file.write_all(&line).unwrap();
    });
    true
}

/// End of a job, and the outcomes reported by its processes, by rank.
pub(crate) struct Run {
    ended: Ended,
    reported: Vec<Vec<Outcome>>,
}

/// Runs `program`; `lab` names two hosts for paths between hosts.
pub(crate) fn run(program: &Program, lab: Option<&str>, seconds: u64) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let plan = serde_json::to_string(program).unwrap();
    write(directory.path().join("plan"), plan).unwrap();
    let count = program.processes.len().to_string();
    let env = format!("{DIRECTORY}={}", directory.path().display());
    let lab = lab.unwrap_or_default();
    let path: &[&str] = match program.path {
        Path::Shm => &["--path", "shm"],
        Path::Udp => &["--path", "udp"],
        Path::Aead => &["--path", "udp", "--option", "auth=aead"],
        Path::Packet => &["--path", "packet", "--lab", lab],
        Path::Auto => &["--path", "auto", "--lab", lab],
    };
    let own = std::env::current_exe().unwrap();
    let seconds = seconds.to_string();
    let limits = ["--timeout", &seconds, "--grace-ms", GRACE_MS];
    let args = [&["run", "-n", &count, "--env", &env], &limits[..], path].concat();
    let mut command = portolan(&args);
    let output = command
        .arg("--")
        .arg(own)
        .args(as_rank_args())
        .output()
        .unwrap();
    let reported = (0..program.processes.len()).map(|rank| {
        let reported = read_to_string(directory.path().join(rank.to_string())).unwrap_or_default();
        let lines = reported
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    });
    Run {
        reported: reported.collect(),
        ended: output.into(),
    }
}

impl Run {
    /// Describes the first difference from the prediction.
    pub(crate) fn difference(&self, program: &Program, prediction: &Prediction) -> Option<String> {
        let differences =
            (0..self.reported.len()).filter_map(|rank| self.in_steps(program, prediction, rank));
        let differences: Vec<String> = differences
            .chain(
                prediction
                    .classes
                    .iter()
                    .filter_map(|class| self.in_class(class)),
            )
            .chain(
                prediction
                    .chains
                    .iter()
                    .filter_map(|chain| self.in_chain(chain)),
            )
            .chain((0..self.reported.len()).filter_map(|rank| self.in_bursts(program, rank)))
            .chain(self.in_end(prediction))
            .collect();
        (!differences.is_empty()).then(|| {
            let err: Vec<&str> = self.ended.err.lines().take(12).collect();
            format!(
                "{}\nthe launcher: {}\n  {}",
                differences.join("\n"),
                self.ended.status,
                err.join("\n  ")
            )
        })
    }

    fn in_steps(&self, program: &Program, prediction: &Prediction, rank: usize) -> Option<String> {
        let expected = &prediction.steps[rank];
        let reported = &self.reported[rank];
        for (index, expected) in expected.iter().enumerate() {
            let step = &program.processes[rank][index];
            let Some(outcome) = reported.get(index) else {
                let never = *expected == Expected::Never;
                return (!never)
                    .then(|| format!("rank {rank} did not come past step {index}, {step:?}"));
            };
            if !is_expected(expected, outcome) {
                return Some(format!(
                    "rank {rank}, step {index}, {step:?}:\n  expected {expected:?}\n  but got  {outcome:?}"
                ));
            }
        }
        None
    }

    fn in_class(&self, class: &AnyClass) -> Option<String> {
        anybody::difference(class, &self.reported[class.rank as usize])
    }

    fn in_chain(&self, chain: &Chain) -> Option<String> {
        let Chain { rank, links } = chain;
        let reported = &self.reported[*rank as usize];
        let has_failed = |step: usize| {
            let outcome = reported.get(step);
            matches!(outcome, Some(Outcome::Fault(Fault::PeerGone { .. })))
        };
        let first = links
            .iter()
            .position(|link| has_failed(link.step) && !link.may_fail_alone)?;
        let Link { step, .. } = links[first..]
            .iter()
            .find(|link| !has_failed(link.step) && reported.len() > link.step)?;
        Some(format!(
            "rank {rank}, step {step}: a message behind one that was lost"
        ))
    }

    /// Checks the counts of best-effort messages. A process counts lost and dropped ones for all
    /// ports together. With the received ones they must not exceed the number sent.
    fn in_bursts(&self, program: &Program, rank: usize) -> Option<String> {
        let sent_to = |step: &Step| match *step {
            Step::Burst { to, count, .. } if to as usize == rank => count,
            _ => 0,
        };
        let sent: usize = program.processes.iter().flatten().map(sent_to).sum();
        let mut got_count = 0;
        self.reported[rank].iter().find_map(|outcome| {
            let Outcome::Bursts { got, counted } = outcome else {
                return None;
            };
            got_count += got.len();
            let too_many = got_count as u64 + counted > sent as u64;
            too_many.then(|| {
                format!(
                    "rank {rank} received {got_count} best-effort messages, and counts {counted} \
                     others; {sent} were sent to it"
                )
            })
        })
    }

    fn in_end(&self, prediction: &Prediction) -> Option<String> {
        let status = match prediction.killed {
            Some(_) => KILLED_STATUS,
            None => 0,
        };
        if self.ended.status != status {
            return Some(format!("the job should end with status {status}"));
        }
        let killed = prediction.killed?;
        let named = format!("rank {killed} on ");
        let err = &self.ended.err;
        let reported = err.contains(&named) && err.contains("SIGKILL");
        (!reported).then(|| format!("the launcher does not say that rank {killed} was killed"))
    }
}

fn is_expected(expected: &Expected, outcome: &Outcome) -> bool {
    match expected {
        Expected::Is(wanted) => wanted == outcome,
        Expected::OneOf(wanted) => wanted.contains(outcome),
        Expected::NextOfAny => true,
        Expected::Handled => matches!(outcome, Outcome::Handled(_)),
        Expected::Never => false,
        Expected::Bursts(sums) => {
            let Outcome::Bursts { got, .. } = outcome else {
                return false;
            };
            let unique: BTreeSet<&u64> = got.iter().collect();
            unique.len() == got.len() && got.iter().all(|got| sums.contains(got))
        }
    }
}
