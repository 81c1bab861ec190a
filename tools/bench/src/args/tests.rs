// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of accepted and refused options.

use super::*;

#[test]
fn size_list_is_sorted_and_deduplicated() {
    assert_eq!(
        "1M, 64,8,1k,64".parse(),
        Ok(SizeList(vec![8, 64, 1024, 1 << 20]))
    );
    assert_eq!("2K".parse(), Ok(SizeList(vec![2048])));
}

#[test]
fn size_list_rejects_invalid_sizes() {
    for text in [
        "",
        "8,",
        "k",
        "-1",
        "1.5k",
        "8 64",
        "1025M",
        "99999999999999999999",
        "1G",
    ] {
        let error = text.parse::<SizeList>().expect_err(text);
        assert!(
            error.contains("use") || error.contains("write"),
            "no remedy in: {error}"
        );
    }
}

#[test]
fn seconds_reject_invalid_values() {
    assert_eq!(seconds("0.5"), Ok(0.5));
    for text in ["0", "-1", "nan", "inf", "x", "3601"] {
        assert!(seconds(text).is_err(), "{text}");
    }
}

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    args: BenchArgs,
}

fn parse(line: &str) -> Result<BenchArgs, clap::Error> {
    use clap::Parser;
    Command::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()))
        .map(|command| command.args)
}

#[test]
fn each_path_is_measured_once() {
    let args = parse("pingpong --path udp,all --vs tcp,udp --limits").expect("valid");
    assert_eq!(
        args.paths(),
        [Path::Udp, Path::Shm, Path::Packet, Path::Auto]
    );
    assert_eq!(args.versus, [Versus::Tcp, Versus::Udp]);
    assert_eq!(args.sizes_for(Metric::Pingpong), [8, 64, 1024]);
}

#[test]
fn each_placement_has_one_row() {
    let args = parse("stream --placement all,bounce").expect("valid");
    let conditions = args.conditions(Metric::Stream, Path::Udp);
    assert_eq!(conditions.len(), 3);
    assert!(conditions.iter().all(|one| one.placement.is_some()));
    let plain = parse("stream").expect("valid");
    assert_eq!(
        plain.conditions(Metric::Stream, Path::Udp),
        [Conditions::default()]
    );
    assert_eq!(
        args.conditions(Metric::Pingpong, Path::Udp),
        [Conditions::default()]
    );
}

#[test]
fn each_authentication_has_a_row_on_network_paths() {
    let args = parse("pingpong stream --auth none,token,aead --path all").expect("valid");
    for metric in [Metric::Pingpong, Metric::Stream] {
        let on = |path| args.conditions(metric, path);
        let auths: Vec<_> = on(Path::Udp).iter().map(|one| one.auth).collect();
        assert_eq!(
            auths,
            [Auth::None, Auth::Token, Auth::Aead].map(Some),
            "{metric}"
        );
        assert_eq!(on(Path::Shm), [Conditions::default()]);
    }
    assert!(args.check().is_ok());
}

#[test]
fn broker_adds_a_raw_ethernet_row() {
    let args = parse("pingpong --path packet,udp --broker").expect("valid");
    let of = |path| args.conditions(Metric::Pingpong, path);
    let brokers: Vec<bool> = of(Path::Packet).iter().map(|one| one.broker).collect();
    assert_eq!(brokers, [false, true]);
    assert_eq!(of(Path::Udp), [Conditions::default()]);
}

#[test]
fn shorter_frames_add_a_row_on_udp_only() {
    let args = parse("pingpong --path udp,packet --frame-len-max 512,1024").expect("valid");
    let of = |path| args.conditions(Metric::Pingpong, path);
    let lens: Vec<u32> = of(Path::Udp).iter().map(|one| one.frame_len_max).collect();
    assert_eq!(lens, [0, 512, 1024]);
    assert_eq!(of(Path::Packet), [Conditions::default()]);
}

#[test]
fn loss_and_interference_add_rows() {
    let args = parse("stream --loss 1,0.5 --interfere 100").expect("valid");
    let of = |path| args.conditions(Metric::Stream, path).len();
    assert_eq!((of(Path::Udp), of(Path::Shm)), (6, 1));
    let losses: Vec<u32> = args
        .losses(Metric::Stream, Path::Udp)
        .iter()
        .map(|one| one.loss_ppm)
        .collect();
    assert_eq!(losses, [0, 10_000, 5_000]);
    for line in [
        "stream --loss 0",
        "stream --loss 51",
        "stream --loss nan",
        "stream --interfere 9",
        "stream --frame-len-max 511",
        "incast --senders 1",
        "incast --schedule first",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn options_without_effect_are_rejected() {
    for line in [
        "rate --loss 1",
        "pingpong --interfere 100",
        "stream --schedule fair",
        "rate --placement auto",
        "pingpong --path shm --auth aead",
        "pingpong --path packet,shm --frame-len-max 512",
        "pingpong --path udp,shm --broker",
        "logp --vs ucx",
        "pingpong --path udp --vs libfabric-shm",
        "pingpong --bind ::1",
        "rate --path shm --vs libfabric-tcp",
    ] {
        let error = parse(line)
            .expect("well-formed")
            .check()
            .expect_err(line)
            .to_string();
        assert!(
            error.contains("no effect") && error.contains("omit"),
            "{error}"
        );
    }
    assert!(
        parse("stream incast --loss 1 --schedule fair")
            .expect("valid")
            .check()
            .is_ok()
    );
}

#[test]
fn unknown_placement_error_lists_the_valid_ones() {
    let error = parse("stream --placement guess").expect_err("refused");
    assert!(error.to_string().contains("possible values"), "{error}");
}

#[test]
fn seconds_and_iterations_are_mutually_exclusive() {
    assert!(parse("rate --seconds 2 --iterations 5").is_err());
    assert!(parse("rate --iterations 0").is_err());
    assert!(parse("--limits").is_err(), "a metric is required");
    assert_eq!(
        parse("stream rate").expect("valid").metrics,
        [Metric::Stream, Metric::Rate]
    );
}

#[test]
fn client_measures_no_local_paths() {
    let args = parse("pingpong --path all --client h").expect("valid");
    assert_eq!(args.paths(), [Path::Packet, Path::Udp, Path::Auto]);
    assert!(args.check().is_ok());
    let shm = parse("pingpong --path shm,udp --client h").expect("well-formed");
    assert!(shm.check().is_err());
    assert!(parse("pingpong --client h --mtu 9000").is_err());
    assert!(parse("--server --size 8").is_err() && parse("--server --client h").is_err());
    assert!(
        parse("--server --port 5000 --bind ::1")
            .expect("valid")
            .is_server()
    );
}
