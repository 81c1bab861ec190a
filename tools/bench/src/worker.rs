// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hidden command that one end of a row runs as, and how the command starts both ends of a bare
//! row.

use crate::control::{Wire, conduct};
use crate::end::End;
use crate::interface;
use crate::measure::{Pace, Sample};
use crate::portolan_rows;
use crate::remote::Remote;
use crate::spec::{Program, Role, Spec};
use anyhow::{Context, Result};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::io::{stdin, stdout};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Name of the hidden command.
pub(crate) const COMMAND: &str = "bench-worker";

/// What an end may take beyond its measurement: start, warm-up, and a silence that it reports
/// itself. Where others want the cores, a round takes slices of the scheduler, some 3 ms, and a warm-up
/// has 10,000.
pub const GRACE: Duration = Duration::from_secs(120);

/// Time that an end is given when it is to do a number of messages rather than to last.
const ITERATIONS_TIME_MAX: Duration = Duration::from_secs(600);

/// Options of the hidden command.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// What to do, as JSON.
    #[arg(long)]
    spec: String,
}

/// Runs the hidden command.
///
/// # Errors
/// The specification is not one, or the command that wants the report is gone. Failures of a bare
/// row's work itself are in its report.
pub fn work(args: &WorkerArgs) -> Result<ExitCode> {
    let spec: Spec = serde_json::from_str(&args.spec).context("--spec is not a specification")?;
    watch(spec.pace);
    match spec.program {
        Program::Portolan(metric, _) => portolan_rows::work(&spec, metric)?,
        Program::Interface(interface, metric, _) => interface::work(&spec, interface, metric)?,
        _ => {
            // A bare end must not outlive the command: it may be spinning on a core.
            set_pdeathsig(Signal::SIGKILL).context("prctl(PR_SET_PDEATHSIG)")?;
            End::work(spec, Wire::new(stdin(), stdout()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The arguments with which this program runs as an end.
///
/// # Errors
/// A path in it is not text.
pub(crate) fn arguments(spec: &Spec) -> Result<[String; 3]> {
    Ok([
        COMMAND.into(),
        "--spec".into(),
        serde_json::to_string(spec)?,
    ])
}

/// Runs both ends of a bare row as processes, the answering one at `remote` if there is one, and returns
/// the driver's sample.
///
/// # Errors
/// What the ends report, or they cannot be started.
pub(crate) fn run_bare(spec: &Spec, remote: Option<&Remote>) -> Result<Sample> {
    let (mut driver, mut driver_wire) = start(spec, Role::Driver)?.into_parts()?;
    let outcome = match remote {
        Some(remote) => conduct(&mut driver_wire, &mut remote.answerer(spec)?),
        None => {
            let (mut answerer, mut wire) = start(spec, Role::Answerer)?.into_parts()?;
            let outcome = conduct(&mut driver_wire, &mut wire);
            answerer.finish(outcome.is_err());
            outcome
        }
    };
    driver.finish(outcome.is_err());
    outcome
}

/// A process that is killed when it is dropped: no end is left spinning.
struct Worker(Child);

impl Worker {
    fn into_parts(mut self) -> Result<(Self, Wire)> {
        let reader = self.0.stdout.take().context("the worker has no output")?;
        let writer = self.0.stdin.take().context("the worker has no input")?;
        Ok((self, Wire::new(reader, writer)))
    }

    fn finish(&mut self, failed: bool) {
        if failed {
            // Already gone is as good.
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.finish(true);
    }
}

fn start(spec: &Spec, role: Role) -> Result<Worker> {
    let spec = Spec {
        role,
        ..spec.clone()
    };
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let child = Command::new(program)
        .args(arguments(&spec)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Ok(Worker(
        child.context("cannot start this program as a worker")?,
    ))
}

/// How long a row of this pace may take, its start not counted.
pub(crate) fn lasts(pace: Pace) -> Duration {
    match pace {
        Pace::Seconds(seconds) => Duration::from_secs_f64(seconds),
        Pace::Iterations(_) => ITERATIONS_TIME_MAX,
    }
}

/// Ends the process if its work does not end: the last resort against an end that spins for ever.
fn watch(pace: Pace) {
    let limit = lasts(pace) + GRACE;
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("portolan bench: an end did not finish within {limit:?}");
        std::process::exit(1);
    });
}
