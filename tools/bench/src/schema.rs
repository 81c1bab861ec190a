// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON format of results, for scripts. Fields are only added. A change in the meaning of a field
//! increments [`SCHEMA`].

use crate::args::{Metric, Path};
use crate::conditions::Conditions;
use crate::environment::Environment;
use crate::extra::Extra;
use crate::half_power::HalfPower;
use crate::logp::LongGap;
use crate::percentiles::Tail;
use crate::place::SiteKind;
use crate::remote::ServerHost;
use serde::{Deserialize, Serialize};

/// Version of the format.
pub(crate) const SCHEMA: u32 = 1;

/// A run of `portolan bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the format; 1 for this one.
    pub schema: u32,
    /// Machine and configuration of the measurement.
    pub machine: Machine,
    /// One row per system, path, metric and size.
    pub results: Vec<Row>,
    /// Slower variants of the work of a `limit`, `tcp` or `udp` row.
    #[serde(default)]
    pub slower_variants: Vec<Row>,
    /// Half-power points of systems with a ping-pong measured at enough sizes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub half_power: Vec<HalfPower>,
    /// LogGP's G of systems with LogP measured at two or more long sizes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub long_gaps: Vec<LongGap>,
    /// Requested rows that are missing, with the reason.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The machine, and other conditions that affect the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Cores that the command may use.
    pub cores: usize,
    /// Cores that the two ends were pinned to; absent if they were not pinned.
    pub pinned: Option<[usize; 2]>,
    /// Name of the hypervisor if there is one, `none` if not.
    pub hypervisor: String,
    /// Date and time in UTC, RFC 3339.
    pub date: String,
    /// Version of Portolan.
    pub portolan: String,
    /// MTU of network paths.
    pub mtu: usize,
    /// Link properties of the lab, in the format of `--link` with all values. Absent for a bare
    /// veth pair, and outside labs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Bytes of the largest receive buffer of a socket (`net.core.rmem_max`, 212,992 by default),
    /// which limits the data in flight of a stream. 0 if it is not known.
    #[serde(default)]
    pub socket_buffer_len: usize,
    /// Kind of the hosts of network paths.
    pub site: SiteKind,
    /// Number of rounds behind the medians in the rows.
    pub rounds: u32,
    /// Description of the clock.
    pub clock: String,
    /// The other host, if a server ran the answering ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerHost>,
    /// External influences on the figures.
    #[serde(default)]
    pub environment: Environment,
}

/// Figures of one system. The times are per message, or half a round trip; each is the median of
/// the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `portolan`, `limit`, `limit-single`, `tcp` or `udp`; or a name from `--vs`, `--interface` or
    /// `--mpi`.
    pub system: String,
    /// Path of the messages, or the path that the row is a yardstick for. The `tcp` and `udp` rows
    /// of the network paths repeat one measurement.
    pub path: Path,
    /// Measured metric.
    pub metric: Metric,
    /// Bytes of a message.
    pub size: usize,
    /// Variant of the work, if there are several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// Conditions of the row; absent fields have their defaults.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Measured messages of all rounds.
    pub iterations: u64,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Mean, in microseconds.
    pub mean_us: f64,
    /// Minimum of all rounds, in microseconds.
    #[serde(default)]
    pub min_us: f64,
    /// Further percentiles.
    #[serde(flatten)]
    pub tail: Tail,
    /// 10^6 bytes of payload per second.
    pub mbytes_per_s: f64,
    /// Messages per second.
    pub msgs_per_s: f64,
    /// Headline figure in each round: `p50_us`, `p99_us`, `mbytes_per_s` or `msgs_per_s`, depending
    /// on the metric.
    #[serde(default)]
    pub per_round: Vec<f64>,
    /// Figures that only some rows have.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Row {
    /// Returns the main figure of the metric.
    pub fn headline(&self) -> f64 {
        match self.metric {
            Metric::Pingpong | Metric::Logp => self.p50_us,
            Metric::Stream | Metric::Incast | Metric::Bidir => self.mbytes_per_s,
            Metric::Loaded => self.p99_us,
            Metric::Rate => self.msgs_per_s,
        }
    }

    /// Returns true if this row is better than `other`.
    pub fn beats(&self, other: &Row) -> bool {
        if self.metric.is_time() {
            self.headline() < other.headline()
        } else {
            self.headline() > other.headline()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn report() -> Report {
        let row = Row {
            system: "limit".into(),
            path: Path::Packet,
            metric: Metric::Pingpong,
            size: 64,
            variant: String::new(),
            iterations: 100_000,
            p50_us: 1.6,
            p99_us: 2.1,
            mean_us: 1.7,
            min_us: 1.5,
            tail: Tail::default(),
            mbytes_per_s: 37.6,
            msgs_per_s: 588_235.0,
            conditions: Conditions::default(),
            per_round: vec![1.5, 1.6, 1.7],
            extra: Extra::default(),
        };
        let machine = Machine {
            kernel: "6.18.0".into(),
            cpu: "a processor".into(),
            cores: 2,
            pinned: Some([0, 1]),
            hypervisor: "KVM".into(),
            date: "2026-01-02T03:04:05Z".into(),
            portolan: "0.1.0".into(),
            mtu: 1500,
            link: None,
            site: SiteKind::Lab,
            rounds: 3,
            clock: "a clock".into(),
            server: None,
            socket_buffer_len: 212_992,
            environment: Environment::default(),
        };
        let notes = vec!["one".into()];
        Report {
            schema: SCHEMA,
            machine,
            results: vec![row],
            slower_variants: vec![],
            half_power: vec![],
            long_gaps: vec![],
            notes,
        }
    }

    #[test]
    fn report_round_trips_through_json() {
        let text = serde_json::to_string(&report()).expect("serializes");
        assert_eq!(
            serde_json::from_str::<Report>(&text).expect("parses"),
            report()
        );
    }

    #[test]
    fn json_has_the_documented_keys() {
        let json = serde_json::to_value(report()).expect("serializes");
        assert_eq!(json["schema"], 1);
        assert_eq!(json["machine"]["site"], "lab");
        let row = &json["results"][0];
        assert_eq!(row["system"], "limit");
        assert_eq!(row["path"], "packet");
        assert_eq!(row["metric"], "half_rtt");
        assert_eq!(row["size"], 64);
        assert_eq!(row["iterations"], 100_000);
        for name in ["p50_us", "p99_us", "mean_us", "mbytes_per_s", "msgs_per_s"] {
            assert!(row[name].is_f64(), "{name}");
        }
    }

    #[test]
    fn row_with_only_required_fields_is_parsed() {
        let text = r#"{"system":"tcp","path":"udp","metric":"rate","size":8,"iterations":1,
            "p50_us":1.0,"p99_us":1.0,"mean_us":1.0,"mbytes_per_s":0.0,"msgs_per_s":1.0}"#;
        let row: Row = serde_json::from_str(text).expect("parses");
        assert_eq!(row.metric, Metric::Rate);
        assert!(row.per_round.is_empty());
    }
}
