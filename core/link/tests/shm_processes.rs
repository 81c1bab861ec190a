// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared memory link between processes, and the state left when one is killed.
//!
//! The other process is this test program. It is started with the address of its peer in its
//! environment, and then runs only the test [`child`].

#![cfg(test)]

use portolan_link::{Link, LinkAddr, Notice, PullError, Shm, ShmConfig, TxError, TxFrame, WakeSet};
use portolan_sys::wait::wait_readable;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const CHILD_NAME: &str = "PORTOLAN_TEST_SHM_NAME";
const CHILD_JOB: &str = "PORTOLAN_TEST_SHM_JOB";
const SECRET: [u8; 32] = [3; 32];
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const MEMORY_LEN: usize = 3_000_000;

fn open(rank: u32, job: u128) -> Shm {
    Shm::open(ShmConfig::new(job.to_be_bytes(), rank, SECRET)).unwrap()
}

/// Returns a new job for each test, so that socket names are distinct.
fn new_job() -> u128 {
    rand::random()
}

fn start_child(parent: &Shm, job: u128) -> Reaped {
    let LinkAddr::Shm { name, .. } = parent.local_addr() else {
        panic!("address")
    };
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD_NAME, name)
        .env(CHILD_JOB, job.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    Reaped(child)
}

/// A child that is killed and reaped, even if the test fails.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Rank 1: sends the addresses of its socket and its memory, then echoes until it is killed.
#[test]
fn child() {
    let (Ok(parent), Ok(job)) = (env::var(CHILD_NAME), env::var(CHILD_JOB)) else {
        return;
    };
    let mut link = open(1, job.parse().unwrap());
    let LinkAddr::Shm {
        host,
        uid,
        pid,
        name,
    } = link.local_addr()
    else {
        panic!("address")
    };
    link.connect(
        0,
        &LinkAddr::Shm {
            host,
            uid,
            pid: 0,
            name: parent,
        },
    )
    .unwrap();
    let memory = vec![0x5c_u8; MEMORY_LEN];
    let hello = format!("{pid} {name} {}", memory.as_ptr() as u64);
    link.transmit(0, &TxFrame::contiguous(hello.as_bytes()))
        .unwrap();
    loop {
        let mut frames = Vec::new();
        link.receive(64, &mut |frame| frames.push(frame.head.to_vec()));
        for frame in frames {
            while let Err(TxError::Full) = link.transmit(0, &TxFrame::contiguous(&frame)) {
                thread::yield_now();
            }
        }
        match link.poll_notice() {
            None => sleep(&mut link),
            Some(Notice::PeerDied(0)) => return,
            Some(other) => panic!("{other:?}"),
        }
    }
}

fn sleep(link: &mut Shm) {
    let mut wake = WakeSet::default();
    if link.arm(&mut wake) {
        assert!(
            wait_readable(&wake.fds, Some(TEST_TIMEOUT)).unwrap(),
            "nothing for a long time"
        );
        link.disarm();
    }
}

/// Sleeps until the next frame and returns it.
fn next_frame(link: &mut Shm) -> Vec<u8> {
    let mut bytes = None;
    while link.receive(1, &mut |frame| bytes = Some(frame.head.to_vec())) == 0 {
        if let Some(notice) = link.poll_notice() {
            panic!("{notice:?}");
        }
        sleep(link);
    }
    bytes.unwrap()
}

/// Connects to the child with the addresses that it sent. Returns its pid and the address of its
/// memory.
fn connect_to_child(link: &mut Shm) -> (u32, u64) {
    let words = String::from_utf8(next_frame(link)).unwrap();
    let mut words = words.split(' ');
    let pid = words.next().unwrap().parse().unwrap();
    let name = words.next().unwrap().to_owned();
    let LinkAddr::Shm { host, uid, .. } = link.local_addr() else {
        panic!("address")
    };
    link.connect(
        1,
        &LinkAddr::Shm {
            host,
            uid,
            pid,
            name,
        },
    )
    .unwrap();
    (pid, words.next().unwrap().parse().unwrap())
}

#[test]
fn frames_bounce_between_sleeping_processes() {
    let job = new_job();
    let mut link = open(0, job);
    let _child = start_child(&link, job);
    connect_to_child(&mut link);
    for number in 0..5000u32 {
        link.transmit(1, &TxFrame::contiguous(&number.to_le_bytes()))
            .unwrap();
        assert_eq!(next_frame(&mut link), number.to_le_bytes());
    }
}

#[test]
fn killed_peer_is_reported_once_and_leaves_nothing() {
    let job = new_job();
    let before = shared_memory_files();
    let mut link = open(0, job);
    let mut child = start_child(&link, job);
    connect_to_child(&mut link);
    assert_eq!(sockets_of(job), 2);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let begin = Instant::now();
    let notice = loop {
        if let Some(notice) = link.poll_notice() {
            break notice;
        }
        assert!(begin.elapsed() < TEST_TIMEOUT, "its end is not reported");
    };
    assert!(matches!(notice, Notice::PeerDied(1)), "{notice:?}");
    assert!(link.poll_notice().is_none());
    let late = link.transmit(1, &TxFrame::contiguous(b"late"));
    assert!(matches!(late, Err(TxError::NotConnected(1))), "{late:?}");
    assert_eq!(sockets_of(job), 1);
    drop(link);
    assert_eq!(sockets_of(job), 0);
    assert_eq!(shared_memory_files(), before);
}

#[test]
fn killing_a_peer_wakes_a_sleeper() {
    let job = new_job();
    let mut link = open(0, job);
    let mut child = start_child(&link, job);
    connect_to_child(&mut link);
    let mut wake = WakeSet::default();
    while !link.arm(&mut wake) {
        assert!(link.poll_notice().is_none());
    }
    child.0.kill().unwrap();
    assert!(wait_readable(&wake.fds, Some(TEST_TIMEOUT)).unwrap());
    link.disarm();
    assert!(matches!(link.poll_notice(), Some(Notice::PeerDied(1))));
}

#[test]
fn memory_of_the_peer_is_pulled_until_it_is_killed() {
    let job = new_job();
    let mut link = open(0, job);
    let mut child = start_child(&link, job);
    let (_, addr) = connect_to_child(&mut link);
    let mut copy = vec![0; MEMORY_LEN];
    match link.pull(1, addr, &mut copy) {
        Ok(()) => assert!(copy.iter().all(|&byte| byte == 0x5c)),
        Err(PullError::Unsupported) => return println!("SKIPPED: process_vm_readv is forbidden"),
        Err(err) => panic!("{err}"),
    }
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let late = link.pull(1, addr, &mut copy);
    assert!(matches!(late, Err(PullError::Failed(1, _))), "{late:?}");
}

/// Returns the number of listening sockets with the job in their name.
fn sockets_of(job: u128) -> usize {
    // Accepted connections have the listener's name, too; listening sockets are those with this
    // flag.
    let listening = " 00010000 ";
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let of_job = format!("portolan/{job:032x}/");
    table
        .lines()
        .filter(|line| line.contains(&of_job) && line.contains(listening))
        .count()
}

fn shared_memory_files() -> Vec<std::ffi::OsString> {
    let Ok(dir) = fs::read_dir("/dev/shm") else {
        return Vec::new();
    };
    let names = dir.map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().contains("portolan"))
        .collect()
}
