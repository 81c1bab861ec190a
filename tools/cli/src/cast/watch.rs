// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports from the hosts of a cast, collected for users and for programs.

use super::choice;
use super::progress::{Progress, Row, amount};
use crate::run::{Failure, Observer, Stream};
use anyhow::Result;
use portolan_cast::{Bound, Done, Event, Prediction, Size, Spec, Target};
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

/// State of a host.
#[derive(Debug, Default)]
struct State {
    stored: Size,
    bound: Option<Bound>,
    done: Option<Done>,
    /// The host's own reason for having no copy.
    failed: Option<String>,
    /// The other hosts' reason for giving it up.
    bypassed: Option<String>,
    has_ended: bool,
}

impl State {
    /// Returns true if the host has no copy and the reason is known.
    fn has_reason(&self) -> bool {
        self.done.is_none() && (self.failed.is_some() || self.bypassed.is_some())
    }
}

/// A line of `--json`: an event that a host reported.
#[derive(Serialize)]
struct Line<'a> {
    host: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// The hosts of a cast.
pub(super) struct Watch {
    hosts: Vec<String>,
    states: Vec<State>,
    lost: Vec<(String, String)>,
    json: bool,
    /// Set if standard output carries the data.
    is_data_out: bool,
    /// Set if copies are compared instead of made.
    verify: bool,
    progress: Progress,
    /// Prediction of the model, if rates were measured.
    pub(super) predicted: Option<Prediction>,
}

impl Watch {
    pub(super) fn new(spec: &Spec, lost: &[(String, String)], json: bool) -> Watch {
        Watch {
            hosts: spec.hosts.clone(),
            states: spec.hosts.iter().map(|_| State::default()).collect(),
            lost: lost.to_vec(),
            json,
            is_data_out: spec.target == Target::StandardOutput,
            verify: spec.verify,
            progress: Progress::new(Instant::now(), json),
            predicted: None,
        }
    }

    /// Returns the failure that a host reported.
    pub(super) fn failure_of(&self, rank: u32) -> Option<String> {
        self.states.get(rank as usize)?.failed.clone()
    }

    /// Prints the result of the cast.
    pub(super) fn finish(mut self, failure: Option<Failure>) -> Result<ExitCode> {
        self.progress.clear();
        if let Some(failure @ (Failure::Signal(_) | Failure::WriteError(_))) = &failure {
            print_stderr(&format!("portolan: {failure}"));
            let status = u8::try_from(failure.status() & 0xff).unwrap_or(1);
            return Ok(ExitCode::from(status.max(1)));
        }
        let mut without_copy = self.lost.len();
        // A failure of the source explains the failures of all receivers. A finished source may
        // still end with an error, for example that of a host that it gave up.
        let source = &self.states[0];
        let source_failed = source.failed.is_some() && source.done.is_none();
        for (state, host) in self.states.iter().zip(&self.hosts) {
            let is_source = std::ptr::eq(state, &self.states[0]);
            if let Some(done) = &state.done {
                without_copy +=
                    usize::from(done.checked.is_some_and(|checked| checked.differing > 0));
                continue;
            }
            without_copy += usize::from(!is_source);
            let why = state.failed.as_ref().or(state.bypassed.as_ref());
            // A source that has lost all receivers ends; the loss of each receiver is reported
            // instead.
            if is_source && why.is_none() && self.states[1..].iter().all(State::has_reason) {
                continue;
            }
            let why = why.map_or("it ended without a report", String::as_str);
            match (is_source, source_failed) {
                (true, _) => print_stderr(&format!("portolan: the source on {host} failed: {why}")),
                (false, false) => print_stderr(&no_copy_line(host, why, self.verify)),
                (false, true) => {}
            }
        }
        self.report()?;
        self.print_prediction()?;
        let is_whole = without_copy == 0 && self.states[0].done.is_some();
        Ok(ExitCode::from(u8::from(!is_whole)))
    }

    fn report(&self) -> Result<()> {
        if self.json {
            return Ok(());
        }
        for (host, state) in self.hosts.iter().zip(&self.states).skip(1) {
            if let Some(done) = &state.done {
                let line = format!("{host}: {}", summary(done));
                match self.is_data_out {
                    true => print_stderr(&line),
                    false => crate::output::outln!("{line}")?,
                }
            }
        }
        Ok(())
    }

    /// Prints the prediction next to the measured time of the slowest host, which the model
    /// predicts.
    fn print_prediction(&self) -> Result<()> {
        let done = self.states[1..]
            .iter()
            .filter_map(|state| state.done.as_ref());
        let slowest = done.max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let (Some(predicted), Some(done)) = (&self.predicted, slowest) else {
            return Ok(());
        };
        let line = choice::compare(predicted, done.bytes, done.seconds);
        match self.json || self.is_data_out {
            true => print_stderr(&line),
            false => crate::output::outln!("{line}")?,
        }
        Ok(())
    }

    fn handle_event(&mut self, rank: u32, event: Event) -> io::Result<()> {
        if self.json {
            let host = self.hosts.get(rank as usize).map_or("", String::as_str);
            let mut line = serde_json::to_vec(&Line {
                host,
                event: &event,
            })?;
            line.push(b'\n');
            self.print(&line)?;
        }
        let Some(state) = self.states.get_mut(rank as usize) else {
            return Ok(());
        };
        match event {
            Event::Size { bytes, entries } => self.progress.set_size(Size { entries, bytes }),
            Event::Progress {
                bytes,
                entries,
                bound,
                ..
            } => {
                state.stored = Size { entries, bytes };
                state.bound = Some(bound);
                if entries > 0 && rank > 0 {
                    self.progress.note_begin(Instant::now());
                }
            }
            Event::Done(done) => state.done = Some(done),
            Event::Failed { why } => state.failed = Some(why),
            Event::Warning { text } => {
                print_stderr(&format!("portolan: {}: {text}", self.hosts[rank as usize]));
            }
            Event::Bypassed { rank, why } => {
                if let Some(state) = self.states.get_mut(rank as usize) {
                    state.bypassed.get_or_insert(why);
                }
            }
            Event::Differs { path, why } if !self.json => {
                self.progress.clear();
                let host = &self.hosts[rank as usize];
                self.print(format!("{host}: {path} {why}\n").as_bytes())?;
            }
            Event::Differs { .. } | Event::Surveyed(_) => {}
        }
        Ok(())
    }

    /// Prints to standard output, or to standard error if standard output carries the data.
    fn print(&self, bytes: &[u8]) -> io::Result<()> {
        match self.is_data_out {
            true => io::stderr().write_all(bytes),
            false => io::stdout().write_all(bytes),
        }
    }
}

impl Observer for Watch {
    fn on_output(&mut self, rank: u32, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if stream == Stream::Out {
            let mut out = io::stdout().lock();
            return out.write_all(bytes).and_then(|()| out.flush());
        }
        for line in bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            match serde_json::from_slice(line) {
                Ok(event) => self.handle_event(rank, event)?,
                Err(_) => {
                    let host = self.hosts.get(rank as usize).map_or("", String::as_str);
                    print_stderr(&format!("{host}: {}", String::from_utf8_lossy(line)));
                }
            }
        }
        Ok(())
    }

    fn on_ended(&mut self, rank: u32, cause: Option<String>) {
        let Some(state) = self.states.get_mut(rank as usize) else {
            return;
        };
        state.has_ended = true;
        if let Some(cause) = cause {
            state.failed.get_or_insert(cause);
        }
    }

    fn on_time(&mut self, now: Instant) {
        let receivers = self.hosts.iter().zip(&self.states).skip(1);
        let waited_for = receivers.filter(|(_, state)| {
            state.done.is_none() && !state.has_ended && state.bypassed.is_none()
        });
        let rows = waited_for.map(|(host, state)| Row {
            host,
            stored: state.stored,
            bound: state.bound,
        });
        self.progress.show(now, rows);
    }

    fn is_satisfied(&self) -> bool {
        let mut others = self
            .states
            .iter()
            .filter(|state| !state.has_ended)
            .peekable();
        // A host that other hosts gave up may be stopped, and would never end.
        others.peek().is_some() && others.all(|state| state.bypassed.is_some())
    }
}

/// Describes a host that has no copy or was not compared, with the reason.
pub(super) fn no_copy_line(host: &str, why: &str, verify: bool) -> String {
    match verify {
        true => format!("portolan: {host} was not checked: {why}"),
        false => format!("portolan: {host} gets no copy: {why}"),
    }
}

fn count_of(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn summary(done: &Done) -> String {
    let rate = amount(done.bytes as f64 / done.seconds.max(1e-9));
    let bytes = amount(done.bytes as f64);
    let entries = match (done.checked, done.entries) {
        (Some(checked), entries) if checked.differing > 0 => format!(
            "DIFFERS in {} of {}, {} of {}; ",
            checked.differing,
            count_of(entries, "entry", "entries"),
            checked.differing_blocks,
            count_of(checked.blocks, "block", "blocks")
        ),
        (Some(_), entries) => format!("the same, {}, ", count_of(entries, "entry", "entries")),
        (None, 0 | 1) => String::new(),
        (None, entries) => format!("{entries} entries, "),
    };
    let fewer = match done.checked {
        None if done.wire_bytes < done.bytes - done.bytes / 20 => format!(
            ", of which {} came over the network",
            amount(done.wire_bytes as f64)
        ),
        _ => String::new(),
    };
    format!("{entries}{bytes} in {:.2} s, {rate}/s{fewer}", done.seconds)
}

/// Prints a line. If standard error cannot be written, the exit status still reports the failure.
pub(super) fn print_stderr(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
