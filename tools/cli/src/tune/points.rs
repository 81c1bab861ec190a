// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements of a path: the tasks of a round, and their times.

use portolan::binding::model::{Choices, LoneFrames, LonePieces};
use portolan_bench::Path;
use serde::{Deserialize, Serialize};

/// Longest eager message on a network, and on shared memory (`P4.5`).
pub(super) const EAGER_LEN: [u64; 2] = [64 << 10, 16 << 10];

/// Longest message with separately timed stages: it leaves in one call, and fits a default
/// socket buffer.
pub(super) const SINGLE_LEN_MAX: u64 = 60_000;

/// Shortest message with a measured stream. Shorter ones share frames, which the model of a
/// single message does not cover.
const STREAM_LEN_MIN: u64 = 1536;

/// Call lengths in bytes that are tried for lone messages.
pub(super) const CALL_LENS: [u64; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];

/// Frame lengths in bytes that are tried for lone messages on raw Ethernet, and the longest such
/// message. The papers' lengths are of that size; with more lengths a round would take too long.
pub(super) const FRAME_LENS: [u64; 3] = [256, 512, 768];
const SHORT_FRAMES_LEN_MAX: u64 = 16 << 10;

/// Method of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Variant {
    /// As without a model.
    #[serde(rename = "usual")]
    Default,
    /// Sent by rendezvous, although it could be eager.
    #[serde(rename = "asked")]
    Rendezvous,
    /// Frame by frame on the path of small messages.
    Frames,
    /// As `Frames`, with this many message bytes in a frame.
    Short(u64),
    /// Sent in calls of this many bytes.
    Pieces(u64),
}

impl Variant {
    /// Returns the choices that make the protocol use this method.
    pub(super) fn choices(self) -> Choices {
        let mut choices = Choices::default();
        match self {
            Variant::Default => {}
            Variant::Rendezvous => {
                choices.eager_len_max = Some(0);
                choices.eager_len_max_shm = Some(0);
            }
            Variant::Frames => choices.packet_len_max = usize::MAX,
            Variant::Short(frame_len) => {
                choices.packet_len_max = usize::MAX;
                choices.frames = vec![LoneFrames {
                    message_len_max: u64::MAX,
                    frame_len: usize::try_from(frame_len).unwrap_or(usize::MAX),
                }]
            }
            Variant::Pieces(call_len) => {
                choices.lone = vec![LonePieces {
                    message_len_max: u64::MAX,
                    call_len: usize::try_from(call_len).unwrap_or(usize::MAX),
                }]
            }
        }
        choices
    }

    /// Returns true if a lone message is divided more finely than it must be.
    pub(super) fn is_divided(self) -> bool {
        matches!(self, Variant::Short(_) | Variant::Pieces(_))
    }
}

/// Kind of a measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Half a round trip.
    Lone,
    /// From one message of a window to the next.
    Stream,
    /// The sender's call, while the receiver is idle.
    Sender,
    /// The receiver's call, after everything has arrived.
    Receiver,
}

/// One measurement of each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Task {
    /// Bytes of the message.
    pub(super) len: u64,
    /// Method of sending the message.
    pub(super) variant: Variant,
}

impl Task {
    /// Returns true if the stages are timed separately.
    pub(super) fn has_stages(self) -> bool {
        self.len <= SINGLE_LEN_MAX && !self.variant.is_divided()
    }

    /// Returns true if a stream is measured. One of short frames would have whole frames.
    pub(super) fn has_stream(self) -> bool {
        self.len >= STREAM_LEN_MIN && !matches!(self.variant, Variant::Short(_))
    }

    /// Returns true if the message uses rendezvous: it is announced, and its bytes follow when
    /// granted.
    pub(super) fn is_rendezvous(self, path: Path) -> bool {
        let bound = EAGER_LEN[usize::from(path == Path::Shm)];
        self.variant == Variant::Rendezvous || self.len > bound
    }
}

/// Returns the fitted lengths, a geometric series.
pub(super) fn fitted_lens() -> impl Iterator<Item = u64> {
    (6..=22).map(|shift| 1 << shift)
}

/// Returns lengths that are not fitted, halfway between the fitted ones.
pub(super) fn unseen_lens() -> impl Iterator<Item = u64> {
    (6..=21).map(|shift| 3 << (shift - 1))
}

/// Returns true if messages of `len` bytes are fitted.
pub(super) fn is_fitted(len: u64) -> bool {
    len.is_power_of_two()
}

/// Returns the tasks of a round on `path`.
pub(super) fn tasks(path: Path) -> Vec<Task> {
    let mut tasks = Vec::new();
    let task = |variant| move |len| Task { len, variant };
    let mut lens: Vec<u64> = fitted_lens().chain(unseen_lens()).collect();
    lens.sort_unstable();
    let short: Vec<u64> = (lens.iter().copied())
        .filter(|len| (STREAM_LEN_MIN..=EAGER_LEN[0]).contains(len))
        .collect();
    if path == Path::Packet {
        // Longer ones use UDP.
        tasks.extend(
            lens.iter()
                .copied()
                .filter(|len| *len <= 1024)
                .map(task(Variant::Default)),
        );
        tasks.extend(short.iter().copied().map(task(Variant::Frames)));
        for frame_len in FRAME_LENS {
            let lens =
                fitted_lens().filter(|len| (STREAM_LEN_MIN..=SHORT_FRAMES_LEN_MAX).contains(len));
            tasks.extend(lens.map(task(Variant::Short(frame_len))));
        }
        return tasks;
    }
    tasks.extend(lens.iter().copied().map(task(Variant::Default)));
    tasks.extend(short.iter().copied().map(task(Variant::Rendezvous)));
    if path == Path::Udp {
        for call_len in CALL_LENS {
            let lens = fitted_lens().filter(|len| (2 * call_len..=256 << 10).contains(len));
            tasks.extend(lens.map(task(Variant::Pieces(call_len))));
        }
    }
    tasks
}

/// A time, measured in each round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) task: Task,
    pub(super) kind: Kind,
    /// Lower quartile of each round in microseconds.
    pub(super) rounds_us: Vec<f64>,
}

/// All times of a path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Points(pub(super) Vec<Point>);

impl Points {
    /// Adds a time of a round.
    pub(super) fn add(&mut self, task: Task, kind: Kind, us: f64) {
        let same = |point: &&mut Point| point.task == task && point.kind == kind;
        if let Some(point) = self.0.iter_mut().find(same) {
            point.rounds_us.push(us);
            return;
        }
        let rounds_us = vec![us];
        self.0.push(Point {
            task,
            kind,
            rounds_us,
        });
    }

    /// Returns true if lone messages of `len` bytes were faster as `one` than as `other` in most
    /// rounds. Each round measured both; medians over rounds are less reliable when the machine's
    /// speed varies.
    pub(super) fn wins(&self, len: u64, one: Variant, other: Variant) -> bool {
        let rounds = |variant| {
            let point = self.find(Task { len, variant }, Kind::Lone);
            point.map_or(&[][..], |point| &point.rounds_us)
        };
        let (one, other) = (rounds(one), rounds(other));
        let pairs = one.iter().zip(other);
        let won = pairs.clone().filter(|(one, other)| one < other).count();
        won * 4 >= pairs.len() * 3 && won > 0
    }

    fn find(&self, task: Task, kind: Kind) -> Option<&Point> {
        self.0
            .iter()
            .find(|point| point.task == task && point.kind == kind)
    }

    /// Returns the median over the rounds.
    pub(super) fn us(&self, len: u64, variant: Variant, kind: Kind) -> Option<f64> {
        let point = self.find(Task { len, variant }, kind)?;
        quantile(point.rounds_us.clone(), 0.5)
    }
}

/// Returns the `q` quantile of `values`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index below the length"
)]
pub(super) fn quantile(mut values: Vec<f64>, q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * q).round() as usize).copied()
}
