// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of another library's row.
//!
//! It runs the library's program ([`crate::competitor`]) on this end's host and core, exchanges the
//! addresses of the two programs, and reads the driver's times.

use crate::args::{Metric, Path};
use crate::competitor::Competitor;
use crate::control::Offer;
use crate::end::End;
use crate::measure::{Pace, SHM_BATCH, Sample, Turn, sample_of};
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
    let turn = turn_of(metric, path, end.spec.size);
    let times = tempfile::NamedTempFile::new().context("cannot make a file for the times")?;
    let mut command = command(end, competitor, path)?;
    command
        .args(arguments(end, competitor, (metric, path), turn))
        .arg("-o")
        .arg(times.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn();
    let mut program = Program(child.context("cannot start the library's program")?);
    if let Err(error) = introduce(end, &mut program.0) {
        // The program's own error is more precise than the lost connection.
        program.end()?;
        return Err(error);
    }
    program.end()?;
    if !end.drives() {
        return Ok(None);
    }
    sample(turn, times.path()).map(Some)
}

/// The library's program, which is killed on drop so that it is not left spinning.
struct Program(Child);

impl Program {
    /// Waits for the program to exit.
    fn end(&mut self) -> Result<()> {
        // A program that still waits for an address reads end of file.
        drop(self.0.stdin.take());
        let mut said = String::new();
        if let Some(mut errors) = self.0.stderr.take() {
            // Output that is not valid UTF-8 is ignored.
            let _ = errors.read_to_string(&mut said);
        }
        let status = self.0.wait()?;
        if status.success() {
            return Ok(());
        }
        let line = said.lines().rfind(|line| !line.trim().is_empty());
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

fn turn_of(metric: Metric, path: Path, size: usize) -> Turn {
    match (metric, path) {
        (Metric::Pingpong, Path::Shm) => Turn::round_trips(SHM_BATCH),
        (Metric::Pingpong, _) => Turn::round_trips(1),
        _ => Turn::one_way(window(size)),
    }
}

/// Returns the command of the program. In a lab's host it has that host's `/sys`, where UCX
/// searches for interfaces.
fn command(end: &End, competitor: Competitor, path: Path) -> Result<Command> {
    let file = end.spec.program_file.as_ref();
    let file = file.context("nobody has built the library's program")?;
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
    turn: Turn,
) -> Vec<String> {
    let role = if end.drives() { "drive" } else { "answer" };
    let word = match metric {
        Metric::Pingpong => "latency",
        _ => "window",
    };
    let messages = turn.messages.to_string();
    let (batch, window) = match metric {
        Metric::Pingpong => (messages, "1".into()),
        _ => ("1".into(), messages),
    };
    let size = end.spec.size.to_string();
    let mut args = [
        role,
        word,
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
            let turns = count.div_ceil(turn.messages).max(1);
            ["-n".into(), turns.to_string()]
        }
    });
    args
}

/// Exchanges the addresses of this end's program and the other end's.
fn introduce(end: &mut End, child: &mut Child) -> Result<()> {
    let output = child.stdout.as_mut().context("the program has no output")?;
    let mut name = String::new();
    BufReader::new(output.take(NAME_LEN_MAX)).read_line(&mut name)?;
    ensure!(name.ends_with('\n'), "the library's program says no name");
    let other = end.exchange(&Offer {
        name: Some(name.trim().to_owned()),
        ..Offer::default()
    })?;
    let other = other.name.context("the other end's program has no name")?;
    ensure!(
        other.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "the other end's name is none"
    );
    let input = child.stdin.as_mut().context("the program has no input")?;
    writeln!(input, "{other}").context("the library's program is gone")
}

fn sample(turn: Turn, file: &FilePath) -> Result<Sample> {
    let text = fs::read_to_string(file).context("cannot read the times")?;
    let turns = text
        .lines()
        .map(|line| line.parse::<u64>().context("a time is no number"));
    let turns = turns.collect::<Result<Vec<u64>>>()?;
    ensure!(!turns.is_empty(), "the driving program left no times");
    sample_of(turn, &turns)
}
