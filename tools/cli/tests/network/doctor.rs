// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan doctor` and `portolan info` on this machine.

mod between;

use crate::common::{Ended, can_make_labs, copy_program, portolan, run};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let ended = run(args);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    serde_json::from_str(&ended.out).unwrap()
}

fn nic<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    report["nics"]
        .as_array()
        .unwrap()
        .iter()
        .find(|nic| nic["name"] == name)
}

#[test]
fn doctor_reports_kernel_settings() {
    let report = json(&["doctor", "--json"]);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["machine"]["kernel"], release.trim());
    assert_eq!(report["privileges"]["uid"], nix::unistd::geteuid().as_raw());
    let rmem_max = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
    assert_eq!(
        report["limits"]["receive_buffer_len_max"],
        rmem_max.trim().parse::<u64>().unwrap()
    );
    let lo = nic(&report, "lo").expect("every namespace has a loopback interface");
    assert_eq!(lo["mtu"], 65536);
    assert_eq!(report["features"]["memfd"]["works"], true);
    assert_eq!(report["paths"][0]["path"], "shm");
}

#[test]
fn doctor_agrees_with_what_this_process_can_do() {
    let report = json(&["doctor", "--json"]);
    let packet = portolan_sys::net::packet_socket();
    assert_eq!(report["features"]["packet_socket"]["works"], packet.is_ok());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let segments = portolan_sys::net::segmentation_supported(std::os::fd::AsFd::as_fd(&socket));
    assert_eq!(report["features"]["udp_segment"]["works"], segments);
}

#[test]
fn doctor_without_privilege_says_so_and_what_to_do() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: this test needs root, to give privileges up");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // A user other than root cannot enter the directory where this program was built.
    let copy = directory.path().join("portolan");
    copy_program(env!("CARGO_BIN_EXE_portolan").as_ref(), &copy);
    let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let mut command = std::process::Command::new(&copy);
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let ended: Ended = command.args(["doctor", "--json"]).output().unwrap().into();
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["privileges"]["net_raw"], false);
    assert_eq!(report["features"]["packet_socket"]["works"], false);
    assert_eq!(report["features"]["netns"]["works"], false);
    assert_eq!(report["features"]["xdp_socket"]["works"], false);
    assert_eq!(report["paths"][0]["path"], "shm");
    let advice = report["advice"].to_string();
    assert!(advice.contains("setcap cap_net_raw+ep"), "{advice}");
}

#[test]
fn doctor_inspects_its_own_lab_host() {
    if !can_make_labs() {
        return;
    }
    let doctor = env!("CARGO_BIN_EXE_portolan");
    let report = json(&["run", "--new-lab", "2", "--", doctor, "doctor", "--json"]);
    let eth0 = nic(&report, "eth0").expect("a lab host has eth0");
    assert_eq!(
        (&eth0["kind"], &eth0["driver"]),
        (&"veth".into(), &"veth".into())
    );
    assert_eq!(eth0["addresses"][0], "10.77.0.1");
    assert_eq!(eth0["packet"]["works"], true);
    assert_eq!(report["paths"][1]["path"], "packet+udp");
    let price = eth0["xdp_native"].as_str().unwrap();
    assert!(price.contains("segmentation offload"), "{price}");
}

#[test]
fn both_have_a_form_for_people() {
    let text = portolan(&["doctor"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for title in [
        "machine",
        "kernel features, tested",
        "interfaces",
        "paths that a job would use",
    ] {
        assert!(
            text.lines().any(|line| line == title),
            "{title} is missing in\n{text}"
        );
    }
    let info = run(&["info"]);
    assert!(
        info.out
            .starts_with(&format!("portolan {} for ", env!("CARGO_PKG_VERSION")))
    );
    assert!(info.out.contains("PORTOLAN_LAUNCH_FD") && info.out.contains("0x88b5"));
}

#[test]
fn info_names_the_links_that_open() {
    let info = json(&["info", "--json"]);
    let links = info["links"].as_array().unwrap();
    let names: Vec<&str> = links
        .iter()
        .map(|link| link["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["shm", "udp", "packet", "xdp", "stream"]);
    assert_eq!(links[0]["available"]["works"], true);
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn info_lists_every_setting_with_its_value() {
    let output = portolan(&["info", "--json"])
        .env("PORTOLAN_FRAME_LEN_MAX", "1400")
        .env_remove("PORTOLAN_PCAP")
        .output()
        .unwrap();
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = info["settings"].as_array().unwrap();
    assert_eq!(listed.len(), portolan::binding::settings::ALL.len());
    let of = |name: &str| listed.iter().find(|one| one["variable"] == name).unwrap();
    let frame_len = of("PORTOLAN_FRAME_LEN_MAX");
    assert_eq!(
        (&frame_len["value"], &frame_len["option"]),
        (&"1400".into(), &"frame_len_max".into())
    );
    let pcap = of("PORTOLAN_PCAP");
    assert_eq!(
        (&pcap["value"], &pcap["default"]),
        (&Value::Null, &"none".into())
    );
}

#[test]
fn doctor_says_what_each_mpi_would_use() {
    let directory = tempfile::tempdir().unwrap();
    let launcher = directory.path().join("mpirun");
    // Written by another process, so that no child of this one keeps the file open for writing.
    let script = "printf '#!/bin/sh\\necho \"mpirun (Open MPI) 4.1.4\"\\n' > $0; chmod +x $0";
    let made = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(&launcher)
        .status();
    assert!(made.unwrap().success());
    let with = |pml: Option<&str>| {
        let mut command = portolan(&["doctor", "--mpi", "--json"]);
        command
            .env("PATH", directory.path())
            .env_remove("OMPI_MCA_pml")
            .envs(pml.map(|pml| ("OMPI_MCA_pml", pml)));
        let ended: Ended = command.output().unwrap().into();
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        report[0].clone()
    };
    let report = with(None);
    assert_eq!(report["launcher"], launcher.to_str().unwrap());
    assert!(
        report["mpi"]
            .as_str()
            .unwrap()
            .starts_with("Open MPI 4.1.4 (")
    );
    let report = with(Some("ob1"));
    assert_eq!(report["now"]["by"], "ob1");
    assert_eq!(report["now"]["why"], "selected by OMPI_MCA_pml=ob1");
}
