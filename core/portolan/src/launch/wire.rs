// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages between an agent and the processes it started: JSON, one message a line.
//!
//! The order: the agent sends [`ToProcess::Welcome`] at once; the process that joins sends
//! [`ToAgent::Address`]; when all have, each gets [`ToProcess::Table`], and from then on
//! [`ToProcess::Gone`] whenever a rank has ended. The process sends [`ToAgent::Ready`] when its links
//! are open, [`ToAgent::Lost`] for each peer whose loss it tells its program, [`ToAgent::Trouble`] for
//! what may make it fail, and [`ToAgent::Bye`] when it leaves. It asks about a silent peer with
//! [`ToAgent::Inquire`]. The agent of the peer's host answers with [`ToProcess::Word`], unless the peer
//! has ended. [`ToProcess::Explain`], which only a process that is ready gets, is answered with
//! [`ToAgent::Waits`].

use super::Job;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Version of the messages. Both ends refuse another one.
pub const VERSION: u32 = 4;

/// Bytes of the longest line that an end accepts. The table is the longest message: 64 MiB hold
/// the addresses of 100,000 processes at 600 bytes each.
pub const LINE_LEN_MAX: usize = 64 << 20;

/// From the agent to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToProcess {
    /// The first message: which part of which job this process is.
    Welcome(Welcome),
    /// The addresses of all processes, by rank.
    Table {
        /// One address per rank.
        addresses: Vec<Value>,
    },
    /// A rank has ended.
    Gone(Gone),
    /// The agent of a rank's host answers an inquiry.
    Word(Word),
    /// Asks what the process waits for.
    Explain,
}

/// From a process to the agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToAgent {
    /// Where the process can be reached; with this it has joined the job.
    Address {
        /// Opaque to the launcher.
        address: Value,
    },
    /// The process has opened its links and answers its peers' questions.
    Ready,
    /// Asks whether the process of a silent peer lives.
    Inquire {
        /// The peer.
        rank: u32,
        /// When the process asked, by its own clock, in nanoseconds; the answer returns it.
        asked: u64,
    },
    /// Answers [`ToProcess::Explain`].
    Waits(Waits),
    /// What may make the process fail: told with its end.
    Trouble {
        /// A sentence for a person.
        reason: String,
    },
    /// The process is done with the job; if it ends now with status 0, all is well.
    Bye,
    /// The process is about to tell its program that a peer is gone: should it fail now, that is
    /// why.
    Lost {
        /// The peer.
        rank: u32,
        /// What was found out, for a person.
        why: String,
    },
    /// The job cannot go on: end all of it.
    Abort {
        /// Exit status for the whole job.
        status: i32,
        /// Why, for a person.
        reason: String,
    },
}

/// Which part of which job a process is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// The rest of the message.
    #[serde(flatten)]
    pub job: Job,
}

/// What a process waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// For a person, to follow "rank N".
    pub text: String,
    /// Ranks that alone can end the wait.
    pub on: Vec<u32>,
}

/// The answer to an inquiry about a rank that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// Which rank.
    pub rank: u32,
    /// From the inquiry.
    pub asked: u64,
    /// What its agent sees.
    pub state: ProcessState,
}

/// State of a process that has not ended, as its agent sees it.
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

impl From<ProcessState> for portolan_proto::liveness::Word {
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
pub struct Gone {
    /// Which.
    pub rank: u32,
    /// Name of its host.
    pub host: String,
    /// What happened, such as "killed by signal 9 (SIGKILL)".
    pub cause: String,
    /// It had taken its leave, and ended well.
    pub well: bool,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rank {} on {} is gone: {}",
            self.rank, self.host, self.cause
        )
    }
}

/// Which links a job may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathChoice {
    /// Whatever works and is fastest for each pair of processes.
    #[default]
    Auto,
    /// Shared memory only.
    Shm,
    /// UDP only.
    Udp,
    /// Raw Ethernet; UDP may carry bulk data.
    Packet,
    /// The same by AF_XDP.
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
    fn messages_survive_the_way_through_json() {
        let line = serde_json::to_string(&ToProcess::Welcome(welcome())).unwrap();
        assert!(line.starts_with(r#"{"type":"welcome","version":4,"job_id":"0101"#));
        assert!(!line.contains('\n'));
        let ToProcess::Welcome(back) = serde_json::from_str(&line).unwrap() else {
            panic!("another message came back");
        };
        assert_eq!((back.job.secret, back.job.job_id), ([0xab; 32], [1; 16]));
    }
}
