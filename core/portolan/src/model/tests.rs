// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predictions from invented models, and refusal of unsuitable ones.

use super::store::tests::read_as;
use super::*;
use std::fs;
use std::path::PathBuf;

fn stage(per_call_us: f64, per_datagram_us: f64, per_byte_ns: f64) -> Stage {
    Stage {
        per_call_us,
        per_datagram_us,
        per_byte_ns,
    }
}

/// 1 µs per call and 1 ns per byte in each stage; 1 µs per datagram at the sender.
fn path() -> PathModel {
    let stages = Stages {
        sender: stage(1.0, 1.0, 1.0),
        wire: stage(1.0, 0.0, 1.0),
        receiver: stage(1.0, 0.0, 1.0),
        overlap: Stage::default(),
        in_stream: Stage::default(),
    };
    PathModel {
        path: "udp".into(),
        frame_len: 1000,
        datagram_len: 1000,
        call_len: 50_000,
        eager_len_bound: 20_000,
        eager: stages,
        rendezvous: Some(stages),
        rendezvous_us: 10.0,
        further_call_us: 0.5,
        far: vec![],
        far_streaming: vec![],
    }
}

fn model() -> Model {
    Model {
        schema: SCHEMA,
        host: Host::current(),
        mtu: 1500,
        paths: vec![path()],
        choices: Choices {
            eager_len_max: Some(9000),
            eager_len_max_shm: None,
            packet_len_max: 3000,
            lone: vec![LonePieces {
                message_len_max: 30_000,
                call_len: 8000,
            }],
            frames: vec![LoneFrames {
                message_len_max: 2000,
                frame_len: 300,
            }],
        },
    }
}

fn close(got: Option<f64>, want: f64) {
    let got = got.expect("predicted");
    assert!((got - want).abs() < 1e-9, "{got} instead of {want}");
}

#[test]
fn single_message_pays_all_stages_and_stream_the_slowest() {
    let path = path();
    close(
        path.predict(1000, Protocol::Eager, Load::Lone, 0),
        3.0 + 1.0 + 3.0,
    );
    close(
        path.predict(1000, Protocol::Eager, Load::Stream, 0),
        1.0 + 1.0 + 1.0,
    );
    // Ten datagrams in one call.
    close(
        path.predict(10_000, Protocol::Eager, Load::Lone, 0),
        3.0 + 10.0 + 30.0,
    );
    close(
        path.predict(10_000, Protocol::Rendezvous, Load::Lone, 0),
        10.0 + 43.0,
    );
}

#[test]
fn pieces_of_a_single_message_overlap() {
    // The first 5000 bytes pass all stages: 3 + 5 + 15; the rest costs the sender 1 + 5 + 5.
    let path = path();
    let cut = path.predict(10_000, Protocol::Eager, Load::Lone, 5000);
    close(cut, 23.0 + 11.0 + 0.5);
    assert_eq!(path.best_call_len(10_000, &[5000], 0.05), 5000);
    // Nothing overlaps if the sender does all the work.
    let mut alone = path.clone();
    alone.eager.wire = Stage::default();
    alone.eager.receiver = Stage::default();
    assert_eq!(alone.best_call_len(10_000, &[2000, 5000], 0.05), 0);
}

#[test]
fn overlapped_sender_work_counts_only_in_a_stream() {
    let mut path = path();
    path.eager.overlap = stage(1.5, 0.0, 0.0);
    close(
        path.predict(1000, Protocol::Eager, Load::Lone, 0),
        7.0 - 1.5,
    );
    close(path.predict(1000, Protocol::Eager, Load::Stream, 0), 3.0);
}

#[test]
fn long_messages_cost_more_per_byte() {
    let mut path = path();
    let near = path
        .predict(40_000, Protocol::Rendezvous, Load::Lone, 0)
        .unwrap();
    path.far = vec![Far {
        from_len: 30_000,
        per_byte_ns: 2.0,
    }];
    close(
        path.predict(40_000, Protocol::Rendezvous, Load::Lone, 0),
        near + 20.0,
    );
    assert_eq!(path.predict(30_000, Protocol::Rendezvous, Load::Lone, 0), {
        path.far.clear();
        path.predict(30_000, Protocol::Rendezvous, Load::Lone, 0)
    });
}

/// The stages of GAMMA on Gigabit Ethernet, from the paper's printed figures.
///
/// - 9.5 µs for an empty message, in which the network interface is busy for 1.3 µs.
/// - The interface limits a stream to 97 MB/s: 1.3 µs for each frame and 9.37 ns for each byte, so
///   14.3 µs for a frame of 1388 bytes.
/// - The stages before and after it take 24.6 ns for each byte, by the gain of 64 % at 1388 bytes.
fn gamma() -> PathModel {
    let stages = Stages {
        sender: stage(0.0, 0.0, 12.3),
        wire: stage(9.5, 0.0, 9.37),
        receiver: stage(0.0, 0.0, 12.3),
        ..Stages::default()
    };
    PathModel {
        path: "packet".into(),
        frame_len: 1408,
        datagram_len: 1408,
        call_len: 1408,
        eager: stages,
        rendezvous: None,
        // Only 1.3 of the 9.5 µs occupy the interface.
        further_call_us: 1.3 - 9.5,
        ..path()
    }
}

/// Candidates for frame lengths: the granularity of the paper's table.
const FRAME_LENS: [u64; 11] = [128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408];

#[test]
fn frames_of_a_lone_message_overlap() {
    // One frame of 1000 bytes through all stages: 3 + 1 + 3; nine more cost the sender 2 + 1 each,
    // and 0.5.
    let path = path();
    close(Some(path.predict_in_frames(10_000, 1000)), 7.0 + 9.0 * 3.5);
    // One of 500 bytes: 3 + 1 + 1.5; 19 more at 2 + 0.5, and 0.5.
    close(Some(path.predict_in_frames(10_000, 500)), 5.5 + 19.0 * 3.0);
    close(Some(path.predict_in_frames(700, 1000)), 3.0 + 1.0 + 2.1);
    assert_eq!(path.best_frame_len(10_000, &[500], 0.05), 0);
    // Expensive bytes: three stages of 101 µs for 1000 bytes, or of 51 µs for 500.
    let mut path = path;
    path.further_call_us = 1.0;
    for each in [
        &mut path.eager.sender,
        &mut path.eager.wire,
        &mut path.eager.receiver,
    ] {
        *each = stage(1.0, 0.0, 100.0);
    }
    close(
        Some(path.predict_in_frames(5000, 1000)),
        303.0 + 4.0 * 102.0,
    );
    close(Some(path.predict_in_frames(5000, 500)), 153.0 + 9.0 * 52.0);
    assert_eq!(path.best_frame_len(5000, &[500], 0.05), 500);
    // A gain of 12.7 %.
    assert_eq!(path.best_frame_len(5000, &[500], 0.13), 0);
}

#[test]
fn stages_of_the_paper_give_about_its_table() {
    let path = gamma();
    // Message lengths within each row of Table 4, and its fragment length.
    let rows: [(u64, f64); 9] = [
        (400, 128.0),
        (800, 256.0),
        (1388, 256.0),
        (2500, 384.0),
        (4000, 384.0),
        (5148, 384.0),
        (8000, 768.0),
        (11_000, 768.0),
        (12_000, 896.0),
    ];
    for (len, printed) in rows {
        let got = path.best_frame_len(len, &FRAME_LENS, 0.0) as f64;
        let ratio = got / printed;
        assert!((0.7..=1.4).contains(&ratio), "{len}: {got} for {printed}");
    }
    // The last row: whole frames, as less than 5 % is gained.
    for len in [16_000, 30_000, 60_000] {
        assert_eq!(path.best_frame_len(len, &FRAME_LENS, 0.05), 0, "{len}");
    }
    let times = [1408, 256].map(|frame_len| path.predict_in_frames(1388, frame_len));
    let gain = times[0] / times[1] - 1.0;
    assert!((0.55..=0.70).contains(&gain), "{gain}, printed 0.64");
}

#[test]
fn choices_reach_the_core() {
    let choice = model().choices.to_core();
    assert_eq!(
        (choice.eager_len_max, choice.small_run_len_max),
        (9000, 3000)
    );
    assert_eq!(choice.eager_len_max_lossless, usize::MAX);
    assert_eq!(choice.single[0].call_len, 8000);
    assert_eq!(choice.single[1], SingleStep::default());
    assert_eq!(choice.frames[0].payload_len, 300);
    assert_eq!(choice.frames[1], FrameStep::default());
    assert_eq!(Choices::default().to_core(), Choice::default());
}

/// A directory that is removed when the test ends.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("portolan-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("a directory of the test's own");
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn model_round_trips_and_directories_are_created() {
    let dir = Dir::new("stored");
    let file = dir.0.join("a/b/model.json");
    assert_eq!(read_as(&file, &Host::current()), Ok(None));
    save(&model(), &file).expect("writable");
    assert_eq!(read_as(&file, &Host::current()), Ok(Some(model())));
    let files = fs::read_dir(file.parent().unwrap()).unwrap().count();
    assert_eq!(files, 1, "a draft was left behind");
    let (loaded, status) = load(file.to_str());
    assert_eq!((loaded, status), (Some(model()), Status::Used(file)));
}

#[test]
fn a_model_of_another_machine_kernel_or_version_is_refused() {
    let dir = Dir::new("foreign");
    let file = dir.0.join("model.json");
    type Change = fn(&mut Host);
    let changes: [(&str, Change); 4] = [
        ("processor", |host| host.cpu = "Z80".into()),
        ("core count", |host| host.core_count += 1),
        ("kernel", |host| host.kernel = "2.2.13".into()),
        ("Portolan", |host| host.portolan = "0.0.1".into()),
    ];
    for (what, change) in changes {
        let mut foreign = model();
        change(&mut foreign.host);
        save(&foreign, &file).expect("writable");
        let why = read_as(&file, &Host::current()).expect_err(what);
        assert!(why.contains(what), "{why}");
        let (model, status) = load(file.to_str());
        assert!(
            model.is_none() && status.to_string().contains(&why),
            "{status}"
        );
    }
}

#[test]
fn invalid_model_is_refused_without_failing() {
    let dir = Dir::new("broken");
    let file = dir.0.join("model.json");
    let mut mad = model();
    mad.paths[0].rendezvous_us = -1.0;
    let mut texts = vec![
        (String::new(), "JSON"),
        ("{\"schema\":1".into(), "JSON"),
        ("{\"schema\":2}".into(), "schema"),
        ("{\"schema\":1}".into(), "not a model"),
        (serde_json::to_string(&mad).unwrap(), "not costs"),
    ];
    texts.push(("[".repeat(100_000), "JSON"));
    for (text, word) in texts {
        fs::write(&file, text).unwrap();
        let why = read_as(&file, &Host::current()).expect_err(word);
        assert!(why.contains(word), "{why}");
    }
    assert!(read_as(&dir.0, &Host::current()).is_err(), "a directory");
}

#[test]
fn unwritable_path_is_named() {
    let dir = Dir::new("unwritable");
    // A file in place of a directory stops even a privileged user.
    fs::write(dir.0.join("portolan"), "").unwrap();
    let file = dir.0.join("portolan/model.json");
    let error = save(&model(), &file).expect_err("not writable").to_string();
    assert!(
        error.contains("model.json") && error.contains("XDG_CONFIG_HOME"),
        "{error}"
    );
}
