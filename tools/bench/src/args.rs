// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command-line options of `portolan bench`.

use crate::competitor::Competitor;
use crate::conditions::{Auth, Conditions, PPM_PER_PERCENT, PlacementChoice, Schedule};
use crate::interface::Interface;
use crate::mpi::Mpi;
use crate::remote::RemoteArgs;
use clap::ValueEnum;
use clap::builder::{RangedI64ValueParser, RangedU64ValueParser};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

/// Largest message size of a row in bytes. Two such messages must easily fit in memory.
pub(crate) const SIZE_MAX: usize = 1 << 30;

/// Options of `portolan bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchArgs {
    /// Subcommand that replaces the measurement.
    #[command(subcommand)]
    pub action: Option<Action>,
    /// Metrics to measure, one after another.
    #[arg(required_unless_present = "server", value_enum)]
    pub(crate) metrics: Vec<Metric>,
    /// Paths to measure.
    #[arg(
        long = "path",
        value_enum,
        value_delimiter = ',',
        default_value = "all"
    )]
    pub(crate) paths: Vec<PathChoice>,
    /// Message sizes, such as 0,8,64,1k,1M (k and M are powers of 1024).
    #[arg(long = "size", value_name = "LIST")]
    pub(crate) sizes: Option<SizeList>,
    /// Systems to compare with.
    #[arg(long = "vs", value_enum, value_delimiter = ',')]
    pub(crate) versus: Vec<Versus>,
    /// Interfaces of the papers to measure as well, each through its C library (pingpong, logp,
    /// stream and bidir).
    #[arg(long = "interface", value_enum, value_delimiter = ',')]
    pub(crate) interfaces: Vec<Interface>,
    /// MPI libraries to measure as well, each over Portolan and over its own transport (pingpong,
    /// stream and rate).
    #[arg(long = "mpi", value_enum, value_delimiter = ',')]
    pub(crate) mpis: Vec<Mpi>,
    /// Also measure the same work on the bare socket or memory, with no protocol.
    #[arg(long)]
    pub(crate) limits: bool,
    /// Also count the system calls, copies and wake-ups of each end per Portolan message.
    #[arg(long)]
    pub(crate) calls: bool,
    /// Write the results as JSON to FILE; `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write all times as HdrHistogram logs to DIR, one file per measurement.
    #[arg(long, value_name = "DIR")]
    pub(crate) hdr: Option<PathBuf>,
    /// Continue an interrupted run: skip the results that FILE, the JSON of that run, already
    /// contains. Without --json the results are written back to FILE.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Append commit, machine and medians to FILE, one line of JSON per run.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Messages per row and round, instead of a duration.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = iterations())]
    pub(crate) iterations: Option<u64>,
    /// Seconds of measurement per row, over all rounds.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// MTU of the temporary lab.
    #[arg(long, value_name = "M", default_value_t = 1500, value_parser = mtus())]
    pub(crate) mtu: u32,
    /// Link properties of the temporary lab, in the format of `portolan lab up --link`: 1g;
    /// rate=100m,loss=0.1%.
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["loopback", "client"])]
    pub link: Option<String>,
    /// Rounds; each round measures every row once, and the report has the medians of the rounds.
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = rounds())]
    pub(crate) repeat: u32,
    /// Placement of received bulk data in Portolan's rows, one row for each.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub(crate) placement: Vec<PlacementChoice>,
    /// Random packet loss in percent in each direction, measured in addition to rows without loss:
    /// 1,5 (with stream).
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = parse_loss)]
    pub(crate) loss: Vec<u32>,
    /// Send one foreign datagram per N datagrams of Portolan's stream, in addition to rows without:
    /// 100,10000 (with stream).
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = intervals())]
    pub(crate) interfere: Vec<u32>,
    /// Senders per receiver (with incast).
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = senders())]
    pub(crate) senders: u32,
    /// Order in which the receiver serves the senders, one row for each (with incast).
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub(crate) schedule: Vec<Schedule>,
    /// Authentication of network frames in Portolan's rows, one row for each.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub(crate) auth: Vec<Auth>,
    /// Longest frames of Portolan's rows on UDP in bytes, in addition to rows with frames as long
    /// as the MTU allows: 512,1024.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = frame_lens())]
    pub(crate) frame_len_max: Vec<u32>,
    /// Also measure `packet` and `auto` as user nobody, with a broker on each host.
    #[arg(long)]
    pub(crate) broker: bool,
    /// Use this host's loopback interface even if a lab could be created.
    #[arg(long)]
    pub(crate) loopback: bool,
    /// Options for a measurement between two hosts.
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// Subcommands of `portolan bench`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Show which results of two runs differ by more than their rounds vary.
    Compare {
        /// JSON of the first run.
        before: PathBuf,
        /// JSON of the second run.
        after: PathBuf,
    },
}

impl BenchArgs {
    /// Returns the sizes to measure for `metric`, in ascending order.
    pub(crate) fn sizes_for(&self, metric: Metric) -> Vec<usize> {
        match &self.sizes {
            Some(list) => list.0.clone(),
            None => metric.default_sizes().to_vec(),
        }
    }

    /// Returns the conditions of Portolan's rows for `metric` on `path`: all combinations of the
    /// requested options that apply to the metric.
    pub(crate) fn conditions(&self, metric: Metric, path: Path) -> Vec<Conditions> {
        let mut all = vec![Conditions::default()];
        // Frames in shared memory are never sealed.
        if path != Path::Shm {
            all = each(&all, &self.auth, |one, auth| one.auth = Some(auth));
        }
        if path == Path::Udp {
            all = each(&all, &unchanged_and(&self.frame_len_max), |one, len| {
                one.frame_len_max = len
            });
        }
        if self.broker && by_broker(path) {
            all = each(&all, &[false, true], |one, broker| one.broker = broker);
        }
        if !metric.is_bulk() {
            return all;
        }
        let placements = self.placement.iter().flat_map(|choice| choice.placements());
        all = each(&all, placements, |one, placement| {
            one.placement = Some(placement)
        });
        if metric == Metric::Incast {
            all = each(&all, &self.schedule, |one, schedule| {
                one.schedule = Some(schedule)
            });
        }
        if metric == Metric::Stream && path != Path::Shm {
            all = each(&all, &unchanged_and(&self.loss), |one, ppm| {
                one.loss_ppm = ppm
            });
            all = each(&all, &unchanged_and(&self.interfere), |one, n| {
                one.interfere = n
            });
        }
        all
    }

    /// Returns the loss rates at which the rows of other systems are measured.
    pub(crate) fn losses(&self, metric: Metric, path: Path) -> Vec<Conditions> {
        let all = [Conditions::default()];
        if metric == Metric::Stream && path != Path::Shm {
            each(&all, &unchanged_and(&self.loss), |one, ppm| {
                one.loss_ppm = ppm
            })
        } else {
            all.to_vec()
        }
    }

    /// Refuses options that no requested metric uses. Otherwise a row would claim conditions that
    /// it was not measured under.
    ///
    /// # Errors
    /// [`ArgsError`] names the option and the metric that it belongs to.
    pub fn check(&self) -> Result<(), ArgsError> {
        if self.remote.bind.is_some() && !self.remote.server {
            return Err(ArgsError::BindWithoutServer);
        }
        if self.remote.client.is_some() {
            self.check_between_hosts()?;
        }
        let belongs = [
            (!self.loss.is_empty(), "--loss", Metric::Stream),
            (!self.interfere.is_empty(), "--interfere", Metric::Stream),
            (!self.schedule.is_empty(), "--schedule", Metric::Incast),
        ];
        for (given, option, metric) in belongs {
            if given && !self.metrics.contains(&metric) {
                return Err(ArgsError::WithoutMetric { option, metric });
            }
        }
        let bulk = self.metrics.iter().any(|metric| metric.is_bulk());
        if !bulk && !self.placement.is_empty() {
            return Err(ArgsError::PlacementWithoutBulk);
        }
        if !self.auth.is_empty() && self.paths() == [Path::Shm] {
            return Err(ArgsError::AuthOnMemory);
        }
        if !self.frame_len_max.is_empty() && !self.paths().contains(&Path::Udp) {
            return Err(ArgsError::FramesWithoutUdp);
        }
        if !self.interfaces.is_empty() && !self.metrics.iter().copied().any(Interface::measures) {
            return Err(ArgsError::InterfaceWithoutMetric);
        }
        let has_mpi_rows = self.metrics.iter().copied().any(Mpi::measures)
            && self.paths().into_iter().any(Mpi::supports);
        if !self.mpis.is_empty() && !has_mpi_rows {
            return Err(ArgsError::MpiWithoutMetric);
        }
        self.check_competitors()?;
        if self.broker && !self.paths().into_iter().any(by_broker) {
            return Err(ArgsError::BrokerWithoutPacket);
        }
        for metric in &self.metrics {
            for size in self.sizes_for(*metric) {
                let (metric, least) = (*metric, metric.size_min());
                if size < least {
                    return Err(ArgsError::TooShort {
                        metric,
                        least,
                        size,
                    });
                }
            }
        }
        Ok(())
    }

    /// Refuses options that need a lab or a single host in a measurement between two hosts.
    fn check_between_hosts(&self) -> Result<(), ArgsError> {
        let given = [
            (self.loopback, "--loopback"),
            (self.broker, "--broker"),
            (!self.mpis.is_empty(), "--mpi"),
            (!self.loss.is_empty(), "--loss"),
            (!self.interfere.is_empty(), "--interfere"),
            (self.paths.contains(&PathChoice::Shm), "--path shm"),
            (self.metrics.contains(&Metric::Incast), "incast"),
        ];
        match given.into_iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(ArgsError::NotBetweenHosts { option }),
            None => Ok(()),
        }
    }

    /// Refuses a library that has no row in this run.
    fn check_competitors(&self) -> Result<(), ArgsError> {
        let has_metric = self.metrics.iter().copied().any(Competitor::measures);
        for competitor in self.versus.iter().filter_map(|versus| versus.competitor()) {
            let has_path = self
                .paths()
                .into_iter()
                .any(|path| competitor.supports(path));
            if !has_metric || !has_path {
                let system = competitor.system();
                return Err(ArgsError::CompetitorWithoutRow { system });
            }
        }
        Ok(())
    }

    /// Returns true if this process is the server of another host's measurement.
    pub fn is_server(&self) -> bool {
        self.remote.server
    }

    /// Returns the requested interfaces of the papers that support this work, each once.
    pub(crate) fn interfaces_for(&self, metric: Metric, size: usize) -> Vec<Interface> {
        let mut interfaces = Vec::new();
        for interface in &self.interfaces {
            let can = Interface::measures(metric) && interface.carries(size);
            if can && !interfaces.contains(interface) {
                interfaces.push(*interface);
            }
        }
        interfaces
    }

    /// Returns the requested MPI libraries that support this work, each once.
    pub(crate) fn mpis_for(&self, metric: Metric, path: Path) -> Vec<Mpi> {
        let mut mpis = Vec::new();
        for mpi in &self.mpis {
            if Mpi::measures(metric) && Mpi::supports(path) && !mpis.contains(mpi) {
                mpis.push(*mpi);
            }
        }
        mpis
    }

    /// Returns the paths to measure, each once, with `all` expanded. Shared memory is excluded
    /// between two hosts.
    pub(crate) fn paths(&self) -> Vec<Path> {
        let has_memory = self.remote.client.is_none();
        let mut paths = Vec::new();
        for path in self.paths.iter().flat_map(|choice| choice.paths()) {
            if !paths.contains(path) && (has_memory || *path != Path::Shm) {
                paths.push(*path);
            }
        }
        paths
    }
}

/// Contradictory options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgsError {
    /// No requested metric uses the option.
    #[error("{option} has no effect without the metric {metric}: add the metric or omit {option}")]
    WithoutMetric {
        /// The option as the user writes it.
        option: &'static str,
        /// Metric that uses the option.
        metric: Metric,
    },
    /// Placement applies only to bulk data.
    #[error(
        "--placement has no effect without bulk data: add stream, loaded or incast, or omit it"
    )]
    PlacementWithoutBulk,
    /// The papers measured their interfaces with these metrics.
    #[error(
        "--interface has no effect without pingpong, logp, stream or bidir: add one, or omit it"
    )]
    InterfaceWithoutMetric,
    /// `mpibench` does not implement the requested metrics or paths.
    #[error(
        "--mpi has no effect without pingpong, stream or rate over shm, packet, udp or auto: add one \
         of each, or omit it"
    )]
    MpiWithoutMetric,
    /// The library's program does not implement the requested metrics or paths.
    #[error(
        "--vs {system} has no effect here: it needs pingpong, stream or rate, and a path: shm for \
         libfabric-shm, any other for the rest of libfabric; add one of each, or omit it"
    )]
    CompetitorWithoutRow {
        /// Name of the system.
        system: &'static str,
    },
    /// A broker opens only raw Ethernet sockets.
    #[error("--broker has no effect without raw Ethernet: add --path packet, or omit it")]
    BrokerWithoutPacket,
    /// Frames in shared memory are never sealed.
    #[error("--auth has no effect on shared memory: add a path, or omit it")]
    AuthOnMemory,
    /// The frame length of other paths is set by their link.
    #[error("--frame-len-max has no effect without UDP: add --path udp, or omit it")]
    FramesWithoutUdp,
    /// Only a server listens.
    #[error("--bind has no effect without --server: add --server, or omit --bind")]
    BindWithoutServer,
    /// The option needs a lab or a single host.
    #[error("{option} needs a single host or a lab: omit it or --client")]
    NotBetweenHosts {
        /// The option as the user writes it.
        option: &'static str,
    },
    /// The message is too short for the row's check stamp.
    #[error("{metric} needs messages of at least {least} bytes: {size} is too small")]
    TooShort {
        /// Metric that stamps its messages.
        metric: Metric,
        /// Bytes of the shortest message with a stamp.
        least: usize,
        /// Requested message size in bytes.
        size: usize,
    },
}

/// Returns true if a broker can open sockets for `path`.
fn by_broker(path: Path) -> bool {
    matches!(path, Path::Packet | Path::Auto)
}

/// Returns 0 (unchanged), followed by `values`.
fn unchanged_and(values: &[u32]) -> Vec<u32> {
    [&[0], values].concat()
}

/// Returns `all` with each of `values` applied by `set`, without duplicates. Returns `all`
/// unchanged if `values` is empty.
fn each<'a, T: Copy + 'a>(
    all: &[Conditions],
    values: impl IntoIterator<Item = &'a T>,
    set: impl Fn(&mut Conditions, T),
) -> Vec<Conditions> {
    let mut product = Vec::new();
    for value in values {
        for mut conditions in all.iter().copied() {
            set(&mut conditions, *value);
            if !product.contains(&conditions) {
                product.push(conditions);
            }
        }
    }
    if product.is_empty() {
        all.to_vec()
    } else {
        product
    }
}

/// Metric of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Half the round trip of one message.
    #[serde(rename = "half_rtt")]
    Pingpong,
    /// Bytes per second of large messages in one direction.
    Stream,
    /// Small messages per second in one direction.
    Rate,
    /// Half the round trip of one message, alone and while a stream runs between the same
    /// processes.
    Loaded,
    /// Bytes per second of several senders into one receiver.
    Incast,
    /// Bytes per second of large messages in both directions at once, added.
    Bidir,
    /// LogP's latency, overheads and gap, and LogGP's gap per byte.
    Logp,
}

impl Metric {
    fn default_sizes(self) -> &'static [usize] {
        match self {
            Metric::Pingpong => &[8, 64, 1024],
            Metric::Stream => &[1 << 20],
            Metric::Rate => &[8],
            Metric::Loaded => &[64],
            Metric::Incast => &[4 << 20],
            Metric::Bidir => &[1 << 20],
            Metric::Logp => &[8, 1 << 10, 16 << 10, 64 << 10, 256 << 10],
        }
    }

    /// Returns the bytes of the smallest message that can carry the row's check stamp.
    pub(crate) fn size_min(self) -> usize {
        match self {
            Metric::Pingpong => 0,
            Metric::Stream | Metric::Loaded | Metric::Incast | Metric::Bidir => 1,
            Metric::Rate | Metric::Logp => 8,
        }
    }

    /// Returns true if the result is a time, so that less is better.
    pub fn is_time(self) -> bool {
        matches!(self, Metric::Pingpong | Metric::Loaded | Metric::Logp)
    }

    /// Returns true if the metric involves large messages.
    pub(crate) fn is_bulk(self) -> bool {
        matches!(
            self,
            Metric::Stream | Metric::Loaded | Metric::Incast | Metric::Bidir
        )
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Metric::Pingpong => "pingpong",
            Metric::Stream => "stream",
            Metric::Rate => "rate",
            Metric::Loaded => "loaded",
            Metric::Incast => "incast",
            Metric::Bidir => "bidir",
            Metric::Logp => "logp",
        })
    }
}

/// Paths as the user requests them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PathChoice {
    /// Shared memory within one host.
    Shm,
    /// UDP between two hosts.
    Udp,
    /// Raw Ethernet frames between two hosts.
    Packet,
    /// Raw Ethernet frames between two hosts through AF_XDP in generic mode.
    Xdp,
    /// Raw Ethernet frames between two hosts through AF_XDP in the driver.
    XdpNative,
    /// UDP between two hosts, with long messages over kernel TCP.
    Stream,
    /// Path that Portolan chooses between two hosts.
    Auto,
    /// All of these except AF_XDP and streams; `auto` may choose streams but never AF_XDP.
    All,
}

impl PathChoice {
    fn paths(self) -> &'static [Path] {
        match self {
            PathChoice::Shm => &[Path::Shm],
            PathChoice::Udp => &[Path::Udp],
            PathChoice::Packet => &[Path::Packet],
            PathChoice::Xdp => &[Path::Xdp],
            PathChoice::XdpNative => &[Path::XdpNative],
            PathChoice::Stream => &[Path::Stream],
            PathChoice::Auto => &[Path::Auto],
            PathChoice::All => &[Path::Shm, Path::Packet, Path::Udp, Path::Auto],
        }
    }
}

/// Path of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Shared memory within one host.
    Shm,
    /// Raw Ethernet frames between two hosts.
    Packet,
    /// Raw Ethernet frames between two hosts through AF_XDP in generic mode.
    Xdp,
    /// Raw Ethernet frames between two hosts through AF_XDP in the driver.
    XdpNative,
    /// UDP between two hosts.
    Udp,
    /// UDP between two hosts, with long messages over kernel TCP.
    Stream,
    /// Path that Portolan chooses between two hosts.
    Auto,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Path::Shm => "shm",
            Path::Packet => "packet",
            Path::Xdp => "xdp",
            Path::XdpNative => "xdp-native",
            Path::Udp => "udp",
            Path::Stream => "stream",
            Path::Auto => "auto",
        })
    }
}

/// Systems to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Versus {
    /// Kernel TCP, in its fastest variant.
    Tcp,
    /// Hand-written UDP without reliability, in its fastest variant.
    Udp,
    /// libfabric's reliable datagrams over TCP (tcp;ofi_rxm), between hosts.
    LibfabricTcp,
    /// libfabric's reliable datagrams over UDP (udp;ofi_rxd), between hosts.
    LibfabricRxd,
    /// libfabric's shared memory (shm), within a host.
    LibfabricShm,
    /// UCX, over TCP between hosts and shared memory within a host.
    Ucx,
}

impl Versus {
    /// Returns the corresponding library; `None` for TCP and UDP.
    pub(crate) fn competitor(self) -> Option<Competitor> {
        match self {
            Versus::Tcp | Versus::Udp => None,
            Versus::LibfabricTcp => Some(Competitor::LibfabricTcp),
            Versus::LibfabricRxd => Some(Competitor::LibfabricRxd),
            Versus::LibfabricShm => Some(Competitor::LibfabricShm),
            Versus::Ucx => Some(Competitor::Ucx),
        }
    }
}

/// Distinct message sizes in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SizeList(pub(crate) Vec<usize>);

impl FromStr for SizeList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = text
            .split(',')
            .map(parse_size)
            .collect::<Result<Vec<_>, _>>()?;
        sizes.sort_unstable();
        sizes.dedup();
        Ok(SizeList(sizes))
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let count: usize = digits
        .parse()
        .map_err(|_| format!("'{text}' is not a size; write bytes, such as 8, 64, 1k or 1M"))?;
    match count.checked_mul(1 << shift) {
        Some(size) if size <= SIZE_MAX => Ok(size),
        _ => Err(format!(
            "'{text}' is longer than the longest message; use at most 1024M"
        )),
    }
}

fn iterations() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..)
}

/// Accepts MTUs from the IPv4 minimum to the maximum length of an IPv4 packet.
fn mtus() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(576..=65_535)
}

/// Accepts up to 1000 rounds. A larger number is probably meant for `--iterations`.
fn rounds() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1000)
}

/// Accepts intervals from 10 datagrams (heavy interference) to 10,000,000 (rare probes).
fn intervals() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(10..=10_000_000)
}

/// Accepts frame lengths from the protocol's minimum to the maximum length of a datagram.
fn frame_lens() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(512..=65_507)
}

/// Accepts 2 to 64 senders. Each sender needs a process and a host of the lab.
fn senders() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(2..=64)
}

/// Parses percent and returns parts per million.
fn parse_loss(text: &str) -> Result<u32, String> {
    match text.parse::<f64>() {
        // Smaller rates have no effect in a run of ordinary length. With larger ones only timeouts
        // are measured.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below 10^6"
        )]
        Ok(percent) if (0.001..=50.0).contains(&percent) => {
            Ok((percent * PPM_PER_PERCENT).round() as u32)
        }
        _ => Err(format!(
            "'{text}' is not a loss; use percent from 0.001 to 50"
        )),
    }
}

/// Accepts 1 ms to 1 h per row. A shorter round might not contain a single message.
fn seconds(text: &str) -> Result<f64, String> {
    parse_seconds(text, 0.001..=3600.0)
}

/// Parses an argument that is a time in seconds.
///
/// # Errors
/// Not a number, or outside `allowed`.
pub fn parse_seconds(text: &str, allowed: RangeInclusive<f64>) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if allowed.contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "'{text}' is not a time; use seconds from {} to {}",
            allowed.start(),
            allowed.end()
        )),
    }
}

#[cfg(test)]
mod tests;
