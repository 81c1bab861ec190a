// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two processes: all connections in turn and in parallel, and the check for leftovers.

use super::number;
use super::plan::{Plan, Random};
use super::side::Side;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// Concurrent connections.
const PARALLEL: u64 = 8;

fn open_files() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let links = links.map(|link| link.to_string_lossy().into_owned());
    // The directory itself is open while it is read.
    links.filter(|link| !link.starts_with("/proc")).collect()
}

fn segments() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.matches("memfd:portolan-sockets").count()
}

fn run_side(stream: TcpStream, id: u64, side: u64) {
    let seed = number("SOCKETS_SEED", 0);
    let is_long = number("SOCKETS_LONG", 0) == 1;
    let tolerant = number("SOCKETS_TOLERANT", 0) == 1;
    let plan = Plan::new(seed, id, side, is_long);
    let random = Random::new(seed, id * 4 + 3 + side * 1000);
    Side::new(stream.into_raw_fd(), plan, random, tolerant).run();
}

fn accept_all(count: u64) {
    let tolerant = number("SOCKETS_TOLERANT", 0) == 1;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("PORT {}", listener.local_addr().unwrap().port());
    std::thread::scope(|scope| {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            scope.spawn(move || {
                let mut id = [0; 8];
                match stream.read_exact(&mut id) {
                    Ok(()) => run_side(stream, u64::from_le_bytes(id), 0),
                    Err(error) => assert!(tolerant, "{error}"),
                }
            });
        }
    });
}

fn connect_all(count: u64) {
    let port = u16::try_from(number("SOCKETS_PORT", 0)).unwrap();
    let (next, started) = (AtomicU64::new(0), mpsc::channel());
    let parallel = if number("SOCKETS_TOLERANT", 0) == 1 {
        count
    } else {
        PARALLEL.min(count)
    };
    std::thread::scope(|scope| {
        for _ in 0..parallel {
            let (next, started) = (&next, started.0.clone());
            scope.spawn(move || {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= count {
                        return;
                    }
                    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    stream.write_all(&id.to_le_bytes()).unwrap();
                    started.send(()).unwrap();
                    run_side(stream, id, 1);
                }
            });
        }
        for _ in 0..parallel {
            started.1.recv().unwrap();
        }
        println!("RUNNING");
    });
}

/// Runs one process, and checks that nothing is left over.
pub(crate) fn run(role: &str) {
    let before = open_files();
    let count = number("SOCKETS_CONNECTIONS", 1);
    match role {
        "server" => accept_all(count),
        _ => connect_all(count),
    }
    let after = open_files();
    let left: Vec<_> = after.difference(&before).collect();
    // One event descriptor may exist for the whole process.
    let left: Vec<_> = left
        .into_iter()
        .filter(|link| !link.contains("eventfd"))
        .collect();
    assert!(left.is_empty(), "left open: {left:?}");
    assert_eq!(segments(), 0, "segments are still mapped");
    println!("checked {count}");
}
