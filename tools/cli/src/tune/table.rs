// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of `portolan tune` as text.

use super::points::{Kind, Variant};
use super::report::{ErrorSummary, PiecesRow, Report};
use portolan::binding::model::{PathModel, Stage};
use portolan_bench::SiteKind;
use std::fmt::Write;

/// Formats the whole report as text. Writing to a `String` cannot fail.
pub(super) fn render(report: &Report) -> String {
    let host = &report.model.host;
    let site = match report.site {
        SiteKind::Lab => "two hosts of a temporary lab",
        SiteKind::Loopback => "this host only",
        SiteKind::Hosts => "two hosts",
    };
    let mut text = format!(
        "{}, {} cores, Linux {}, Portolan {}\n{site}, MTU {}\n",
        host.cpu, host.core_count, host.kernel, host.portolan, report.model.mtu
    );
    costs(&mut text, &report.model.paths);
    plan(&mut text, report);
    predictions(&mut text, report);
    pieces(&mut text, &report.pieces);
    error(&mut text, &report.error);
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = match &report.stored {
        Some(file) => writeln!(text, "stored in {}", file.display()),
        None => writeln!(
            text,
            "not stored (storing needs measurements of shm and udp, and no --no-store)"
        ),
    };
    text
}

fn costs(text: &mut String, paths: &[PathModel]) {
    let _ = writeln!(
        text,
        "\ncosts (us per call + us per datagram + ns per byte)\n{:7} {:10} {:>24} {:>24} {:>24}",
        "path", "protocol", "sender", "wire", "receiver"
    );
    for path in paths {
        let protocols = [
            ("eager", Some(&path.eager)),
            ("rendezvous", path.rendezvous.as_ref()),
        ];
        for (protocol, stages) in protocols {
            let Some(stages) = stages else { continue };
            let _ = writeln!(
                text,
                "{:7} {protocol:10} {:>24} {:>24} {:>24}",
                path.path,
                stage(&stages.sender),
                stage(&stages.wire),
                stage(&stages.receiver)
            );
        }
        if path.rendezvous.is_some() {
            let _ = writeln!(
                text,
                "{:7} the rendezvous itself costs {:.2} us",
                "", path.rendezvous_us
            );
        }
    }
}

fn stage(stage: &Stage) -> String {
    format!(
        "{:.2} + {:.3} + {:.3}",
        stage.per_call_us, stage.per_datagram_us, stage.per_byte_ns
    )
}

fn plan(text: &mut String, report: &Report) {
    let _ = writeln!(
        text,
        "\nmessage size -> path and fragments, for a single message\n\
         {:>8} {:7} {:10} {:>9} {:>11} {:>13} {:>12}",
        "size", "path", "rendezvous", "fragment", "bytes/call", "predicted us", "measured us"
    );
    for row in &report.plan {
        let _ = writeln!(
            text,
            "{:>8} {:7} {:10} {:>9} {:>11} {:>13.2} {:>12.2}",
            row.len,
            row.path,
            if row.is_rendezvous { "yes" } else { "no" },
            row.fragment_len,
            row.lone_call_len,
            row.predicted_us,
            row.measured_us
        );
    }
}

fn predictions(text: &mut String, report: &Report) {
    let _ = writeln!(
        text,
        "\npredicted and measured (* not used in the fit)\n{:7} {:>9} {:7} {:10} {:>13} {:>12} {:>7}",
        "path", "size", "load", "variant", "predicted us", "measured us", "error"
    );
    for row in &report.rows {
        let variant = match row.variant {
            Variant::Default => "default",
            Variant::Rendezvous => "rendezvous",
            Variant::Frames => "frames",
            Variant::Short(_) => "short",
            Variant::Pieces(_) => continue,
        };
        let load = match row.kind {
            Kind::Lone => "single",
            _ => "stream",
        };
        let _ = writeln!(
            text,
            "{:7} {:>8}{} {load:7} {variant:10} {:>13.2} {:>12.2} {:>+6.0}%",
            row.path,
            row.len,
            if row.fitted { ' ' } else { '*' },
            row.predicted_us,
            row.measured_us,
            row.error * 100.0
        );
    }
}

fn pieces(text: &mut String, rows: &[PiecesRow]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nsingle messages in pieces, so that both ends work at once (us: predicted/measured; the\n\
         stream is predicted with every message cut, and measured with the choice by load)\n\
         {:>8} {:>10} {:>17} {:>17} {:>17} {:>17}",
        "size", "bytes/call", "single, whole", "single, pieces", "stream, whole", "stream, pieces"
    );
    for row in rows {
        let pairs = [
            row.lone_whole,
            row.lone_pieces,
            row.stream_whole,
            row.stream_pieces,
        ];
        let _ = write!(text, "{:>8} {:>10}", row.len, row.call_len);
        for pair in pairs {
            let both = format!("{:.1}/{:.1}", pair.predicted_us, pair.measured_us);
            let _ = write!(text, " {both:>17}");
        }
        let _ = writeln!(text, "{}", if row.chosen { "  chosen" } else { "" });
    }
    if !rows.iter().any(|row| row.chosen) {
        let _ = writeln!(
            text,
            "Pieces gain nothing at any size on this machine: messages are sent whole."
        );
    }
}

fn error(text: &mut String, error: &ErrorSummary) {
    let percent = |part: f64| part * 100.0;
    let _ = writeln!(
        text,
        "\nerror of the model: single messages {:.0}% (median), {:.0}% at most, {:.0}% of them within \
         a quarter; at sizes not used in the fit {:.0}% and {:.0}%; streams {:.0}% and {:.0}%",
        percent(error.lone_median),
        percent(error.lone_max),
        percent(error.lone_within_quarter),
        percent(error.unseen_median),
        percent(error.unseen_max),
        percent(error.stream_median),
        percent(error.stream_max)
    );
}
