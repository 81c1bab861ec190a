// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan doctor --between` on hosts that are joined like real hosts: it reports the
//! cause and the remedy, or finds nothing to change.

use crate::common::hosts::Hosts;
use crate::common::{Ended, can_make_labs, portolan, refused};
use serde_json::Value;

const JOINED: &str = "join $A eth0 $B eth0; addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24\n";

fn examined(hosts: &Hosts, args: &[&str]) -> Ended {
    let program = env!("CARGO_BIN_EXE_portolan");
    let asked = ["doctor", "--between", "a", "b", "--remote-program", program];
    let mut command = portolan(&[&asked[..], args].concat());
    hosts.give_ssh(&mut command);
    command.output().unwrap().into()
}

/// Examines hosts made by `script`. The text report must contain all of `words`, and the exit
/// status must report if jobs can run.
fn expects(script: &str, runs: bool, words: &[&str]) {
    tells_with(script, &[], runs, words);
}

fn tells_with(script: &str, args: &[&str], runs: bool, words: &[&str]) {
    let Some(hosts) = Hosts::made(script) else {
        return;
    };
    let ended = examined(&hosts, args);
    assert_eq!(ended.status, i32::from(!runs), "{}{}", ended.out, ended.err);
    for word in words {
        assert!(ended.out.contains(word), "no {word:?} in\n{}", ended.out);
    }
}

#[test]
fn connected_hosts_get_no_finding() {
    expects(
        JOINED,
        true,
        &[
            "nothing to change",
            "eth0 10.1.0.1 -> eth0 10.1.0.2: UDP passes up to 1500 bytes, TCP passes, EtherType 0x88b5 passes",
            "eth0 10.1.0.2 -> eth0 10.1.0.1: UDP passes up to 1500 bytes, TCP passes, EtherType 0x88b5 passes",
        ],
    );
}

#[test]
fn the_first_interface_leads_nowhere() {
    expects(
        "dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24
         addr $A eth1 10.2.0.1/24; addr $B eth1 10.2.0.2/24",
        true,
        &[
            "eth0 10.1.0.1 of a reaches no address of b",
            "--option 'network=eth1'",
        ],
    );
}

#[test]
fn the_last_interface_leads_nowhere() {
    expects(
        "join $A eth0 $B eth0; dead $A eth1; dead $B eth1
         addr $A eth0 10.2.0.1/24; addr $B eth0 10.2.0.2/24
         addr $A eth1 10.1.0.1/24; addr $B eth1 10.1.0.2/24",
        true,
        &["--option 'network=eth0'"],
    );
}

#[test]
fn interfaces_of_different_names_are_joined() {
    expects(
        "dead $A eth0; join $A eth1 $B eth0; dead $B eth1
         addr $A eth0 10.1.0.1/24; addr $B eth1 10.1.0.2/24
         addr $A eth1 10.2.0.1/24; addr $B eth0 10.2.0.2/24",
        true,
        &["--option 'network=a=eth1;b=eth0'"],
    );
}

#[test]
fn two_interfaces_are_of_one_subnet() {
    expects(
        "dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24
         addr $A eth1 10.1.0.3/24; addr $B eth1 10.1.0.4/24",
        true,
        &["--option 'network=eth1'"],
    );
}

#[test]
fn both_hosts_have_the_same_address() {
    expects(
        "dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.0.2.15/24; addr $B eth0 10.0.2.15/24
         addr $A eth1 192.168.56.1/24; addr $B eth1 192.168.56.2/24",
        true,
        &[
            "eth0 10.0.2.15 of a is also an address of b",
            "--option 'network=eth1'",
        ],
    );
    expects(
        "dead $A eth0; dead $B eth0; addr $A eth0 10.0.2.15/24; addr $B eth0 10.0.2.15/24",
        false,
        &[
            "a and b have the same addresses",
            "ip address add ADDRESS/24 dev eth0",
        ],
    );
}

#[test]
fn the_second_address_is_reachable() {
    expects(
        "join $A eth0 $B eth0
         addr $A eth0 10.1.0.1/24 10.3.0.1/24; addr $B eth0 10.2.0.2/24 10.3.0.2/24",
        true,
        &["--option 'network=a=10.3.0.1;b=10.3.0.2'"],
    );
}

#[test]
fn ipv6_works_where_ipv4_does_not() {
    expects(
        "v6 $A; v6 $B; join $A eth0 $B eth0
         addr $A eth0 10.1.0.1/24 fd00:1::1/64; addr $B eth0 10.2.0.2/24 fd00:1::2/64",
        true,
        &[
            "eth0 10.1.0.1 of a reaches no address of b",
            "network=a=fd00:1::1",
        ],
    );
    expects(
        "v6 $A; v6 $B; join $A eth0 $B eth0; of_link $A eth0; of_link $B eth0",
        true,
        &["nothing to change"],
    );
}

#[test]
fn an_interface_is_down_or_has_no_address() {
    expects(
        &format!("{JOINED} ip -n $B link set eth0 down"),
        false,
        &["host b: eth0 is down", "on b: sudo ip link set dev eth0 up"],
    );
    expects(
        "join $A eth0 $B eth0; addr $A eth0 10.1.0.1/24",
        false,
        &["host b: eth0 has no address", "on b: sudo ip address add"],
    );
}

#[test]
fn hosts_have_addresses_of_different_families() {
    expects(
        "v6 $B; join $A eth0 $B eth0; ip -n $B addr flush dev eth0
         addr $A eth0 10.1.0.1/24; addr $B eth0 fd00:1::2/64",
        false,
        &["a has only IPv4, b has only IPv6", "on b: ip address add"],
    );
}

#[test]
fn a_route_is_missing() {
    expects(
        "join $A eth0 $B eth0; addr $A eth0 10.1.0.1/24; addr $B eth0 10.2.0.2/24",
        false,
        &[
            "a has no route to it",
            "on a: sudo ip route add 10.2.0.0/24 via GATEWAY dev eth0",
        ],
    );
}

#[test]
fn a_firewall_rejects_udp() {
    expects(
        &format!("{JOINED} filter $B input 'meta l4proto udp reject'"),
        true,
        &[
            "a firewall of b rejects it",
            "--path packet",
            "PORTOLAN_PORTS=20000-20100",
            "udp dport 20000-20100 accept",
        ],
    );
}

#[test]
fn a_firewall_drops_udp() {
    let dropped = format!("{JOINED} filter $B input 'meta l4proto udp drop'");
    expects(
        &dropped,
        true,
        &["so a firewall drops UDP", "--path packet"],
    );
    expects(
        &format!("{dropped}; ingress $B 'ether type 0x88b5 drop'"),
        false,
        &[
            "TCP passes, so a firewall drops UDP",
            "PORTOLAN_PORTS=20000-20100",
        ],
    );
}

#[test]
fn a_firewall_forbids_output() {
    expects(
        &format!("{JOINED} filter $A output 'meta l4proto udp drop'"),
        true,
        &[
            "a firewall of a forbids UDP output",
            "on a: nft insert rule",
            "--path packet",
        ],
    );
}

#[test]
fn tcp_or_the_ethertype_does_not_pass() {
    expects(
        &format!(
            "{JOINED} filter $B input 'meta l4proto tcp drop'; filter $A input 'meta l4proto tcp drop'"
        ),
        true,
        &["TCP gets no answer", "--option stream=off"],
    );
    expects(
        &format!(
            "{JOINED} filter $B input 'meta l4proto tcp reject'; filter $A input 'meta l4proto tcp reject'"
        ),
        true,
        &["rejects TCP", "tcp dport 20000-20100 accept"],
    );
    expects(
        &format!("{JOINED} ingress $B 'ether type 0x88b5 drop'"),
        true,
        &["EtherType 0x88b5 does not pass", "--path udp"],
    );
}

#[test]
fn long_packets_vanish() {
    expects(
        &format!("{JOINED} ingress $B 'meta length > 1414 drop'"),
        true,
        &[
            "packets of more than 1400 bytes from eth0 10.1.0.1 of a",
            "ip link set dev eth0 mtu 1400",
        ],
    );
}

#[test]
fn a_range_of_ports_passes() {
    let rules =
        "meta l4proto { tcp, udp } th dport 20000-20100 accept; meta l4proto { tcp, udp } drop";
    let script = format!("{JOINED} filter $A input '{rules}'; filter $B input '{rules}'");
    expects(
        &script,
        true,
        &["jobs run between a and b by raw Ethernet only"],
    );
    let option = ["--option", "ports=20000-20100"];
    tells_with(&script, &option, true, &["nothing to change"]);
}

#[test]
fn programs_get_json_and_labs_have_hosts_too() {
    if !can_make_labs() {
        return;
    }
    let lab = crate::common::labs::Lab::up("doctor", "2");
    let words = ["doctor", "--between", "h0", "h1", "--lab", &lab.0, "--json"];
    let ended = crate::common::run(&words);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["reach"], "udp");
    assert_eq!(
        report["findings"].as_array().map(Vec::len),
        Some(0),
        "{report}"
    );
    assert_eq!(report["hosts"][1]["ends"][0]["addr"], "10.77.0.2");
}

#[test]
fn arguments_that_are_not_two_hosts_are_refused() {
    for (names, word) in [
        (["a", "a"], "two different hosts"),
        (["a", "a;b"], "not a host name"),
    ] {
        let told = refused(&["doctor", "--between", names[0], names[1]]);
        assert!(told.contains(word), "{told}");
    }
}
