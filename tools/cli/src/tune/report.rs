// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of `portolan tune`, in the form for scripts.

use super::choose::best_pieces;
use super::points::{CALL_LENS, Kind, Points, Task, Variant, is_fitted};
use portolan::binding::model::{Load, Model, PathModel, Protocol};
use portolan_bench::{Path, SiteKind};
use serde::Serialize;
use std::path::PathBuf;

/// Version of the format.
const SCHEMA: u32 = 1;

/// A run of `portolan tune`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: u32,
    pub(super) site: SiteKind,
    pub(super) model: Model,
    /// Predicted and measured times, one row per path, length, variant and load.
    pub(super) rows: Vec<Row>,
    pub(super) error: ErrorSummary,
    /// Path and pieces by message length: the papers' Table 4 for this machine.
    pub(super) plan: Vec<PlanRow>,
    /// Whole messages and pieces, lone and streaming: the papers' Figures 5 and 6.
    pub(super) pieces: Vec<PiecesRow>,
    /// File in which the model was stored.
    pub(super) stored: Option<PathBuf>,
    pub(super) notes: Vec<String>,
}

/// A prediction and its measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) path: Path,
    pub(super) len: u64,
    pub(super) variant: Variant,
    pub(super) kind: Kind,
    pub(super) predicted_us: f64,
    pub(super) measured_us: f64,
    /// Predicted over measured, minus 1.
    pub(super) error: f64,
    /// Set if the length was fitted.
    pub(super) fitted: bool,
}

/// Errors of the model, relative to the measurements.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct ErrorSummary {
    /// Lone messages, lengths that were not fitted.
    pub(super) unseen_median: f64,
    pub(super) unseen_max: f64,
    /// Lone messages, all lengths.
    pub(super) lone_median: f64,
    pub(super) lone_max: f64,
    /// Share of lone messages with an error of at most a quarter.
    pub(super) lone_within_quarter: f64,
    /// Streams.
    pub(super) stream_median: f64,
    pub(super) stream_max: f64,
}

/// A row of the plan.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PlanRow {
    pub(super) len: u64,
    pub(super) path: Path,
    #[serde(rename = "asks")]
    pub(super) is_rendezvous: bool,
    /// Message bytes in a datagram.
    pub(super) fragment_len: u64,
    /// Message bytes in a call, if no other message is pending.
    pub(super) lone_call_len: u64,
    pub(super) predicted_us: f64,
    pub(super) measured_us: f64,
}

/// Times of whole messages and of pieces.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PiecesRow {
    pub(super) len: u64,
    pub(super) call_len: u64,
    pub(super) lone_whole: Pair,
    pub(super) lone_pieces: Pair,
    pub(super) stream_whole: Pair,
    /// Prediction with every message cut; measurement with the choice by load.
    pub(super) stream_pieces: Pair,
    /// Set if the model chooses these pieces for this length.
    pub(super) chosen: bool,
}

/// Predicted and measured microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Pair {
    pub(super) predicted_us: f64,
    pub(super) measured_us: f64,
}

impl Report {
    /// Compares the model with the measurements.
    pub(super) fn new(
        model: Model,
        measured: &[(Path, Points)],
        site: SiteKind,
        notes: Vec<String>,
    ) -> Report {
        let of = |(path, points): &(Path, Points)| {
            let model = model.path(&path.to_string());
            model
                .map(|model| rows(*path, model, points))
                .unwrap_or_default()
        };
        let rows: Vec<Row> = measured.iter().flat_map(of).collect();
        let udp = measured.iter().find(|(path, _)| *path == Path::Udp);
        let pieces = match (model.path("udp"), udp) {
            (Some(model), Some((_, points))) => pieces(model, points),
            _ => Vec::new(),
        };
        Report {
            schema: SCHEMA,
            site,
            error: ErrorSummary::new(&rows),
            plan: plan(&model, &rows),
            pieces,
            rows,
            model,
            stored: None,
            notes,
        }
    }
}

fn way(path: Path, task: Task) -> Protocol {
    match task.is_rendezvous(path) {
        true => Protocol::Rendezvous,
        false => Protocol::Eager,
    }
}

fn predict(path: Path, model: &PathModel, task: Task, kind: Kind) -> Option<f64> {
    let load = match kind {
        Kind::Lone => Load::Lone,
        Kind::Stream => Load::Stream,
        Kind::Sender | Kind::Receiver => return None,
    };
    let call_len = match task.variant {
        Variant::Short(frame_len) => return Some(model.predict_in_frames(task.len, frame_len)),
        Variant::Pieces(call_len) => call_len,
        _ => 0,
    };
    model.predict(task.len, way(path, task), load, call_len)
}

fn rows(path: Path, model: &PathModel, points: &Points) -> Vec<Row> {
    let row = |point: &super::points::Point| {
        let Task { len, variant } = point.task;
        let measured_us = points.us(len, variant, point.kind)?;
        let predicted_us = predict(path, model, point.task, point.kind)?;
        Some(Row {
            path,
            len,
            variant,
            kind: point.kind,
            predicted_us,
            measured_us,
            error: predicted_us / measured_us - 1.0,
            fitted: is_fitted(len) && !variant.is_divided(),
        })
    };
    points.0.iter().filter_map(row).collect()
}

impl ErrorSummary {
    fn new(rows: &[Row]) -> ErrorSummary {
        let errors = |keep: fn(&Row) -> bool| {
            let whole = rows.iter().filter(|row| !row.variant.is_divided());
            let kept = whole.filter(|row| keep(row)).map(|row| row.error.abs());
            kept.collect::<Vec<f64>>()
        };
        let median = |errors: &[f64]| super::points::quantile(errors.to_vec(), 0.5).unwrap_or(0.0);
        let max = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
        let lone = errors(|row| row.kind == Kind::Lone);
        let unseen = errors(|row| row.kind == Kind::Lone && !row.fitted);
        let stream = errors(|row| row.kind == Kind::Stream);
        #[allow(clippy::cast_precision_loss, reason = "hundreds at most")]
        let within =
            lone.iter().filter(|error| **error <= 0.25).count() as f64 / lone.len().max(1) as f64;
        ErrorSummary {
            unseen_median: median(&unseen),
            unseen_max: max(&unseen),
            lone_median: median(&lone),
            lone_max: max(&lone),
            lone_within_quarter: within,
            stream_median: median(&stream),
            stream_max: max(&stream),
        }
    }
}

/// Returns the plan: between hosts if a network was measured, else within one.
fn plan(model: &Model, rows: &[Row]) -> Vec<PlanRow> {
    let network = model.path("udp").is_some();
    let usual = |row: &&Row| row.kind == Kind::Lone && row.fitted;
    let mut lens: Vec<u64> = rows.iter().filter(usual).map(|row| row.len).collect();
    lens.sort_unstable();
    lens.dedup();
    lens.into_iter()
        .filter_map(|len| match network {
            true => plan_row(model, rows, len),
            false => shm_row(model, rows, len),
        })
        .collect()
}

fn find(rows: &[Row], path: Path, len: u64, variant: Variant) -> Option<&Row> {
    rows.iter().find(|row| {
        row.path == path && row.len == len && row.variant == variant && row.kind == Kind::Lone
    })
}

fn plan_row(model: &Model, rows: &[Row], len: u64) -> Option<PlanRow> {
    let choices = &model.choices;
    let packet = model.path("packet");
    let fits = packet.is_some_and(|packet| len <= packet.frame_len);
    let by_frames = !fits && len <= choices.packet_len_max as u64;
    let is_rendezvous = choices
        .eager_len_max
        .is_some_and(|limit| len > limit as u64)
        && !fits;
    let step = choices.lone.iter().find(|step| len <= step.message_len_max);
    let call_len = step.map_or(0, |step| step.call_len as u64);
    let (path, variant) = match () {
        () if fits => {
            // Choose the shorter round trip, as the protocol itself does.
            let packet = find(rows, Path::Packet, len, Variant::Default);
            let udp = find(rows, Path::Udp, len, Variant::Default);
            match (packet, udp) {
                (Some(p), Some(u)) if u.predicted_us < p.predicted_us => {
                    (Path::Udp, Variant::Default)
                }
                _ => (Path::Packet, Variant::Default),
            }
        }
        () if by_frames => {
            let step = choices
                .frames
                .iter()
                .find(|step| len <= step.message_len_max);
            let variant = match step.map_or(0, |step| step.frame_len as u64) {
                0 => Variant::Frames,
                frame_len => Variant::Short(frame_len),
            };
            (Path::Packet, variant)
        }
        () if call_len > 0 => (Path::Udp, Variant::Pieces(call_len)),
        () if is_rendezvous && len <= super::points::EAGER_LEN[0] => {
            (Path::Udp, Variant::Rendezvous)
        }
        () => (Path::Udp, Variant::Default),
    };
    let row = find(rows, path, len, variant)?;
    let of = model.path(&path.to_string())?;
    Some(PlanRow {
        len,
        path,
        is_rendezvous,
        fragment_len: match variant {
            Variant::Short(frame_len) => frame_len,
            _ => len.min(of.datagram_len),
        },
        lone_call_len: match variant {
            Variant::Short(len) | Variant::Pieces(len) => len,
            _ => len.min(of.call_len.max(1)),
        },
        predicted_us: row.predicted_us,
        measured_us: row.measured_us,
    })
}

fn shm_row(model: &Model, rows: &[Row], len: u64) -> Option<PlanRow> {
    let limit = model.choices.eager_len_max_shm.unwrap_or(usize::MAX) as u64;
    let is_rendezvous = len > limit;
    let forced = is_rendezvous && len <= super::points::EAGER_LEN[1];
    let variant = if forced {
        Variant::Rendezvous
    } else {
        Variant::Default
    };
    let row = find(rows, Path::Shm, len, variant)?;
    Some(PlanRow {
        len,
        path: Path::Shm,
        is_rendezvous,
        fragment_len: len,
        lone_call_len: len,
        predicted_us: row.predicted_us,
        measured_us: row.measured_us,
    })
}

fn pieces(model: &PathModel, points: &Points) -> Vec<PiecesRow> {
    let pair = |len, variant, kind| {
        let measured_us = points.us(len, variant, kind)?;
        let predicted_us = predict(Path::Udp, model, Task { len, variant }, kind)?;
        Some(Pair {
            predicted_us,
            measured_us,
        })
    };
    let row = |call_len: u64, len: u64| {
        let cut = Variant::Pieces(call_len);
        Some(PiecesRow {
            len,
            call_len,
            lone_whole: pair(len, Variant::Default, Kind::Lone)?,
            lone_pieces: pair(len, cut, Kind::Lone)?,
            stream_whole: pair(len, Variant::Default, Kind::Stream)?,
            stream_pieces: pair(len, cut, Kind::Stream)?,
            chosen: best_pieces(model, points, len) == Some(call_len),
        })
    };
    let lens = || super::points::fitted_lens();
    CALL_LENS
        .into_iter()
        .flat_map(|call_len| lens().filter_map(move |len| row(call_len, len)))
        .collect()
}
