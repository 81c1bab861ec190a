// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of long messages within a host, of which sender and receiver copy a part each. Every byte
//! must be right, nothing may be written after the end, and either process may die in the middle.
//! The same holds if the sender may not write to the receiver's memory, and if both share one core.

use crate::common;
use crate::common::payload::{check, payload};
use crate::common::ranks::{joined, role};
use caps::{CapSet, Capability};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl::set_dumpable;
use nix::unistd::Pid;
use portolan::{Error, Node, Target};
use portolan_sys::usage::Usage;
use portolan_sys::vm_read::write_process;
use std::time::{Duration, Instant};

ranks_of_this_module!(run_ranks);

const BULK: u16 = 1;
const WORDS: u16 = 2;

/// Lengths around the shortest shared message and around units of sharing, and long ones.
const LENS: [usize; 6] = [131_071, 131_072, 196_609, 1_000_003, 4 << 20, 9_000_001];

/// Number of messages in flight.
const WINDOW: u32 = 4;

/// Minimum number of rounds; more follow until the sender has copied, however busy the machine is.
const ROUNDS: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[BULK, WORDS]) else {
        return;
    };
    match (role().unwrap().as_str(), node.rank()) {
        ("copied", 0) => send(&mut node, true),
        ("copied", _) => receive(&mut node),
        ("one-way", 0) => {
            println!("\npermitted={}", u64::from(may_write_there(&mut node)));
            send(&mut node, true);
        }
        ("one-way", _) => {
            let place = forbid_writing(&mut node);
            receive(&mut node);
            // The probe's byte, in case the kernel permits the write.
            drop(place);
        }
        ("one-core", 0) => {
            let core = own_cores().next().unwrap();
            node.send(Target::new(1, WORDS), &core.to_le_bytes())
                .unwrap();
            stay_on(core);
            send(&mut node, false);
        }
        ("one-core", _) => {
            let mut core = [0; size_of::<usize>()];
            node.recv(WORDS, &mut core).unwrap();
            stay_on(usize::from_le_bytes(core));
            receive(&mut node);
        }
        ("sender-dies", 0) | ("receiver-dies", 1) => {
            // At a random time, most likely during a copy.
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                common::kill(i32::try_from(std::process::id()).unwrap(), "-9");
            });
            for_ever(&mut node);
        }
        _ => {
            let error = for_ever(&mut node);
            // `NobodyLeft` if the other rank died between two messages.
            let gone = matches!(error, Error::PeerGone { .. } | Error::NobodyLeft { .. });
            assert!(gone, "{error}");
            println!("\nheard of it");
        }
    }
}

fn count_of(call: &str) -> u64 {
    let all = Usage::of_this_thread();
    let found = all.calls().find(|(name, _)| *name == call);
    found.map_or(0, |(_, count)| count)
}

/// Makes the kernel refuse writes of this process to the other one. Returns true if the kernel
/// still permits them. Reading has the opposite direction and is not affected.
fn may_write_there(node: &mut Node) -> bool {
    let mut place = [0; 12];
    node.recv(WORDS, &mut place).unwrap();
    for set in [CapSet::Effective, CapSet::Permitted] {
        // An unprivileged process has no capability to drop.
        let _ = caps::drop(None, set, Capability::CAP_SYS_PTRACE);
    }
    let (pid, addr) = place.split_at(4);
    let pid = u32::from_le_bytes(pid.try_into().unwrap());
    let addr = u64::from_le_bytes(addr.try_into().unwrap());
    write_process(pid, addr, &[1]).is_ok()
}

/// Forbids writes on the other side, and sends the address of a byte for a test write.
fn forbid_writing(node: &mut Node) -> Box<[u8]> {
    set_dumpable(false).unwrap();
    let place: Box<[u8]> = vec![0; 1].into();
    let pid = std::process::id().to_le_bytes();
    let addr = (place.as_ptr().expose_provenance() as u64).to_le_bytes();
    let word = [&pid[..], &addr].concat();
    node.send(Target::new(0, WORDS), &word).unwrap();
    place
}

fn own_cores() -> impl Iterator<Item = usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count()).filter(move |core| allowed.is_set(*core) == Ok(true))
}

fn stay_on(core: usize) {
    let mut only = CpuSet::new();
    only.set(core).unwrap();
    sched_setaffinity(Pid::from_raw(0), &only).unwrap();
    assert!(own_cores().eq([core]));
    println!("\ncore={core}");
}

/// Sends rounds of messages; with `until_helped`, until this side has written or tried to.
fn send(node: &mut Node, until_helped: bool) {
    let end = Instant::now() + PATIENCE;
    let before = count_of("process_vm_writev");
    for round in 0.. {
        let helped = count_of("process_vm_writev") - before;
        let waits = until_helped && helped == 0 && Instant::now() < end;
        let more = round < ROUNDS || waits;
        node.send(Target::new(1, WORDS), &[u8::from(more)]).unwrap();
        if !more {
            break;
        }
        for (index, len) in (0..).zip(LENS) {
            // Overwrite the buffer as soon as the send is complete.
            let mut bytes = payload(0, round, index, len);
            node.send(Target::new(1, BULK), &bytes).unwrap();
            bytes.fill(0xee);
        }
        let sends = (0..WINDOW).map(|index| {
            let bytes = payload(0, round, 100 + index, LENS[3]);
            node.isend(Target::new(1, BULK), bytes).unwrap()
        });
        let sends: Vec<_> = sends.collect();
        sends.into_iter().for_each(|sent| drop(node.wait(sent)));
    }
    let mut reads = [0; 8];
    node.recv(WORDS, &mut reads).unwrap();
    println!("\nreads={}", u64::from_le_bytes(reads));
    println!("\nwrites={}", count_of("process_vm_writev") - before);
}

fn receive(node: &mut Node) {
    let mut more = [0];
    for round in 0.. {
        node.recv(WORDS, &mut more).unwrap();
        if more == [0] {
            break;
        }
        let mut buffer = Vec::new();
        for (index, len) in (0..).zip(LENS) {
            // The previous message must no longer change the buffer.
            assert!(buffer.iter().all(|byte| *byte == 0x3c), "before {len}");
            // Some buffers are too short.
            let cut = if round % 3 == 2 { len / 3 } else { len };
            buffer.clear();
            buffer.resize(cut, 0xa5);
            let got = node.recv(BULK, &mut buffer);
            match got {
                Ok(got) => assert_eq!(got.len, len),
                Err(Error::Truncated { .. }) if cut < len => {}
                Err(error) => panic!("{error}"),
            }
            assert!(buffer == payload(0, round, index, len)[..cut], "{len}");
            buffer.fill(0x3c);
        }
        for index in 0..WINDOW {
            let mut buffer = vec![0xa5; LENS[3]];
            node.recv(BULK, &mut buffer).unwrap();
            check(&buffer, 0, round, 100 + index, LENS[3]);
        }
    }
    let reads = count_of("process_vm_readv").to_le_bytes();
    node.send(Target::new(0, WORDS), &reads).unwrap();
}

/// Sends or receives until the other rank has failed, and returns the error.
fn for_ever(node: &mut Node) -> Error {
    let mut bytes = vec![0xa5; 8 << 20];
    loop {
        let done = match node.rank() {
            0 => node.send(Target::new(1, BULK), &bytes),
            _ => node.recv(BULK, &mut bytes).map(|_| ()),
        };
        if let Err(error) = done {
            return error;
        }
    }
}

fn figure(out: &str, name: &str) -> u64 {
    let value = out
        .lines()
        .find_map(|line| line.split_once(name)?.1.strip_prefix('='));
    value.unwrap().trim().parse().unwrap()
}

#[test]
fn copies_by_both_sides_are_correct_and_ordered() {
    let ended = run_ranks(2, "copied", &[]);
    assert_eq!(ended.status, 0, "{}{}", ended.out, ended.err);
    if figure(&ended.out, "reads") == 0 {
        return println!("SKIPPED: process_vm_readv is forbidden");
    }
    assert!(figure(&ended.out, "writes") > 0, "{}", ended.out);
}

/// The receiver requests help, the sender cannot give it, and the receiver reads the claimed part
/// itself. It sends no further requests.
#[test]
fn a_sender_that_may_not_write_is_asked_once() {
    let ended = run_ranks(2, "one-way", &[]);
    assert_eq!(ended.status, 0, "{}{}", ended.out, ended.err);
    if figure(&ended.out, "reads") == 0 {
        return println!("SKIPPED: process_vm_readv is forbidden, too");
    }
    if figure(&ended.out, "permitted") == 1 {
        return println!("SKIPPED: the kernel lets one process write to any other here");
    }
    assert_eq!(figure(&ended.out, "writes"), 1, "{}", ended.out);
}

/// The sender waits in the library while the receiver reads, and gets the core only in between. It
/// must finish everything that it has claimed by then.
#[test]
fn copies_on_one_core_are_correct_and_ordered() {
    let ended = run_ranks(2, "one-core", &[]);
    assert_eq!(ended.status, 0, "{}{}", ended.out, ended.err);
    let cores: Vec<_> = ended
        .out
        .lines()
        .filter_map(|line| Some(line.split_once("core=")?.1.trim()))
        .collect();
    assert!(cores.len() == 2 && cores[0] == cores[1], "{}", ended.out);
    // If reading is not permitted, everything uses the ring.
    let reads = figure(&ended.out, "reads");
    println!("reads={reads} writes={}", figure(&ended.out, "writes"));
}

/// Runs `role`, in which one of two ranks dies, and checks that the other one detects it.
fn death_is_reported(role: &str) {
    let ended = run_ranks(2, role, &[]);
    assert_ne!(ended.status, 0);
    let is_heard_of = ended.out.contains("heard of it");
    assert!(is_heard_of, "{}{}", ended.out, ended.err);
}

#[test]
fn a_sender_that_is_killed_while_it_copies_ends_the_receive() {
    death_is_reported("sender-dies");
}

#[test]
fn a_receiver_that_is_killed_while_its_sender_copies_ends_the_send() {
    death_is_reported("receiver-dies");
}
