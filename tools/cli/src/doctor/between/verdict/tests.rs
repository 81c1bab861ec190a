// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of conclusions from constructed reports.

use super::super::report::Nic;
use super::*;

/// Returns a host; ends are written as `eth0 10.1.0.1/24`.
fn host(name: &str, ends: &[&str]) -> HostReport {
    let end = |text: &&str| {
        let (interface, subnet) = text.split_once(' ').unwrap();
        let subnet: ipnet::IpNet = subnet.parse().unwrap();
        End {
            interface: interface.to_owned(),
            index: 1,
            addr: subnet.addr(),
            prefix_len: subnet.prefix_len(),
            mtu: 1500,
            port: 7,
            is_ambiguous: false,
            raw: None,
        }
    };
    HostReport {
        host: name.to_owned(),
        nics: Vec::new(),
        ends: ends.iter().map(end).collect(),
        raw_refused: None,
        ports: None,
        arrived: Vec::new(),
        failed: Vec::new(),
    }
}

/// Records that packets of these kinds pass between ends `i` and `j`, in both directions.
fn join(a: &mut HostReport, b: &mut HostReport, (i, j): Pair, kinds: &[By]) {
    for by in kinds {
        b.arrived.push((probe_path(*by, (i, j), 0), 1500));
        a.arrived.push((probe_path(*by, (i, j), 1), 1500));
    }
}

const ALL: &[By] = &[By::Udp, By::Tcp, By::Raw];

fn verdict(a: &HostReport, b: &HostReport) -> (Reach, Vec<Finding>) {
    Between { hosts: [a, b] }.verdict()
}

/// Returns the only finding, which must contain these words.
fn only_finding(a: &HostReport, b: &HostReport, words: &[&str]) -> Finding {
    let (_, findings) = verdict(a, b);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = findings.into_iter().next().unwrap();
    let text = format!("{}: {}", finding.what, finding.remedy);
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    finding
}

#[test]
fn working_pair_has_no_findings() {
    let mut a = host("a", &["eth0 10.1.0.1/24"]);
    let mut b = host("b", &["eth0 10.1.0.2/24"]);
    join(&mut a, &mut b, (0, 0), ALL);
    assert_eq!(verdict(&a, &b), (Reach::Udp, Vec::new()));
}

#[test]
fn network_setting_is_per_host_if_hosts_differ() {
    let ends = ["eth0 10.1.0.1/24", "eth1 10.2.0.1/24"];
    let mut a = host("a", &ends);
    let mut b = host("b", &["eth0 10.1.0.2/24", "eth1 10.2.0.2/24"]);
    join(&mut a, &mut b, (1, 1), ALL);
    only_finding(
        &a,
        &b,
        &["PORTOLAN_NETWORK='eth1'", "10.1.0.1 of a", "10.1.0.2 of b"],
    );
    let mut b = host("b", &["eth0 10.2.0.2/24", "eth1 10.1.0.2/24"]);
    let mut a = host("a", &ends);
    join(&mut a, &mut b, (1, 0), ALL);
    only_finding(&a, &b, &["network=a=eth1;b=eth0'"]);
}

#[test]
fn partly_working_interface_is_named_by_address() {
    let mut a = host("a", &["eth0 10.1.0.1/24", "eth0 10.3.0.1/24"]);
    let mut b = host("b", &["eth0 10.3.0.2/24"]);
    join(&mut a, &mut b, (1, 0), ALL);
    only_finding(&a, &b, &["network=a=10.3.0.1;b=eth0'"]);
}

#[test]
fn each_errno_has_its_remedy() {
    let a = host("a", &["eth0 10.1.0.1/24"]);
    let b = host("b", &["eth0 10.1.0.2/24"]);
    let with = |errno, is_remote| {
        let mut a = a.clone();
        a.failed
            .push((probe_path(By::Udp, (0, 0), 0), Failure { errno, is_remote }));
        a
    };
    only_finding(
        &with(libc::EPERM, false),
        &b,
        &["firewall of a", "on a: nft"],
    );
    only_finding(
        &with(libc::ECONNREFUSED, true),
        &b,
        &["firewall of b", "20000-20100"],
    );
    only_finding(
        &with(libc::ENETUNREACH, false),
        &b,
        &["on a: sudo ip route add 10.1.0.0/24"],
    );
    only_finding(
        &with(libc::EHOSTUNREACH, false),
        &b,
        &["not on one Ethernet", "VLAN"],
    );
    only_finding(
        &with(libc::EHOSTUNREACH, true),
        &b,
        &["on the path rejects"],
    );
    only_finding(&a, &b, &["gets no answer", "VLAN"]);
}

#[test]
fn configured_ports_are_proposed() {
    let mut a = host("a", &["eth0 10.1.0.1/24"]);
    let mut b = host("b", &["eth0 10.1.0.2/24"]);
    (a.ports, b.ports) = (Some("7-9".to_owned()), Some("7-9".to_owned()));
    join(&mut a, &mut b, (0, 0), &[By::Tcp]);
    let finding = only_finding(&a, &b, &["drops UDP", "udp dport 7-9 accept"]);
    assert!(finding.is_needed && !finding.remedy.contains("PORTOLAN_PORTS"));
}

#[test]
fn one_passing_direction_means_a_firewall() {
    let mut a = host("a", &["eth0 10.1.0.1/24"]);
    let b = host("b", &["eth0 10.1.0.2/24"]);
    a.arrived.push((probe_path(By::Udp, (0, 0), 1), 1500));
    only_finding(
        &a,
        &b,
        &["from eth0 10.1.0.1 of a to eth0 10.1.0.2 of b", "drops UDP"],
    );
}

#[test]
fn raw_frames_count_within_a_subnet_only() {
    let mut a = host("a", &["eth0 10.1.0.1/24"]);
    let mut b = host("b", &["eth0 10.1.0.2/24"]);
    join(&mut a, &mut b, (0, 0), &[By::Raw]);
    assert_eq!(verdict(&a, &b).0, Reach::Raw);
    only_finding(&a, &b, &["--path packet"]);
    b.ends[0].addr = "10.2.0.2".parse().unwrap();
    assert_eq!(verdict(&a, &b).0, Reach::Nothing);
}

#[test]
fn same_addresses_and_different_families_are_distinguished() {
    let a = host("a", &["eth0 10.0.2.15/24"]);
    only_finding(&a, &a, &["the same addresses", "ip address add ADDRESS/24"]);
    let b = host("b", &["eth1 fd00::1/64"]);
    let words = [
        "a has only IPv4",
        "b has only IPv6",
        "on b: ip address add",
        "eth1",
    ];
    only_finding(&a, &b, &words);
    only_finding(&b, &a, &words);
}

#[test]
fn host_without_address_names_the_reason() {
    let a = host("a", &["eth0 10.1.0.1/24"]);
    let mut b = host("b", &[]);
    let nic = |up, running| Nic {
        name: "eth0".into(),
        up,
        running,
        is_inner: false,
        addrs: Vec::new(),
    };
    for (up, running, word) in [
        (false, false, "ip link set dev eth0 up"),
        (true, false, "cable"),
        (true, true, "ip address add"),
    ] {
        b.nics = vec![nic(up, running)];
        only_finding(&a, &b, &["host b: eth0", word]);
    }
    b.nics.clear();
    only_finding(&a, &b, &["host b has no interface"]);
}

#[test]
fn short_packets_name_the_longest_that_passes() {
    let mut a = host("a", &["eth0 10.1.0.1/24"]);
    let mut b = host("b", &["eth0 10.1.0.2/24"]);
    join(&mut a, &mut b, (0, 0), ALL);
    b.arrived[0].1 = 1400;
    let words = [
        "more than 1400 bytes from eth0 10.1.0.1 of a",
        "on a: sudo ip link set dev eth0 mtu 1400",
    ];
    only_finding(&a, &b, &words);
}
