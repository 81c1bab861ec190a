// SPDX-License-Identifier: MIT OR Apache-2.0
//! The JSON that scripts read. Fields are only ever added; a change of meaning changes [`SCHEMA`].

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
    /// 1: what the fields mean.
    pub schema: u32,
    /// Where and how it was measured.
    pub machine: Machine,
    /// One row per system, path, metric and size.
    pub results: Vec<Row>,
    /// Other ways of doing the work of a `limit`, `tcp` or `udp` row, which were slower.
    #[serde(default)]
    pub slower_variants: Vec<Row>,
    /// Half-power points, of systems whose ping-pong was measured at enough sizes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub half_power: Vec<HalfPower>,
    /// LogGP's G, of systems whose LogP was measured at two long sizes or more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub long_gaps: Vec<LongGap>,
    /// Rows that were asked for and are missing, with the reason.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The machine, and what else the figures depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Cores that the command may use.
    pub cores: usize,
    /// Cores that the two ends were pinned to; absent where they were not.
    pub pinned: Option<[usize; 2]>,
    /// Name of the hypervisor if there is one, `none` if not.
    pub hypervisor: String,
    /// Date and time in UTC, RFC 3339.
    pub date: String,
    /// Version of Portolan.
    pub portolan: String,
    /// MTU of network paths.
    pub mtu: usize,
    /// What the wires of the lab were made like, as `--link` has it with all its values; absent for a bare
    /// veth pair, and outside of labs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Bytes of the largest receive buffer that sockets may have (`net.core.rmem_max`, 212,992 unless
    /// it was raised): what a stream may have under way. 0 where it is not known.
    #[serde(default)]
    pub socket_buffer_len: usize,
    /// Where network paths were measured.
    pub site: SiteKind,
    /// Rounds whose medians the rows give.
    pub rounds: u32,
    /// How time was taken.
    pub clock: String,
    /// The other host, where a server ran the answering ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerHost>,
    /// What else moves the figures.
    #[serde(default)]
    pub environment: Environment,
}

/// Figures of one system. The times are per message, or half a round trip; each is the median of
/// the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `portolan`, `limit`, `limit-single`, `tcp` or `udp`; or as `--vs`, `--interface` and `--mpi` have it.
    pub system: String,
    /// Path that it took, or that it is the yardstick for. The `tcp` and `udp` rows of the network
    /// paths repeat one measurement.
    pub path: Path,
    /// What was measured.
    pub metric: Metric,
    /// Bytes of a message.
    pub size: usize,
    /// Way of doing the work, where there are several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// Under which conditions; absent fields are the default.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Messages measured, all rounds together.
    pub iterations: u64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// Least of all rounds.
    #[serde(default)]
    pub min_us: f64,
    /// The other percentiles.
    #[serde(flatten)]
    pub tail: Tail,
    /// 10^6 bytes of payload per second.
    pub mbytes_per_s: f64,
    /// Messages per second.
    pub msgs_per_s: f64,
    /// The row's headline figure (`p50_us`, `mbytes_per_s` or `msgs_per_s`, by the metric) in each
    /// round.
    #[serde(default)]
    pub per_round: Vec<f64>,
    /// What only some rows tell.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Row {
    /// The figure that the metric is about.
    pub fn headline(&self) -> f64 {
        match self.metric {
            Metric::Pingpong | Metric::Logp => self.p50_us,
            Metric::Stream | Metric::Incast | Metric::Bidir => self.mbytes_per_s,
            Metric::Loaded => self.p99_us,
            Metric::Rate => self.msgs_per_s,
        }
    }

    /// Whether it did the same better than `other`.
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
    fn a_report_survives_its_json() {
        let text = serde_json::to_string(&report()).expect("serializes");
        assert_eq!(
            serde_json::from_str::<Report>(&text).expect("parses"),
            report()
        );
    }

    #[test]
    fn the_names_that_scripts_rely_on_are_there() {
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
    fn a_row_with_the_contract_s_fields_alone_is_read() {
        let text = r#"{"system":"tcp","path":"udp","metric":"rate","size":8,"iterations":1,
            "p50_us":1.0,"p99_us":1.0,"mean_us":1.0,"mbytes_per_s":0.0,"msgs_per_s":1.0}"#;
        let row: Row = serde_json::from_str(text).expect("parses");
        assert_eq!(row.metric, Metric::Rate);
        assert!(row.per_round.is_empty());
    }
}
