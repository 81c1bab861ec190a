// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choices that follow from the model: crossovers, eager limits, pieces of lone messages.
//!
//! The model proposes, and a measurement must confirm. If a job measured both variants of a length,
//! the plain one is replaced only if the other won three rounds of four.

use super::points::{
    CALL_LENS, EAGER_LEN, FRAME_LENS, Kind, Points, Variant, fitted_lens, is_fitted, unseen_lens,
};
use portolan::binding::model::{Choices, Load, LoneFrames, LonePieces, Model, PathModel, Protocol};
use portolan_bench::Path;

/// Smallest relative gain of a change; a smaller one is noise, and the plain variant is kept.
pub(super) const GAIN_MIN: f64 = 0.05;

/// Largest number of steps that the protocol's table holds.
const SINGLE_STEPS: usize = 6;

/// Derives the choices from the model and the measurements.
pub(super) fn choices(model: &Model, measured: &[(Path, Points)]) -> Choices {
    let points = |path| {
        measured
            .iter()
            .find(|(of, _)| *of == path)
            .map(|(_, points)| points)
    };
    let eager = |path: Path| {
        Some(eager_limit(
            model.path(&path.to_string())?,
            points(path)?,
            path,
        ))
    };
    let mut choices = Choices {
        eager_len_max: eager(Path::Udp),
        eager_len_max_shm: eager(Path::Shm),
        ..Choices::default()
    };
    let both = (model.path("udp"), model.path("packet"));
    if let ((Some(udp), Some(packet)), Some(at_udp), Some(at_packet)) =
        (both, points(Path::Udp), points(Path::Packet))
    {
        choices.packet_len_max = packet_limit((udp, at_udp), (packet, at_packet));
        choices.frames = frame_steps(packet, at_packet, choices.packet_len_max as u64);
    }
    if let (Some(udp), Some(points)) = (model.path("udp"), points(Path::Udp)) {
        choices.lone = lone_steps(udp, points);
    }
    choices
}

/// Returns the lengths to examine, in ascending order.
fn lens() -> Vec<u64> {
    let mut lens: Vec<u64> = fitted_lens().chain(unseen_lens()).collect();
    lens.sort_unstable();
    lens
}

/// Returns the largest length up to which messages are faster eager than with rendezvous.
fn eager_limit(model: &PathModel, points: &Points, path: Path) -> usize {
    let bound = EAGER_LEN[usize::from(path == Path::Shm)];
    let rendezvous_pays = |len: &u64| {
        let time = |way| model.predict(*len, way, Load::Lone, 0);
        let (eager, asked) = (time(Protocol::Eager), time(Protocol::Rendezvous));
        let predicted = matches!((eager, asked), (Some(e), Some(a)) if a < e * (1.0 - GAIN_MIN));
        predicted && points.wins(*len, Variant::Rendezvous, Variant::Default)
    };
    let range = lens()
        .into_iter()
        .filter(|len| *len > model.frame_len && *len <= bound);
    let longest = range.rev().find(|len| !rendezvous_pays(len));
    to_usize(longest.unwrap_or(model.frame_len))
}

/// Returns the largest length up to which messages of several frames are faster frame by frame.
fn packet_limit(udp: (&PathModel, &Points), packet: (&PathModel, &Points)) -> usize {
    let pays = |len: &u64| {
        let time = |model: &PathModel| model.predict(*len, Protocol::Eager, Load::Lone, 0);
        let (by_udp, by_packet) = (time(udp.0), time(packet.0));
        let predicted =
            matches!((by_udp, by_packet), (Some(u), Some(p)) if p < u * (1.0 - GAIN_MIN));
        let seen = |points: &Points, variant, kind| points.us(*len, variant, kind);
        let faster = |kind| {
            let by = (
                seen(udp.1, Variant::Default, kind),
                seen(packet.1, Variant::Frames, kind),
            );
            matches!(by, (Some(u), Some(p)) if p < u)
        };
        // The choice applies to streams, too: there is no separate choice by load.
        predicted && faster(Kind::Lone) && faster(Kind::Stream)
    };
    let range = lens().into_iter().filter(|len| *len > packet.0.frame_len);
    range.take_while(pays).last().map_or(0, to_usize)
}

/// Returns the frames of lone messages of up to `len_max` bytes on raw Ethernet, by ascending length;
/// empty if short frames gain nowhere.
fn frame_steps(packet: &PathModel, points: &Points, len_max: u64) -> Vec<LoneFrames> {
    let mut steps: Vec<LoneFrames> = Vec::new();
    let lens = fitted_lens().filter(|len| (packet.frame_len + 1..=len_max).contains(len));
    for len in lens {
        let frame_len = to_usize(best_frames(packet, points, len).unwrap_or(0));
        match steps.last_mut() {
            Some(last) if last.frame_len == frame_len => last.message_len_max = len,
            _ => steps.push(LoneFrames {
                message_len_max: len,
                frame_len,
            }),
        }
    }
    while steps.last().is_some_and(|step| step.frame_len == 0) {
        steps.pop();
    }
    steps
}

/// Returns the best frame length for a lone message, if measurements confirm a gain.
fn best_frames(packet: &PathModel, points: &Points, len: u64) -> Option<u64> {
    let frame_len = packet.best_frame_len(len, &FRAME_LENS, GAIN_MIN);
    let whole = points.us(len, Variant::Frames, Kind::Lone)?;
    let short = points.us(len, Variant::Short(frame_len), Kind::Lone)?;
    let won = points.wins(len, Variant::Short(frame_len), Variant::Frames);
    (won && short < whole * (1.0 - GAIN_MIN)).then_some(frame_len)
}

/// Returns the steps at which cutting lone messages gains, by ascending length; empty if nowhere.
fn lone_steps(udp: &PathModel, points: &Points) -> Vec<LonePieces> {
    let mut steps: Vec<LonePieces> = Vec::new();
    for len in lens()
        .into_iter()
        .filter(|len| is_fitted(*len) && *len > udp.frame_len)
    {
        let call_len = best_pieces(udp, points, len).unwrap_or(0);
        match steps.last_mut() {
            Some(last) if last.call_len == to_usize(call_len) => last.message_len_max = len,
            _ => steps.push(LonePieces {
                message_len_max: len,
                call_len: to_usize(call_len),
            }),
        }
    }
    while steps.last().is_some_and(|step| step.call_len == 0) {
        steps.pop();
    }
    steps.truncate(SINGLE_STEPS);
    steps
}

/// Returns the best call length for a lone message, if measurements confirm a gain.
pub(super) fn best_pieces(udp: &PathModel, points: &Points, len: u64) -> Option<u64> {
    let smaller: Vec<u64> = CALL_LENS.into_iter().filter(|call| *call < len).collect();
    let call_len = udp.best_call_len(len, &smaller, GAIN_MIN);
    let whole = points.us(len, Variant::Default, Kind::Lone)?;
    let cut = points.us(len, Variant::Pieces(call_len), Kind::Lone)?;
    let won = points.wins(len, Variant::Pieces(call_len), Variant::Default);
    (won && cut < whole * (1.0 - GAIN_MIN)).then_some(call_len)
}

fn to_usize(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
