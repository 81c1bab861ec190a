// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks as LogGP has them (Culler et al. 1993; Alexandrov et al. 1995), with parameters that
//! depend on a message's length where they were measured so.

use serde::{Deserialize, Serialize};

/// Who answers the announcement of a long message, and sends it when it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// The program's next call of MPI: what most networks do.
    #[default]
    Calls,
    /// The network, or a thread, at once.
    Always,
}

/// What a message of one length takes, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Length.
    pub bytes: u64,
    /// From the end of the sender's work to the beginning of the receiver's. It is negative where
    /// both work at once.
    pub l_us: f64,
    /// Work of the sender.
    pub os_us: f64,
    /// Work of the receiver.
    pub or_us: f64,
    /// Time between messages, if they are sent one behind the other.
    pub g_us: f64,
}

impl Point {
    /// From the beginning of the send to the end of the receive, if the receiver waits.
    pub fn delay_us(&self) -> f64 {
        self.os_us + self.l_us + self.or_us
    }

    fn combine(self, other: Point, of: impl Fn(f64, f64) -> f64) -> Point {
        Point {
            bytes: self.bytes,
            l_us: of(self.l_us, other.l_us),
            os_us: of(self.os_us, other.os_us),
            or_us: of(self.or_us, other.or_us),
            g_us: of(self.g_us, other.g_us),
        }
    }
}

/// Parts of a network's cost, each of which can be thought away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parts {
    /// L of the shortest message.
    pub(crate) latency: bool,
    /// The work and the gap of the shortest message: what limits the message rate.
    pub(crate) rate: bool,
    /// What grows with the length.
    pub(crate) bandwidth: bool,
}

impl Parts {
    pub(crate) const ALL: Parts = Parts {
        latency: true,
        rate: true,
        bandwidth: true,
    };
    pub(crate) const NONE: Parts = Parts {
        latency: false,
        rate: false,
        bandwidth: false,
    };
}

/// A network between hosts, or the memory within one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// What it is called.
    pub name: String,
    /// Where the figures are from.
    pub source: String,
    /// By ascending length; at least one.
    pub points: Vec<Point>,
    /// Time per byte beyond the last point, in nanoseconds.
    pub ns_per_byte: f64,
    /// The longest message that is sent before its receiver has asked for it.
    pub eager_max: u64,
    /// Whether long messages need the program's calls.
    #[serde(default)]
    pub progress: Progress,
}

/// Why a network's figures cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// It has none.
    #[error(
        "the network '{0}' has no points: give at least one length with l_us, os_us, or_us and g_us"
    )]
    NoPoints(String),
    /// Lengths do not ascend.
    #[error(
        "the points of the network '{0}' are not in ascending order of their lengths: sort them"
    )]
    Order(String),
    /// A figure is not a number, or a time that only passes forwards is negative.
    #[error(
        "the network '{0}' has a time that is negative or not a number: only l_us may be below 0, and not by more than os_us + or_us"
    )]
    Time(String),
}

impl Network {
    /// # Errors
    /// There are no points, they are out of order, or a figure makes no sense.
    pub fn check(&self) -> Result<(), NetworkError> {
        let name = || self.name.clone();
        if self.points.is_empty() {
            return Err(NetworkError::NoPoints(name()));
        }
        if !self.points.is_sorted_by(|a, b| a.bytes < b.bytes) {
            return Err(NetworkError::Order(name()));
        }
        let sound = |point: &Point| {
            let times = [point.os_us, point.or_us, point.g_us, point.delay_us()];
            times.iter().all(|time| time.is_finite() && *time >= 0.0)
        };
        let is_sound = self.ns_per_byte.is_finite()
            && self.ns_per_byte >= 0.0
            && self.points.iter().all(sound);
        if !is_sound {
            return Err(NetworkError::Time(name()));
        }
        Ok(())
    }

    /// A network of which only the latency of one byte is known, and the bandwidth with messages of
    /// one length. The processors' work is taken as nothing, and messages follow one another as fast
    /// as their bytes do.
    pub fn of_latency_and_bandwidth(
        (name, source): (&str, &str),
        latency_us: f64,
        (bytes, mbytes_per_s): (u64, f64),
    ) -> Network {
        let ns_per_byte = (bytes as f64 / mbytes_per_s - latency_us) / (bytes - 1) as f64 * 1e3;
        let short = Point {
            bytes: 1,
            l_us: latency_us,
            ..Point::default()
        };
        Network {
            name: name.into(),
            source: source.into(),
            points: vec![short],
            ns_per_byte,
            eager_max: EAGER_MAX,
            progress: Progress::Calls,
        }
    }

    /// What a message of `bytes` takes.
    pub fn at(&self, bytes: u64) -> Point {
        let after = self.points.partition_point(|point| point.bytes < bytes);
        let (first, last) = (self.points[0], self.points[self.points.len() - 1]);
        if after == 0 {
            return Point { bytes, ..first };
        }
        if after == self.points.len() {
            let more_us = (bytes - last.bytes) as f64 * self.ns_per_byte / 1e3;
            return Point {
                bytes,
                l_us: last.l_us + more_us,
                g_us: last.g_us + more_us,
                ..last
            };
        }
        let (low, high) = (self.points[after - 1], self.points[after]);
        let share = (bytes - low.bytes) as f64 / (high.bytes - low.bytes) as f64;
        let between = low.combine(high, |low, high| low + (high - low) * share);
        Point { bytes, ..between }
    }

    /// The same with only some parts of its cost.
    pub(crate) fn with(&self, parts: Parts, bytes: u64) -> Point {
        let (base, whole) = (self.points[0], self.at(bytes));
        let more = whole.combine(base, |whole, base| whole - base);
        let keep = |is_kept: bool, value: f64| if is_kept { value } else { 0.0 };
        Point {
            bytes,
            l_us: keep(parts.latency, base.l_us) + keep(parts.bandwidth, more.l_us),
            os_us: keep(parts.rate, base.os_us) + keep(parts.bandwidth, more.os_us),
            or_us: keep(parts.rate, base.or_us) + keep(parts.bandwidth, more.or_us),
            g_us: keep(parts.rate, base.g_us) + keep(parts.bandwidth, more.g_us),
        }
    }

    /// The same network's software over a wire of `gigabits_per_s`: each frame is on it once, and
    /// frames follow one another; nothing is added for the adapter itself.
    pub fn over_wire(&self, gigabits_per_s: f64) -> Network {
        let wire_us = |bytes: u64| on_wire(bytes) as f64 * 8.0 / gigabits_per_s / 1e3;
        let slowed = |point: &Point| Point {
            // The last frame follows the others: what the software takes for them goes on beside it.
            l_us: point.l_us
                + wire_us(bytes_of_last_frame(point.bytes)).max(wire_us(point.bytes) - point.g_us),
            g_us: point.g_us.max(wire_us(point.bytes)),
            ..*point
        };
        let per_byte = FRAME_LEN as f64 / PAYLOAD_LEN as f64 * 8.0 / gigabits_per_s;
        Network {
            name: format!("{} over {} Gb/s", self.name, gigabits_per_s),
            source: format!("{}, and the wire's time", self.source),
            points: self.points.iter().map(slowed).collect(),
            ns_per_byte: self.ns_per_byte.max(per_byte),
            ..self.clone()
        }
    }
}

/// Where a network's own limit is not known: what Portolan and Open MPI's TCP send unasked.
pub const EAGER_MAX: u64 = 64 << 10;

/// Bytes of a full frame on the wire, with preamble, checksum and gap, at an MTU of 1500.
const FRAME_LEN: u64 = 1538;
/// Payload in it, beside the headers of IP and TCP.
const PAYLOAD_LEN: u64 = 1448;
/// The least frame, with preamble, checksum and gap.
const SHORT_FRAME_LEN: u64 = 84;

/// Bytes on the wire of a message.
fn on_wire(bytes: u64) -> u64 {
    let frames = bytes.div_ceil(PAYLOAD_LEN).max(1);
    (bytes + frames * (FRAME_LEN - PAYLOAD_LEN)).max(SHORT_FRAME_LEN)
}

fn bytes_of_last_frame(bytes: u64) -> u64 {
    bytes.min(PAYLOAD_LEN)
}

/// The networks that the evaluation of VIA under the NAS Parallel Benchmarks compares, by its
/// Figure 1: the time of 1 byte, and the bandwidth with 31,487 bytes.
pub fn of_the_paper() -> Vec<Network> {
    const SOURCE: &str = "Figure 1 of the evaluation of VIA and three networks";
    [
        ("Fast Ethernet, TCP", 57.0, 10.5),
        ("Fast Ethernet, M-VIA", 40.0, 11.2),
        ("Giganet, VIA", 7.92, 98.28),
        ("Myrinet, GM", 9.33, 108.44),
    ]
    .map(|(name, latency_us, mbytes_per_s)| {
        let long = (31_487, mbytes_per_s);
        Network::of_latency_and_bandwidth((name, SOURCE), latency_us, long)
    })
    .into()
}
