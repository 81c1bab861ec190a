// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measured cost model of this machine's paths, which `portolan tune` stores and a node takes its
//! choices from.
//!
//! A path is a pipeline of three stages, as in GAMMA's papers: sender, wire, receiver. Each has a
//! cost per system call, per datagram and per byte. [`PathModel`] predicts from them the time of a
//! lone message and of one in a stream. [`Choices`] are the protocol settings that follow.
//!
//! The command `portolan tune` measures. The one invariant: a model is used only on the
//! machine, kernel and version that it was measured with.

mod host;
mod predict;
mod store;

pub use host::Host;
pub use predict::{Load, Protocol};
pub use store::{Status, StoreError, check_writable, default_file, load, save};

use portolan_proto::{Choice, FRAME_STEPS, FrameStep, SINGLE_STEPS, SingleStep};
use serde::{Deserialize, Serialize};

/// Version of the stored form; any other version is refused.
pub const SCHEMA: u32 = 1;

/// Cost of one stage of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Microseconds per system call, or per entry of a ring.
    pub per_call_us: f64,
    /// Microseconds per datagram.
    pub per_datagram_us: f64,
    /// Nanoseconds per byte.
    pub per_byte_ns: f64,
}

/// Stages of a path, for one-way messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Work of the sending core.
    pub sender: Stage,
    /// Time in which neither core works.
    pub wire: Stage,
    /// Work of the receiving core.
    pub receiver: Stage,
    /// Part of the sender's work that the receiver does not wait for. It follows the departure of
    /// the message, and counts in a stream only.
    pub overlap: Stage,
    /// Cost of a message in a stream beyond the slowest stage: the request of a rendezvous, where
    /// its answer is waited for. Negative if busy cores work faster than cores that are timed
    /// alone.
    pub in_stream: Stage,
}

/// Additional cost per byte of long messages, caused by memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Far {
    /// Message length above which the cost applies, in bytes.
    pub from_len: u64,
    /// Additional nanoseconds for each further byte.
    pub per_byte_ns: f64,
}

/// Measured model of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathModel {
    /// `shm`, `udp` or `packet`.
    pub path: String,
    /// Longest message that fits a frame by itself, in bytes.
    pub frame_len: u64,
    /// Message bytes in a datagram of a longer message; 0 if a call is not divided.
    pub datagram_len: u64,
    /// Maximum message bytes in one call; 0 if not limited.
    pub call_len: u64,
    /// Longest message that may be sent eagerly, whatever is measured.
    pub eager_len_bound: u64,
    /// Eager messages, which are copied.
    pub eager: Stages,
    /// Rendezvous messages; absent if none was measured on this path.
    #[serde(rename = "asked")]
    pub rendezvous: Option<Stages>,
    /// Microseconds for the request of a rendezvous and its answer.
    #[serde(rename = "ask_us")]
    pub rendezvous_us: f64,
    /// Microseconds that each call but the first costs beyond the slowest stage. May be negative,
    /// for the same reason as [`Stages::in_stream`].
    pub further_call_us: f64,
    /// Additional costs of long messages sent alone, by ascending length.
    pub far: Vec<Far>,
    /// Additional costs of long messages in a stream, by ascending length.
    pub far_streaming: Vec<Far>,
}

/// Length of the pieces of lone messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LonePieces {
    /// Longest message that this entry applies to.
    pub message_len_max: u64,
    /// Message bytes in a call; 0 for whole messages.
    pub call_len: usize,
}

/// Length of the frames of lone messages that need several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoneFrames {
    /// Longest message that this entry applies to.
    pub message_len_max: u64,
    /// Message bytes in a frame; 0 for whole frames.
    pub frame_len: usize,
}

/// Protocol settings that follow from a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// Longest eager message on a network; absent for the default.
    pub eager_len_max: Option<usize>,
    /// Longest eager message through shared memory; absent for the default.
    pub eager_len_max_shm: Option<usize>,
    /// Longest message of several frames that takes `packet` rather than `udp`.
    pub packet_len_max: usize,
    /// Pieces of lone messages, by ascending message length.
    pub lone: Vec<LonePieces>,
    /// Frames of lone messages on raw Ethernet, by ascending message length.
    #[serde(default)]
    pub frames: Vec<LoneFrames>,
}

/// Model of this machine's paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Version of the stored form, [`SCHEMA`].
    pub schema: u32,
    /// Machine and software that were measured.
    pub host: Host,
    /// MTU of the network on which it was measured.
    pub mtu: usize,
    /// The paths.
    pub paths: Vec<PathModel>,
    /// Protocol settings that follow.
    pub choices: Choices,
}

impl Model {
    /// Returns the path with this name.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<&PathModel> {
        self.paths.iter().find(|path| path.path == name)
    }
}

impl Choices {
    /// Converts the choices for the protocol core. Steps beyond the core's table are omitted.
    pub(crate) fn to_core(&self) -> Choice {
        let default = Choice::default();
        let mut lone = [SingleStep::default(); SINGLE_STEPS];
        for (to, from) in lone.iter_mut().zip(&self.lone) {
            to.message_len_max = from.message_len_max;
            to.call_len = from.call_len;
        }
        let mut frames = [FrameStep::default(); FRAME_STEPS];
        for (to, from) in frames.iter_mut().zip(&self.frames) {
            to.message_len_max = from.message_len_max;
            to.payload_len = from.frame_len;
        }
        Choice {
            eager_len_max: self.eager_len_max.unwrap_or(default.eager_len_max),
            eager_len_max_lossless: self
                .eager_len_max_shm
                .unwrap_or(default.eager_len_max_lossless),
            small_run_len_max: self.packet_len_max,
            single: lone,
            frames,
            frames_on: None,
        }
    }
}

#[cfg(test)]
mod tests;
