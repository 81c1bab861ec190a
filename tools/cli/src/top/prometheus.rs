// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures as text for Prometheus, over HTTP.
//!
//! Format: <https://prometheus.io/docs/instrumenting/exposition_formats/>, version 0.0.4.

use super::sample::{Sample, Sampler};
use crate::error::UserError;
use crate::signals::{ENDING, Signals};
use anyhow::Result;
use portolan::status::{PathState, PeerState};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tiny_http::{Header, Request, Response, Server};

/// Longest wait for a request; a signal is noticed after it.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// Maximum number of answers that are being written. Further readers wait.
const ANSWERS_MAX: usize = 16;

/// Serves samples at `address` until a signal arrives.
pub(super) fn serve(sampler: &mut Sampler, address: &str) -> Result<()> {
    let signals = Signals::block(&ENDING)?;
    let socket = address.contains('/').then(|| Path::new(address));
    let server = match socket {
        Some(path) => Server::http_unix(path),
        None => Server::http(address),
    };
    let server = server.map_err(|error| {
        UserError::new(format!(
            "cannot listen at {address} ({error}): name a free HOST:PORT, or a path in a directory of yours where no \
             file exists"
        ))
    })?;
    eprintln!("portolan: serving figures at {address}");
    let writing = Arc::new(());
    while signals.next().is_none() {
        if Arc::strong_count(&writing) > ANSWERS_MAX {
            std::thread::sleep(WAIT_MAX);
        } else if let Some(request) = server.recv_timeout(WAIT_MAX)? {
            let (text, writing) = (text(&sampler.take()), Arc::clone(&writing));
            // A reader may stop reading.
            let spawned = std::thread::Builder::new().spawn(move || {
                respond(request, &text);
                drop(writing);
            });
            if let Err(error) = spawned {
                log::warn!("a reader of the figures gets no answer: {error}");
            }
        }
    }
    if let Some(path) = socket {
        // The socket is this process's own, because binding fails if a file exists.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn respond(request: Request, text: &str) {
    let mut response = Response::from_string(text);
    let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
    if let Ok(header) = kind.parse::<Header>() {
        response = response.with_header(header);
    }
    if let Err(error) = request.respond(response) {
        log::info!("a reader of the figures has hung up: {error}");
    }
}

/// Returns the samples in Prometheus's format.
pub(super) fn text(samples: &[Sample]) -> String {
    let mut out = String::new();
    let answered = |sample: &Sample| f64::from(u8::from(sample.answered));
    gauge(
        &mut out,
        "portolan_answered",
        "1 if the process answered, 0 if it computes.",
        samples,
        answered,
    );
    let names: Vec<&String> = samples
        .first()
        .map_or_else(Vec::new, |first| first.status.counters.keys().collect());
    for name in names {
        let _ = writeln!(out, "# TYPE portolan_{name}_total counter");
        for sample in samples {
            let value = sample.status.counters.get(name).copied().unwrap_or(0);
            let _ = writeln!(out, "portolan_{name}_total{{{}}} {value}", labels(sample));
        }
    }
    let _ = writeln!(out, "# TYPE portolan_drops_total counter");
    for sample in samples {
        for (reason, count) in &sample.status.drops {
            let reason = quoted(reason);
            let labels = labels(sample);
            let _ = writeln!(
                out,
                "portolan_drops_total{{{labels},reason={reason}}} {count}"
            );
        }
    }
    peer_gauge(&mut out, "waiting_grants", samples, |peer| {
        peer.waiting_grants
    });
    peer_gauge(&mut out, "transfers", samples, |peer| peer.transfers);
    path_gauge(&mut out, "up", samples, |path| {
        Some(f64::from(u8::from(path.up)))
    });
    path_gauge(&mut out, "small", samples, |path| {
        Some(f64::from(u8::from(path.small)))
    });
    path_gauge(&mut out, "bulk", samples, |path| {
        Some(f64::from(u8::from(path.bulk)))
    });
    path_gauge(&mut out, "rtt_min_seconds", samples, |path| {
        Some(path.rtt_min_us? / 1e6)
    });
    #[allow(clippy::cast_precision_loss, reason = "counts below 2^53")]
    path_gauge(&mut out, "in_flight", samples, |path| {
        Some(path.in_flight as f64)
    });
    out
}

fn gauge(
    out: &mut String,
    name: &str,
    help: &str,
    samples: &[Sample],
    of: impl Fn(&Sample) -> f64,
) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
    for sample in samples {
        let _ = writeln!(out, "{name}{{{}}} {}", labels(sample), of(sample));
    }
}

fn peer_gauge(out: &mut String, name: &str, samples: &[Sample], of: fn(&PeerState) -> u32) {
    let _ = writeln!(out, "# TYPE portolan_peer_{name} gauge");
    for sample in samples {
        for peer in &sample.status.peers {
            let labels = format!("{},peer=\"{}\"", labels(sample), peer.peer);
            let _ = writeln!(out, "portolan_peer_{name}{{{labels}}} {}", of(peer));
        }
    }
}

fn path_gauge(out: &mut String, name: &str, samples: &[Sample], of: fn(&PathState) -> Option<f64>) {
    let _ = writeln!(out, "# TYPE portolan_path_{name} gauge");
    for sample in samples {
        for peer in &sample.status.peers {
            for path in &peer.paths {
                let Some(value) = of(path) else { continue };
                let (labels, link) = (labels(sample), quoted(&path.link));
                let peer = peer.peer;
                let _ = writeln!(
                    out,
                    "portolan_path_{name}{{{labels},peer=\"{peer}\",link={link}}} {value}"
                );
            }
        }
    }
}

fn labels(sample: &Sample) -> String {
    let rank = sample
        .rank
        .map_or_else(String::new, |rank| rank.to_string());
    format!(
        "job={},rank=\"{rank}\",pid=\"{}\",program={}",
        quoted(&sample.status.job),
        sample.pid,
        quoted(&sample.program)
    )
}

fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::status::Status;
    use std::collections::BTreeMap;

    #[test]
    fn figures_have_labels() {
        let sample = Sample {
            pid: 7,
            program: "a\"b".to_owned(),
            rank: Some(2),
            answered: true,
            rates: None,
            status: Status {
                job: "ab".to_owned(),
                counters: BTreeMap::from([("messages_sent".to_owned(), 12)]),
                drops: BTreeMap::from([("stale".to_owned(), 3)]),
                peers: vec![PeerState {
                    peer: 1,
                    paths: vec![PathState {
                        link: "udp".to_owned(),
                        rtt_min_us: Some(5.0),
                        ..PathState::default()
                    }],
                    ..PeerState::default()
                }],
                ..Status::default()
            },
        };
        let text = text(&[sample]);
        let labels = r#"job="ab",rank="2",pid="7",program="a\"b""#;
        for line in [
            "# TYPE portolan_messages_sent_total counter".to_owned(),
            format!("portolan_messages_sent_total{{{labels}}} 12"),
            format!("portolan_drops_total{{{labels},reason=\"stale\"}} 3"),
            format!("portolan_peer_waiting_grants{{{labels},peer=\"1\"}} 0"),
            format!("portolan_path_rtt_min_seconds{{{labels},peer=\"1\",link=\"udp\"}} 0.000005"),
        ] {
            assert!(
                text.lines().any(|other| other == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
