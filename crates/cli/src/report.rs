// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan report`: results of `portolan bench` as a page, or the measurements and the page.

use crate::bench::earlier;
use crate::error::{UserError, user_error};
use crate::output::{check_file, outln};
use crate::plot::each;
use crate::surroundings::Surroundings;
use anyhow::Result;
use clap::{FromArgMatches, ValueEnum};
use portolan_bench::{BenchArgs, Launcher, Report};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `portolan report`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Results, as `--json` of `portolan bench` left them.
    #[arg(value_name = "FILE", required_unless_present = "run")]
    files: Vec<PathBuf>,
    /// Where the page goes.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Measure first: the short form takes less than 2 minutes, the full one less than 15.
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, default_missing_value = "short")]
    run: Option<Form>,
    /// With --run: leave the JSON of each measurement in DIR.
    #[arg(long, value_name = "DIR", requires = "run")]
    json: Option<PathBuf>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The sizes that most programs have, few rounds.
    Short,
    /// Everything that the page has a place for.
    Full,
}

impl Form {
    /// Command lines of `portolan bench`, with a name each.
    fn measurements(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Form::Short => &[
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
            ],
            Form::Full => &[
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
                    "loaded",
                    "loaded --path udp,packet --vs tcp --seconds 1 --repeat 5",
                ),
                (
                    "incast",
                    "incast --path udp --senders 8 --seconds 1 --repeat 3",
                ),
            ],
        }
    }
}

/// Writes the page.
///
/// # Errors
/// The page cannot be written, or there is nothing that it could be about.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let output = args.output.as_path();
    check_file(Some(output))
        .map_err(|error| UserError::new(error.to_string().replace("--json", "--output")))?;
    let mut reports = Vec::new();
    let mut status = each(&args.files, |file| {
        reports.push(earlier(file)?);
        Ok(())
    })?;
    if let Some(form) = args.run {
        status = measure(form, args.json.as_deref(), &mut reports)?;
    }
    if reports.is_empty() {
        user_error!("there are no results to report: name files that --json wrote, or --run");
    }
    let page = portolan_report::page(&reports);
    if let Err(error) = fs::write(output, page) {
        let shown = output.display();
        user_error!("the page cannot be written to {shown} ({error}): name another --output");
    }
    outln!("{}", output.display())?;
    Ok(status)
}

/// Measures all of `form`. What is missing is told on the page, and by the exit status.
fn measure(form: Form, json: Option<&Path>, reports: &mut Vec<Report>) -> Result<ExitCode> {
    let surroundings = Surroundings::default();
    surroundings.heed_interrupts()?;
    let mut complete = true;
    for (name, line) in form.measurements() {
        if surroundings.interrupted() {
            break;
        }
        eprintln!("portolan bench {line}");
        let outcome = portolan_bench::run(&parsed(line)?, &surroundings, None)?;
        complete &= outcome.complete;
        let mut report = outcome.report;
        let words = ["portolan", "bench"]
            .into_iter()
            .chain(line.split_whitespace());
        report.machine.environment.command = words.map(str::to_owned).collect();
        if let Some(directory) = json {
            let path = directory.join(format!("{name}.json"));
            let written = fs::create_dir_all(directory)
                .and_then(|()| fs::write(&path, serde_json::to_string_pretty(&report)?));
            if let Err(error) = written {
                let shown = path.display();
                user_error!("{shown} cannot be written ({error}): name another --json");
            }
        }
        reports.push(report);
    }
    Ok(ExitCode::from(u8::from(!complete)))
}

/// The options of a command line of `portolan bench`.
fn parsed(line: &str) -> Result<BenchArgs> {
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
    fn every_measurement_is_one_that_bench_accepts() {
        for form in [Form::Short, Form::Full] {
            for (name, line) in form.measurements() {
                let args = parsed(line).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(args.check().is_ok(), "{name}");
            }
        }
    }
}
