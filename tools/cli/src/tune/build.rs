// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts times to costs: the model of one path.
//!
//! Sender and receiver are fitted to the times of their own calls. If a lone message takes longer
//! than both, the rest is attributed to the wire. If it takes less, the difference is work that the
//! sender does after the message has left. Time of long messages that the pipeline does not explain
//! is attributed to memory.

use super::fit::{Row, nonnegative, signed};
use super::points::{EAGER_LEN, Kind, Points, SINGLE_LEN_MAX, Variant, fitted_lens};
use portolan::binding::model::{Far, Load, PathModel, Protocol, Stage, Stages};
use portolan_bench::Path;

/// Bytes of a datagram that are headers: of the frame and of a fragment.
const HEADERS: u64 = 40;

/// Bytes of a frame with one message that are not message: headers, and room for an
/// acknowledgement.
const FRAME_HEADERS: u64 = 48;

/// Largest number of bytes of one call with segmentation offload.
const CALL_LEN: u64 = 65_000;

/// Longest frame that small messages share, and longest datagram of an eager message.
const SHARED_LEN_MAX: u64 = 9000;
const DATAGRAM_LEN_MAX: u64 = 16 << 10;

/// Longest message that enters the ring of shared memory directly, as one of many.
const SHM_FRAME_LEN: u64 = 504;

/// Lengths from which memory may make bytes more expensive: those of a core's own caches, and of a
/// guest's share of a shared cache.
const FAR_LENS: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 2 << 20];

/// Returns the model of `path`; `None` if nothing was measured of it.
pub(super) fn path_model(path: Path, points: &Points, mtu: usize) -> Option<PathModel> {
    points.us(64, Variant::Default, Kind::Lone)?;
    let mut model = shape(path, mtu as u64);
    let eager: Vec<Times> = eager_lens(path)
        .filter_map(|(len, variant)| Times::new(points, len, variant))
        .collect();
    fit_stages(&mut model, &eager, Protocol::Eager);
    let asked: Vec<Times> = fitted_lens()
        .filter(|len| (model.frame_len..=SINGLE_LEN_MAX).contains(len))
        .filter_map(|len| Times::new(points, len, Variant::Rendezvous))
        .collect();
    if !asked.is_empty() {
        model.rendezvous = Some(Stages::default());
        fit_stages(&mut model, &asked, Protocol::Rendezvous);
        fit_long(&mut model, points);
    }
    Some(model)
}

/// Returns the properties of a path that are known without measurement.
fn shape(path: Path, mtu: u64) -> PathModel {
    let bound = EAGER_LEN[usize::from(path == Path::Shm)];
    // IPv4 and UDP headers; the port pair and length in front of a raw frame.
    let frame = match path {
        Path::Udp => mtu - 28,
        _ => mtu - 4,
    };
    let frame_len = frame.min(SHARED_LEN_MAX) - FRAME_HEADERS;
    let datagram_len = frame.min(DATAGRAM_LEN_MAX) - HEADERS;
    let (frame_len, datagram_len, call_len) = match path {
        Path::Shm => (SHM_FRAME_LEN, 0, 0),
        Path::Packet => (frame_len, datagram_len, datagram_len),
        _ => {
            let count = (CALL_LEN / frame).max(1);
            (frame_len, datagram_len, datagram_len * count)
        }
    };
    PathModel {
        path: path.to_string(),
        frame_len,
        datagram_len,
        call_len,
        eager_len_bound: bound,
        eager: Stages::default(),
        rendezvous: None,
        rendezvous_us: 0.0,
        further_call_us: 0.0,
        far: Vec::new(),
        far_streaming: Vec::new(),
    }
}

/// Returns the lengths of eager messages, and the variant that makes them eager.
fn eager_lens(path: Path) -> impl Iterator<Item = (u64, Variant)> {
    let bound = EAGER_LEN[usize::from(path == Path::Shm)];
    let short = fitted_lens().filter(move |len| *len <= bound);
    short.map(move |len| match path {
        Path::Packet if len > 1024 => (len, Variant::Frames),
        _ => (len, Variant::Default),
    })
}

/// Times of messages of one length.
struct Times {
    len: u64,
    lone: f64,
    stream: Option<f64>,
    sender: f64,
    receiver: f64,
}

impl Times {
    fn new(points: &Points, len: u64, variant: Variant) -> Option<Times> {
        Some(Times {
            len,
            lone: points.us(len, variant, Kind::Lone)?,
            stream: points.us(len, variant, Kind::Stream),
            sender: points.us(len, variant, Kind::Sender)?,
            receiver: points.us(len, variant, Kind::Receiver)?,
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
fn fit_stages(model: &mut PathModel, seen: &[Times], way: Protocol) {
    let by_call = model.call_len == model.datagram_len;
    let (frame_len, datagram_len) = (model.frame_len, model.datagram_len);
    let columns = |seen: &Times| {
        let pieces = match datagram_len {
            0 => 1.0,
            _ if seen.len <= frame_len => 1.0,
            datagram => seen.len.div_ceil(datagram) as f64,
        };
        // If each datagram is a call, one column covers both.
        let calls = if by_call { pieces } else { 1.0 };
        let datagrams = if by_call { 0.0 } else { pieces };
        vec![calls, datagrams, seen.len as f64]
    };
    let stage = |of: fn(&Times) -> f64| {
        let rows = seen.iter().map(|seen| Row {
            columns: columns(seen),
            y: of(seen),
            weight: 1.0 / seen.lone,
        });
        stage_of(&nonnegative(&rows.collect::<Vec<_>>()))
    };
    let mut stages = Stages {
        sender: stage(|seen| seen.sender),
        receiver: stage(|seen| seen.receiver),
        ..Stages::default()
    };
    if datagram_len == 0 {
        divide(&mut stages, seen, way);
        set(model, way, stages);
    } else {
        set(model, way, stages);
        fit_rest(model, seen, &mut stages, way);
        set(model, way, stages);
    }
    // A stream hides the cost of bytes, but not that of a rendezvous, which is waited for there as
    // well.
    let rows = seen.iter().filter_map(|seen| {
        let us = seen.stream?;
        Some(Row {
            columns: columns(seen),
            y: us - model.predict(seen.len, way, Load::Stream, 0)?,
            weight: 1.0 / us,
        })
    });
    let mut rest = signed(&rows.map(once).collect::<Vec<_>>());
    rest.resize(3, 0.0);
    stages.in_stream = stage_of(&rest);
    set(model, way, stages);
}

/// Keeps the cost per message and per byte only: calls and datagrams grow with the bytes.
fn once(row: Row) -> Row {
    let bytes = row.columns[2];
    Row {
        columns: vec![1.0, 0.0, bytes],
        ..row
    }
}

/// Divides the cost of lone messages between sender and receiver. Calls on a ring are so short that
/// separate timing mostly measures cold caches. The whole is therefore fitted to lone messages, and
/// divided in the ratio of the separate times. With a rendezvous only the receiver copies.
#[allow(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
fn divide(stages: &mut Stages, seen: &[Times], way: Protocol) {
    let rows = seen.iter().map(|seen| Row {
        columns: vec![1.0, 0.0, seen.len as f64],
        y: seen.lone,
        weight: 1.0 / seen.lone,
    });
    let mut costs = nonnegative(&rows.collect::<Vec<_>>());
    costs.resize(3, 0.0);
    let whole = stage_of(&costs);
    let share = |of: fn(&Stage) -> f64| match of(&stages.sender) + of(&stages.receiver) {
        sum if way == Protocol::Eager && sum > 0.0 => of(&stages.sender) / sum,
        _ => 0.0,
    };
    let (calls, bytes) = (share(|s| s.per_call_us), share(|s| s.per_byte_ns));
    let part = |calls: f64, bytes: f64| Stage {
        per_call_us: whole.per_call_us * calls,
        per_datagram_us: 0.0,
        per_byte_ns: whole.per_byte_ns * bytes,
    };
    stages.sender = part(calls, bytes);
    stages.receiver = part(1.0 - calls, 1.0 - bytes);
}

/// Fits the time of lone messages beyond, or below, that of sender and receiver.
#[allow(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
fn fit_rest(model: &mut PathModel, seen: &[Times], stages: &mut Stages, way: Protocol) {
    let by_call = model.call_len == model.datagram_len;
    let rows = seen.iter().map(|seen| {
        let pieces = match seen.len {
            len if len <= model.frame_len => 1.0,
            len => len.div_ceil(model.datagram_len) as f64,
        };
        let known = model.predict(seen.len, way, Load::Lone, 0).unwrap_or(0.0);
        // With one frame per call: the cost of each further frame. Otherwise: the cost of its
        // datagrams.
        let head = seen.len.min(model.datagram_len) as f64;
        Row {
            columns: match by_call {
                true => vec![1.0, pieces - 1.0, head],
                false => vec![1.0, pieces, 0.0],
            },
            y: seen.lone - known,
            weight: 1.0 / seen.lone,
        }
    });
    let mut rest = signed(&rows.collect::<Vec<_>>());
    rest.resize(3, 0.0);
    if by_call {
        model.further_call_us = std::mem::take(&mut rest[1]);
    }
    if way == Protocol::Rendezvous {
        model.rendezvous_us = rest[0].max(0.0);
        rest[0] = rest[0].min(0.0);
    }
    stages.wire = stage_of(&rest.iter().map(|cost| cost.max(0.0)).collect::<Vec<_>>());
    stages.overlap = stage_of(&rest.iter().map(|cost| (-cost).max(0.0)).collect::<Vec<_>>());
}

fn set(model: &mut PathModel, way: Protocol, stages: Stages) {
    match way {
        Protocol::Eager => model.eager = stages,
        Protocol::Rendezvous => model.rendezvous = Some(stages),
    }
}

/// Converts microseconds per call, datagram and byte.
fn stage_of(costs: &[f64]) -> Stage {
    Stage {
        per_call_us: costs.first().copied().unwrap_or(0.0),
        per_datagram_us: costs.get(1).copied().unwrap_or(0.0),
        per_byte_ns: costs.get(2).copied().unwrap_or(0.0) * 1e3,
    }
}

/// Fits the additional time of messages longer than one call.
#[allow(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
fn fit_long(model: &mut PathModel, points: &Points) {
    let long = |kind, load| {
        let model = &*model;
        let lens = fitted_lens().filter(|len| *len > SINGLE_LEN_MAX);
        lens.filter_map(move |len| {
            let us = points.us(len, Variant::Default, kind)?;
            let known = model.predict(len, Protocol::Rendezvous, load, 0)?;
            let columns = FAR_LENS.map(|from| len.saturating_sub(from) as f64);
            Some(Row {
                columns: columns.to_vec(),
                y: us - known,
                weight: 1.0 / us,
            })
        })
        .collect::<Vec<_>>()
    };
    let lone = signed(&long(Kind::Lone, Load::Lone));
    let stream = signed(&long(Kind::Stream, Load::Stream));
    (model.far, model.far_streaming) = (far_of(&lone), far_of(&stream));
}

fn far_of(costs: &[f64]) -> Vec<Far> {
    let steps = FAR_LENS.iter().zip(costs);
    let steps = steps.map(|(from_len, cost)| Far {
        from_len: *from_len,
        per_byte_ns: cost * 1e3,
    });
    steps.filter(|far| far.per_byte_ns != 0.0).collect()
}
