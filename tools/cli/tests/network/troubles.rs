// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of real trouble on real links: interfaces that go down, get a smaller MTU, lose and refuse
//! packets or change their address; peers that do not read; exhausted resources.

use crate::common::clean::{CAN_OWN_SHM, unix_sockets};
use crate::common::payload::{check, mixed_len, payload};
use crate::common::ranks::role;
use crate::common::{can_make_labs, wait_until};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use portolan::{Error, Node, PortConfig, Target};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

ranks_of_this_module!(run_clean);

/// Rank on the host that has the trouble.
const VICTIM: u32 = 1;

const PORT: u16 = 1;
const SIDE_PORT: u16 = 2;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(role) = role() else { return };
    match role.as_str() {
        "few descriptors" => return few_descriptors(),
        "little memory" => return little_memory(),
        "starved" => return starved(),
        "unopened" => return unopened(),
        "all few descriptors" => return all_few_descriptors(),
        "flooded" => return flooded(),
        "litters" => return std::fs::write("/dev/shm/left", "").unwrap(),
        "other clock" => enter_other_time(),
        _ => {}
    }
    let mut node = Node::join().unwrap();
    node.open(PORT, PortConfig::default()).unwrap();
    node.open(SIDE_PORT, PortConfig::default()).unwrap();
    println!("\nholds: {}", unix_sockets().join(" "));
    exchange(&mut node, 0);
    match role.as_str() {
        "narrow" => during(
            &mut node,
            "ip link set eth0 mtu 1000",
            "ip link set eth0 mtu 1500",
        ),
        "flap" => during(&mut node, "ip link set eth0 down", "ip link set eth0 up"),
        "refused" => during(&mut node, &filter("egress", 100), UNFILTER),
        "other clock" => (1..50).for_each(|index| exchange(&mut node, index)),
        "clock jumps" => during(
            &mut node,
            "date -s '+1 day'",
            "date -s '-2 days'; sleep 0.3; date -s '+1 day'",
        ),
        "lossy" => during(&mut node, &filter("ingress", 20), UNFILTER),
        "healed" => healed(&mut node, "ip link set eth0 down", "ip link set eth0 up"),
        "moved" => {
            let (away, back) = other_address();
            healed(&mut node, &away, &back);
        }
        "stranded" => return stranded(node),
        "unread" => unread(&mut node),
        "patient" => patient(&mut node),
        other => panic!("no role {other}"),
    }
    node.barrier().unwrap();
    println!("\nlives on");
}

fn shell(script: &str) {
    let status = Command::new("sh").args(["-ec", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

/// Returns a command that drops a share of the packets of `eth0` in one direction. A classic BPF
/// program returns `TC_ACT_SHOT` for random numbers (`SKF_AD_OFF` + `SKF_AD_RANDOM` of
/// include/uapi/linux/filter.h) below the threshold. Without segmentation offload a packet is one
/// frame.
fn filter(direction: &str, percent: u64) -> String {
    let threshold = (percent << 32) / 100;
    let program = if percent == 100 {
        "1,6 0 0 2".to_owned()
    } else {
        format!("4,32 0 0 4294963256,53 1 0 {threshold},6 0 0 2,6 0 0 0")
    };
    format!(
        "tc qdisc add dev eth0 clsact; tc filter add dev eth0 {direction} bpf da bytecode '{program}'"
    )
}

const UNFILTER: &str = "tc qdisc del dev eth0 clsact";

/// Restarts this process with clocks of its own, as on a host with another uptime. The offset
/// depends on the process id, so that no two ranks have the same.
fn enter_other_time() {
    const ENTERED: &str = "PORTOLAN_TEST_TIME";
    let ahead = std::process::id() * 1000;
    if std::env::var_os(ENTERED).is_some() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: u32 = uptime.split_once('.').unwrap().0.parse().unwrap();
        println!("\nahead: {}", seconds >= ahead);
        return;
    }
    let ahead = ahead.to_string();
    let error = Command::new("unshare")
        .args(["--time", "--monotonic", &ahead, "--boottime", &ahead])
        .args(std::env::args_os())
        .env(ENTERED, "1")
        .exec();
    panic!("{error}");
}

/// Returns commands that replace the address of `eth0` by another one, and restore it.
fn other_address() -> (String, String) {
    let words = "ip -o -4 addr show dev eth0 | awk '{print $4}'";
    let output = Command::new("sh").args(["-c", words]).output().unwrap();
    let own = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let (away, back) = ("198.51.100.77/24", "dev eth0");
    (
        format!("ip addr del {own} {back}; ip addr add {away} {back}"),
        format!("ip addr del {away} {back}; ip addr add {own} {back}"),
    )
}

/// Exchanges a message of each kind each way, whole and in order.
fn exchange(node: &mut Node, index: u32) {
    try_exchange(node, index).unwrap();
}

fn try_exchange(node: &mut Node, index: u32) -> Result<(), Error> {
    let (own, other) = (node.rank(), 1 - node.rank());
    for (port, len) in [(PORT, mixed_len(index)), (SIDE_PORT, 400_000)] {
        let receive = node.post_recv_from(other, port, vec![0xa5; len])?;
        let bytes = payload(own, u32::from(port), index, len);
        let send = node.isend(Target::new(other, port), bytes)?;
        let done = node.wait(receive)?;
        check(&done.buffer.unwrap(), other, u32::from(port), index, len);
        node.wait(send)?;
    }
    Ok(())
}

/// Exchanges messages during trouble that is shorter than the peer timeout, and afterwards. The
/// timeout is increased, because a busy machine may prolong the trouble.
fn during(node: &mut Node, begin: &str, end: &str) {
    let trouble = (node.rank() == VICTIM).then(|| {
        let script = format!("{begin}; sleep 0.3; {end}");
        std::thread::spawn(move || shell(&script))
    });
    let began = Instant::now();
    let mut index = 1;
    // Both ranks stop at the same count, whichever sees the end of the trouble.
    let mut left = None;
    while left != Some(0) {
        exchange(node, index);
        index += 1;
        left = left.map(|left: u32| left - 1);
        if left.is_none() && agree(node, began.elapsed() > Duration::from_millis(600)) {
            left = Some(20);
        }
    }
    if let Some(trouble) = trouble {
        trouble.join().unwrap();
    }
    exchange(node, index);
    // Retransmissions of streams are done by the kernel.
    let unseen = u64::from(node.counters().stream_bytes > 0);
    println!("\nsent again: {}", node.counters().retransmits + unseen);
}

/// Returns true if both ranks pass true.
fn agree(node: &mut Node, own: bool) -> bool {
    let other = 1 - node.rank();
    let receive = node.post_recv_from(other, PORT, vec![0; 1]).unwrap();
    node.send(Target::new(other, PORT), &[u8::from(own)])
        .unwrap();
    let theirs = node.wait(receive).unwrap().buffer.unwrap()[0] == 1;
    own && theirs
}

/// Lasting trouble: both ranks get an error in time. When it is over, the same processes
/// communicate again without help.
fn healed(node: &mut Node, begin: &str, end: &str) {
    if node.rank() == VICTIM {
        let script = format!("{begin}; sleep 3; {end}");
        std::thread::spawn(move || shell(&script));
    }
    let other = 1 - node.rank();
    let error = node.recv_from(other, PORT, &mut [0; 8]);
    let error = error.expect_err("nothing can have come");
    assert!(
        matches!(error, Error::PeerGone { rank, .. } if rank == other),
        "{error:?}"
    );
    println!("\nnoticed: {error}");
    let target = Target::new(other, PORT);
    let mut word = [0; 4];
    wait_until("they speak again", || {
        for _ in 0..100 {
            node.progress().unwrap();
        }
        if node.rank() == VICTIM {
            // Also answers pings that arrived although their sender got an error.
            let heard = node.recv_from(other, PORT, &mut word).is_ok();
            let _ = heard.then(|| node.send(target, b"pong"));
            return heard && word == *b"done";
        }
        let pinged = node.send(target, b"ping").is_ok();
        pinged && node.recv_from(other, PORT, &mut word).is_ok()
    });
    if node.rank() != VICTIM {
        node.send(target, b"done").unwrap();
        while node.recv_from(other, PORT, &mut word).is_ok() && word != *b"last" {}
    } else {
        node.send(target, b"last").unwrap();
    }
    exchange(node, 1);
}

/// The host loses its address, and then its process ends.
fn stranded(node: Node) {
    if node.rank() == VICTIM {
        shell(&other_address().0);
    }
    drop(node);
    println!("\nlives on");
}

/// A live peer that does not read slows its senders down. It is not given up, and its unread data
/// is limited by its credit.
fn unread(node: &mut Node) {
    const COUNT: u32 = 1_500;
    const LEN: usize = 8_000;
    if node.rank() == VICTIM {
        std::thread::sleep(Duration::from_secs(2));
        let mut bytes = vec![0; LEN];
        for index in 0..COUNT {
            node.recv_from(0, PORT, &mut bytes).unwrap();
            check(&bytes, 0, 1, index, LEN);
        }
        return;
    }
    let message = |index| payload(0, 1, index, LEN);
    let sends = (0..COUNT).map(|index| node.isend(Target::new(VICTIM, PORT), message(index)));
    let sends: Vec<_> = sends.collect::<Result<_, _>>().unwrap();
    let end = Instant::now() + Duration::from_millis(500);
    node.wait_until(|| Instant::now() > end).unwrap();
    let mut ended = 0;
    for send in sends {
        // The peer may have begun to read if this process was not scheduled for so long.
        let was_in_time = Instant::now() < end + Duration::from_millis(500);
        if was_in_time && node.test(send).unwrap().is_some() {
            ended += 1;
        } else {
            node.wait(send).unwrap();
        }
    }
    println!("\n{ended} left unread");
    assert!(ended * LEN < 4 << 20, "{ended} messages that nobody read");
}

/// With a longer peer timeout, a peer that is stopped for longer than the default is not given up.
fn patient(node: &mut Node) {
    let other = 1 - node.rank();
    if node.rank() == VICTIM {
        let script = format!(
            "kill -STOP {pid}; sleep 2; grep -q '^State:.T' /proc/{pid}/status; kill -CONT {pid}",
            pid = std::process::id()
        );
        shell(&script);
        node.send(Target::new(other, PORT), b"here").unwrap();
    } else {
        node.recv_from(other, PORT, &mut [0; 4]).unwrap();
    }
    exchange(node, 1);
}

/// Limits `resource` to the amount in use, plus the amount given in the environment.
fn limit(resource: Resource, in_use: u64) {
    let more: u64 = std::env::var("PORTOLAN_TEST_MORE")
        .unwrap()
        .parse()
        .unwrap();
    let (_, hard) = getrlimit(resource).unwrap();
    setrlimit(resource, (in_use + more).min(hard), hard).unwrap();
}

fn few_descriptors() {
    // New descriptors get the lowest free number.
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() - 1;
    limit(Resource::RLIMIT_NOFILE, open as u64);
    join_and_exchange();
}

/// Lets all ranks communicate with each other.
fn all_few_descriptors() {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() - 1;
    limit(Resource::RLIMIT_NOFILE, open as u64);
    say_refusal(|| {
        let mut node = Node::join()?;
        node.open(PORT, PortConfig::default())?;
        let others: Vec<_> = (0..node.size())
            .filter(|rank| *rank != node.rank())
            .collect();
        for &rank in &others {
            node.isend_copy(Target::new(rank, PORT), b"x")?;
        }
        for &rank in &others {
            node.recv_from(rank, PORT, &mut [0])?;
        }
        node.barrier()
    });
}

fn little_memory() {
    limit(Resource::RLIMIT_AS, address_space());
    join_and_exchange();
}

/// The victim waits for a message that follows more messages than its memory holds.
fn flooded() {
    // Ten times the remaining memory; a thread's heap may have spare address space.
    const COUNT: u32 = 25_000;
    say_refusal(|| {
        let mut node = Node::join()?;
        node.open(PORT, PortConfig::default())?;
        node.open(SIDE_PORT, PortConfig::default())?;
        node.barrier()?;
        if node.rank() == VICTIM {
            limit(Resource::RLIMIT_AS, address_space());
            return node.recv_from(0, SIDE_PORT, &mut [0]).map(|_| ());
        }
        for _ in 0..COUNT {
            // Longer ones use rendezvous on shared memory.
            node.send(Target::new(VICTIM, PORT), &[1; 16_000])?;
        }
        node.send(Target::new(VICTIM, SIDE_PORT), b"x")
    });
}

/// Returns the bytes of address space in use.
fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    pages * 4096
}

/// After joining, the victim's resource named in the environment is exhausted. All other ranks
/// communicate only with the victim.
fn starved() {
    let lack = std::env::var("PORTOLAN_TEST_LACK").unwrap();
    say_refusal(|| {
        let mut node = Node::join()?;
        node.open(PORT, PortConfig::default())?;
        if node.rank() != VICTIM {
            node.send(Target::new(VICTIM, PORT), b"x")?;
            node.recv_from(VICTIM, PORT, &mut [0])?;
            return Ok(());
        }
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() - 1;
        let (resource, most) = match lack.as_str() {
            "descriptors" => (Resource::RLIMIT_NOFILE, open as u64),
            // Less than a ring.
            "memory" => (Resource::RLIMIT_AS, address_space() + (100 << 10)),
            "shared memory" => (Resource::RLIMIT_FSIZE, 4096),
            other => panic!("no lack of {other}"),
        };
        setrlimit(resource, most, most).unwrap();
        for rank in (0..node.size()).filter(|rank| *rank != VICTIM) {
            node.recv_from(rank, PORT, &mut [0])?;
            node.send(Target::new(rank, PORT), b"y")?;
        }
        Ok(())
    });
}

/// The victim gets a message to a port that it never opens.
fn unopened() {
    env_logger::init();
    let mut node = Node::join().unwrap();
    node.open(PORT, PortConfig::default()).unwrap();
    if node.rank() == VICTIM {
        node.recv_from(0, PORT, &mut [0]).unwrap();
    } else {
        for port in [SIDE_PORT, SIDE_PORT] {
            node.send(Target::new(VICTIM, port), b"lost").unwrap();
        }
        let end = Instant::now() + Duration::from_secs(2);
        node.wait_until(|| Instant::now() > end).unwrap();
        node.send(Target::new(VICTIM, PORT), b"x").unwrap();
    }
    node.barrier().unwrap();
}

/// Prints the library's error.
fn join_and_exchange() {
    say_refusal(|| {
        let mut node = Node::join()?;
        node.open(PORT, PortConfig::default())?;
        node.open(SIDE_PORT, PortConfig::default())?;
        try_exchange(&mut node, 0)
    });
}

fn say_refusal(work: impl FnOnce() -> Result<(), Error>) {
    match work() {
        Ok(()) => println!("\nlives on"),
        Err(error) => {
            println!("\nrefused: {error}");
            std::process::exit(3);
        }
    }
}

fn survives(role: &str, args: &[&str]) -> String {
    let what = format!("{role}, {args:?}");
    let out = run_clean(2, role, args).succeeded(&what);
    assert_eq!(out.matches("lives on").count(), 2, "{what}: {out}");
    out
}

const LAB: &[&str] = &["--new-lab", "2", "--path"];

/// Increased peer timeout of the ranks.
const PATIENT: &[&str] = &["--option", "peer_timeout=10s"];

/// A peer timeout that is shorter than the trouble, so that the ranks give each other up.
const IMPATIENT: &[&str] = &["--option", "peer_timeout=900ms"];

/// Trouble that only the protocol notices.
fn loses_nothing(role: &str, paths: &[&str]) {
    if !can_make_labs() {
        return;
    }
    for path in paths {
        let out = survives(role, &[LAB, &[*path], PATIENT].concat());
        let again = out.split_whitespace().filter(|word| *word == "again:");
        assert_eq!(again.count(), 2, "{out}");
        let spared = out.matches("sent again: 0").count();
        assert!(spared < 2, "{role}, {path}: there was no trouble: {out}");
    }
}

/// Trouble that both ranks detect, and that ends.
fn heals(role: &str, paths: &[&str]) {
    if !can_make_labs() {
        return;
    }
    for path in paths {
        let out = survives(role, &[LAB, &[*path], IMPATIENT].concat());
        assert_eq!(out.matches("noticed: ").count(), 2, "{out}");
    }
}

#[test]
fn smaller_mtu_during_the_run_loses_nothing() {
    loses_nothing("narrow", &["auto"]);
}

#[test]
fn interface_that_is_briefly_down_loses_nothing() {
    loses_nothing("flap", &["auto"]);
}

#[test]
fn packets_that_the_system_refuses_are_sent_when_it_takes_them() {
    loses_nothing("refused", &["auto"]);
}

#[test]
fn packets_that_a_filter_loses_are_sent_again() {
    loses_nothing("lossy", &["auto"]);
}

#[test]
fn after_an_interface_was_down_the_same_processes_speak_again() {
    heals("healed", &["auto"]);
}

#[test]
fn a_process_ends_on_a_host_that_has_lost_its_address() {
    if can_make_labs() {
        survives("stranded", &[LAB, &["udp"]].concat());
    }
}

#[test]
fn a_peer_that_does_not_read_holds_its_sender_back_and_lives() {
    survives("unread", &[&["--path", "udp"], PATIENT].concat());
    survives("unread", &["--path", "shm"]);
}

#[test]
fn patience_with_silent_peers_can_be_set() {
    if can_make_labs() {
        survives("patient", &[LAB, &["auto"], PATIENT].concat());
    }
}

/// Clocks of hosts differ by their uptime, so processes must not compare them.
#[test]
fn hosts_that_are_up_for_different_times_understand_one_another() {
    let probe = Command::new("unshare").args(["--time", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("SKIPPED: this process may not make time namespaces");
        return;
    }
    for path in ["shm", "udp"] {
        let out = survives("other clock", &["--path", path]);
        // Kernels before 6.3 move only children into the time namespace.
        if out.matches("ahead: true").count() < 2 {
            println!("SKIPPED: this kernel does not change clocks at exec: {out}");
        }
    }
}

/// Affects the clock of all programs of the machine, some of which may be confused.
#[test]
#[ignore = "sets the machine's clock: PORTOLAN_MAY_SET_CLOCK=1 allows it"]
fn clock_jumps_by_days_have_no_effect() {
    if std::env::var_os("PORTOLAN_MAY_SET_CLOCK").is_none() {
        println!(
            "SKIPPED: PORTOLAN_MAY_SET_CLOCK is not set, so the machine's clock is left alone"
        );
        return;
    }
    for path in ["shm", "udp"] {
        survives("clock jumps", &[&["--path", path], PATIENT].concat());
    }
}

/// Without any spare amount the shortage is reported. With enough, everything works.
fn refuses_or_works(role: &str, spare: &[u64]) {
    let mut refused = 0;
    for path in ["shm", "udp"] {
        for more in spare {
            let env = format!("PORTOLAN_TEST_MORE={more}");
            let ended = run_clean(2, role, &["--path", path, "--env", &env]);
            let shown = format!("{role}, {path}, {more} more\n{}\n{}", ended.out, ended.err);
            assert_ne!(ended.status, 124, "it hangs: {shown}");
            assert!(!ended.err.contains("panicked"), "{shown}");
            let is_told = ended.out.contains("refused: ");
            assert!(ended.status == 0 || is_told, "{shown}");
            refused += u32::from(is_told);
            // The last amount is enough for every rank.
            assert!(!is_told || spare.last() != Some(more), "{shown}");
        }
    }
    assert!(refused > 0, "{role}: nothing was ever refused");
}

#[test]
fn descriptor_shortage_is_reported() {
    refuses_or_works("few descriptors", &[0, 3, 6, 60]);
}

/// `P8.13`: a rank that lacks a resource reports it with the limit and the remedy. So do its peers
/// and the launcher, with its name; none of them reports an end without a reason.
#[test]
fn shortage_is_reported_by_all_ranks_with_its_cause() {
    for (lack, words) in [
        ("descriptors", "the limit of open files is"),
        ("memory", "the limit of address space is"),
        ("shared memory", "the limit of file sizes is"),
    ] {
        let env = format!("PORTOLAN_TEST_LACK={lack}");
        let ended = run_clean(5, "starved", &["--path", "shm", "--env", &env]);
        let shown = format!("{lack}\n{}\n{}", ended.out, ended.err);
        assert_eq!(ended.status, 3, "{shown}");
        let lines = ended.out.lines().filter(|line| line.contains("refused: "));
        let told: Vec<_> = lines.collect();
        assert!(!told.is_empty(), "{shown}");
        for line in &told {
            assert!(
                line.contains(words) && line.contains("; raise it"),
                "{shown}"
            );
            let is_own = line.contains("shm link: ");
            assert!(is_own || line.contains("rank 1 on "), "{shown}");
        }
        let own = told
            .iter()
            .filter(|line| line.contains("shm link: "))
            .count();
        assert!(
            own >= 1,
            "the one that lacks it says what it tried: {shown}"
        );
        let blame = ended.err.lines().last().unwrap_or_default();
        assert!(
            blame.contains("rank 1 on ") && blame.contains(words),
            "{shown}"
        );
    }
}

/// `P4.15`: if a limit of the process leaves no memory, a rank that waits for a message that does
/// not fit reports that limit, however much the setting allows.
#[test]
fn a_flood_that_finds_no_memory_ends_with_the_limit_and_the_remedy() {
    for path in ["shm", "udp"] {
        let more = "PORTOLAN_TEST_MORE=40000000";
        let args = ["--path", path, "--env", more, "-o", "unexpected_memory=1G"];
        let ended = run_clean(2, "flooded", &args);
        let shown = format!("{path}\n{}\n{}", ended.out, ended.err);
        assert_eq!(ended.status, 3, "{shown}");
        let words = ["refused: ", "the limit of address space is", "ulimit -v"];
        let told = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(ended.out.lines().any(told), "{shown}");
    }
}

/// Control: checks that the search of every test here can fail.
#[test]
fn leftovers_in_shared_memory_are_detected() {
    if *CAN_OWN_SHM {
        let found = std::panic::catch_unwind(|| run_clean(1, "litters", &[]));
        let found = found.err().expect("nothing was found");
        let said = found.downcast_ref::<String>().unwrap();
        assert!(said.contains("left in /dev/shm: left"), "{said}");
        assert!(!std::path::Path::new("/dev/shm/left").exists());
    }
}

/// `P9.9`: the receiver reports the waiting sender and the port; for an open port it reports
/// nothing.
#[test]
fn message_to_an_unopened_port_is_logged() {
    for path in ["shm", "udp"] {
        let args = ["--path", path, "--env", "RUST_LOG=warn"];
        let ended = run_clean(2, "unopened", &args);
        assert_eq!(ended.status, 0, "{}{}", ended.out, ended.err);
        let told = ended.err.matches("has waited 1 s").count();
        assert_eq!(told, 1, "{}", ended.err);
        for words in [
            "a message from rank 0 on ",
            "at port 2, which rank 1 has not opened",
        ] {
            assert!(ended.err.contains(words), "{}", ended.err);
        }
    }
}

/// With too few descriptors in every process, the first rank to fail reports the cause, and so does
/// the launcher.
#[test]
fn a_limit_too_low_for_the_job_is_named() {
    let args = ["--path", "shm", "--env", "PORTOLAN_TEST_MORE=6"];
    let ended = run_clean(12, "all few descriptors", &args);
    let shown = format!("{}\n{}", ended.out, ended.err);
    assert_eq!(ended.status, 3, "{shown}");
    let words = "the limit of open files is";
    assert!(
        ended.err.contains(words) && ended.err.contains("ulimit -n"),
        "{shown}"
    );
    let mut refusals = ended.out.lines().filter(|line| line.contains("refused: "));
    assert!(refusals.any(|line| line.contains(words)), "{shown}");
}

#[test]
#[ignore = "long; make test-faults runs it"]
fn all_troubles_on_all_paths_lose_nothing() {
    let paths = ["auto", "udp", "packet"];
    for role in ["narrow", "flap", "refused", "lossy"] {
        loses_nothing(role, &paths);
    }
    heals("healed", &paths);
    // Raw Ethernet has its own addresses, which do not change, so nothing would be detected there.
    heals("moved", &["udp"]);
}

#[test]
#[ignore = "long; make test-faults runs it"]
fn exhausted_resource_is_named() {
    refuses_or_works("little memory", &[0, 100_000, 4_000_000_000]);
    refuses_or_works("few descriptors", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 60]);
}
