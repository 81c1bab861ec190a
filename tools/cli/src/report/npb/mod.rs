// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan report npb`: runs the programs of `examples/npb` over each network with an installed
//! MPI, and writes a page that compares them with published figures.
//!
//! If something cannot be measured here, that is reported, and the rest is measured.

mod programs;
mod run;

use super::{Page, run_bench};
use crate::lab::{Kind, TemporaryLab};
use crate::launcher::LocalLauncher;
use crate::mpi::find::{self, Mpi, Wanted};
use crate::mpi::provider;
use crate::output::{check_file, write_json};
use anyhow::Result;
use portolan_bench::{Launcher, SiteKind, median};
use portolan_profile::World;
use portolan_report::{Material, NPB_FORMAT, Network, Npb, NpbRun, PROGRAMS, Wire};
use programs::Programs;
use run::{Job, Ran};
use std::path::PathBuf;
use std::process::ExitCode;

/// MTU of the lab: that of Ethernet.
const MTU: u32 = 1500;
/// Default upper limit, as in the paper; more must be requested.
const PROCESSES_MAX: u32 = 16;
/// Smallest number of processes that use a network.
const PROCESSES_MIN: u32 = 2;

/// Measurement for the paper's Figure 1; the paper's text also gives 1 and 31,487 bytes.
const NETWORKS: &str = "pingpong --path packet,udp,shm --vs tcp --size 1,8,64,512,4k,31487,64k,256k \
                        --seconds 0.2 --repeat 3";

/// Measure programs like the NAS Parallel Benchmarks over each network, with an installed MPI, and
/// compare them with published figures.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct NpbArgs {
    /// Size of the problems: S takes a moment, W a few seconds, A and B longer.
    #[arg(long, value_name = "CLASS", default_value = "W", value_parser = ["S", "W", "A", "B"])]
    class: String,
    /// MPI to use: openmpi, mpich, or the path of its launcher [default: the first in PATH].
    #[arg(long, value_name = "WHICH")]
    mpi: Option<Wanted>,
    /// Directory of libportolan-fi.so [default: where it is built or installed with this program].
    #[arg(long, value_name = "DIR")]
    provider_dir: Option<PathBuf>,
    /// Numbers of processes, powers of two [default: from 2 to the number of cores, 16 at most].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = processes)]
    processes: Vec<u32>,
    /// Wires between the hosts of the lab: plain, fast-ethernet, 1g or 10g, or several of them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = wire, default_value = "plain")]
    link: Vec<LabWire>,
    /// Number of rounds; the median is reported.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// File for the page; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "npb.html")]
    output: PathBuf,
    /// Also write the measurements to FILE as JSON, from which `portolan report FILE` makes the
    /// page again.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A wire of a lab; `None` for an unshaped one.
type LabWire = Option<Wire>;

fn wire(text: &str) -> Result<LabWire, String> {
    if text == "plain" {
        return Ok(None);
    }
    let wire = Wire::ALL.into_iter().find(|wire| wire.link() == text);
    wire.map(Some)
        .ok_or_else(|| "write plain, fast-ethernet, 1g or 10g".to_owned())
}

fn processes(text: &str) -> Result<u32, String> {
    let number = text.parse::<u32>().ok();
    number
        .filter(|number| number.is_power_of_two() && *number >= PROCESSES_MIN)
        .ok_or_else(|| "write powers of two, such as 2,4".to_owned())
}

/// Measures, and writes the page. Returns exit status 1 if something is missing on it.
///
/// # Errors
/// The page or the JSON cannot be written.
pub(super) fn main(args: &NpbArgs) -> Result<ExitCode> {
    let page = Page::new(&args.output)?;
    check_file(args.json.as_deref())?;
    let launcher = LocalLauncher::default();
    launcher.catch_interrupts()?;
    let mut npb = Npb {
        format: NPB_FORMAT.into(),
        mpi: String::new(),
        class: args.class.clone(),
        rounds: args.repeat,
        site: SiteKind::Loopback,
        runs: Vec::new(),
        networks: None,
        notes: Vec::new(),
    };
    let mut complete = match prepare(args) {
        Ok((mpi, programs)) => {
            npb.mpi = format!("{} {}", mpi.kind, mpi.version);
            measure(args, (&mpi, &programs), &launcher, &mut npb)
        }
        Err(error) => {
            note(&mut npb, format!("no program was measured: {error:#}"));
            false
        }
    };
    if !launcher.interrupted() {
        let (networks, all) = run_bench(NETWORKS, &launcher)?;
        npb.networks = Some(networks);
        complete &= all;
    }
    if let Some(file) = &args.json {
        write_json(&npb, file)?;
    }
    page.write(&Material {
        npbs: vec![npb],
        ..Material::default()
    })?;
    Ok(ExitCode::from(u8::from(!complete)))
}

fn prepare(args: &NpbArgs) -> Result<(Mpi, Programs)> {
    let mpi = find::choose(args.mpi.as_ref())?;
    let programs = Programs::build(&mpi)?;
    Ok((mpi, programs))
}

/// Prints a note now, and adds it to the page.
fn note(npb: &mut Npb, what: String) {
    eprintln!("portolan: {what}");
    npb.notes.push(what);
}

/// One combination of program, network and processes, with the results of its rounds.
struct Series {
    program: &'static str,
    network: Option<Network>,
    wire: LabWire,
    processes: u32,
    ran: Vec<Ran>,
    failure: Option<String>,
}

/// Environment in which programs run.
struct Place {
    networks: Vec<(Network, LabWire)>,
    /// The labs, each with its wires. None if programs run on this host.
    labs: Vec<(LabWire, TemporaryLab)>,
    /// Directory of Portolan's provider, if that is among the networks.
    provider_dir: PathBuf,
}

impl Place {
    /// Returns the available networks for `most` processes, and notes the missing ones.
    fn find(args: &NpbArgs, mpi: &Mpi, most: u32, npb: &mut Npb) -> Place {
        let mut wires: Vec<LabWire> = Vec::new();
        for wire in &args.link {
            if !wires.contains(wire) {
                wires.push(*wire);
            }
        }
        let labs = Place::make_labs(&wires, most).unwrap_or_else(|error| {
            wires = vec![None];
            let text = format!(
                "no lab was created ({error:#}): networks are this host's loopback interface, without raw Ethernet \
                 and without shaped wires"
            );
            note(npb, text);
            Vec::new()
        });
        let mut networks = list_networks(&wires, !labs.is_empty());
        let provider = mpi
            .check_ofi()
            .and_then(|()| provider::directory(args.provider_dir.as_deref()));
        let provider_dir = provider.unwrap_or_else(|error| {
            networks.retain(|(network, _)| !network.is_portolan());
            note(
                npb,
                format!("Portolan's networks are not measured: {error}"),
            );
            PathBuf::new()
        });
        if !labs.is_empty() {
            npb.site = SiteKind::Lab;
        }
        Place {
            networks,
            labs,
            provider_dir,
        }
    }

    fn make_labs(wires: &[LabWire], most: u32) -> Result<Vec<(LabWire, TemporaryLab)>> {
        let make = |wire: &LabWire| {
            let link = wire.map(Wire::link);
            let kind = Kind::plain(most, MTU).with(None, link)?;
            Ok((*wire, TemporaryLab::up(&kind)?))
        };
        wires.iter().map(make).collect()
    }

    /// Returns the name of the lab with this wire.
    fn lab(&self, wire: LabWire) -> Option<&str> {
        let mut labs = self.labs.iter();
        let (_, lab) = labs.find(|(other, _)| *other == wire)?;
        Some(&lab.lab().name)
    }

    fn has_portolan(&self) -> bool {
        self.networks
            .iter()
            .any(|(network, _)| network.is_portolan())
    }
}

/// Returns the networks between hosts over each wire, then those within a host.
fn list_networks(wires: &[LabWire], has_lab: bool) -> Vec<(Network, LabWire)> {
    let usable = |network: &Network| has_lab || *network != Network::PortolanPacket;
    let (within, between): (Vec<_>, Vec<_>) = Network::ALL
        .into_iter()
        .filter(usable)
        .partition(|network| network.is_within());
    let mut all = Vec::new();
    for wire in wires {
        all.extend(between.iter().map(|network| (*network, *wire)));
    }
    all.extend(within.into_iter().map(|network| (network, None)));
    all
}

/// Runs everything in rounds; returns true if nothing is missing.
fn measure(
    args: &NpbArgs,
    (mpi, programs): (&Mpi, &Programs),
    launcher: &LocalLauncher,
    npb: &mut Npb,
) -> bool {
    let cores = cores();
    let counts = counts(&args.processes, cores);
    let most = counts.iter().copied().max().unwrap_or(PROCESSES_MIN);
    if most > cores {
        let text = format!(
            "{most} processes share {cores} cores here: their times depend on scheduling more than on networks"
        );
        note(npb, text);
    }
    let place = Place::find(args, mpi, most, npb);
    let mut all = plan(&place.networks, &counts);
    for round in 1..=args.repeat {
        for series in &mut all {
            if launcher.interrupted() {
                let text = format!("interrupted in round {round} of {}", args.repeat);
                note(npb, text);
                collect_results(npb, all);
                return false;
            }
            let job = Job {
                mpi,
                file: &programs.file(series.program),
                class: &args.class,
                processes: series.processes,
                network: series.network,
                lab: place.lab(series.wire),
                provider_dir: &place.provider_dir,
                is_oversubscribed: series.processes > cores,
            };
            series.run(&job, (round, args.repeat));
        }
    }
    collect_results(npb, all) && place.has_portolan()
}

fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// Returns the numbers of processes, ascending.
fn counts(requested: &[u32], cores: u32) -> Vec<u32> {
    let mut counts = requested.to_vec();
    if counts.is_empty() {
        let most = cores.clamp(PROCESSES_MIN, PROCESSES_MAX);
        let powers = (1..).map(|power| 1 << power);
        counts.extend(powers.take_while(|count| *count <= most));
    }
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Returns the series that each round runs.
fn plan(networks: &[(Network, LabWire)], counts: &[u32]) -> Vec<Series> {
    let mut all = Vec::new();
    for program in PROGRAMS {
        let mut push = |network, wire, processes| {
            all.push(Series {
                program,
                network,
                wire,
                processes,
                ran: Vec::new(),
                failure: None,
            });
        };
        push(None, None, 1);
        for count in counts {
            for (network, wire) in networks {
                push(Some(*network), *wire, *count);
            }
        }
    }
    all
}

impl Series {
    /// Describes the series in a message.
    fn name(&self) -> String {
        let over = self
            .network
            .map_or_else(String::new, |network| format!(" over {}", network.name()));
        let wire = self
            .wire
            .map_or_else(String::new, |wire| format!(", {}", wire.name()));
        let s = if self.processes == 1 { "" } else { "es" };
        format!(
            "{} on {} process{s}{over}{wire}",
            self.program, self.processes
        )
    }

    /// Runs the series once more, unless it has failed.
    fn run(&mut self, job: &Job<'_>, (round, rounds): (u32, u32)) {
        if self.failure.is_some() {
            return;
        }
        match job.run() {
            Ok(ran) => {
                eprintln!(
                    "round {round} of {rounds}: {}: {:.4} s",
                    self.name(),
                    ran.seconds
                );
                self.ran.push(ran);
            }
            Err(error) => self.failure = Some(format!("{error:#}")),
        }
    }

    /// Returns the median time, and the counts of the round closest to it.
    fn finish(mut self) -> Option<NpbRun> {
        let per_round: Vec<f64> = self.ran.iter().map(|ran| ran.seconds).collect();
        self.ran.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let middle = self.ran.len() / 2;
        let world: World = self.ran.into_iter().nth(middle)?.world;
        let seconds = median(per_round.clone());
        Some(NpbRun {
            program: self.program.into(),
            network: self.network,
            wire: self.wire,
            processes: self.processes,
            seconds,
            per_round,
            world,
        })
    }
}

/// Adds results and notes of failures to `npb`; returns true if nothing failed.
fn collect_results(npb: &mut Npb, all: Vec<Series>) -> bool {
    let mut complete = true;
    for series in all {
        if let Some(failure) = &series.failure {
            complete = false;
            let what = format!("{} failed: {failure}", series.name());
            note(npb, what);
        }
        npb.runs.extend(series.finish());
    }
    complete
}

#[cfg(test)]
mod tests {
    use super::super::parse_args;
    use super::*;

    #[test]
    fn process_counts_are_powers_of_two_up_to_cores() {
        assert_eq!(counts(&[], 1), [2]);
        assert_eq!(counts(&[], 7), [2, 4]);
        assert_eq!(counts(&[], 64), [2, 4, 8, 16]);
        assert_eq!(counts(&[4, 2, 4], 2), [2, 4]);
        assert!(processes("3").is_err() && processes("1").is_err() && processes("4") == Ok(4));
    }

    #[test]
    fn every_wire_has_the_networks_between_hosts_and_no_other() {
        assert_eq!(wire("plain"), Ok(None));
        assert_eq!(wire("1g"), Ok(Some(Wire::Gigabit)));
        assert!(wire("2g").is_err());
        let gigabit = Some(Wire::Gigabit);
        assert_eq!(
            list_networks(&[None, gigabit], true),
            [
                (Network::PortolanPacket, None),
                (Network::PortolanUdp, None),
                (Network::OwnTcp, None),
                (Network::PortolanPacket, gigabit),
                (Network::PortolanUdp, gigabit),
                (Network::OwnTcp, gigabit),
                (Network::PortolanShm, None),
                (Network::OwnShm, None),
            ]
        );
        let loopback = list_networks(&[None], false);
        assert_eq!(loopback[0], (Network::PortolanUdp, None));
        for wire in Wire::ALL {
            assert!(
                Kind::plain(2, MTU).with(None, Some(wire.link())).is_ok(),
                "{wire:?}"
            );
        }
    }

    #[test]
    fn bench_accepts_the_network_measurement() {
        assert!(parse_args(NETWORKS).unwrap().check().is_ok());
    }
}
