// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the counts of system calls agree with those of `strace`.

use portolan_sys::net::{self, Sender, SockAddr};
use portolan_sys::usage::Usage;
use portolan_sys::{barrier, wait};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::time::Duration;

/// Prefix of a count in the child's output.
const COUNTED: &str = "counted ";

/// Calls made neither by the test harness nor by opening sockets.
const TRACED: [&str; 8] = [
    "sendto",
    "sendmsg",
    "recvfrom",
    "recvmsg",
    "getsockopt",
    "setsockopt",
    "ppoll",
    "sched_yield",
];

/// Makes system calls through the counting functions, and prints the counts.
#[test]
#[ignore = "the child of calls_are_counted_as_strace_counts_them"]
fn make_calls() {
    let (a, b) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    let to = SockAddr::from(b.local_addr().unwrap());
    let mut buf = [0; 2048];
    let before = Usage::of_this_thread();
    for round in 0..20 {
        net::send_to(a.as_fd(), &to, &[7; 100]).unwrap();
        let pieces = [&[1; 500][..], &[2; 500]].into_iter();
        Sender::new()
            .send_gathered(a.as_fd(), Some(&to), None, pieces)
            .unwrap();
        assert!(net::recv(b.as_fd(), &mut buf).unwrap().is_some());
        assert!(net::recv_segments(b.as_fd(), &mut buf).unwrap().is_some());
        assert!(net::recv_error(b.as_fd()).unwrap().is_none());
        net::receive_drops(b.as_fd()).unwrap();
        if round < 5 {
            wait::wait_readable(&[b.as_raw_fd()], Some(Duration::ZERO)).unwrap();
            wait::yield_now();
            barrier::heavy_own();
            net::set_ecn(a.as_fd(), false, net::ECN_CAPABLE).unwrap();
        }
    }
    let usage = Usage::of_this_thread().since(&before);
    for (name, count) in usage.calls() {
        println!("\n{COUNTED}{name} {count}");
    }
}

#[test]
fn calls_are_counted_as_strace_counts_them() {
    let output = Command::new("strace")
        .args(["-f", "-qq", "-c", "-U", "name,calls", "-e"])
        .arg(format!("trace={}", TRACED.join(",")))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "make_calls", "--ignored", "--nocapture"])
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return eprintln!("SKIPPED: no strace here: {error}"),
    };
    let output_text = String::from_utf8_lossy(&output.stdout);
    let table = String::from_utf8_lossy(&output.stderr);
    if table.contains("ptrace") {
        return eprintln!("SKIPPED: strace may not trace here: {table}");
    }
    let traced = |name: &str| -> Option<u64> {
        let rows = table.lines().map(str::split_whitespace);
        let mut rows = rows.filter_map(|mut words| Some((words.next()?, words.next()?)));
        rows.find(|(call, _)| *call == name)?.1.parse().ok()
    };
    let counted = |name: &str| -> Option<u64> {
        let counts = output_text
            .lines()
            .filter_map(|line| line.strip_prefix(COUNTED));
        let mut counts = counts.filter_map(|line| line.split_once(' '));
        counts.find(|(call, _)| *call == name)?.1.parse().ok()
    };
    for name in TRACED {
        assert!(counted(name).is_some(), "{name}:\n{output_text}");
        assert_eq!(counted(name), traced(name), "{name}:\n{table}");
    }
}
