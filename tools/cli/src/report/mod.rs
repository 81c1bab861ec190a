// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan report`: writes results of `portolan bench`, `profile` and `report npb` as a page,
//! optionally after measuring them.

mod npb;

use crate::error::{UserError, user_error};
use crate::launcher::LocalLauncher;
use crate::output::{check_file, out, outln, write_json};
use crate::plot::{each, read_json};
use anyhow::Result;
use clap::{FromArgMatches, ValueEnum};
use portolan_bench::{BenchArgs, Launcher, Report};
use portolan_report::{Material, NPB_FORMAT};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `portolan report`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ReportArgs {
    /// Report on something other than files and measurements of networks.
    #[command(subcommand)]
    action: Option<Action>,
    /// Results, as written by `--json` of `portolan bench`, `profile` or `report npb`.
    #[arg(value_name = "FILE", required_unless_present = "run")]
    files: Vec<PathBuf>,
    /// File for the page; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Measure first: the short form takes less than 2 minutes, the full one less than 15.
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, default_missing_value = "short")]
    run: Option<Form>,
    /// With --run: write the JSON of each measurement to DIR.
    #[arg(long, value_name = "DIR", requires = "run")]
    json: Option<PathBuf>,
}

/// Other actions of `portolan report`.
#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Measure programs like the NAS Parallel Benchmarks over each network, with an installed MPI,
    /// and compare them with published figures.
    Npb(npb::NpbArgs),
}

/// Extent of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Common message sizes, few rounds.
    Short,
    /// Everything that the page can show.
    Full,
}

/// A command line of `portolan bench`, with its name.
type Measurement = (&'static str, &'static str);

const SHORT: &[Measurement] = &[
    (
        "pingpong",
        "pingpong --path packet,udp,shm --size 1,64,1k,16k,64k,1M --vs tcp --limits \
         --seconds 0.15 --repeat 3",
    ),
    (
        "stream",
        "stream --path udp,shm --size 64k,1M --vs tcp --seconds 0.3 --repeat 3",
    ),
    (
        "rate",
        "rate --path packet,udp,shm --vs tcp --seconds 0.3 --repeat 3",
    ),
    (
        "logp",
        "logp --path packet,udp,shm --size 8 --vs tcp --seconds 0.6 --repeat 3",
    ),
];

const FULL: &[Measurement] = &[
    (
        "pingpong",
        "pingpong --path packet,udp,shm --vs tcp --limits --seconds 1 --repeat 5 \
         --size 0,1,8,64,256,1k,4k,16k,32k,64k,256k,1M,4M",
    ),
    (
        "stream",
        "stream --path udp,shm --size 4k,16k,64k,256k,1M,4M --vs tcp --limits \
         --seconds 1 --repeat 5",
    ),
    (
        "bidir",
        "bidir --path udp,shm --size 16k,64k,256k,1M,4M --vs tcp --seconds 1 --repeat 5",
    ),
    (
        "rate",
        "rate --path packet,udp,shm --vs tcp --limits --seconds 1 --repeat 5",
    ),
    (
        "logp",
        "logp --path packet,udp,shm --vs tcp --limits --seconds 2 --repeat 5",
    ),
    (
        "interfaces",
        "pingpong logp --path packet,shm --interface bip,gm,gm+,gamma,vipl --size 8,64,1k,8k \
         --seconds 0.3 --repeat 3",
    ),
    (
        "interface-streams",
        "stream bidir --path shm --interface bip,gm,gm+,gamma,vipl --size 1k,16k,256k --seconds 0.3 \
         --repeat 3",
    ),
    (
        "loss",
        "stream --path udp --size 1M --vs tcp --loss 0.1,1,5 --seconds 3 --repeat 3",
    ),
    (
        "placement",
        "stream --path udp --size 1M --placement all --vs tcp --seconds 1 --repeat 5",
    ),
    (
        "interference",
        "stream --path udp --size 1M --placement bounce,speculative \
         --interfere 1000,10 --seconds 1 --repeat 3",
    ),
    (
        "fragments",
        "pingpong stream --path udp --size 1k,4k,64k,1M --frame-len-max 512 --vs tcp --seconds 0.4 \
         --repeat 2",
    ),
    (
        "moving",
        "stream --path udp,shm --size 64,1k,4k,16k,64k,1M --limits --seconds 0.3 --repeat 2",
    ),
    (
        "loaded",
        "loaded --path udp,packet --vs tcp --seconds 1 --repeat 5",
    ),
    (
        "incast",
        "incast --path udp --senders 8 --seconds 1 --repeat 3",
    ),
];

impl Form {
    fn measurements(self) -> &'static [Measurement] {
        match self {
            Form::Short => SHORT,
            Form::Full => FULL,
        }
    }
}

/// A page that can be written.
struct Page<'a> {
    file: &'a Path,
}

impl Page<'_> {
    /// Checks that a file can be written before a long measurement starts.
    fn new(file: &Path) -> Result<Page<'_>> {
        check_file(Some(file))
            .map_err(|error| UserError::new(error.to_string().replace("--json", "--output")))?;
        Ok(Page { file })
    }

    /// Writes the page, and prints its name.
    fn write(&self, material: &Material) -> Result<()> {
        if self.file.as_os_str() == "-" {
            return out!("{}", portolan_report::page(material));
        }
        let shown = self.file.display();
        if let Err(error) = fs::write(self.file, portolan_report::page(material)) {
            user_error!(
                "the page cannot be written to {shown} ({error}): name another --output file"
            );
        }
        outln!("{shown}")
    }
}

/// Runs `portolan report`.
///
/// # Errors
/// The page cannot be written, or there is no data for it.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    if let Some(Action::Npb(args)) = &args.action {
        return npb::main(args);
    }
    let page = Page::new(&args.output)?;
    if let Some(directory) = &args.json {
        check_directory(directory)?;
    }
    let mut material = Material::default();
    let mut status = each(&args.files, |file| add_file(file, &mut material))?;
    if let Some(form) = args.run {
        let measured = measure(form, args.json.as_deref(), &mut material.reports)?;
        if status == ExitCode::SUCCESS {
            status = measured;
        }
    }
    if material.is_empty() {
        user_error!("there are no results to report: name files that --json wrote, or give --run");
    }
    page.write(&material)?;
    Ok(status)
}

/// Adds the contents of `file`.
///
/// # Errors
/// An error message that names the file and the remedy.
fn add_file(file: &Path, material: &mut Material) -> Result<()> {
    let json = read_json(file)?;
    match json.get("format").and_then(Value::as_str) {
        Some(portolan_profile::FORMAT) => material.profiles.push(parse_result(file, json)?),
        Some(NPB_FORMAT) => material.npbs.push(parse_result(file, json)?),
        None if json.get("casts").is_some() => material.casts.push(json),
        _ => material.reports.push(parse_result(file, json)?),
    }
    Ok(())
}

fn parse_result<T: DeserializeOwned>(file: &Path, json: Value) -> Result<T> {
    match serde_json::from_value(json) {
        Ok(result) => Ok(result),
        Err(error) => user_error!(
            "{} is not a result of `portolan bench`, `profile` or `report npb` ({error}): name a file \
             that --json of one of them wrote",
            file.display()
        ),
    }
}

/// Creates `directory`, and checks that it is writable before a long measurement starts.
fn check_directory(directory: &Path) -> Result<()> {
    if let Err(error) = fs::create_dir_all(directory) {
        let shown = directory.display();
        user_error!(
            "the directory {shown} cannot be created ({error}): name another --json directory"
        );
    }
    check_file(Some(&directory.join("pingpong.json")))
}

/// Measures everything of `form`. Missing rows are reported on the page and by the exit status.
fn measure(form: Form, json: Option<&Path>, reports: &mut Vec<Report>) -> Result<ExitCode> {
    let launcher = LocalLauncher::default();
    launcher.catch_interrupts()?;
    let mut complete = true;
    for (name, line) in form.measurements() {
        if launcher.interrupted() {
            break;
        }
        let (report, all) = run_bench(line, &launcher)?;
        complete &= all;
        if let Some(directory) = json {
            write_json(&report, &directory.join(format!("{name}.json")))?;
        }
        reports.push(report);
    }
    Ok(ExitCode::from(u8::from(!complete)))
}

/// Measures as `portolan bench` with the options of `line`; true if no row of Portolan is missing.
fn run_bench(line: &str, launcher: &LocalLauncher) -> Result<(Report, bool)> {
    eprintln!("portolan bench {line}");
    let outcome = portolan_bench::run(&parse_args(line)?, launcher, None)?;
    let mut report = outcome.report;
    let words = ["portolan", "bench"]
        .into_iter()
        .chain(line.split_whitespace());
    report.machine.environment.command = words.map(str::to_owned).collect();
    Ok((report, outcome.complete))
}

/// Parses a command line of `portolan bench`.
fn parse_args(line: &str) -> Result<BenchArgs> {
    let command = <BenchArgs as clap::Args>::augment_args(clap::Command::new("bench"));
    let words = std::iter::once("bench").chain(line.split_whitespace());
    Ok(BenchArgs::from_arg_matches(
        &command.try_get_matches_from(words)?,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_accepts_every_measurement() {
        for form in [Form::Short, Form::Full] {
            for (name, line) in form.measurements() {
                let args = parse_args(line).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(args.check().is_ok(), "{name}");
            }
        }
    }
}
