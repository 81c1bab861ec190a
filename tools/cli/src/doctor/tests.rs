// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of conclusions from constructed machines.

use super::*;
use std::collections::BTreeMap;

fn works() -> Finding {
    Finding {
        works: true,
        why_not: None,
    }
}

fn refused() -> Finding {
    Finding {
        works: false,
        why_not: Some("not permitted".into()),
    }
}

fn nic() -> nic::Nic {
    nic::Nic {
        name: "eth0".into(),
        driver: None,
        kind: "device".into(),
        loopback: false,
        ethernet: true,
        up: true,
        running: true,
        mtu: 9000,
        mbit_per_s: None,
        addresses: vec!["10.0.0.1".parse().unwrap()],
        offloads: BTreeMap::from([("rx-gro".into(), true)]),
        rx_coalescing_us: Some(0),
        adaptive_coalescing: Some(false),
        udp: works(),
        packet: works(),
        stream: works(),
        xdp_generic: "a",
        xdp_native: "b",
        by_broker: false,
        udp_segments: 64,
    }
}

/// Returns the report of a machine that needs no change.
fn report() -> Report {
    Report {
        schema: SCHEMA,
        version: "0",
        machine: host::Machine {
            host: "h".into(),
            kernel: "6.1".into(),
            architecture: "x86_64",
            cpu: None,
            core_count: 8,
            smt: None,
            governor: Some("performance".into()),
            hypervisor: false,
            clock_source: None,
        },
        privileges: host::Privileges {
            uid: 1000,
            net_raw: true,
            net_admin: false,
            bpf: false,
            sys_admin: false,
            sys_ptrace: false,
            ptrace_scope: Some(1),
        },
        features: probe::Features {
            udp_segment: works(),
            udp_gro: works(),
            zero_copy_tcp: works(),
            memfd: works(),
            membarrier: works(),
            pull: works(),
            netns: works(),
            packet_socket: works(),
            xdp_socket: works(),
            shm: works(),
        },
        limits: host::Limits {
            memlock_len: None,
            descriptors: Some(4096),
            descriptors_max: None,
            receive_buffer_len_max: Some(16 << 20),
            send_buffer_len_max: Some(16 << 20),
            unexpected_memory_len: Some(8 << 30),
        },
        nics: vec![nic()],
        paths: Vec::new(),
        advice: Vec::new(),
    }
}

fn actions(report: &Report) -> Vec<String> {
    advice::of(report)
        .into_iter()
        .map(|advice| advice.action)
        .collect()
}

fn path_over(nic: &nic::Nic) -> Option<&'static str> {
    over(nic).path
}

#[test]
fn a_perfect_machine_needs_no_advice() {
    assert_eq!(actions(&report()), Vec::<String>::new());
    assert!(print::text(&report()).contains("nothing to change"));
}

#[test]
fn each_shortcoming_has_its_remedy() {
    let mut poor = report();
    poor.features.packet_socket = refused();
    poor.features.pull = refused();
    poor.privileges.ptrace_scope = Some(2);
    poor.machine.governor = Some("powersave".into());
    poor.limits.receive_buffer_len_max = Some(212_992);
    poor.nics[0].mtu = 1500;
    poor.nics[0].offloads.insert("rx-gro".into(), false);
    poor.nics[0].adaptive_coalescing = Some(true);
    let all = actions(&poor).join("\n");
    for remedy in [
        "setcap cap_net_raw+ep",
        "sysctl kernel.yama.ptrace_scope=1",
        "cpupower frequency-set -g performance",
        "sysctl -w net.core.rmem_max=8388608",
        "sudo ethtool -K eth0 gro on",
        "sudo ethtool -C eth0 adaptive-rx off",
        "mtu 9000",
    ] {
        assert!(all.contains(remedy), "{remedy} is missing in\n{all}");
    }
    assert_eq!(actions(&poor).len(), 7);
}

#[test]
fn interfaces_that_are_down_get_no_advice_and_no_path() {
    let mut report = report();
    report.nics[0].mtu = 1500;
    report.nics[0].running = false;
    assert!(actions(&report).is_empty());
    assert_eq!(paths(&report.features, &report.nics).len(), 1);
}

#[test]
fn path_depends_on_links_that_open() {
    let mut nic = nic();
    assert_eq!(path_over(&nic), Some("packet+udp"));
    nic.packet = refused();
    assert_eq!(path_over(&nic), Some("udp"));
    assert!(over(&nic).why.contains("no raw Ethernet: not permitted"));
    nic.udp = refused();
    assert_eq!(path_over(&nic), None);
    nic.packet = works();
    assert_eq!(path_over(&nic), Some("packet"));
}

#[test]
fn processes_of_one_host_use_shared_memory_where_it_works() {
    let mut report = report();
    assert_eq!(same_host(&report.features).path, Some("shm"));
    report.features.pull = refused();
    assert!(
        same_host(&report.features)
            .why
            .contains("two copies: not permitted")
    );
    report.features.shm = refused();
    assert_eq!(same_host(&report.features).path, Some("udp"));
}

#[test]
fn a_link_is_available_if_it_opens_on_any_interface() {
    let mut report = report();
    report.nics.insert(
        0,
        nic::Nic {
            packet: refused(),
            ..nic()
        },
    );
    let links = report.links();
    assert!(links.iter().all(|(_, finding)| finding.works));
    report.nics.clear();
    assert!(
        report
            .links()
            .iter()
            .filter(|(name, _)| *name != "shm")
            .all(|(_, it)| !it.works)
    );
}
