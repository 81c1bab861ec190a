// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of a request, and the measurements that they need.

use crate::args::{BenchArgs, Metric, Path, Versus};
use crate::competitor::Competitor;
use crate::conditions::Conditions;
use crate::congestion::Congestion;
use crate::mpi::{Carrier, Mpi};
use crate::rows::pingpong::UDP_SIZE_MAX;
use crate::socket::datagram_len;
use crate::spec::{
    Aim, Burst, Chunk, Copying, Gather, Hook, Intake, Lines, Payload, Program, Publish, Scatter,
    Wait, Writes,
};

/// Bytes of the smallest message for which a stream has a limit row. Below it, a system that joins
/// messages can be faster than a bare row that sends each by itself.
const STREAM_LIMIT_MIN: usize = 64 << 10;

/// Minimum frame payload in bytes of all links (with an MTU of 576).
const FRAME_MIN: usize = 548;

/// A measurement. Rows with equal measurements share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measurement {
    /// The work.
    pub(crate) program: Program,
    /// Set if the ends are on two hosts.
    pub(crate) between_hosts: bool,
    /// Conditions of the measurement.
    pub(crate) conditions: Conditions,
    /// TCP's congestion control, if not the kernel's default.
    pub(crate) congestion: Option<Congestion>,
}

impl Measurement {
    /// Returns the description of this variant, and an empty string if there is only one.
    pub(crate) fn variant(&self) -> String {
        let words = [
            self.program.variant().to_owned(),
            self.congestion.map_or(String::new(), String::from),
            self.conditions.describe(),
        ];
        let words: Vec<String> = words
            .into_iter()
            .filter(|words| !words.is_empty())
            .collect();
        words.join(", ")
    }

    /// Returns the name of the work for messages to the user.
    pub(crate) fn name(&self) -> String {
        let mut name = self.program.name();
        let congestion = self.congestion.map_or(String::new(), String::from);
        for words in [congestion, self.conditions.describe()] {
            if !words.is_empty() {
                name = format!("{name} ({words})");
            }
        }
        name
    }
}

/// A requested row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedRow {
    /// Name of the system.
    pub(crate) system: &'static str,
    /// Path of the row.
    pub(crate) path: Path,
    /// Variants of the work; the fastest one counts.
    pub(crate) candidates: Vec<Measurement>,
}

impl PlannedRow {
    /// Combines each variant with each of TCP's congestion controls. Fewer are available with a
    /// server.
    fn with_each_congestion(mut self, args: &BenchArgs) -> Self {
        let offered = Congestion::offered(args.remote.client.is_some());
        let each = |one: Measurement| {
            let with = |congestion: &Option<Congestion>| Measurement {
                congestion: *congestion,
                ..one
            };
            offered.iter().map(with).collect::<Vec<_>>()
        };
        self.candidates = self.candidates.into_iter().flat_map(each).collect();
        self
    }

    fn under(mut self, conditions: Conditions) -> Self {
        for candidate in &mut self.candidates {
            candidate.conditions = conditions;
        }
        self
    }
}

/// Returns the rows for messages of `size` bytes. Rows to be compared are adjacent.
pub(crate) fn rows(args: &BenchArgs, metric: Metric, size: usize, mtu: usize) -> Vec<PlannedRow> {
    let mut rows = Vec::new();
    for path in args.paths() {
        for conditions in args.conditions(metric, path) {
            let program = Program::Portolan(metric, path);
            rows.push(planned("portolan", path, vec![program]).under(conditions));
        }
        for interface in args.interfaces_for(metric, size) {
            let program = Program::Interface(interface, metric, path);
            rows.push(planned(interface.name(), path, vec![program]));
        }
        for mpi in args.mpis_for(metric, path) {
            rows.extend(mpi_rows(mpi, metric, path));
        }
        if args.limits {
            let limit = planned("limit", path, limit(metric, path, size, mtu));
            rows.push(match path {
                Path::Stream => limit.with_each_congestion(args),
                _ => limit,
            });
            rows.push(planned("link", path, link(metric, path, size)));
            rows.push(planned("limit-single", path, single(metric, path, size)));
        }
        for versus in &args.versus {
            match versus {
                Versus::Tcp => rows.extend(tcp_rows(args, metric, path)),
                Versus::Udp => rows.push(planned("udp", path, limit(metric, Path::Udp, size, mtu))),
                other => rows.extend(competitor_row(*other, metric, path)),
            }
        }
    }
    rows.retain(|row| !row.candidates.is_empty());
    rows
}

/// Returns the distinct measurements that `rows` need, in order.
pub(crate) fn measurements(rows: &[PlannedRow]) -> Vec<Measurement> {
    let mut needed = Vec::new();
    for measurement in rows.iter().flat_map(|row| &row.candidates) {
        if !needed.contains(measurement) {
            needed.push(*measurement);
        }
    }
    needed
}

fn planned(system: &'static str, path: Path, programs: Vec<Program>) -> PlannedRow {
    let between_hosts = path != Path::Shm;
    let candidates = programs.into_iter().map(|program| Measurement {
        program,
        between_hosts,
        conditions: Conditions::default(),
        congestion: None,
    });
    PlannedRow {
        system,
        path,
        candidates: candidates.collect(),
    }
}

/// Returns the variants of the work on the bare resource; none if no bare row would be a limit.
fn limit(metric: Metric, path: Path, size: usize, mtu: usize) -> Vec<Program> {
    match (metric, path) {
        (Metric::Pingpong, Path::Shm) => {
            vec![
                Program::ShmPingpong(Lines::One),
                Program::ShmPingpong(Lines::Two),
            ]
        }
        (Metric::Pingpong, Path::Packet) if size <= mtu => [Intake::Ring, Intake::Call]
            .map(Program::PacketPingpong)
            .to_vec(),
        (Metric::Pingpong, Path::Xdp) if size <= mtu => vec![Program::XdpPingpong(Hook::Generic)],
        (Metric::Pingpong, Path::XdpNative) if size <= mtu => {
            vec![Program::XdpPingpong(Hook::Native)]
        }
        (Metric::Pingpong, Path::Udp) if size <= UDP_SIZE_MAX => [Aim::Connected, Aim::Each]
            .map(Program::UdpPingpong)
            .to_vec(),
        (Metric::Stream, Path::Shm) if size >= STREAM_LIMIT_MIN => shm_streams(),
        (Metric::Stream, Path::Packet) if size >= STREAM_LIMIT_MIN => {
            vec![Program::PacketFlow(Payload::Pieces)]
        }
        (Metric::Stream, Path::Udp) if size >= STREAM_LIMIT_MIN => [Gather::List, Gather::Copy]
            .into_iter()
            .flat_map(|gather| {
                [Scatter::Bounce, Scatter::List].map(|scatter| Program::UdpStream(gather, scatter))
            })
            .collect(),
        (Metric::Stream, Path::Stream) if size >= STREAM_LIMIT_MIN => {
            vec![Program::TcpZeroCopy, Program::TcpStream(Wait::Spin)]
        }
        (Metric::Rate, Path::Shm) if size == 8 => {
            vec![
                Program::ShmRate(Publish::Each),
                Program::ShmRate(Publish::Batch),
            ]
        }
        (Metric::Rate, Path::Packet) if size == 8 => vec![Program::PacketFlow(Payload::Full)],
        (Metric::Rate, Path::Udp) if size == 8 => vec![Program::UdpFlow(Payload::Full)],
        (Metric::Logp, Path::Packet) if size <= mtu => vec![Program::PacketLogp],
        (Metric::Logp, Path::Udp) if size <= datagram_len(mtu) => vec![Program::UdpLogp],
        (_, Path::Auto) => {
            let mut either = limit(metric, Path::Packet, size, mtu);
            either.extend(limit(metric, Path::Udp, size, mtu));
            either
        }
        _ => Vec::new(),
    }
}

/// Returns the same work on a link of Portolan alone. The result is the link's share of the time.
fn link(metric: Metric, path: Path, size: usize) -> Vec<Program> {
    match (metric, path) {
        (Metric::Pingpong, Path::Xdp) if size <= FRAME_MIN => {
            vec![Program::XdpLinkPingpong(Hook::Generic)]
        }
        (Metric::Pingpong, Path::XdpNative) if size <= FRAME_MIN => {
            vec![Program::XdpLinkPingpong(Hook::Native)]
        }
        _ => Vec::new(),
    }
}

/// Returns the programs that send each message by itself: the limit of a system that never joins
/// messages.
fn single(metric: Metric, path: Path, size: usize) -> Vec<Program> {
    match (metric, path) {
        (Metric::Stream, Path::Shm) if size < STREAM_LIMIT_MIN => shm_streams(),
        (Metric::Rate, Path::Packet) if size == 8 => vec![Program::PacketFlow(Payload::Single)],
        (Metric::Rate, Path::Udp) if size == 8 => vec![Program::UdpFlow(Payload::Single)],
        (Metric::Rate, Path::Auto) if size == 8 => vec![
            Program::PacketFlow(Payload::Single),
            Program::UdpFlow(Payload::Single),
        ],
        _ => Vec::new(),
    }
}

/// Returns both ways to copy a message from one process's memory to another's.
fn shm_streams() -> Vec<Program> {
    [Copying::Pipelined, Copying::VmRead]
        .map(Program::ShmStream)
        .to_vec()
}

/// Returns the rows of an MPI over Portolan and over its own transport. The latter share one
/// measurement for all paths between hosts.
fn mpi_rows(mpi: Mpi, metric: Metric, path: Path) -> [PlannedRow; 2] {
    let row = |carrier, by| {
        let program = Program::Mpi(mpi, carrier, metric, by);
        planned(mpi.system(carrier), path, vec![program])
    };
    let own = if path == Path::Shm { path } else { Path::Udp };
    [row(Carrier::Portolan, path), row(Carrier::Own, own)]
}

/// Returns the row of another library. All paths between hosts share one measurement.
fn competitor_row(versus: Versus, metric: Metric, path: Path) -> Option<PlannedRow> {
    let competitor = versus.competitor()?;
    let by = if path == Path::Shm { path } else { Path::Udp };
    let program = Program::Competitor(competitor, metric, by);
    let has_row = Competitor::measures(metric) && competitor.supports(path);
    has_row.then(|| planned(competitor.system(), path, vec![program]))
}

fn tcp_rows(args: &BenchArgs, metric: Metric, path: Path) -> Vec<PlannedRow> {
    let row = |conditions: Conditions| {
        let programs = if conditions.loss_ppm > 0 {
            // The network drops single segments, or whole bursts with offload. Either may suit TCP
            // better.
            [Burst::Whole, Burst::Segments]
                .map(Program::TcpGoodput)
                .to_vec()
        } else {
            tcp(metric)
        };
        planned("tcp", path, programs)
            .with_each_congestion(args)
            .under(conditions)
    };
    args.losses(metric, path).into_iter().map(row).collect()
}

fn tcp(metric: Metric) -> Vec<Program> {
    match metric {
        Metric::Loaded => vec![
            Program::TcpLoaded(Chunk::Small),
            Program::TcpLoaded(Chunk::Large),
        ],
        Metric::Incast => Vec::new(),
        Metric::Pingpong => vec![Program::TcpPingpong],
        Metric::Bidir => [Chunk::Small, Chunk::Large].map(Program::TcpBidir).to_vec(),
        Metric::Logp => vec![Program::TcpLogp],
        Metric::Stream => vec![
            Program::TcpStream(Wait::Block),
            Program::TcpStream(Wait::Spin),
        ],
        Metric::Rate => vec![
            Program::TcpRate(Writes::Each),
            Program::TcpRate(Writes::Window),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn plan(line: &str, size: usize) -> Vec<PlannedRow> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        let args = Line::try_parse_from(words).expect("valid").args;
        rows(&args, args.metrics[0], size, 1500)
    }

    #[test]
    fn compared_rows_are_adjacent() {
        let rows = plan("pingpong --path packet,udp --limits --vs tcp", 64);
        let names: Vec<_> = rows.iter().map(|row| (row.system, row.path)).collect();
        let of = |path| [("portolan", path), ("limit", path), ("tcp", path)];
        assert_eq!(names, [of(Path::Packet), of(Path::Udp)].concat());
    }

    #[test]
    fn network_paths_share_the_tcp_measurement() {
        let rows = plan("pingpong --path all --vs tcp", 64);
        let tcp = |m: &&Measurement| m.program == Program::TcpPingpong;
        let count = 2 * Congestion::offered(false).len();
        assert_eq!(measurements(&rows).iter().filter(tcp).count(), count);
    }

    #[test]
    fn mpi_has_a_portolan_row_and_a_shared_row_of_its_own() {
        let rows = plan("pingpong --path packet,udp,shm,xdp --mpi openmpi,mpich", 64);
        let names: Vec<_> = rows.iter().map(|row| (row.system, row.path)).collect();
        let of = |path| {
            let systems = [
                "portolan",
                "openmpi-portolan",
                "openmpi",
                "mpich-portolan",
                "mpich",
            ];
            systems.map(|system| (system, path))
        };
        let [packet, udp, shm] = [Path::Packet, Path::Udp, Path::Shm].map(of);
        let xdp = [("portolan", Path::Xdp)];
        assert_eq!(names, [&packet[..], &udp, &shm, &xdp].concat());
        let own =
            |m: &&Measurement| matches!(m.program, Program::Mpi(Mpi::OpenMpi, Carrier::Own, ..));
        assert_eq!(measurements(&rows).iter().filter(own).count(), 2);
    }

    #[test]
    fn other_libraries_share_their_row_between_network_paths() {
        let line =
            "pingpong --path packet,udp,shm --vs libfabric-tcp,libfabric-rxd,libfabric-shm,ucx";
        let rows = plan(line, 64);
        let on = |path| {
            let systems = rows.iter().filter(move |row| row.path == path);
            systems.map(|row| row.system).collect::<Vec<_>>()
        };
        let network = ["portolan", "libfabric-tcp", "libfabric-rxd", "ucx"];
        assert_eq!(
            (on(Path::Packet), on(Path::Udp)),
            (network.to_vec(), network.to_vec())
        );
        assert_eq!(on(Path::Shm), ["portolan", "libfabric-shm", "ucx"]);
        let ucx = |m: &&Measurement| matches!(m.program, Program::Competitor(Competitor::Ucx, ..));
        assert_eq!(measurements(&rows).iter().filter(ucx).count(), 2);
    }

    #[test]
    fn message_longer_than_a_frame_has_no_packet_row() {
        let rows = plan("pingpong --path packet --limits", 1501);
        assert_eq!(rows.len(), 1);
    }

    #[test]
    fn stream_limit_is_plain_tcp_with_or_without_zero_copy() {
        let rows = plan("stream --path stream --limits --vs tcp", 64 << 10);
        let limit = rows.iter().find(|row| row.system == "limit").expect("one");
        for program in [Program::TcpZeroCopy, Program::TcpStream(Wait::Spin)] {
            let ways = limit.candidates.iter().filter(|m| m.program == program);
            assert_eq!(ways.count(), Congestion::offered(false).len());
        }
        // Only the usual `write` competes; zero-copy sends do not.
        let tcp = rows.iter().find(|row| row.system == "tcp").expect("one");
        assert!(
            tcp.candidates
                .iter()
                .all(|m| m.program != Program::TcpZeroCopy)
        );
        let short = plan("stream --path stream --limits", 8 << 10);
        assert!(short.iter().all(|row| row.system != "limit"));
    }

    #[test]
    fn auto_limit_is_the_better_network_path() {
        let rows = plan("rate --path auto --limits", 8);
        let limit = rows
            .iter()
            .find(|row| row.system == "limit")
            .expect("a limit");
        let programs: Vec<_> = limit.candidates.iter().map(|m| m.program).collect();
        assert_eq!(
            programs,
            [
                Program::PacketFlow(Payload::Full),
                Program::UdpFlow(Payload::Full)
            ]
        );
    }
}
