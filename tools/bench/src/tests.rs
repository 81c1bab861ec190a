// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short runs of every bare row on loopback, with both ends as threads of the test. They check that
//! the work was done and the shape of the result, never a time.

use crate::conditions::Conditions;
use crate::control::{Wire, conduct};
use crate::end::End;
use crate::measure::{Pace, Sample};
use crate::place::Place;
use crate::spec::{
    Aim, Burst, Chunk, Copying, Gather, Intake, Lines, Payload, Program, Publish, Role, Scatter,
    Spec, Wait, Writes,
};
use crate::{BenchArgs, share};
use anyhow::Result;
use std::io::pipe;
use std::sync::Mutex;
use std::thread;

/// Rows spin, so two at once on two cores would wait for each other's time slices.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(crate) fn spec(program: Program, size: usize) -> Spec {
    Spec {
        program,
        conditions: Conditions::default(),
        congestion: None,
        calls: false,
        role: Role::Driver,
        size,
        pace: Pace::Iterations(200),
        mtu: 1500,
        // Other tests run on the same cores, so the ends yield instead of spinning.
        cores: None,
        hosts: [Place::loopback(), Place::loopback()],
        senders: 0,
        program_file: None,
        shared: None,
        result: None,
    }
}

fn start(spec: &Spec, role: Role) -> Wire {
    let (from_test, to_end) = pipe().expect("pipe");
    let (from_end, to_test) = pipe().expect("pipe");
    let spec = Spec {
        role,
        ..spec.clone()
    };
    thread::spawn(move || End::work(spec, Wire::new(from_test, to_test)));
    Wire::new(from_end, to_end)
}

fn run(program: Program, size: usize) -> Result<Sample> {
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut spec = spec(program, size);
    let _shared = share(&mut spec)?;
    conduct(
        &mut start(&spec, Role::Driver),
        &mut start(&spec, Role::Answerer),
    )
}

fn assert_measured(sample: &Sample) {
    assert!(sample.iterations >= 200, "{sample:?}");
    assert!(sample.min_us > 0.0, "{sample:?}");
    assert!(
        sample.min_us <= sample.p50_us && sample.p50_us <= sample.p99_us,
        "{sample:?}"
    );
    assert!(
        sample.mean_us > 0.0 && sample.msgs_per_s > 0.0,
        "{sample:?}"
    );
}

/// Runs a row. Prints a message if the row needs a privilege that the test does not have.
fn check(program: Program, size: usize) {
    match run(program, size) {
        Ok(sample) => assert_measured(&sample),
        Err(error) if format!("{error:#}").contains("CAP_NET_RAW") => {
            eprintln!("SKIPPED {program:?}: {error:#}");
        }
        Err(error) => panic!("{program:?} of {size} bytes: {error:#}"),
    }
}

#[test]
fn shared_memory_pingpong() {
    for lines in [Lines::One, Lines::Two] {
        check(Program::ShmPingpong(lines), 64);
    }
    check(Program::ShmPingpong(Lines::Two), 5000);
}

#[test]
fn shared_memory_stream() {
    check(Program::ShmStream(Copying::Pipelined), 300_001);
    check(Program::ShmStream(Copying::VmRead), 300_001);
}

#[test]
fn shared_memory_rate() {
    check(Program::ShmRate(Publish::Each), 8);
    check(Program::ShmRate(Publish::Batch), 8);
}

#[test]
fn packet_rows() {
    for intake in [Intake::Ring, Intake::Call] {
        check(Program::PacketPingpong(intake), 64);
        check(Program::PacketPingpong(intake), 1500);
    }
    for payload in [Payload::Single, Payload::Full, Payload::Pieces] {
        check(
            Program::PacketFlow(payload),
            if payload == Payload::Pieces {
                100_000
            } else {
                8
            },
        );
    }
}

#[test]
fn udp_rows() {
    for size in [1, 64, 5000, 64 << 10] {
        check(Program::UdpPingpong(Aim::Connected), size);
        check(Program::UdpPingpong(Aim::Each), size);
    }
    check(Program::UdpFlow(Payload::Single), 8);
    check(Program::UdpFlow(Payload::Full), 8);
}

#[test]
fn udp_stream() {
    for gather in [Gather::List, Gather::Copy] {
        for scatter in [Scatter::Bounce, Scatter::List] {
            check(Program::UdpStream(gather, scatter), 300_001);
        }
    }
}

#[test]
fn tcp_rows() {
    check(Program::TcpPingpong, 64);
    for wait in [Wait::Block, Wait::Spin] {
        check(Program::TcpStream(wait), 300_001);
    }
    check(Program::TcpZeroCopy, 300_001);
    let goodput = run(Program::TcpGoodput(Burst::Whole), 300_001).expect("works");
    assert!(
        goodput.iterations >= 200 && goodput.msgs_per_s > 0.0,
        "{goodput:?}"
    );
    for writes in [Writes::Each, Writes::Window] {
        check(Program::TcpRate(writes), 8);
    }
}

#[test]
fn both_directions_at_once() {
    for chunk in [Chunk::Small, Chunk::Large] {
        check(Program::TcpBidir(chunk), 300_001);
    }
}

#[test]
fn logp_loops() {
    for program in [Program::TcpLogp, Program::UdpLogp, Program::PacketLogp] {
        match run(program, 64) {
            Ok(sample) => {
                let logp = sample.extra.logp.expect("measured");
                assert!(logp.g_us > 0.0 && logp.sum_us() > 0.0, "{logp:?}");
            }
            Err(error) if format!("{error:#}").contains("CAP_NET_RAW") => {
                eprintln!("SKIPPED {program:?}: {error:#}");
            }
            Err(error) => panic!("{program:?}: {error:#}"),
        }
    }
}

#[test]
fn failing_end_reports_the_reason() {
    let error = run(Program::PacketPingpong(Intake::Ring), 4000).expect_err("longer than a frame");
    assert!(format!("{error:#}").contains("1500"), "{error:#}");
}

#[test]
fn sizes_too_small_for_the_metric_are_rejected() {
    use clap::Parser;
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }
    let args = Line::try_parse_from(["bench", "rate", "--size", "4"])
        .expect("valid")
        .args;
    let error = args.check().expect_err("too small");
    assert!(error.to_string().contains("at least 8"), "{error}");
}
