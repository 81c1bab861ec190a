// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between an agent and the processes that it started: JSON, one message per line.
//!
//! 1. The agent sends [`ToProcess::Welcome`] at once.
//! 2. The process that joins sends [`ToAgent::Address`].
//! 3. When all have joined, each gets [`ToProcess::Table`], and from then on [`ToProcess::Gone`]
//!    for each rank that ends.
//! 4. The process sends [`ToAgent::Ready`] when its links are open, and [`ToAgent::Bye`] when it
//!    leaves.
//!
//! The process sends [`ToAgent::Lost`] before it reports a lost peer to its program, and
//! [`ToAgent::Trouble`] for a problem that may make it fail. It inquires about a silent peer with
//! [`ToAgent::Inquire`]. The agent of the peer's host answers with [`ToProcess::Word`], unless the
//! peer has ended. The process answers [`ToProcess::Explain`], which it gets only after `Ready`,
//! with [`ToAgent::Waits`].

use super::Job;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Version of the messages. Both ends refuse any other version.
pub const VERSION: u32 = 4;

/// Length of the longest line that an end accepts, in bytes. The table is the longest message: 64
/// MiB hold the addresses of 100,000 processes at 600 bytes each.
pub const LINE_LEN_MAX: usize = 64 << 20;

/// Message from the agent to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToProcess {
    /// First message: the job, with the place of this process in it.
    Welcome(Welcome),
    /// Addresses of all processes.
    Table {
        /// One address per rank.
        addresses: Vec<Value>,
    },
    /// A rank has ended.
    Gone(EndedRank),
    /// Answer of the agent of a rank's host to an inquiry.
    Word(InquiryReply),
    /// Request for the process's pending waits.
    Explain,
}

/// Message from a process to the agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToAgent {
    /// Address of the process; with this it has joined the job.
    Address {
        /// Address in a form that is opaque to the launcher.
        address: Value,
    },
    /// The process has opened its links and answers its peers' probes.
    Ready,
    /// Inquiry about the process of a silent peer.
    Inquire {
        /// Rank of the peer.
        rank: u32,
        /// Time of the inquiry by the process's own clock, in nanoseconds; the answer returns it.
        asked: u64,
    },
    /// Answer to [`ToProcess::Explain`].
    Waits(Waits),
    /// Problem that may make the process fail; the launcher reports it if it does.
    Trouble {
        /// Description for the user.
        reason: String,
    },
    /// The process has left the job. If it exits now with status 0, it has not failed.
    Bye,
    /// The process is about to report to its program that a peer has failed. If the process fails
    /// now, that is the reason.
    Lost {
        /// Rank of the peer.
        rank: u32,
        /// Evidence, for the user.
        why: String,
    },
    /// The job cannot continue: end all of it.
    Abort {
        /// Exit status of the whole job.
        status: i32,
        /// Reason, for the user.
        reason: String,
    },
}

/// The job of a process, with the place of the process in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// The job.
    #[serde(flatten)]
    pub job: Job,
}

/// Pending waits of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Description for the user, to follow "rank N".
    pub text: String,
    /// The only ranks that can end the wait.
    pub on: Vec<u32>,
}

/// Answer to an inquiry about a rank that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InquiryReply {
    /// Rank of the process.
    pub rank: u32,
    /// Time of the inquiry.
    pub asked: u64,
    /// State of the process.
    pub state: ProcessState,
}

/// State of a process that has not ended, as its agent observes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It has not opened its links yet.
    Starting,
    /// It runs, sleeps or waits for a core.
    Running,
    /// A signal or a debugger has stopped it.
    Stopped,
}

impl From<ProcessState> for portolan_proto::liveness::AgentReport {
    fn from(state: ProcessState) -> Self {
        match state {
            ProcessState::Starting => Self::Starting,
            ProcessState::Running => Self::Running,
            ProcessState::Stopped => Self::Stopped,
        }
    }
}

/// A rank that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRank {
    /// Rank of the process.
    pub rank: u32,
    /// Name of its host.
    pub host: String,
    /// Cause, such as "killed by signal 9 (SIGKILL)".
    pub cause: String,
    /// Set if it had left the job and exited with status 0.
    #[serde(rename = "well")]
    pub is_success: bool,
}

impl fmt::Display for EndedRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rank {} on {} failed: {}",
            self.rank, self.host, self.cause
        )
    }
}

/// Links that a job may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathChoice {
    /// The fastest available links for each pair of processes.
    #[default]
    Auto,
    /// Shared memory only.
    Shm,
    /// UDP only.
    Udp,
    /// Raw Ethernet; UDP may carry bulk data.
    Packet,
    /// Raw Ethernet by AF_XDP; UDP may carry bulk data.
    Xdp,
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathChoice::Auto => "auto",
            PathChoice::Shm => "shm",
            PathChoice::Udp => "udp",
            PathChoice::Packet => "packet",
            PathChoice::Xdp => "xdp",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn welcome() -> Welcome {
        Welcome {
            version: VERSION,
            job: Job::alone([1; 16], [0xab; 32]),
        }
    }

    #[test]
    fn debug_output_does_not_show_the_secret() {
        let text = format!("{:?}", ToProcess::Welcome(welcome()));
        assert!(text.contains("job_id"));
        assert!(!text.contains("abab") && !text.contains("171"), "{text}");
    }

    #[test]
    fn messages_round_trip_through_json() {
        let line = serde_json::to_string(&ToProcess::Welcome(welcome())).unwrap();
        assert!(line.starts_with(r#"{"type":"welcome","version":4,"job_id":"0101"#));
        assert!(!line.contains('\n'));
        let ToProcess::Welcome(back) = serde_json::from_str(&line).unwrap() else {
            panic!("another message came back");
        };
        assert_eq!((back.job.secret, back.job.job_id), ([0xab; 32], [1; 16]));
    }
}
