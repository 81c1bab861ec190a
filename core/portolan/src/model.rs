// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measured cost model of this machine's paths: what `portolan tune` stores, and what a node
//! decides by it.
//!
//! A path is a pipeline of three stages, as in GAMMA's papers: sender, wire, receiver. Each has a
//! cost per system call, per datagram and per byte. [`PathModel`] predicts from them the time of a
//! lone message and of one in a stream; [`Choices`] is what follows for the protocol.
//!
//! It does not measure: that is the command's work. Its one invariant: a model decides on the
//! machine, kernel and version that it was measured with, and nowhere else.

mod host;
mod predict;
mod store;

pub use host::Host;
pub use predict::{Load, Way};
pub use store::{Status, StoreError, check_writable, default_file, load, save};

use portolan_proto::{Choice, LONE_STEPS, LoneStep};
use serde::{Deserialize, Serialize};

/// Version of the stored form; another one is refused.
pub const SCHEMA: u32 = 1;

/// What one stage of a path costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Microseconds per system call, or per entry of a ring.
    pub per_call_us: f64,
    /// Microseconds per datagram.
    pub per_datagram_us: f64,
    /// Nanoseconds per byte.
    pub per_byte_ns: f64,
}

/// The stages of a path, for messages that go one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Work of the sending core.
    pub sender: Stage,
    /// What neither core works on.
    pub wire: Stage,
    /// Work of the receiving core.
    pub receiver: Stage,
    /// The part of the sender's work that the receiver does not wait for: it comes after the
    /// message has left, and counts in a stream only.
    pub overlap: Stage,
    /// What a message in a stream costs beyond the slowest stage: the question, where its answer is
    /// waited for. Negative where cores that are kept busy work faster than when they are timed
    /// on their own.
    pub in_stream: Stage,
}

/// Memory makes long messages dearer: bytes beyond a length cost more each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Far {
    /// Bytes from which on this holds.
    pub from_len: u64,
    /// Nanoseconds that each further byte costs in addition.
    pub per_byte_ns: f64,
}

/// A path, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathModel {
    /// `shm`, `udp` or `packet`.
    pub path: String,
    /// Bytes of the longest message that fits a frame by itself.
    pub frame_len: u64,
    /// Bytes of message in a datagram of a longer one; 0 where a call is not divided.
    pub datagram_len: u64,
    /// Bytes of message that one call carries at most; 0 where it is not limited.
    pub call_len: u64,
    /// Longest message that may go without asking, whatever is measured.
    pub eager_len_bound: u64,
    /// Messages that are copied and go without asking.
    pub eager: Stages,
    /// Messages that ask first; absent where none was measured on this path.
    pub asked: Option<Stages>,
    /// Microseconds for the question and its answer.
    pub ask_us: f64,
    /// Microseconds that each call but the first costs beyond the slowest stage; may be negative,
    /// for the same reason as [`Stages::in_stream`].
    pub further_call_us: f64,
    /// What memory adds to long messages on their own, by ascending length.
    pub far: Vec<Far>,
    /// The same for messages in a stream.
    pub far_streaming: Vec<Far>,
}

/// How long messages are cut when nothing waits behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LonePieces {
    /// Last message length that this holds for.
    pub message_len_max: u64,
    /// Bytes of a call; 0 for whole messages.
    pub call_len: usize,
}

/// What follows from a model for the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// Longest message on a network that goes without asking; absent to leave it as it is.
    pub eager_len_max: Option<usize>,
    /// The same through shared memory.
    pub eager_len_max_shm: Option<usize>,
    /// Longest message of several frames that takes `packet` rather than `udp`.
    pub packet_len_max: usize,
    /// Pieces of lone messages, by ascending length.
    pub lone: Vec<LonePieces>,
}

/// A model of this machine's paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Where it was measured, and with what.
    pub host: Host,
    /// MTU of the network that it was measured on.
    pub mtu: usize,
    /// The paths.
    pub paths: Vec<PathModel>,
    /// What follows.
    pub choices: Choices,
}

impl Model {
    /// The path of this name.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<&PathModel> {
        self.paths.iter().find(|path| path.path == name)
    }
}

impl Choices {
    /// In the form that the protocol core takes. Steps beyond the core's table are left out.
    pub(crate) fn to_core(&self) -> Choice {
        let default = Choice::default();
        let mut lone = [LoneStep::default(); LONE_STEPS];
        for (to, from) in lone.iter_mut().zip(&self.lone) {
            to.message_len_max = from.message_len_max;
            to.call_len = from.call_len;
        }
        Choice {
            eager_len_max: self.eager_len_max.unwrap_or(default.eager_len_max),
            eager_len_max_lossless: self
                .eager_len_max_shm
                .unwrap_or(default.eager_len_max_lossless),
            small_run_len_max: self.packet_len_max,
            lone,
        }
    }
}

#[cfg(test)]
mod tests;
