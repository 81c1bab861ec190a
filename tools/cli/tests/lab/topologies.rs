// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts `a` and `b`, joined in the ways in which real hosts are: a job runs, or it ends within 10 s
//! with an error that names host, interface or address, cause and remedy.
//!
//! A host is a network namespace; `portolan run --hosts` enters it by a command named `ssh`.
//! `TOPOLOGY_ROUNDS` runs each topology more than once.

use crate::common::payload::{check, payload};
use crate::common::ranks::ranks_command;
use crate::common::ranks::unique_word;
use crate::common::{Ended, can_make_labs, find_in_path, give_ssh};
use portolan::{
    Cookie, Endpoint, EndpointAddress, EndpointConfig, Node, PeerIndex, RawPiece, RawRecv, RawSend,
    RawSpace, Sent, Target,
};
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PORT: u16 = 1;

/// Lengths of the messages: one that shares a frame, and one that is transferred in parts.
const LENS: [usize; 2] = [8, 4 << 20];

/// Longest time to an error.
const ERROR_WITHIN: Duration = Duration::from_secs(10);

/// A job whose start alone takes longer than this runs on a machine too busy to judge `ERROR_WITHIN`.
const START_WITHIN: Duration = Duration::from_secs(1);

/// Shell functions that the topologies are written in. `$A` and `$B` are the hosts' namespaces, and `$N`
/// is one that leads nowhere. Interfaces have no IPv6 addresses but in hosts that `v6` was called for.
const SHELL: &str = r#"
set -e
no_v6() {
    ip netns exec $1 sh -c 'cd /proc/sys/net/ipv6/conf; echo 1 >all/disable_ipv6; echo 1 >default/disable_ipv6'
}
v6() {
    ip netns exec $1 sh -c 'cd /proc/sys/net/ipv6/conf; echo 0 >all/disable_ipv6
        echo 0 >default/disable_ipv6; echo 0 >default/accept_dad; echo 0 >all/accept_dad'
}
# join NAMESPACE INTERFACE NAMESPACE INTERFACE: a cable.
join() {
    ip -n $1 link add $2 type veth peer name $4 netns $3
    ip -n $1 link set $2 up
    ip -n $3 link set $4 up
}
# of_link NAMESPACE INTERFACE: waits for its IPv6 address of one link, which the kernel gives it.
of_link() {
    for _ in $(seq 500); do
        ip -n $1 -6 address show dev $2 scope link -tentative | grep -q fe80 && return
        sleep 0.02
    done
    return 1
}
# dead NAMESPACE INTERFACE: up, with a carrier, and nobody behind it.
dead() { serial=$((serial + 1)); join $1 $2 $N n$serial; }
# addr NAMESPACE INTERFACE ADDRESS...
addr() {
    namespace=$1 interface=$2; shift 2
    for address; do ip -n $namespace addr add $address dev $interface; done
}
# filter NAMESPACE HOOK RULE: a firewall of nftables.
filter() {
    ip netns exec $1 nft "table inet t { chain $2 { type filter hook $2 priority 0; $3; }; }"
}
serial=0
for namespace in $A $B $N; do
    ip netns add $namespace
    ip -n $namespace link set lo up
    no_v6 $namespace
done
"#;

/// Enters the namespace of the host that is the first word behind ssh's options.
const SSH: &str = r#"
shift 5
host=$1; shift
exec ip netns exec "$TOPOLOGY-$host" sh -c "$*"
"#;

/// The hosts of a test. Their namespaces end with it.
struct Hosts {
    prefix: String,
    directory: TempDir,
}

impl Hosts {
    /// Makes the hosts and joins them by what `script` says; `None`, said aloud, where that is not possible.
    fn made(script: &str) -> Option<Hosts> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !can_make_labs() {
            return None;
        }
        if script.contains("filter ") && !find_nft() {
            eprintln!("SKIPPED: a firewall needs nftables");
            return None;
        }
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts {
            prefix: format!("t{}-net{next}", std::process::id()),
            directory: tempfile::tempdir().unwrap(),
        };
        let made = Command::new("sh")
            .args(["-c", &format!("{SHELL}\n{script}")])
            .envs(["A", "B", "N"].map(|name| (name, hosts.namespace(name))))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(made.status.success(), "{script}\n{said}");
        Some(hosts)
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}-{}", self.prefix, host.to_lowercase())
    }

    /// Runs two ranks, one a host, that exchange messages.
    fn run(&self, args: &[&str]) -> Ended {
        self.run_as("exchange", args)
    }

    fn run_as(&self, role: &str, args: &[&str]) -> Ended {
        let file = self.directory.path().join("hosts");
        std::fs::write(&file, "a slots=1\nb slots=1\n").unwrap();
        let hosts = [
            "--hosts",
            file.to_str().unwrap(),
            "--remote-program",
            env!("CARGO_BIN_EXE_portolan"),
        ];
        let args = [&hosts[..], args].concat();
        let mut command = ranks_command(2, role, &args, &unique_word());
        give_ssh(&mut command, self.directory.path(), SSH);
        command.env("TOPOLOGY", &self.prefix);
        command.output().unwrap().into()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in ["a", "b", "n"] {
            let name = self.namespace(host);
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

fn find_nft() -> bool {
    Command::new("nft").arg("--version").output().is_ok() && find_in_path("nft").is_file()
}

/// What a rank does: each sends to the other, one after another and then both at once.
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

/// The same by endpoints, as MPI programs do: only their addresses go through the job.
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
    // The other has got everything when it says so.
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

/// Expects that jobs run, with `args` each.
fn runs_with(script: &str, args: &[&[&str]]) {
    let Some(hosts) = Hosts::made(script) else {
        return;
    };
    for round in 0..rounds() {
        for args in args {
            let ended = hosts.run(args);
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

/// Expects that a job ends in time, and that one rank's error has all of `words`; of words with `|` between
/// them, one.
fn fails(script: &str, args: &[&str], words: &[&str]) {
    let Some(hosts) = Hosts::made(script) else {
        return;
    };
    for _ in 0..rounds() {
        let begin = Instant::now();
        let ended = hosts.run(args);
        let taken = begin.elapsed();
        assert_ne!(ended.status, 0, "{}\n{}", ended.out, ended.err);
        let said = format!("{}\n{}", ended.out, ended.err);
        let has = |line: &str, word: &str| word.split('|').any(|word| line.contains(word));
        let tells = |line: &str| words.iter().all(|word| has(line, word));
        assert!(
            said.lines().any(tells),
            "no line has all of {words:?}:\n{said}"
        );
        // A rank that ends because of its error is another matter, and its status says so.
        let is_false =
            |line: &str| line.contains("process has ended") && !line.contains("exit status");
        assert!(!said.lines().any(is_false), "{said}");
        if is_prompt() {
            assert!(taken < ERROR_WITHIN, "{taken:?}\n{said}");
        }
    }
}

/// Whether this machine starts processes at a speed at which times mean something.
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
            let ended = hosts.run_as("exchange by endpoints", &[]);
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
    // The kernel sends to all of the subnet by the first. Addresses of one link name their interface.
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
fn two_families_do_not_meet() {
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
fn a_router_joins_two_subnets() {
    runs(
        "join $A eth0 $N r0; join $B eth0 $N r1
         addr $A eth0 10.1.0.1/24; addr $B eth0 10.2.0.2/24
         addr $N r0 10.1.0.9/24; addr $N r1 10.2.0.9/24
         ip netns exec $N sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
         ip -n $A route add default via 10.1.0.9; ip -n $B route add default via 10.2.0.9",
    );
}
