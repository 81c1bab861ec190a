// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shape of a cast: the requested one, or the model's choice. With `--explain` a short job on the
//! same hosts measures the model's rates. Otherwise the rates are assumed, because measuring takes
//! longer than a better choice would save.

use crate::run::{self, Failure, Observer, Options, Stream};
use anyhow::Result;
use portolan_cast::{Cost, Event, Form, Model, Prediction, Rates, Spec};
use std::fmt::Write as _;
use std::io;
use std::time::Instant;

/// The chosen shape.
pub(super) struct Choice {
    pub(super) form: Form,
    /// Text to print before the cast, and the prediction to compare afterwards, if rates were
    /// measured.
    pub(super) explained: Option<(String, Prediction)>,
}

/// Largest number of receivers for which a chain is chosen without the model. At the assumed rates
/// the latency of such a chain is at most 50 ms. That is the smallest gain for which the model
/// chooses another shape.
const CHAIN_RECEIVERS_MAX: usize = 4;

/// Chooses a shape with assumed rates.
pub(super) fn assume(requested: Option<Form>, spec: &Spec) -> Choice {
    let form = match requested {
        Some(form) => form,
        None if spec.hosts.len() - 1 <= CHAIN_RECEIVERS_MAX => Form::CHAIN,
        None => {
            let ranks = (0..).zip(&spec.hosts);
            let rates: Vec<Rates> = ranks.map(|(rank, _)| Rates::assumed(rank)).collect();
            let model = Model {
                rates: &rates,
                size: size_of(spec),
                limit: spec.rate_limit,
                multicast: can_multicast(spec),
            };
            model.choose().form
        }
    };
    Choice {
        form,
        explained: None,
    }
}

/// Measures the rates and chooses a shape; a signal ends everything. If a host cannot be measured,
/// the rates are assumed, and the cast itself reports the cause.
pub(super) fn measure(
    requested: Option<Form>,
    spec: &Spec,
    options: &Options,
) -> Result<Result<Choice, Failure>> {
    let begin = Instant::now();
    let mut survey = Survey {
        rates: vec![None; spec.hosts.len()],
        failed: None,
    };
    let outcome = run::execute_observed(options, Some(&mut survey))?;
    if let Some(failure @ Failure::Signal(_)) = outcome.failure {
        return Ok(Err(failure));
    }
    let Some(rates) = survey.rates.into_iter().collect::<Option<Vec<Rates>>>() else {
        let why = survey
            .failed
            .unwrap_or_else(|| "a host ended before it reported its rates".to_owned());
        let choice = assume(requested, spec);
        let shape = choice.form;
        super::watch::print_stderr(&format!(
            "portolan: the rates were not measured: {why}; shape: {shape}"
        ));
        return Ok(Ok(choice));
    };
    let model = Model {
        rates: &rates,
        size: size_of(spec),
        limit: spec.rate_limit,
        multicast: can_multicast(spec),
    };
    let chosen = match requested {
        Some(form) => model.predict(form),
        None => model.choose(),
    };
    let mut text = format!(
        "measured in {:.1} s, MB/s:\n",
        begin.elapsed().as_secs_f64()
    );
    write_rates(&mut text, spec, &rates);
    write_model(&mut text, spec, &model, &chosen, requested.is_some());
    Ok(Ok(Choice {
        form: chosen.form,
        explained: Some((text, chosen)),
    }))
}

/// Returns true if multicast is possible. With `--resume` each host lacks different blocks, and
/// with `--verify` only hashes are sent.
fn can_multicast(spec: &Spec) -> bool {
    !spec.resume && !spec.verify
}

/// Returns the size of the source, if known; the cast itself reports an unreadable source.
fn size_of(spec: &Spec) -> Option<u64> {
    let size = portolan_cast::measure(&spec.source).ok().flatten()?;
    Some(size.bytes)
}

fn write_rates(text: &mut String, spec: &Spec, rates: &[Rates]) {
    let rate = |cost: Option<Cost>| {
        cost.map_or("-".to_owned(), |cost| format!("{:.0}", cost.rate() / 1e6))
    };
    let columns = ["host", "read", "hash", "send", "receive", "store"];
    let mut rows = vec![columns.map(str::to_owned)];
    for (host, rates) in spec.hosts.iter().zip(rates) {
        rows.push([
            host.clone(),
            rate(rates.read),
            rate(Some(rates.hash)),
            rate(rates.send),
            rate(rates.receive),
            rate(rates.write),
        ]);
    }
    write_table(text, &rows);
}

fn write_model(
    text: &mut String,
    spec: &Spec,
    model: &Model<'_>,
    chosen: &Prediction,
    is_requested: bool,
) {
    let mut rows = vec![["shape", "MB/s", "seconds", "limited by"].map(str::to_owned)];
    let mut compared = model.compare();
    if !compared.contains(chosen) {
        compared.push(chosen.clone());
    }
    for it in &compared {
        rows.push([
            it.form.to_string(),
            format!("{:.0}", it.bytes_per_sec / 1e6),
            it.seconds
                .map_or("-".to_owned(), |seconds| format!("{seconds:.2}")),
            it.bound.describe(&spec.hosts),
        ]);
    }
    text.push_str("model (the smallest capacity / uses of all resources):\n");
    write_table(text, &rows);
    let shape = chosen.form;
    let by = if is_requested {
        "as requested"
    } else {
        "by the model"
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "shape: {shape}, {by}");
}

/// Writes a table with columns as wide as their widest cell.
fn write_table<const COUNT: usize>(text: &mut String, rows: &[[String; COUNT]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for row in rows {
        let cells = row.iter().enumerate();
        let cells = cells.map(|(column, cell)| format!("{cell:<0$}", width(column)));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Compares the prediction with the bytes and seconds of the slowest host.
pub(super) fn compare(predicted: &Prediction, bytes: u64, seconds: f64) -> String {
    let rate = bytes as f64 / seconds.max(1e-9) / 1e6;
    let expected = predicted
        .seconds
        .unwrap_or(bytes as f64 / predicted.bytes_per_sec);
    format!(
        "predicted {expected:.2} s, {:.0} MB/s; took {seconds:.2} s, {rate:.0} MB/s: {:.2} of the time \
         predicted",
        predicted.bytes_per_sec / 1e6,
        seconds / expected.max(1e-9)
    )
}

/// Rates that the hosts measured.
struct Survey {
    rates: Vec<Option<Rates>>,
    failed: Option<String>,
}

impl Observer for Survey {
    fn on_output(&mut self, rank: u32, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let lines = bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        for line in lines.filter(|_| stream != Stream::Out) {
            match serde_json::from_slice(line) {
                Ok(Event::Surveyed(rates)) => {
                    if let Some(place) = self.rates.get_mut(rank as usize) {
                        *place = Some(rates);
                    }
                }
                Ok(Event::Failed { why }) => drop(self.failed.get_or_insert(why)),
                _ => super::watch::print_stderr(&String::from_utf8_lossy(line)),
            }
        }
        Ok(())
    }

    fn on_ended(&mut self, _: u32, cause: Option<String>) {
        if let Some(cause) = cause {
            self.failed.get_or_insert(cause);
        }
    }

    fn on_time(&mut self, _: Instant) {}

    /// Ends the job once a host has failed: a stopped host would never end.
    fn is_satisfied(&self) -> bool {
        self.failed.is_some()
    }
}
