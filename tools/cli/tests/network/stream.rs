// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of long messages by kernel TCP between the hosts of a lab. Exposed pages may be reused as
//! soon as their send has completed, and every byte arrives once, whatever happens to a connection.

mod eager;

use crate::common::labs;
use crate::common::payload::{check, mix, payload};
use crate::common::ranks::{joined, role};
use crate::common::{self, Ended, KillOnDrop, can_make_labs, portolan, run};
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use portolan::binding::Plumbing as _;
use portolan::{Buffer, Error, Node, Region, Target};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

ranks_of_this_module!(run_ranks, run_clean);

const BULK: u16 = 1;

/// Number of messages of one role.
const COUNT: u32 = 400;

/// Lengths from the shortest rendezvous message to several parts.
const LEN_MIN: usize = 65_537;
const LEN_MAX: usize = 600_000;

/// Drops every incoming TCP packet: of IPv4 frames (EtherType at byte 12), those with protocol 6
/// (at byte 23). Portolan's own frames have their numbers there.
const NO_TCP: &str = "6,40 0 0 12,21 0 3 2048,48 0 0 23,21 0 1 6,6 0 0 2,6 0 0 0";

/// Drops one packet in a hundred: SKF_AD_OFF + SKF_AD_RANDOM of include/uapi/linux/filter.h.
const SOME_LOST: &str = "4,32 0 0 4294963256,53 1 0 42949672,6 0 0 2,6 0 0 0";

/// Drops one packet in a thousand in the same way.
const FEW_LOST: &str = "4,32 0 0 4294963256,53 1 0 4294967,6 0 0 2,6 0 0 0";

/// Delays packets at the sender's interface by up to 20 ms.
const SLOW: &str = "tc qdisc add dev eth0 root tbf rate 4gbit burst 128kb latency 20ms";

/// Number of messages of each role of [`endings`], and in its long form number of messages and
/// jobs.
const ENDINGS: u32 = 1500;
const ENDINGS_LONG: u32 = 25_000;
const ENDING_JOBS: u32 = 4;

/// Longest of these messages: one or two parts.
const ENDING_LEN_MAX: usize = LEN_MIN + 60_000;

/// Number of an intruder's connections, and of those that it holds open at a time.
const INTRUSIONS: usize = 3000;
const INTRUSIONS_HELD: usize = 100;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[BULK]) else {
        return;
    };
    let role = role().unwrap();
    let is_receiver = node.rank() == 1;
    if is_receiver {
        match &*role {
            "lossy" => filter(SOME_LOST),
            "endings-lossy" => filter(FEW_LOST),
            "refused" => filter(NO_TCP),
            _ => {}
        }
    }
    if role == "endings-slow" {
        shell(SLOW);
    }
    node.barrier().unwrap();
    match &*role {
        _ if role.starts_with("dies") => return die(&mut node, &role, pass),
        _ if role.starts_with("endings") && is_receiver => take_endings(&mut node),
        _ if role.starts_with("endings") => endings(&mut node),
        "intruded" => be_intruded(&mut node),
        "both" => exchange(&mut node),
        "idle" => idle(&mut node),
        _ if is_receiver => receive(&mut node, &role),
        _ => send(&mut node, &role),
    }
    node.barrier().unwrap();
    println!("\nstreamed={}", node.counters().stream_bytes);
}

fn shell(script: &str) {
    let status = Command::new("sh").args(["-ec", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

fn filter(program: &str) {
    shell(&format!(
        "tc qdisc add dev eth0 clsact; tc filter add dev eth0 ingress bpf da bytecode '{program}'"
    ));
}

fn len_of(index: u32) -> usize {
    let word = mix(u64::from(index) + 5);
    LEN_MIN + usize::try_from(word >> 8).unwrap() % (LEN_MAX - LEN_MIN)
}

/// Sends all messages from one buffer, which is refilled or unmapped as soon as a send has
/// completed.
fn send(node: &mut Node, role: &str) {
    let mut region = Region::new(LEN_MAX).unwrap();
    for index in 0..COUNT {
        let len = len_of(index);
        region[..len].copy_from_slice(&payload(0, 1, index, len));
        match role {
            "pieces" => send_in_two(node, &region[..len], len_of(index + 1) % len),
            _ => node.send(Target::new(1, BULK), &region[..len]).unwrap(),
        }
        region[..len].fill(0xee);
        match role {
            // The pages are unmapped.
            "unmapped" => region = Region::new(LEN_MAX).unwrap(),
            "forked" if index % 8 == 0 => fork_and_write(&mut region[..len]),
            // Kill all connections of this host.
            "killed" if index % 20 == 10 => {
                shell("ss -K -t state established >/dev/null");
            }
            _ => {}
        }
    }
}

/// Sends two pieces, split at `border`; the caller may reuse them when this returns.
#[allow(
    unsafe_code,
    reason = "what is tested is memory that is lent by address"
)]
fn send_in_two(node: &mut Node, bytes: &[u8], border: usize) {
    let (first, second) = bytes.split_at(border);
    // SAFETY: both pieces stay unchanged until the send has completed, for which this waits.
    let lent = |piece: &[u8]| unsafe { Buffer::from_raw(piece.as_ptr(), piece.len()) };
    let target = Target::new(1, BULK);
    let sent = node.isend_two(target, lent(first), lent(second)).unwrap();
    let done = node.wait(sent.expect("it is long")).unwrap();
    assert_eq!(done.len, bytes.len());
}

/// Writes to the exposed pages, in this process and in a child.
#[allow(
    unsafe_code,
    reason = "what is tested is what a fork does to lent pages"
)]
fn fork_and_write(bytes: &mut [u8]) {
    // SAFETY: the child writes to memory and exits; it takes no lock that another thread may hold.
    let forked = unsafe { fork() };
    match forked.unwrap() {
        ForkResult::Child => {
            bytes.fill(0xcc);
            // SAFETY: ends the process at once.
            unsafe { nix::libc::_exit(0) };
        }
        ForkResult::Parent { child } => {
            bytes.fill(0xdd);
            waitpid(child, None).unwrap();
        }
    }
}

fn receive(node: &mut Node, role: &str) {
    let mut region = Region::new(LEN_MAX).unwrap();
    for index in 0..COUNT {
        if role == "collapses" && index == COUNT / 2 {
            filter(NO_TCP);
        }
        region.fill(0xa5);
        let request = node.post_recv_from(0, BULK, region).unwrap();
        let done = node.wait(request).unwrap();
        region = done.buffer.unwrap().into_region().unwrap();
        let len = len_of(index);
        check(&region[..done.len], 0, 1, index, len);
        assert!(region[len..].iter().all(|byte| *byte == 0xa5), "{index}");
    }
}

/// Runs two transfers each way at a time.
fn exchange(node: &mut Node) {
    let (own, other) = (node.rank(), 1 - node.rank());
    for index in (0..COUNT / 2).step_by(2) {
        let both = [index, index + 1];
        let receives = both.map(|_| {
            let region = Region::new(LEN_MAX).unwrap();
            node.post_recv_from(other, BULK, region).unwrap()
        });
        let sends = both.map(|index| {
            let bytes = payload(own, 1, index, len_of(index));
            node.isend(Target::new(other, BULK), bytes).unwrap()
        });
        for (receive, index) in receives.into_iter().zip(both) {
            let done = node.wait(receive).unwrap();
            let bytes = done.buffer.unwrap();
            check(&bytes[..done.len], other, 1, index, len_of(index));
        }
        for send in sends {
            let _ = node.wait(send).unwrap();
        }
    }
}

/// Returns the number of messages of each role of [`endings`].
fn ending_count() -> u32 {
    match std::env::var("STREAM_ENDINGS") {
        Ok(count) => count.parse().unwrap(),
        Err(_) => ENDINGS,
    }
}

fn ending_len(index: u32) -> usize {
    LEN_MIN + len_of(index) % (ENDING_LEN_MAX - LEN_MIN)
}

/// Sends messages. As soon as a send has completed, its buffer is written to, unmapped, dropped by
/// madvise, or shared with a child that writes to it.
fn endings(node: &mut Node) {
    let mut region = Region::new(ENDING_LEN_MAX).unwrap();
    for index in 0..ending_count() {
        let len = ending_len(index);
        region[..len].copy_from_slice(&payload(0, 2, index, len));
        node.send(Target::new(1, BULK), &region[..len]).unwrap();
        match index % 64 {
            0 => fork_and_write(&mut region[..len]),
            at if at % 3 == 0 => advise(&mut region),
            at if at % 3 == 1 => region = Region::new(ENDING_LEN_MAX).unwrap(),
            _ => region[..len].fill(0xee),
        }
    }
}

fn take_endings(node: &mut Node) {
    let mut region = Region::new(ENDING_LEN_MAX).unwrap();
    for index in 0..ending_count() {
        let request = node.post_recv_from(0, BULK, region).unwrap();
        let done = node.wait(request).unwrap();
        region = done.buffer.unwrap().into_region().unwrap();
        check(&region[..done.len], 0, 2, index, ending_len(index));
    }
}

/// Makes the system discard the pages; new pages of zeros appear on access.
#[allow(unsafe_code, reason = "what is tested is what it does to lent pages")]
fn advise(region: &mut Region) {
    let (begin, len) = (region.as_mut_ptr(), region.len());
    // SAFETY: a region consists of whole pages of its own; their contents are not read again.
    let _ = unsafe { nix::libc::madvise(begin.cast(), len, nix::libc::MADV_DONTNEED) };
}

/// Plays `dies-RANK-MICROSECONDS`: that rank is killed after this time, while `pass` passes messages.
fn die(node: &mut Node, role: &str, pass: fn(&mut Node, u32) -> Result<(), Error>) {
    let mut words = role.split('-').skip(1).map(|word| word.parse().unwrap());
    let (victim, delay) = (words.next().unwrap(), words.next().unwrap());
    if u64::from(node.rank()) == victim {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(delay));
            raise(Signal::SIGKILL).unwrap();
        });
    }
    let error = (0..).find_map(|index| pass(node, index).err()).unwrap();
    let is_other = matches!(error, Error::PeerGone { rank, .. } if rank == 1 - node.rank());
    assert!(is_other, "{error:?}");
    println!("\nnoticed: {error}");
}

/// Passes one message from rank 0 to rank 1.
fn pass(node: &mut Node, index: u32) -> Result<(), Error> {
    let len = len_of(index);
    if node.rank() == 0 {
        return node.send(Target::new(1, BULK), &payload(0, 1, index, len));
    }
    let request = node.post_recv_from(0, BULK, vec![0xa5; len])?;
    let done = node.wait(request)?;
    check(&done.buffer.unwrap()[..done.len], 0, 1, index, len);
    Ok(())
}

/// Rank 0 attacks the socket on which rank 1 listens for streams, while messages are exchanged.
fn be_intruded(node: &mut Node) {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    if node.rank() == 1 {
        let at = listeners().join(" ");
        node.send(Target::new(0, BULK), at.as_bytes()).unwrap();
        let before = descriptors();
        exchange(node);
        // A connection of each side with its pipe, and the slots for unidentified connections.
        let after = descriptors();
        assert!(after <= before + 2 * 3 + 16, "{before}, then {after}");
        return;
    }
    let request = node.post_recv_from(1, BULK, vec![0; 1000]).unwrap();
    let done = node.wait(request).unwrap();
    let at = String::from_utf8(done.buffer.unwrap()[..done.len].to_vec()).unwrap();
    let intruder = std::thread::spawn(move || intrude(&at));
    exchange(node);
    let made = intruder.join().unwrap();
    println!("{made} connections of an intruder");
    assert!(made > INTRUSIONS_HELD, "{made}");
}

/// Returns the listening TCP sockets of this host; on a host of a lab these are those of its ranks.
fn listeners() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let fields = table.lines().skip(1).map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next().unwrap(), words.nth(1).unwrap());
        (local.to_owned(), state == "0A")
    });
    let listening = fields.filter(|(_, is_listening)| *is_listening);
    let decode = |(local, _): (String, bool)| {
        let (ip, port) = local.split_once(':').unwrap();
        let ip = u32::from_str_radix(ip, 16).unwrap().to_le_bytes();
        SocketAddr::from((ip, u16::from_str_radix(port, 16).unwrap())).to_string()
    };
    listening.map(decode).collect()
}

/// Connects repeatedly, and sends nothing, half a greeting, a greeting with wrong tokens, or
/// garbage. Returns the number of connections.
fn intrude(at: &str) -> usize {
    let words: [&[u8]; 5] = [
        b"",
        b"PSTR\x04",
        &[0xff; 5000],
        b"GET / HTTP/1.0\r\n\r\n",
        &{
            let mut greeting = [7; 24];
            greeting[..8].copy_from_slice(b"PSTR\x04\0\0\0");
            greeting
        },
    ];
    let addrs: Vec<SocketAddr> = at.split(' ').map(|at| at.parse().unwrap()).collect();
    let mut held = VecDeque::new();
    let mut made = 0;
    for index in 0..INTRUSIONS {
        let addr = &addrs[index % addrs.len()];
        // With a full queue of the listener the attempt would block.
        let Ok(mut stream) = TcpStream::connect_timeout(addr, Duration::from_millis(2)) else {
            continue;
        };
        made += 1;
        let _ = stream.write_all(words[index % words.len()]);
        held.push_back(stream);
        if held.len() > INTRUSIONS_HELD {
            held.pop_front();
        }
    }
    made
}

fn has_stream(node: &Node) -> bool {
    let paths = node.paths(1 - node.rank());
    paths
        .iter()
        .any(|path| path.to_string().starts_with("stream"))
}

/// A connection is kept while it is used, and not much longer; then a new one is made.
fn idle(node: &mut Node) {
    for _ in 0..2 {
        exchange(node);
        assert!(has_stream(node));
        let start = Instant::now();
        while has_stream(node) {
            assert!(start.elapsed() < common::PATIENCE, "it is never closed");
            std::thread::sleep(Duration::from_millis(20));
            node.progress().unwrap();
        }
        node.barrier().unwrap();
    }
}

/// Two hosts; removed on drop.
struct Lab(String);

impl Lab {
    fn up(test: &str) -> Lab {
        let lab = Lab(labs::unique_name(test));
        let ended = run(&["lab", "up", "--name", &lab.0, "--hosts", "2"]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        lab
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = portolan(&["lab", "down", "--name", &self.0]).output();
    }
}

/// Runs `role` on two hosts, without checksums, so that pages are exposed. Returns the bytes that
/// each rank received by streams.
fn run_role(role: &str, usage: &str) -> Vec<u64> {
    run_checked(role, usage, "off")
}

fn run_checked(role: &str, usage: &str, checksum: &str) -> Vec<u64> {
    run_with(role, usage, checksum, &[])
}

/// Runs a role with further arguments of `portolan run`.
fn run_with(role: &str, usage: &str, checksum: &str, args: &[&str]) -> Vec<u64> {
    if !can_make_labs() {
        return Vec::new();
    }
    let lab = Lab::up(role);
    let usage = format!("stream={usage}");
    let checksum = format!("checksum={checksum}");
    let options = ["--lab", &lab.0, "--option", &usage, "--option", &checksum];
    let out = run_ranks(2, role, &[&options, args].concat()).succeeded(role);
    let counts = streamed(&out);
    println!("{role}, {usage}: {counts:?} bytes by streams");
    assert_eq!(counts.len(), 2);
    counts
}

/// Returns the bytes that each rank received by streams.
fn streamed(out: &str) -> Vec<u64> {
    let counts = out.split_whitespace();
    let counts = counts.filter_map(|word| word.strip_prefix("streamed="));
    counts.map(|count| count.parse().unwrap()).collect()
}

fn total() -> u64 {
    (0..COUNT).map(|index| len_of(index) as u64).sum()
}

#[test]
fn a_buffer_may_be_used_again_when_its_send_has_ended() {
    for role in ["overwritten", "unmapped", "forked"] {
        let counts = run_role(role, "on");
        // The first message is sent before the connection is established.
        assert!(counts.iter().all(|count| *count == 0) || counts.iter().sum::<u64>() > total() / 2);
    }
}

#[test]
fn two_pieces_may_be_used_again_when_their_send_has_ended() {
    for checksum in ["off", "auto", "on"] {
        let counts = run_checked("pieces", "on", checksum);
        assert!(counts.iter().all(|count| *count == 0) || counts.iter().sum::<u64>() > total() / 2);
    }
}

#[test]
fn a_buffer_may_be_used_again_when_packets_are_lost() {
    run_role("lossy", "on");
}

const ENDING_ROLES: [&str; 3] = ["endings", "endings-lossy", "endings-slow"];

#[test]
fn pages_may_change_when_their_send_has_ended_under_loss_and_delay() {
    for role in ENDING_ROLES {
        run_role(role, "on");
    }
    run_checked("endings", "on", "on");
}

#[test]
#[ignore = "long: a hundred thousand messages of each kind"]
fn a_hundred_thousand_sends_end_when_their_pages_may_change() {
    let endings = format!("STREAM_ENDINGS={ENDINGS_LONG}");
    for role in (0..ENDING_JOBS).flat_map(|_| ENDING_ROLES) {
        let counts = run_with(role, "on", "off", &["--env", &endings]);
        let least = u64::from(ENDINGS_LONG) * LEN_MIN as u64 / 2;
        let is_disturbed = role != "endings";
        assert!(counts.is_empty() || is_disturbed || counts.iter().sum::<u64>() > least);
    }
}

#[test]
fn killed_process_is_detected_and_leaves_nothing() {
    if !can_make_labs() {
        return;
    }
    for (victim, delay) in [(0, 500), (1, 1500), (0, 5000), (1, 20_000), (0, 40_000)] {
        let role = format!("dies-{victim}-{delay}");
        let options = [
            "--new-lab",
            "2",
            "--option",
            "stream=on",
            "--option",
            "peer_timeout=5s",
        ];
        let ended = run_clean(2, &role, &options);
        let shown = format!("{role}\n{}\n{}", ended.out, ended.err);
        assert_eq!(ended.status, 137, "{shown}");
        let noticed = format!("noticed: rank {victim} on ");
        assert!(ended.out.contains(&noticed), "{shown}");
    }
}

#[test]
fn intruder_does_not_affect_the_job() {
    run_role("intruded", "on");
}

#[test]
fn transfers_both_ways_share_a_connection() {
    run_role("both", "on");
    run_role("both", "auto");
    run_checked("both", "on", "auto");
    run_checked("both", "on", "on");
}

#[test]
fn killed_connections_lose_nothing() {
    let counts = run_role("killed", "on");
    assert!(counts.is_empty() || counts.iter().sum::<u64>() > 0);
}

#[test]
fn a_filter_against_tcp_leaves_udp() {
    let counts = run_role("refused", "on");
    assert_eq!(counts.iter().sum::<u64>(), 0);
}

#[test]
fn filter_added_during_the_run_leaves_udp() {
    run_role("collapses", "on");
}

#[test]
fn all_sockets_are_in_the_range_that_a_firewall_passes() {
    if !can_make_labs() {
        return;
    }
    const PORTS: &str = "20000-20100";
    let lab = labs::Lab::up("ports", "2");
    if !["0", "1"].iter().all(|host| lab.pass_only(host, PORTS)) {
        return;
    }
    let dropped = || lab.dropped("0") + lab.dropped("1");
    let args = ["--lab", &lab.0, "--path", "udp", "--option", "stream=on"];
    let option = format!("ports={PORTS}");
    let out = run_ranks(2, "both", &[&args[..], &["--option", &option]].concat());
    let streamed = streamed(&out.succeeded("a job in the range"));
    assert!(streamed.iter().all(|bytes| *bytes > 0), "{streamed:?}");
    copy_and_measure(&lab, PORTS);
    assert_eq!(dropped(), 0);
    // Control: without the setting the firewall lets nothing pass.
    assert_ne!(run_ranks(2, "both", &args).status, 0);
    assert_ne!(dropped(), 0);
}

/// Runs `cast` and `bench --server` between the two hosts of `lab`, in the range.
fn copy_and_measure(lab: &labs::Lab, ports: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (source, copy) = (directory.path().join("source"), directory.path().join("%h"));
    std::fs::write(&source, payload(0, 3, 0, 3 << 20)).unwrap();
    let [source, copy] = [source, copy].map(|path| path.to_str().unwrap().to_owned());
    let option = format!("ports={ports}");
    let shape = ["--shape", "multicast"];
    let cast = ["cast", "--lab", &lab.0, "--option", &option, &source, &copy];
    let ended = run(&[&cast[..], &shape].concat());
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let within = |host: u32| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-h{host}", lab.0)]);
        command.arg(env!("CARGO_BIN_EXE_portolan")).arg("bench");
        command.env("PORTOLAN_PORTS", ports);
        command.env("PORTOLAN_BENCH_TOKEN", "a token of a test");
        command
    };
    let mut server = within(1);
    server.arg("--server").stdout(Stdio::piped());
    let mut server = KillOnDrop(server.spawn().unwrap());
    let mut first = String::new();
    let output = server.0.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut first).unwrap();
    assert!(first.contains("TCP port 20000"), "{first}");
    let mut client = within(0);
    client.args([
        "pingpong",
        "--client",
        "10.77.0.2",
        "--repeat",
        "1",
        "--iterations",
        "20",
    ]);
    client.args(["--path", "udp", "--vs", "udp,tcp"]);
    let ended: Ended = client.output().unwrap().into();
    assert_eq!(ended.status, 0, "{}", ended.err);
}

#[test]
fn idle_connections_are_closed_and_opened_again() {
    run_role("idle", "on");
}
