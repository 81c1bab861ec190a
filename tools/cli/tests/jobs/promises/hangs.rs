// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of jobs that hang in different ways, and of the explanation by `portolan run`.

use super::{OTHER, PORT, ranks_command};
use crate::common::ranks::unique_word;
use crate::common::{kill, wait_until};
use portolan::{Node, TagMatch, Target};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Too long to leave before its receive is posted.
const LONG: usize = 3_000_000;

/// Each hang, and the contents of its explanation.
const HANGS: &[(&str, &[&str])] = &[
    (
        "hang: receive",
        &[
            "rank 0 has waited ",
            ": receive at port 1 from rank 1",
            "rank 1 does not answer",
        ],
    ),
    (
        "hang: cycle",
        &[
            "receive at port 1 from rank 0",
            "ranks wait for one another in a cycle: 0, 1",
        ],
    ),
    (
        "hang: any",
        &["receive at port 1 from any rank", "rank 1 does not answer"],
    ),
    (
        "hang: send",
        &[
            "send of 3000000 bytes to rank 1: the receiver has posted no receive",
            "receive at port 2 from rank 0",
            "in a cycle: 0, 1",
        ],
    ),
    ("hang: tagged", &["tagged receive from rank 1"]),
    (
        "hang: barrier",
        &[
            "barrier, operation 1 of the job: waits for rank 1",
            "in a cycle: 0, 1",
        ],
    ),
    ("hang: condition", &["a condition of the program"]),
    ("hang: notice", &["a notice of a put, from any rank"]),
    (
        "hang: stopped",
        &[
            "receive at port 1 from rank 1",
            "rank 1 is stopped by a signal or a debugger",
        ],
    ),
    (
        "hang: poll",
        &["rank 0 is in no blocking call; pending: receive at port 1 from rank 1"],
    ),
    ("hang: close", &["close: rank 1 has not received all"]),
];

/// Plays a rank of a job that hangs.
pub(crate) fn play(mut node: Node, hang: &str) {
    println!("\nhangs");
    match (hang, node.rank()) {
        ("hang: cycle", rank) => receive(&mut node, PORT, 1 - rank),
        ("hang: any", 0) => {
            node.recv(PORT, &mut [0; 8]).unwrap();
        }
        ("hang: send", 0) => node.send(Target::new(1, PORT), &vec![1; LONG]).unwrap(),
        ("hang: send", _) => receive(&mut node, OTHER, 0),
        ("hang: tagged", 0) => {
            let which = TagMatch::new(7).source(1);
            node.recv_tagged(which, &mut [0; 8]).unwrap();
        }
        ("hang: barrier", 0) => node.barrier().unwrap(),
        ("hang: barrier", _) => receive(&mut node, PORT, 0),
        ("hang: condition", 0) => node.wait_until(|| false).unwrap(),
        ("hang: notice", 0) => {
            node.wait_notice().unwrap();
        }
        ("hang: poll", 0) => {
            let request = node.post_recv_from(1, PORT, vec![0; 8]).unwrap();
            while node.test(request).unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        ("hang: close", 0) => {
            node.isend_copy(Target::new(1, PORT), &vec![1; LONG])
                .unwrap();
            node.close().unwrap();
        }
        ("hang: stopped", 1) => kill(i32::try_from(std::process::id()).unwrap(), "-STOP"),
        (_, 0) => receive(&mut node, PORT, 1),
        // It computes.
        _ => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
    }
}

fn receive(node: &mut Node, port: u16, from: u32) {
    node.recv_from(from, port, &mut [0; 8]).unwrap();
}

/// A job, and the lines that its launcher has written.
struct Hung {
    child: Child,
    lines: Arc<Mutex<String>>,
}

impl Hung {
    fn start(hang: &str) -> Hung {
        let mut command = ranks_command(2, hang, &["--path", "shm"], &unique_word());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut lines = out.lines().map_while(Result::ok);
        let begun = lines.by_ref().filter(|line| line.ends_with("hangs"));
        assert_eq!(begun.take(2).count(), 2, "{hang}");
        // A rank that hangs for long writes more. A closed pipe would end the job.
        std::thread::spawn(move || lines.for_each(drop));
        let mut err = child.stderr.take().unwrap();
        let lines = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&lines);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = err.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..len]);
                to.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&text);
            }
        });
        Hung { child, lines }
    }

    fn signal(&self, signal: &str) {
        kill(i32::try_from(self.child.id()).unwrap(), signal);
    }

    fn has(&self, words: &[&str]) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        words.iter().all(|words| lines.contains(words))
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}",
                self.lines.lock().unwrap_or_else(PoisonError::into_inner)
            );
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A user requests the explanation with Ctrl-\, and the job continues.
#[test]
fn a_hang_explains_itself_when_asked() {
    for (hang, words) in HANGS {
        let mut hung = Hung::start(hang);
        // A rank may not have begun to wait.
        wait_until(hang, || {
            hung.signal("-QUIT");
            std::thread::sleep(Duration::from_millis(100));
            hung.has(words)
        });
        assert!(hung.child.try_wait().unwrap().is_none(), "{hang} goes on");
        // SIGTERM does not end a stopped process; the second signal kills it.
        hung.signal("-TERM");
        hung.signal("-TERM");
        hung.child.wait().unwrap();
    }
}
