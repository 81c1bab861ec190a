// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predictions as text.

use super::Forecast;
use portolan_predict::{Bound, Prediction};
use std::fmt::Write;

/// Formats all programs, one after the other. Writing to a `String` cannot fail.
pub(super) fn render(programs: &[Forecast]) -> String {
    let mut text = String::new();
    for program in programs {
        head(&mut text, program);
        for prediction in &program.predictions {
            line(&mut text, prediction);
        }
        foot(&mut text, program);
    }
    text
}

fn head(text: &mut String, program: &Forecast) {
    let _ = writeln!(
        text,
        "{}, {} processes: {:.4} s when profiled, {:.4} s of computing by all processes",
        program.program, program.processes, program.profiled_s, program.computing_s
    );
    let _ = writeln!(
        text,
        "{:36} {:>5} {:>10} {:>9}  {:10} {:>10} {:>10} {:>10} {:>10}",
        "network",
        "hosts",
        "s",
        "speed-up",
        "bound by",
        "latency s",
        "rate s",
        "bandw. s",
        "imbal. s"
    );
}

fn line(text: &mut String, one: &Prediction) {
    let _ = writeln!(
        text,
        "{:36} {:>5} {:>10.4} {:>9.2}  {:10} {:>10.4} {:>10.4} {:>10.4} {:>10.4}",
        one.network,
        one.hosts,
        one.seconds,
        one.speedup,
        bound_name(one.bound),
        one.latency_s,
        one.rate_s,
        one.bandwidth_s,
        one.imbalance_s
    );
}

fn bound_name(bound: Bound) -> &'static str {
    match bound {
        Bound::Computing => "computing",
        Bound::Imbalance => "imbalance",
        Bound::Latency => "latency",
        Bound::Rate => "rate",
        Bound::Bandwidth => "bandwidth",
    }
}

fn foot(text: &mut String, program: &Forecast) {
    if let Some(network) = &program.smallest {
        let _ = writeln!(
            text,
            "cheapest sufficient network (within 5 % of the best): {network}"
        );
    }
    for note in &program.notes {
        let _ = writeln!(text, "note: {note}");
    }
}
