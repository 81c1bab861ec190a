// SPDX-License-Identifier: MIT OR Apache-2.0
//! Portolan's own rows: a job of two ranks, of which rank 0 measures.
//!
//! The payloads, windows and checks are those of the bare rows. Rank 0 leaves its sample in a file, because
//! a job's standard output belongs to the launcher.

use super::args::{Metric, Path};
use super::measure::{SHM_BATCH, Sample, Turn, drive};
use super::pattern::{Flags, stamp, verify};
use super::place::{Place, pin};
use super::rows::turn_flags;
use super::spec::{Program, Role, Spec, window};
use super::worker;
use anyhow::{Context, Result, ensure};
use portolan::{Buffer, Node, PortConfig, Target};
use std::cell::Cell;
use std::fs;
use std::rc::Rc;

/// Port that carries messages to the answerer, and port that carries answers back.
const DATA: u16 = 1;
const ANSWERS: u16 = 2;

/// The receiver's word that a window has arrived; four bytes, as in the OSU benchmarks.
const ACK: [u8; 4] = *b"done";

/// Marks the number of the last small message.
const LAST: u64 = 1 << 63;

/// A job of two ranks for the launcher to run to its end.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// This program's own file, and its arguments; the same for both ranks.
    pub(crate) command: Vec<String>,
    /// Hosts of rank 0 and rank 1.
    pub(crate) hosts: &'a [Place; 2],
    /// What `--path` of `portolan run` would be.
    pub(crate) path: Path,
}

/// Runs the row's job by `run_job` and returns rank 0's sample.
///
/// # Errors
/// The job fails, or leaves no sample.
pub(crate) fn run(
    spec: &mut Spec,
    path: Path,
    run_job: &dyn Fn(&Job<'_>) -> Result<()>,
) -> Result<Sample> {
    let result = tempfile::NamedTempFile::new().context("cannot make a file for the result")?;
    spec.result = Some(result.path().to_path_buf());
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let program = program
        .to_str()
        .context("this program's own file has a name that is not text")?;
    let mut command = vec![program.to_owned()];
    command.extend(worker::arguments(spec)?);
    run_job(&Job {
        command,
        hosts: &spec.hosts,
        path,
    })?;
    let text = fs::read_to_string(result.path()).context("cannot read the result")?;
    serde_json::from_str(&text).context("rank 0 left no result")
}

/// Is one rank of such a job.
///
/// # Errors
/// A message was wrong, the other rank is gone, or the result cannot be written.
pub(crate) fn work(spec: &Spec, metric: Metric) -> Result<()> {
    let mut node = Node::join()?;
    ensure!(node.size() == 2, "a row has two ranks, not {}", node.size());
    let role = if node.rank() == 0 {
        Role::Driver
    } else {
        Role::Answerer
    };
    if let Some(cores) = spec.cores {
        pin(cores[role.index()]).context("cannot pin to a core")?;
    }
    let sample = match (metric, role) {
        (Metric::Pingpong, Role::Driver) => Some(serve(&mut node, spec)?),
        (Metric::Pingpong, Role::Answerer) => answer(&mut node, spec)?,
        (Metric::Stream, Role::Driver) => Some(send_stream(&mut node, spec)?),
        (Metric::Stream, Role::Answerer) => receive_stream(&mut node, spec)?,
        (Metric::Rate, Role::Driver) => Some(send_rate(&mut node, spec)?),
        (Metric::Rate, Role::Answerer) => receive_rate(&mut node, spec)?,
    };
    if let (Some(sample), Some(path)) = (sample, &spec.result) {
        fs::write(path, serde_json::to_vec(&sample)?)
            .with_context(|| format!("cannot write the result to {}", path.display()))?;
    }
    Ok(())
}

fn serve(node: &mut Node, spec: &Spec) -> Result<Sample> {
    node.open(ANSWERS, PortConfig::default())?;
    node.barrier()?;
    let (mut tx, mut rx) = (vec![0; spec.size], vec![0; spec.size]);
    let mut seq = 0;
    let messages = if uses_memory(spec) { SHM_BATCH } else { 1 };
    drive(
        spec.pace,
        Turn {
            messages,
            halves: 2,
        },
        |last| {
            for index in 1..=messages {
                let flags = turn_flags(seq, last && index == messages);
                stamp(&mut tx, seq, flags);
                node.send(Target::new(1, DATA), &tx)?;
                let received = node.recv(ANSWERS, &mut rx)?;
                ensure!(
                    received.len == rx.len(),
                    "an answer of {} bytes",
                    received.len
                );
                ensure!(
                    verify(&rx, seq)? == flags,
                    "the answer's flags are not the question's"
                );
                seq += 1;
            }
            Ok(())
        },
    )
}

fn answer(node: &mut Node, spec: &Spec) -> Result<Option<Sample>> {
    node.open(DATA, PortConfig::default())?;
    node.barrier()?;
    let (mut tx, mut rx) = (vec![0; spec.size], vec![0; spec.size]);
    let mut flags = Flags::NONE;
    let mut seq = 0;
    while !flags.last {
        let received = node.recv(DATA, &mut rx)?;
        ensure!(
            received.len == rx.len(),
            "a message of {} bytes",
            received.len
        );
        flags = verify(&rx, seq)?;
        stamp(&mut tx, seq, flags);
        node.send(Target::new(0, ANSWERS), &tx)?;
        seq += 1;
    }
    Ok(None)
}

/// The message is written once a window and not while any send of it is under way.
fn send_stream(node: &mut Node, spec: &Spec) -> Result<Sample> {
    node.open(ANSWERS, PortConfig::default())?;
    node.barrier()?;
    let messages = window(spec.size);
    let mut message = vec![0; spec.size];
    let mut seq = 0;
    let mut requests = Vec::with_capacity(usize::try_from(messages)?);
    drive(
        spec.pace,
        Turn {
            messages,
            halves: 1,
        },
        |last| {
            stamp(&mut message, seq, turn_flags(seq, last));
            seq += 1;
            let shared = Buffer::shared(std::mem::take(&mut message));
            for _ in 0..messages {
                requests.push(node.isend(Target::new(1, DATA), shared.clone())?);
            }
            for request in requests.drain(..) {
                node.wait(request)?;
            }
            message = shared
                .into_vec()
                .context("a completed send still holds its buffer")?;
            await_ack(node)
        },
    )
}

fn receive_stream(node: &mut Node, spec: &Spec) -> Result<Option<Sample>> {
    node.open(DATA, PortConfig::default())?;
    node.barrier()?;
    let mut message = vec![0; spec.size];
    let mut flags = Flags::NONE;
    let mut seq = 0;
    while !flags.last {
        for _ in 0..window(spec.size) {
            let received = node.recv(DATA, &mut message)?;
            ensure!(
                received.len == message.len(),
                "a message of {} bytes",
                received.len
            );
            flags = verify(&message, seq)?;
        }
        seq += 1;
        node.send(Target::new(0, ANSWERS), &ACK)?;
    }
    Ok(None)
}

/// Small messages are sent by the blocking call, whose buffer is free again when it returns: what is ready
/// together, the library joins.
fn send_rate(node: &mut Node, spec: &Spec) -> Result<Sample> {
    node.open(ANSWERS, PortConfig::default())?;
    node.barrier()?;
    let messages = window(spec.size);
    let mut message = vec![0; spec.size];
    let mut number = 0_u64;
    drive(
        spec.pace,
        Turn {
            messages,
            halves: 1,
        },
        |last| {
            for _ in 0..messages {
                number += 1;
                let mark = number | if last { LAST } else { 0 };
                message[..8].copy_from_slice(&mark.to_le_bytes());
                node.send(Target::new(1, DATA), &message)?;
            }
            await_ack(node)
        },
    )
}

/// A receiver handler counts and checks; the loop answers each full window.
fn receive_rate(node: &mut Node, spec: &Spec) -> Result<Option<Sample>> {
    let seen = Rc::new(Tally::default());
    let (tally, size) = (Rc::clone(&seen), spec.size);
    node.open_active(DATA, PortConfig::default(), move |_, message| {
        tally.count(message.bytes(), size);
    })?;
    node.barrier()?;
    let messages = window(spec.size);
    let mut answered = 0;
    while !(seen.last.get() && answered == seen.number.get()) {
        node.progress()?;
        ensure!(
            !seen.wrong.get(),
            "message {} is not the one expected",
            seen.number.get()
        );
        if seen.number.get() >= answered + messages {
            answered += messages;
            node.send(Target::new(0, ANSWERS), &ACK)?;
        }
    }
    Ok(None)
}

/// What the handler of the rate row has seen.
#[derive(Default)]
struct Tally {
    number: Cell<u64>,
    last: Cell<bool>,
    wrong: Cell<bool>,
}

impl Tally {
    fn count(&self, message: &[u8], size: usize) {
        let number = self.number.get() + 1;
        self.number.set(number);
        let mut word = [0; 8];
        if message.len() != size {
            return self.wrong.set(true);
        }
        word.copy_from_slice(&message[..8]);
        let mark = u64::from_le_bytes(word);
        self.last.set(mark & LAST != 0);
        if mark & !LAST != number {
            self.wrong.set(true);
        }
    }
}

fn await_ack(node: &mut Node) -> Result<()> {
    let mut ack = [0; ACK.len()];
    let received = node.recv(ANSWERS, &mut ack)?;
    ensure!(
        received.len == ack.len() && ack == ACK,
        "the acknowledgement is {ack:?}"
    );
    Ok(())
}

/// Whether a round trip is so short that reading the clock each time would count.
fn uses_memory(spec: &Spec) -> bool {
    matches!(spec.program, Program::Portolan(_, Path::Shm))
}
