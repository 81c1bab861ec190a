// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that convert the times of a simulated machine to its model and back.

use super::build::path_model;
use super::choose::choices;
use super::points::{EAGER_LEN, Kind, Points, SINGLE_LEN_MAX, Task, Variant, tasks};
use portolan::binding::model::{
    Choices, Far, Host, Load, Model, PathModel, Protocol, SCHEMA, Stage, Stages,
};
use portolan_bench::Path;
use rand::{Rng, SeedableRng, rngs::StdRng};

fn stage(per_call_us: f64, per_datagram_us: f64, per_byte_ns: f64) -> Stage {
    Stage {
        per_call_us,
        per_datagram_us,
        per_byte_ns,
    }
}

/// Returns costs like those of a veth pair; the receiver takes `receiver_ns` per byte.
fn machine(path: Path, receiver_ns: f64) -> PathModel {
    let (frame, call) = match path {
        Path::Shm => (0, 0),
        Path::Packet => (1456, 1456),
        _ => (1432, 1432 * 44),
    };
    let stages = Stages {
        sender: stage(2.0, if path == Path::Udp { 0.1 } else { 0.0 }, 0.3),
        wire: stage(0.7, 0.0, 0.0),
        receiver: stage(1.2, 0.0, receiver_ns),
        overlap: Stage::default(),
        in_stream: Stage::default(),
    };
    PathModel {
        path: path.to_string(),
        frame_len: if path == Path::Shm { 504 } else { 1424 },
        datagram_len: frame,
        call_len: call,
        eager_len_bound: EAGER_LEN[usize::from(path == Path::Shm)],
        eager: stages,
        rendezvous: (path != Path::Packet).then_some(stages),
        rendezvous_us: 9.0,
        further_call_us: 0.0,
        far: vec![Far {
            from_len: 256 << 10,
            per_byte_ns: 0.4,
        }],
        far_streaming: vec![],
    }
}

fn time(machine: &PathModel, path: Path, task: Task, kind: Kind) -> f64 {
    let way = if task.is_rendezvous(path) {
        Protocol::Rendezvous
    } else {
        Protocol::Eager
    };
    let call_len = match task.variant {
        Variant::Short(frame_len) if kind == Kind::Lone => {
            return machine.predict_in_frames(task.len, frame_len);
        }
        Variant::Pieces(call_len) => call_len,
        _ => 0,
    };
    let predict = |load| machine.predict(task.len, way, load, call_len);
    let stages = machine.rendezvous.unwrap_or(machine.eager);
    let alone = |stage: Stage| {
        let pieces = match machine.datagram_len {
            0 => 1.0,
            len => task.len.div_ceil(len) as f64,
        };
        let calls = if path == Path::Packet { pieces } else { 1.0 };
        stage.per_call_us * calls
            + stage.per_datagram_us * pieces
            + stage.per_byte_ns * task.len as f64 / 1e3
    };
    match kind {
        Kind::Lone => predict(Load::Lone),
        Kind::Stream => predict(Load::Stream),
        Kind::Sender => Some(alone(stages.sender)),
        Kind::Receiver => Some(alone(stages.receiver)),
    }
    .expect("the machine does everything")
}

fn measured(machine: &PathModel, path: Path, noise: f64) -> Points {
    let mut rng = StdRng::seed_from_u64(7);
    let mut points = Points::default();
    for task in tasks(path) {
        for kind in [Kind::Lone, Kind::Stream, Kind::Sender, Kind::Receiver] {
            let staged = task.has_stages() && task.len <= SINGLE_LEN_MAX;
            if !staged && matches!(kind, Kind::Sender | Kind::Receiver) {
                continue;
            }
            for _ in 0..9 {
                let us = time(machine, path, task, kind);
                points.add(task, kind, us * (1.0 + rng.random_range(-noise..=noise)));
            }
        }
    }
    points
}

fn model(paths: Vec<PathModel>) -> Model {
    Model {
        schema: SCHEMA,
        host: Host::current(),
        mtu: 1500,
        paths,
        choices: Choices::default(),
    }
}

#[test]
fn fit_recovers_costs_from_noisy_times() {
    for path in [Path::Shm, Path::Udp, Path::Packet] {
        let machine = machine(path, 0.25);
        let points = measured(&machine, path, 0.05);
        let fitted = path_model(path, &points, 1500).expect("measured");
        for task in tasks(path) {
            if task.variant.is_divided() {
                continue;
            }
            let way = if task.is_rendezvous(path) {
                Protocol::Rendezvous
            } else {
                Protocol::Eager
            };
            let got = fitted.predict(task.len, way, Load::Lone, 0).expect("a way");
            let want = time(&machine, path, task, Kind::Lone);
            assert!(
                (got / want - 1.0).abs() < 0.12,
                "{path} {task:?}: {got} instead of {want}"
            );
        }
    }
}

#[test]
fn pieces_are_chosen_only_if_both_ends_have_work() {
    for (receiver_ns, pays) in [(0.3, true), (0.0, false)] {
        let machine = machine(Path::Udp, receiver_ns);
        let points = measured(&machine, Path::Udp, 0.0);
        let fitted = path_model(Path::Udp, &points, 1500).expect("measured");
        let chosen = choices(&model(vec![fitted]), &[(Path::Udp, points)]);
        assert_eq!(!chosen.lone.is_empty(), pays, "{chosen:?}");
    }
}

#[test]
fn frames_are_chosen_up_to_the_crossover_with_offload() {
    let udp = machine(Path::Udp, 0.3);
    // A frame costs less than a datagram, but each frame costs a call.
    let mut packet = machine(Path::Packet, 0.3);
    packet.eager.sender.per_call_us = 0.6;
    packet.eager.receiver.per_call_us = 0.4;
    let measured = [
        (Path::Udp, measured(&udp, Path::Udp, 0.0)),
        (Path::Packet, measured(&packet, Path::Packet, 0.0)),
    ];
    let fitted = measured
        .iter()
        .filter_map(|(path, points)| path_model(*path, points, 1500));
    let chosen = choices(&model(fitted.collect()), &measured);
    assert!(
        (2048..32 << 10).contains(&chosen.packet_len_max),
        "{chosen:?}"
    );
}

#[test]
fn short_frames_are_chosen_where_the_stages_overlap() {
    // Bytes cost much more than frames, on the wire only or in all stages.
    for (byte_ns, pays) in [(0.0, false), (8.0, true)] {
        let mut udp = machine(Path::Udp, 12.0);
        udp.eager.sender.per_byte_ns = 12.0;
        let mut packet = machine(Path::Packet, byte_ns);
        packet.eager.sender = stage(0.3, 0.0, byte_ns);
        packet.eager.wire = stage(0.3, 0.0, 8.0);
        packet.eager.receiver.per_call_us = 0.3;
        let measured = [
            (Path::Udp, measured(&udp, Path::Udp, 0.0)),
            (Path::Packet, measured(&packet, Path::Packet, 0.0)),
        ];
        let mut chosen = choices(&model(vec![udp, packet]), &measured);
        assert!(chosen.packet_len_max >= 2048, "{chosen:?}");
        // Up to the crossover with UDP, and only lengths that were tried.
        let steps = std::mem::take(&mut chosen.frames);
        let lens = steps.iter().map(|step| step.frame_len);
        assert_eq!(lens.clone().any(|len| len > 0), pays, "{steps:?}");
        assert!(lens.clone().all(|len| [0, 256, 512, 768].contains(&len)));
        let last = steps.last().map_or(0, |step| step.message_len_max);
        assert!(last <= chosen.packet_len_max as u64, "{steps:?}");
    }
}

#[test]
fn no_measurements_give_no_model_and_default_choices() {
    assert!(path_model(Path::Udp, &Points::default(), 1500).is_none());
    assert_eq!(choices(&model(vec![]), &[]), Choices::default());
}

#[test]
fn variant_must_win_most_rounds() {
    let (one, other) = (Variant::Pieces(4096), Variant::Default);
    let wins = |rounds: [f64; 4]| {
        let mut points = Points::default();
        for us in rounds {
            let task = |variant| Task { len: 64, variant };
            points.add(task(one), Kind::Lone, us);
            points.add(task(other), Kind::Lone, 10.0);
        }
        points.wins(64, one, other)
    };
    assert!(wins([9.0, 9.0, 9.0, 99.0]));
    assert!(!wins([1.0, 1.0, 11.0, 11.0]));
    assert!(
        !Points::default().wins(64, one, other),
        "nothing was measured"
    );
}
