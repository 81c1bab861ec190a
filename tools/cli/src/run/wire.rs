// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between `run` and its agents: JSON, one message per line, over the agent's standard
//! input and output. The job's secret is sent only this way.

use portolan::binding::launch::wire::{InquiryReply, ProcessState, Waits};
use portolan::binding::launch::{EndedRank, PathChoice};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Messages from `run` to an agent. At the end of its input the agent kills everything and ends.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Order {
    /// The first order: the processes to start.
    Start(Box<Start>),
    /// The addresses of all ranks, for every process.
    Table {
        /// Addresses by rank.
        addresses: Vec<Value>,
    },
    /// A rank has ended, for every process that has not left.
    Gone(EndedRank),
    /// Check if `rank` of this agent is alive, on behalf of `asker`.
    Inquire { asker: u32, rank: u32, asked: u64 },
    /// The answer to an inquiry of `asker`, a rank of this agent.
    Word {
        asker: u32,
        #[serde(flatten)]
        word: InquiryReply,
    },
    /// Report what each process waits for.
    Explain,
    /// Send a signal to all processes and their descendants.
    Signal {
        /// Number of the signal.
        signal: i32,
    },
}

/// The processes that an agent is to start.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    /// [`portolan::binding::launch::wire::VERSION`] of `run`.
    pub(crate) version: u32,
    #[serde(with = "hex::serde")]
    pub(crate) job_id: [u8; 16],
    #[serde(with = "hex::serde")]
    pub(crate) secret: [u8; 32],
    /// Number of ranks in the job.
    pub(crate) size: u32,
    /// Number of hosts in the job.
    pub(crate) host_count: u32,
    /// Name of this host in messages of `run`.
    pub(crate) host: String,
    /// Ranks of this host, in the order of their local ranks.
    pub(crate) ranks: Vec<u32>,
    /// Ranks that compete for the cores of this host: its own, and those of lab hosts that share
    /// cores.
    pub(crate) rivals: u32,
    #[serde(flatten)]
    pub(crate) workload: Workload,
}

/// Program of a [`Workload`] that means the command `portolan` itself, at its path on each host.
pub(crate) const OWN_PROGRAM: &str = "@portolan";

/// The program and settings of each rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(crate) path: PathChoice,
    /// Settings for the library in each process.
    pub(crate) options: BTreeMap<String, String>,
    /// Environment variables to set for each process.
    pub(crate) environment: BTreeMap<String, String>,
    /// Working directory of each process.
    pub(crate) directory: String,
    /// File of the program, or [`OWN_PROGRAM`].
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
}

/// Messages from an agent to `run`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Report {
    /// The agent runs.
    Hello {
        /// [`portolan::binding::launch::wire::VERSION`] of the agent.
        version: u32,
    },
    /// The program cannot be started; the message is for the user. The agent ends.
    Refused { sentence: String },
    /// A process joins.
    Address { rank: u32, address: Value },
    /// A process reports a possible cause of failure.
    Trouble { rank: u32, reason: String },
    /// A process requests the end of the job.
    Abort {
        rank: u32,
        status: i32,
        reason: String,
    },
    /// A process is about to report the loss of `peer` to its program.
    Lost { rank: u32, peer: u32, why: String },
    /// A process inquires about another, on any host.
    Inquire { asker: u32, rank: u32, asked: u64 },
    /// The answer to [`Order::Inquire`].
    Standing {
        asker: u32,
        rank: u32,
        asked: u64,
        state: ProcessState,
    },
    /// The answer of a process, or of its agent, to [`Order::Explain`].
    Waits {
        rank: u32,
        #[serde(flatten)]
        waits: Waits,
    },
    /// A process wrote output.
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
    /// All processes have ended, and all their output was sent. The agent ends.
    Done,
}

/// Stream that a rank wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Bytes of output, readable if they are text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Data {
    /// Valid UTF-8.
    Text(String),
    /// Any other bytes.
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

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// Exit with this status.
    Exit(i32),
    /// Death by this signal.
    Signal(i32),
}

impl End {
    /// Returns the exit status by which a shell reports this end.
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
            // wait(2) has no third kind of end.
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

/// Returns a signal's number and name; real-time signals have no name.
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
    fn end_is_displayed_with_signal_name() {
        assert_eq!(End::Exit(3).to_string(), "exit status 3");
        assert_eq!(End::Signal(9).to_string(), "killed by signal 9 (SIGKILL)");
        assert_eq!(End::Signal(40).to_string(), "killed by signal 40");
        assert_eq!(End::Signal(9).shell_status(), 137);
    }

    #[test]
    fn binary_output_round_trips() {
        for bytes in [b"text\n".to_vec(), vec![0xff, 0, b'\n'], "süß".into()] {
            let line = serde_json::to_string(&Data::from(bytes.clone())).unwrap();
            assert!(!line.contains('\n'));
            let back: Data = serde_json::from_str(&line).unwrap();
            assert_eq!(Vec::from(back), bytes);
        }
    }
}
