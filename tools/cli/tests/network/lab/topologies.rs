// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with two hosts `a` and `b`, joined like real hosts: a job runs, or it ends within 10 s
//! with an error that names host, interface or address, cause and remedy.
//!
//! `TOPOLOGY_ROUNDS` runs each topology several times.

use super::ranks_command;
use crate::common::Ended;
use crate::common::hosts::Hosts;
use crate::common::payload::{check, payload};
use crate::common::ranks::unique_word;
use portolan::binding::{
    Cookie, Endpoint, EndpointAddress, PeerIndex, RawPiece, RawRecv, RawSend, RawSpace, Sent,
};
use portolan::{EndpointConfig, Node, Target};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

const PORT: u16 = 1;

/// Lengths of the messages: one that shares a frame, and one that is transferred in parts.
const LENS: [usize; 2] = [8, 4 << 20];

/// Longest time to an error.
const ERROR_WITHIN: Duration = Duration::from_secs(10);

/// Start time of a job above which the machine is too busy to check `ERROR_WITHIN`.
const START_WITHIN: Duration = Duration::from_secs(1);

/// Runs two ranks, one on each host, in `role`.
fn run_as(hosts: &Hosts, role: &str, args: &[&str]) -> Ended {
    let file = hosts.directory().join("hosts");
    std::fs::write(&file, "a slots=1\nb slots=1\n").unwrap();
    let places = [
        "--hosts",
        file.to_str().unwrap(),
        "--remote-program",
        env!("CARGO_BIN_EXE_portolan"),
    ];
    let args = [&places[..], args].concat();
    let mut command = ranks_command(2, role, &args, &unique_word());
    hosts.give_ssh(&mut command);
    command.output().unwrap().into()
}

/// Exchanges messages of each length with the other rank, both at once.
pub(crate) fn exchange(node: &mut Node) -> Result<(), portolan::Error> {
    let (own, peer) = (node.rank(), 1 - node.rank());
    node.open(PORT, portolan::PortConfig::default())?;
    for (index, len) in (0..).zip(LENS) {
        let receive = node.post_recv_from(peer, PORT, vec![0xa5; len])?;
        let send = node.isend(Target::new(peer, PORT), payload(own, 1, index, len))?;
        let got = node.wait(receive)?;
        check(&got.buffer.unwrap(), peer, 1, index, len);
        let _ = node.wait(send)?;
    }
    node.barrier()
}

const PLAIN: RawSend = RawSend {
    space: RawSpace::Plain,
    imm: None,
    delivered: false,
};

const ANY: RawRecv = RawRecv {
    space: RawSpace::Plain,
    ignore: 0,
    source: None,
};

/// Exchanges messages between endpoints, like MPI programs: only their addresses go through the
/// job.
pub(crate) fn exchange_by_endpoints(node: &mut Node) -> Result<(), portolan::Error> {
    let (own, peer) = (node.rank(), 1 - node.rank());
    node.open(PORT, portolan::PortConfig::default())?;
    let mut end = Endpoint::open(&EndpointConfig::default())?;
    node.send(Target::new(peer, PORT), end.address().as_bytes())?;
    let mut address = [0; EndpointAddress::LEN];
    node.recv_from(peer, PORT, &mut address)?;
    let to = end.insert(&EndpointAddress::from_bytes(&address)?).unwrap();
    for (index, len) in (0..).zip(LENS) {
        let sent = payload(own, 1, index, len);
        let mut got = vec![0xa5; len];
        pass(&mut end, to, &sent, &mut got);
        check(&got, peer, 1, index, len);
    }
    // The other rank sends this once it has received everything.
    pass(&mut end, to, b"done", &mut [0; 4]);
    Ok(())
}

/// Sends and receives one message each.
#[allow(
    unsafe_code,
    reason = "endpoints take pointers, as MPI libraries give them"
)]
fn pass(end: &mut Endpoint, to: PeerIndex, sent: &[u8], got: &mut [u8]) {
    let piece = |bytes: *const u8, len| RawPiece {
        ptr: bytes.cast_mut(),
        len,
    };
    let mut left = BTreeSet::from([1, 2]);
    let (from, into) = (
        piece(sent.as_ptr(), sent.len()),
        piece(got.as_mut_ptr(), got.len()),
    );
    // SAFETY: `got` is borrowed until the receive has ended, below.
    unsafe { end.recv(&ANY, &[into], Cookie::new(1)) }.unwrap();
    // SAFETY: `sent` is borrowed until the send has ended, below.
    let result = unsafe { end.send(to, &PLAIN, &[from], Cookie::new(2)) };
    if result.unwrap() == Sent::Done {
        left.remove(&2);
    }
    while !left.is_empty() {
        end.poll(&mut |done| {
            assert_eq!(done.error, None);
            left.remove(&done.cookie.context);
        });
    }
}

fn rounds() -> u32 {
    let rounds = std::env::var("TOPOLOGY_ROUNDS").ok();
    rounds.map_or(1, |rounds| rounds.parse().unwrap())
}

/// Expects jobs with each of `args` to run.
fn runs_with(script: &str, args: &[&[&str]]) {
    let Some(hosts) = Hosts::made(script) else {
        return;
    };
    for round in 0..rounds() {
        for args in args {
            let ended = run_as(&hosts, "exchange", args);
            assert_eq!(
                (ended.status, ended.out.matches("exchanged").count()),
                (0, 2),
                "round {round}, {args:?}\n{}\n{}",
                ended.out,
                ended.err
            );
        }
    }
}

fn runs(script: &str) {
    runs_with(script, &[&[]]);
}

/// Expects a job to end in time, and one rank's error to contain all of `words`; of words separated
/// by `|`, one suffices.
fn fails(script: &str, args: &[&str], words: &[&str]) {
    let Some(hosts) = Hosts::made(script) else {
        return;
    };
    for _ in 0..rounds() {
        let begin = Instant::now();
        let ended = run_as(&hosts, "exchange", args);
        let taken = begin.elapsed();
        assert_ne!(ended.status, 0, "{}\n{}", ended.out, ended.err);
        let said = format!("{}\n{}", ended.out, ended.err);
        let has = |line: &str, word: &str| word.split('|').any(|word| line.contains(word));
        let expects = |line: &str| words.iter().all(|word| has(line, word));
        assert!(
            said.lines().any(expects),
            "no line has all of {words:?}:\n{said}"
        );
        // A rank that ends because of its own error is reported with its exit status.
        let is_false =
            |line: &str| line.contains("process has ended") && !line.contains("exit status");
        assert!(!said.lines().any(is_false), "{said}");
        if is_prompt() {
            assert!(taken < ERROR_WITHIN, "{taken:?}\n{said}");
        }
    }
}

/// Returns true if this machine starts processes fast enough for times to be meaningful.
fn is_prompt() -> bool {
    let begin = Instant::now();
    let _ = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .arg("--version")
        .output();
    begin.elapsed() < START_WITHIN / 4
}

const UDP: &[&str] = &["--path", "udp"];
const PACKET: &[&str] = &["--path", "packet"];

#[test]
fn endpoints_find_the_address_that_leads_to_their_peer() {
    let topologies = [
        "dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24
         addr $A eth1 10.2.0.1/24; addr $B eth1 10.2.0.2/24",
        "dead $A eth0; join $A eth1 $B eth0; dead $B eth1
         addr $A eth0 10.1.0.1/24; addr $B eth1 10.1.0.2/24
         addr $A eth1 10.2.0.1/24; addr $B eth0 10.2.0.2/24",
        "dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.0.2.15/24; addr $B eth0 10.0.2.15/24
         addr $A eth1 192.168.56.1/24; addr $B eth1 192.168.56.2/24",
        "join $A eth0 $B eth0
         addr $A eth0 10.1.0.1/24 10.3.0.1/24; addr $B eth0 10.2.0.2/24 10.3.0.2/24",
        "v6 $A; v6 $B; join $A eth0 $B eth0; addr $A eth0 fd00:1::1/64; addr $B eth0 fd00:1::2/64",
    ];
    for script in topologies {
        let Some(hosts) = Hosts::made(script) else {
            return;
        };
        for round in 0..rounds() {
            let ended = run_as(&hosts, "exchange by endpoints", &[]);
            assert_eq!(
                (ended.status, ended.out.matches("exchanged").count()),
                (0, 2),
                "round {round}, {script}\n{}\n{}",
                ended.out,
                ended.err
            );
        }
    }
}

#[test]
fn the_second_of_two_interfaces_joins() {
    runs_with(
        "dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24
         addr $A eth1 10.2.0.1/24; addr $B eth1 10.2.0.2/24",
        &[&[], UDP, PACKET],
    );
}

#[test]
fn the_first_of_two_interfaces_joins() {
    runs_with(
        "join $A eth0 $B eth0; dead $A eth1; dead $B eth1
         addr $A eth0 10.2.0.1/24; addr $B eth0 10.2.0.2/24
         addr $A eth1 10.1.0.1/24; addr $B eth1 10.1.0.2/24",
        &[&[], UDP, PACKET],
    );
}

#[test]
fn interfaces_of_different_names_join() {
    runs_with(
        "dead $A eth0; join $A eth1 $B eth0; dead $B eth1
         addr $A eth0 10.1.0.1/24; addr $B eth1 10.1.0.2/24
         addr $A eth1 10.2.0.1/24; addr $B eth0 10.2.0.2/24",
        &[&[], UDP, PACKET],
    );
}

#[test]
fn of_two_interfaces_on_one_subnet_the_second_joins() {
    // The kernel sends to the whole subnet by the first. Link-local addresses include their
    // interface.
    runs_with(
        "v6 $A; v6 $B; dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24
         addr $A eth1 10.1.0.3/24; addr $B eth1 10.1.0.4/24
         of_link $A eth1; of_link $B eth1",
        &[&[], UDP],
    );
}

#[test]
fn an_address_that_all_hosts_have_leads_to_none_of_them() {
    runs_with(
        "dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.0.2.15/24; addr $B eth0 10.0.2.15/24
         addr $A eth1 192.168.56.1/24; addr $B eth1 192.168.56.2/24",
        &[&[], UDP, PACKET],
    );
}

#[test]
fn the_second_address_of_an_interface_is_reachable() {
    runs_with(
        "join $A eth0 $B eth0
         addr $A eth0 10.1.0.1/24 10.3.0.1/24; addr $B eth0 10.2.0.2/24 10.3.0.2/24",
        &[&[], UDP],
    );
}

#[test]
fn ipv6_joins_where_ipv4_does_not() {
    runs_with(
        "v6 $A; v6 $B; join $A eth0 $B eth0
         addr $A eth0 10.1.0.1/24 fd00:1::1/64; addr $B eth0 10.2.0.2/24 fd00:1::2/64",
        &[&[], UDP],
    );
}

#[test]
fn ipv6_of_one_link_joins() {
    runs_with(
        "v6 $A; v6 $B; join $A eth0 $B eth0; of_link $A eth0; of_link $B eth0",
        &[&[], UDP],
    );
}

#[test]
fn an_interface_that_is_down_is_named() {
    fails(
        "join $A eth0 $B eth0; addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24
         ip -n $B link set eth0 down",
        &[],
        &["b", "eth0", "down", "ip link set eth0 up"],
    );
}

#[test]
fn an_interface_without_an_address_is_named() {
    fails(
        "join $A eth0 $B eth0; addr $A eth0 10.1.0.1/24",
        &[],
        &["b", "eth0", "no address", "ip address add"],
    );
}

#[test]
fn hosts_without_a_common_address_family_are_reported() {
    fails(
        "v6 $B; join $A eth0 $B eth0
         addr $A eth0 10.1.0.1/24; addr $B eth0 fd00:1::2/64",
        UDP,
        &["b", "IPv4", "IPv6", "ip address add"],
    );
}

#[test]
fn a_subnet_without_a_route_is_named() {
    fails(
        "join $A eth0 $B eth0; addr $A eth0 10.1.0.1/24; addr $B eth0 10.2.0.2/24",
        UDP,
        &["on a|on b", "10.1.0.1|10.2.0.2", "os error 101", "ip route"],
    );
}

const JOINED: &str = "join $A eth0 $B eth0; addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24\n";

#[test]
fn a_firewall_that_rejects_udp_is_named() {
    fails(
        &format!("{JOINED} filter $B input 'meta l4proto udp reject'"),
        UDP,
        &["on b", "10.1.0.2", "refuse", "firewall", "--path"],
    );
}

#[test]
fn a_firewall_that_forbids_output_is_named() {
    fails(
        &format!("{JOINED} filter $A output 'meta l4proto udp drop'"),
        UDP,
        &["on b", "10.1.0.2", "os error 1", "firewall"],
    );
}

#[test]
fn raw_ethernet_passes_a_firewall_that_rejects_udp() {
    for host in ["$A", "$B"] {
        runs(&format!(
            "{JOINED} filter {host} input 'meta l4proto udp reject'"
        ));
    }
}

#[test]
fn raw_ethernet_passes_a_firewall_that_drops_udp() {
    runs(&format!("{JOINED} filter $B input 'meta l4proto udp drop'"));
}

#[test]
fn stateful_firewalls_on_both_sides_let_udp_pass() {
    let rule = "ct state established,related accept; meta l4proto udp drop";
    runs(&format!(
        "{JOINED} filter $A input '{rule}'; filter $B input '{rule}'"
    ));
}

#[test]
fn a_bridge_for_containers_is_not_tried_first() {
    runs(&format!(
        "ip -n $A link add docker0 type bridge; ip -n $A link set docker0 up
         ip -n $B link add docker0 type bridge; ip -n $B link set docker0 up
         addr $A docker0 172.17.0.1/16; addr $B docker0 172.17.0.1/16; {JOINED}"
    ));
}

#[test]
fn tcp_is_not_needed() {
    runs(&format!(
        "{JOINED} filter $B input 'meta l4proto tcp reject with tcp reset'; filter $A input 'meta l4proto tcp drop'"
    ));
}

#[test]
fn different_mtus_of_two_hosts_are_found_out() {
    runs(&format!("{JOINED} ip -n $B link set eth0 mtu 1400"));
}

#[test]
fn a_bridge_on_one_side_joins() {
    runs(
        "join $A eth0 $B eth0; ip -n $B link add br0 type bridge; ip -n $B link set br0 up
         ip -n $B link set eth0 master br0; addr $A eth0 10.1.0.1/24; addr $B br0 10.1.0.2/24",
    );
}

#[test]
fn a_macvlan_on_one_side_joins() {
    runs(
        "join $A eth0 $B eth0; ip -n $B link add m0 link eth0 type macvlan mode bridge
         ip -n $B link set m0 up; addr $A eth0 10.1.0.1/24; addr $B m0 10.1.0.2/24",
    );
}

/// A router `$N` between `$A` and `$B`.
const ROUTED: &str = "join $A eth0 $N r0; join $B eth0 $N r1
    addr $A eth0 10.1.0.1/24; addr $B eth0 10.2.0.2/24
    addr $N r0 10.1.0.9/24; addr $N r1 10.2.0.9/24
    ip netns exec $N sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    ip -n $A route add default via 10.1.0.9\n";

#[test]
fn a_router_joins_two_subnets() {
    runs(&format!("{ROUTED} ip -n $B route add default via 10.2.0.9"));
}

#[test]
fn a_host_behind_address_translation_is_reached() {
    runs(&format!(
        "{ROUTED} ip -n $B route add default via 10.2.0.9
         ip netns exec $N nft 'table ip nat {{ chain c {{
             type nat hook postrouting priority 100; oifname \"r1\" masquerade; }}; }}'"
    ));
}

#[test]
fn a_smaller_mtu_of_a_router_is_found_out() {
    // With the router's ICMP messages, and without.
    for silence in ["", "filter $N output 'meta l4proto icmp drop'"] {
        runs(&format!(
            "{ROUTED} ip -n $B route add default via 10.2.0.9
             ip -n $N link set r1 mtu 1300; {silence}"
        ));
    }
}

#[test]
fn a_smaller_mtu_of_a_switch_is_found_out() {
    // A bridge drops longer frames, and reports nothing.
    runs_with(
        "join $A eth0 $N r0; join $B eth0 $N r1; ip -n $N link add s type bridge
         ip -n $N link set s up; ip -n $N link set r0 master s; ip -n $N link set r1 master s
         ip -n $N link set r1 mtu 1300
         addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24",
        &[&[], UDP, PACKET],
    );
}

#[test]
fn udp_runs_where_raw_ethernet_is_dropped() {
    runs(&format!("{JOINED} ingress $B 'ether type 0x88b5 drop'"));
}

/// Expects `portolan cast` to copy a file from host `a` to host `b`.
fn casts(script: &str) {
    let Some(hosts) = Hosts::made(script) else {
        return;
    };
    let at = |name: &str| hosts.directory().join(name);
    let bytes = payload(0, 1, 0, LENS[1]);
    std::fs::write(at("source"), &bytes).unwrap();
    std::fs::write(at("hosts"), "b\n").unwrap();
    for round in 0..rounds() {
        let copy = at(&format!("copy-{round}"));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &hosts.namespace("A")]);
        command.args([env!("CARGO_BIN_EXE_portolan"), "cast", "--hosts"]);
        command.arg(at("hosts"));
        command.args(["--remote-program", env!("CARGO_BIN_EXE_portolan")]);
        command.arg(at("source")).arg(&copy);
        hosts.give_ssh(&mut command);
        let ended = Ended::from(command.output().unwrap());
        assert_eq!(
            ended.status, 0,
            "round {round}\n{}\n{}",
            ended.out, ended.err
        );
        assert!(std::fs::read(&copy).unwrap() == bytes, "round {round}");
    }
}

#[test]
fn a_cast_finds_the_network_that_joins() {
    casts(
        "dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.1.0.1/24; addr $B eth0 10.1.0.2/24
         addr $A eth1 10.2.0.1/24; addr $B eth1 10.2.0.2/24",
    );
    casts(
        "dead $A eth0; dead $B eth0; join $A eth1 $B eth1
         addr $A eth0 10.0.2.15/24; addr $B eth0 10.0.2.15/24
         addr $A eth1 192.168.56.1/24; addr $B eth1 192.168.56.2/24",
    );
    casts(
        "join $A eth0 $B eth0
         addr $A eth0 10.1.0.1/24 10.3.0.1/24; addr $B eth0 10.2.0.2/24 10.3.0.2/24",
    );
    casts("v6 $A; v6 $B; join $A eth0 $B eth0; of_link $A eth0; of_link $B eth0");
}
