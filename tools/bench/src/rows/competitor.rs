// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of another library's row.
//!
//! It runs the library's program ([`crate::competitor`]) on this end's host and core, exchanges the
//! addresses of the two programs, and reads the driver's times.

use crate::args::{Metric, Path};
use crate::competitor::Competitor;
use crate::control::Offer;
use crate::end::End;
use crate::measure::{Pace, Pass, SHM_BATCH, Sample, sample_of};
use crate::spec::window;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path as FilePath;
use std::process::{Child, Command, Stdio};

/// Bytes of the longest address in hexadecimal digits, including the line break (`NAME_LEN_MAX` of
/// `work.h`).
const NAME_LEN_MAX: u64 = 2 * 8192 + 1;

/// Runs the end.
///
/// # Errors
/// The library has no such transport here, or its program fails.
pub(crate) fn run(
    end: &mut End,
    competitor: Competitor,
    (metric, path): (Metric, Path),
) -> Result<Option<Sample>> {
    let pass = pass_of(metric, path, end.spec.size);
    let times = tempfile::NamedTempFile::new().context("cannot create a file for the times")?;
    let mut command = command(end, competitor, path)?;
    command
        .args(arguments(end, competitor, (metric, path), pass))
        .arg("-o")
        .arg(times.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn();
    let mut program = Program(child.context("cannot start the library's program")?);
    if let Err(error) = exchange_addresses(end, &mut program.0) {
        // The program's own error is more precise than the lost connection.
        program.end()?;
        return Err(error);
    }
    program.end()?;
    if !end.drives() {
        return Ok(None);
    }
    sample(pass, times.path()).map(Some)
}

/// The library's program, which is killed on drop so that it is not left spinning.
struct Program(Child);

impl Program {
    /// Waits for the program to exit.
    fn end(&mut self) -> Result<()> {
        // A program that still waits for an address reads end of file.
        drop(self.0.stdin.take());
        let mut errors_text = String::new();
        if let Some(mut errors) = self.0.stderr.take() {
            // Output that is not valid UTF-8 is ignored.
            let _ = errors.read_to_string(&mut errors_text);
        }
        let status = self.0.wait()?;
        if status.success() {
            return Ok(());
        }
        let line = errors_text.lines().rfind(|line| !line.trim().is_empty());
        bail!("{}", line.map_or_else(|| status.to_string(), str::to_owned))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Errors mean that the program has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pass_of(metric: Metric, path: Path, size: usize) -> Pass {
    match (metric, path) {
        (Metric::Pingpong, Path::Shm) => Pass::round_trips(SHM_BATCH),
        (Metric::Pingpong, _) => Pass::round_trips(1),
        _ => Pass::one_way(window(size)),
    }
}

/// Returns the command of the program. In a lab's host it has that host's `/sys`, where UCX
/// searches for interfaces.
fn command(end: &End, competitor: Competitor, path: Path) -> Result<Command> {
    let file = end.spec.program_file.as_ref();
    let file = file.context("the library's program was not built")?;
    let here = end.here();
    let mut command = match &here.netns {
        Some(netns) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", netns]).arg(file);
            command
        }
        None => Command::new(file),
    };
    command.envs(competitor.environment(path, &here.interface));
    Ok(command)
}

fn arguments(
    end: &End,
    competitor: Competitor,
    (metric, path): (Metric, Path),
    pass: Pass,
) -> Vec<String> {
    let role = if end.drives() { "drive" } else { "answer" };
    let mode = match metric {
        Metric::Pingpong => "latency",
        _ => "window",
    };
    let messages = pass.messages.to_string();
    let (batch, window) = match metric {
        Metric::Pingpong => (messages, "1".into()),
        _ => ("1".into(), messages),
    };
    let size = end.spec.size.to_string();
    let mut args = [
        role,
        mode,
        "-m",
        &size,
        "-b",
        &batch,
        "-w",
        &window,
        "-p",
        competitor.provider(),
    ]
    .map(str::to_owned)
    .to_vec();
    if path != Path::Shm {
        args.extend(["-a".into(), end.here().addr.to_string()]);
    }
    args.extend(match end.spec.pace {
        Pace::Seconds(seconds) => ["-t".into(), seconds.to_string()],
        Pace::Iterations(count) => {
            let passes = count.div_ceil(pass.messages).max(1);
            ["-n".into(), passes.to_string()]
        }
    });
    args
}

/// Exchanges the addresses of this end's program and the other end's.
fn exchange_addresses(end: &mut End, child: &mut Child) -> Result<()> {
    let output = child.stdout.as_mut().context("the program has no output")?;
    let mut name = String::new();
    BufReader::new(output.take(NAME_LEN_MAX)).read_line(&mut name)?;
    ensure!(
        name.ends_with('\n'),
        "the library's program printed no address"
    );
    let other = end.exchange(&Offer {
        name: Some(name.trim().to_owned()),
        ..Offer::default()
    })?;
    let other = other
        .name
        .context("the other end's program has no address")?;
    ensure!(
        other.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "the other end's address is invalid"
    );
    let input = child.stdin.as_mut().context("the program has no input")?;
    writeln!(input, "{other}").context("the library's program has exited")
}

fn sample(pass: Pass, file: &FilePath) -> Result<Sample> {
    let text = fs::read_to_string(file).context("cannot read the times")?;
    let passes = text
        .lines()
        .map(|line| line.parse::<u64>().context("a time is not a number"));
    let passes = passes.collect::<Result<Vec<u64>>>()?;
    ensure!(!passes.is_empty(), "the driving program wrote no times");
    sample_of(pass, &passes)
}
