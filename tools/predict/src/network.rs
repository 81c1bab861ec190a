// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks with LogGP parameters (Culler et al. 1993; Alexandrov et al. 1995), optionally measured
//! for several message lengths.

use serde::{Deserialize, Serialize};

/// Agent that answers the announcement of a long message and sends its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// The program's next call of MPI, as in most networks.
    #[default]
    Calls,
    /// The network or a thread makes progress at once.
    Always,
}

/// Cost of a message of one length, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Length of the message.
    pub bytes: u64,
    /// Time from the end of the sender's work to the start of the receiver's. It is negative if
    /// both work at once.
    pub l_us: f64,
    /// Work of the sender.
    pub os_us: f64,
    /// Work of the receiver.
    pub or_us: f64,
    /// Interval between messages sent back to back.
    pub g_us: f64,
}

impl Point {
    /// Returns the time from the start of the send to the end of the receive, if the receiver
    /// waits.
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

/// Parts of a network's cost, each of which can be excluded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parts {
    /// L of the shortest message.
    pub(crate) latency: bool,
    /// Work and gap of the shortest message, which limit the message rate.
    pub(crate) rate: bool,
    /// Cost that grows with the length.
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

/// A network between hosts, or the memory within a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Name of the network.
    pub name: String,
    /// Source of the figures.
    pub source: String,
    /// Measurements in ascending order of length; at least one.
    pub points: Vec<Point>,
    /// Time per byte beyond the last point, in nanoseconds.
    pub ns_per_byte: f64,
    /// Longest message that is sent before its receiver has requested it.
    pub eager_max: u64,
    /// Agent that advances long messages.
    #[serde(default)]
    pub progress: Progress,
}

/// Reason why a network's figures are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The network has no points.
    #[error(
        "the network '{0}' has no points: give at least one length with l_us, os_us, or_us and g_us"
    )]
    NoPoints(String),
    /// The lengths are not in ascending order.
    #[error(
        "the points of the network '{0}' are not in ascending order of their lengths: sort them"
    )]
    Order(String),
    /// A figure is not a number, or a time that cannot be negative is negative.
    #[error(
        "the network '{0}' has a time that is negative or not a number: only l_us may be negative, down to -(os_us + or_us)"
    )]
    Time(String),
}

impl Network {
    /// Checks the figures.
    ///
    /// # Errors
    /// Returns an error if there are no points, they are out of order, or a figure is invalid.
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

    /// Creates a network from the latency of one byte and the bandwidth with messages of one
    /// length. The processors' work is assumed to be zero. Messages follow each other as fast as
    /// their bytes are transferred.
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

    /// Returns the cost of a message of `bytes`.
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

    /// Returns the cost of a message of `bytes` with only some parts of the network's cost.
    pub(crate) fn with(&self, parts: Parts, bytes: u64) -> Point {
        let (base, whole) = (self.points[0], self.at(bytes));
        let more = whole.combine(base, |whole, base| whole - base);
        let select = |is_included: bool, value: f64| if is_included { value } else { 0.0 };
        Point {
            bytes,
            l_us: select(parts.latency, base.l_us) + select(parts.bandwidth, more.l_us),
            os_us: select(parts.rate, base.os_us) + select(parts.bandwidth, more.os_us),
            or_us: select(parts.rate, base.or_us) + select(parts.bandwidth, more.or_us),
            g_us: select(parts.rate, base.g_us) + select(parts.bandwidth, more.g_us),
        }
    }

    /// Returns a network with the same software over a wire of `gigabits_per_s`. Each frame is on
    /// the wire once, and frames follow each other. The adapter itself adds no cost.
    pub fn over_wire(&self, gigabits_per_s: f64) -> Network {
        let wire_us = |bytes: u64| on_wire(bytes) as f64 * 8.0 / gigabits_per_s / 1e3;
        let slowed = |point: &Point| Point {
            // The software cost of all frames but the last overlaps with their transfer.
            l_us: point.l_us
                + wire_us(bytes_of_last_frame(point.bytes)).max(wire_us(point.bytes) - point.g_us),
            g_us: point.g_us.max(wire_us(point.bytes)),
            ..*point
        };
        let per_byte = FRAME_LEN as f64 / PAYLOAD_LEN as f64 * 8.0 / gigabits_per_s;
        Network {
            name: format!("{} over {} Gb/s", self.name, gigabits_per_s),
            source: format!("{}, with the wire time added", self.source),
            points: self.points.iter().map(slowed).collect(),
            ns_per_byte: self.ns_per_byte.max(per_byte),
            ..self.clone()
        }
    }
}

/// Eager limit of Portolan and Open MPI's TCP, used if a network's own limit is not known.
pub const EAGER_MAX: u64 = 64 << 10;

/// Bytes of a full frame on the wire, with preamble, checksum and gap, at an MTU of 1500.
const FRAME_LEN: u64 = 1538;
/// Payload bytes of a full frame, without the headers of IP and TCP.
const PAYLOAD_LEN: u64 = 1448;
/// Bytes of the shortest frame, with preamble, checksum and gap.
const SHORT_FRAME_LEN: u64 = 84;

/// Returns the bytes on the wire of a message.
fn on_wire(bytes: u64) -> u64 {
    let frames = bytes.div_ceil(PAYLOAD_LEN).max(1);
    (bytes + frames * (FRAME_LEN - PAYLOAD_LEN)).max(SHORT_FRAME_LEN)
}

fn bytes_of_last_frame(bytes: u64) -> u64 {
    bytes.min(PAYLOAD_LEN)
}

/// Returns the networks in the evaluation of VIA with the NAS Parallel Benchmarks. Its Figure 1
/// gives the time of 1 byte, and the bandwidth with 31,487 bytes.
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
