// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hidden command that runs one end of a row, and the start of both ends of a bare row.

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

/// Time that an end may take beyond its measurement: its start, warm-up, and a silence that it
/// reports itself. If other processes need the cores, a round trip takes scheduler slices of about
/// 3 ms, and a warm-up has 10,000 of them.
pub const GRACE: Duration = Duration::from_secs(120);

/// Time limit of an end that measures a number of messages.
const ITERATIONS_TIME_MAX: Duration = Duration::from_secs(600);

/// Options of the hidden command.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// Work of the end, as JSON.
    #[arg(long)]
    spec: String,
}

/// Runs the hidden command.
///
/// # Errors
/// The specification is invalid, or the command that waits for the report has exited. Failures of a
/// bare row's work are in its report instead.
pub fn work(args: &WorkerArgs) -> Result<ExitCode> {
    let spec: Spec = serde_json::from_str(&args.spec).context("--spec is not a specification")?;
    watch(spec.pace);
    match spec.program {
        Program::Portolan(metric, _) => portolan_rows::work(&spec, metric)?,
        Program::Interface(interface, metric, _) => interface::work(&spec, interface, metric)?,
        _ => {
            // A bare end must not outlive the command, because it may be spinning on a core.
            set_pdeathsig(Signal::SIGKILL).context("prctl(PR_SET_PDEATHSIG)")?;
            End::work(spec, Wire::new(stdin(), stdout()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the arguments that run this program as an end.
///
/// # Errors
/// A path in `spec` is not valid UTF-8.
pub(crate) fn arguments(spec: &Spec) -> Result<[String; 3]> {
    Ok([
        COMMAND.into(),
        "--spec".into(),
        serde_json::to_string(spec)?,
    ])
}

/// Runs both ends of a bare row as processes and returns the driver's sample. The answerer runs at
/// `remote` if there is one.
///
/// # Errors
/// The ends report an error, or they cannot be started.
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

/// A process that is killed on drop, so that no end is left spinning.
struct Worker(Child);

impl Worker {
    fn into_parts(mut self) -> Result<(Self, Wire)> {
        let reader = self.0.stdout.take().context("the worker has no output")?;
        let writer = self.0.stdin.take().context("the worker has no input")?;
        Ok((self, Wire::new(reader, writer)))
    }

    fn finish(&mut self, failed: bool) {
        if failed {
            // An error means that the process has already exited.
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
    let program = std::env::current_exe().context("cannot find this program's executable file")?;
    let child = Command::new(program)
        .args(arguments(&spec)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Ok(Worker(
        child.context("cannot start this program as a worker")?,
    ))
}

/// Returns the maximum duration of a row with this pace, without its start.
pub(crate) fn lasts(pace: Pace) -> Duration {
    match pace {
        Pace::Seconds(seconds) => Duration::from_secs_f64(seconds),
        Pace::Iterations(_) => ITERATIONS_TIME_MAX,
    }
}

/// Terminates the process when the time limit has passed, as a last resort against an end that
/// spins forever.
fn watch(pace: Pace) {
    let limit = lasts(pace) + GRACE;
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("portolan bench: an end did not finish within {limit:?}");
        std::process::exit(1);
    });
}
