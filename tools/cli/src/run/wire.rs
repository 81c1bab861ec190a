// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages between `run` and its agents: JSON, one message a line, over the agent's standard
//! input and output. The job's secret goes this way, and no other.

use portolan::launch::wire::{ProcessState, Waits, Word};
use portolan::launch::{Gone, PathChoice};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// From `run` to an agent. The end of the input means: kill everything and end.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Order {
    /// The first order: what to start.
    Start(Box<Start>),
    /// The addresses of all ranks, for every process.
    Table {
        /// By rank.
        addresses: Vec<Value>,
    },
    /// A rank has ended, for every process that has not left.
    Gone(Gone),
    /// Say whether `rank`, which this agent has started, lives; `asker` wants to know.
    Inquire { asker: u32, rank: u32, asked: u64 },
    /// The answer to an inquiry of `asker`, which this agent has started.
    Word {
        asker: u32,
        #[serde(flatten)]
        word: Word,
    },
    /// Report what each process waits for.
    Explain,
    /// Send a signal to all processes and what they started.
    Signal {
        /// Its number.
        signal: i32,
    },
}

/// What an agent is to start.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    /// [`portolan::launch::wire::VERSION`] of `run`.
    pub(crate) version: u32,
    #[serde(with = "hex::serde")]
    pub(crate) job_id: [u8; 16],
    #[serde(with = "hex::serde")]
    pub(crate) secret: [u8; 32],
    /// Ranks in the job.
    pub(crate) size: u32,
    /// Hosts in the job.
    pub(crate) host_count: u32,
    /// What `run` calls this host.
    pub(crate) host: String,
    /// The ranks of this host, in the order of their local ranks.
    pub(crate) ranks: Vec<u32>,
    /// Ranks that want the cores of this host: its own, and those of hosts of a lab that share them.
    pub(crate) rivals: u32,
    #[serde(flatten)]
    pub(crate) workload: Workload,
}

/// As the program of a [`Workload`]: the command `portolan` itself, wherever it is on each host.
pub(crate) const OWN_PROGRAM: &str = "@portolan";

/// What each rank runs, and with which settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(crate) path: PathChoice,
    /// Settings for the library in each process.
    pub(crate) options: BTreeMap<String, String>,
    /// Environment variables to set for each process.
    pub(crate) environment: BTreeMap<String, String>,
    /// Working directory of each process.
    pub(crate) directory: String,
    /// Its file, or [`OWN_PROGRAM`].
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
}

/// From an agent to `run`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Report {
    /// The agent runs.
    Hello {
        /// [`portolan::launch::wire::VERSION`] of the agent.
        version: u32,
    },
    /// The program cannot be started; a sentence for a person. The agent ends.
    Refused { sentence: String },
    /// A process joins.
    Address { rank: u32, address: Value },
    /// A process says what may make it fail.
    Trouble { rank: u32, reason: String },
    /// A process asks for the end of the job.
    Abort {
        rank: u32,
        status: i32,
        reason: String,
    },
    /// A process is about to tell its program that `peer` is gone.
    Lost { rank: u32, peer: u32, why: String },
    /// A process asks about another of any host.
    Inquire { asker: u32, rank: u32, asked: u64 },
    /// The answer to [`Order::Inquire`].
    Standing {
        asker: u32,
        rank: u32,
        asked: u64,
        state: ProcessState,
    },
    /// The answer of a process to [`Order::Explain`], or of its agent.
    Waits {
        rank: u32,
        #[serde(flatten)]
        waits: Waits,
    },
    /// A process wrote something.
    Output {
        rank: u32,
        stream: Stream,
        data: Data,
    },
    /// A process ended.
    Ended {
        rank: u32,
        end: End,
        joined: bool,
        left: bool,
    },
    /// All processes have ended and all their output was sent. The agent ends.
    Done,
}

/// Where a rank wrote something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Bytes of output: readable where they are text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Data {
    /// Valid UTF-8.
    Text(String),
    /// Anything else.
    #[serde(with = "hex::serde")]
    Hex(Vec<u8>),
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Data {
        match String::from_utf8(bytes) {
            Ok(text) => Data::Text(text),
            Err(error) => Data::Hex(error.into_bytes()),
        }
    }
}

impl From<Data> for Vec<u8> {
    fn from(data: Data) -> Vec<u8> {
        match data {
            Data::Text(text) => text.into_bytes(),
            Data::Hex(bytes) => bytes,
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl End {
    /// The exit status by which a shell reports this end.
    pub(crate) fn shell_status(self) -> i32 {
        match self {
            End::Exit(status) => status,
            End::Signal(signal) => 128 + signal,
        }
    }
}

impl From<std::process::ExitStatus> for End {
    fn from(status: std::process::ExitStatus) -> End {
        use std::os::unix::process::ExitStatusExt;
        match (status.code(), status.signal()) {
            (Some(code), _) => End::Exit(code),
            (None, Some(signal)) => End::Signal(signal),
            // wait(2) knows no third way to end.
            (None, None) => End::Exit(1),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exit(status) => write!(f, "exit status {status}"),
            End::Signal(number) => write!(f, "killed by {}", signal_name(*number)),
        }
    }
}

/// A signal's number and name; real-time signals have no name of their own.
pub(crate) fn signal_name(number: i32) -> String {
    match nix::sys::signal::Signal::try_from(number) {
        Ok(signal) => format!("signal {number} ({signal})"),
        Err(_) => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_read_like_sentences() {
        assert_eq!(End::Exit(3).to_string(), "exit status 3");
        assert_eq!(End::Signal(9).to_string(), "killed by signal 9 (SIGKILL)");
        assert_eq!(End::Signal(40).to_string(), "killed by signal 40");
        assert_eq!(End::Signal(9).shell_status(), 137);
    }

    #[test]
    fn output_that_is_not_text_survives() {
        for bytes in [b"text\n".to_vec(), vec![0xff, 0, b'\n'], "süß".into()] {
            let line = serde_json::to_string(&Data::from(bytes.clone())).unwrap();
            assert!(!line.contains('\n'));
            let back: Data = serde_json::from_str(&line).unwrap();
            assert_eq!(Vec::from(back), bytes);
        }
    }
}
