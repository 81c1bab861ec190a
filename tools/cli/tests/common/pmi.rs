// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PMI-1 server for tests: one job, with processes that are its children.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Time limit for a process to arrive at a barrier, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// End of a process, as seen by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It finalized.
    Well,
    /// It requested the end of the job, with this status.
    Abort(i32),
    /// It ended without finalizing.
    Silently,
}

struct Job {
    name: String,
    values: Mutex<BTreeMap<String, String>>,
    size: usize,
    /// Number of arrivals at barriers.
    arrived: Mutex<usize>,
    moved: Condvar,
}

/// Starts `make(rank)` as each of `size` ranks of the job `name`, and serves them. Returns the end
/// of each, and the children.
pub(crate) fn serve(
    name: &str,
    size: usize,
    make: impl Fn(usize) -> Command,
) -> Vec<(Left, Child)> {
    let job = Arc::new(Job {
        name: name.to_owned(),
        values: Mutex::default(),
        size,
        arrived: Mutex::default(),
        moved: Condvar::new(),
    });
    let ranks: Vec<_> = (0..size)
        .map(|rank| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut command = make(rank);
            let fd = std::os::fd::AsRawFd::as_raw_fd(&theirs).to_string();
            command
                .env("PMI_FD", fd)
                .env("PMI_RANK", rank.to_string())
                .env("PMI_SIZE", size.to_string());
            portolan_sys::inherit::give_fd(&mut command, theirs.into());
            let child = command.spawn().unwrap();
            // Close our copy of the child's end.
            drop(command);
            let job = Arc::clone(&job);
            (std::thread::spawn(move || job.converse(ours)), child)
        })
        .collect();
    let ended = ranks
        .into_iter()
        .map(|(server, child)| (server.join().unwrap(), child));
    ended.collect()
}

impl Job {
    fn converse(&self, stream: UnixStream) -> Left {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            let word = |key: &str| {
                let mut words = line.split(' ');
                words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
            };
            let answer = match word("cmd").unwrap_or_default() {
                "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
                "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=256".to_owned(),
                "get_my_kvsname" => format!("cmd=my_kvsname kvsname={}", self.name),
                "put" => self.put(word("key").unwrap(), word("value").unwrap()),
                "barrier_in" => {
                    if !self.wait_for_all() {
                        // The process sees the end of its launcher, and so does the test.
                        return Left::Silently;
                    }
                    "cmd=barrier_out".to_owned()
                }
                "get" => self.get(word("key").unwrap()),
                "finalize" => {
                    writeln!(&stream, "cmd=finalize_ack rc=0").unwrap();
                    return Left::Well;
                }
                "abort" => return Left::Abort(word("exitcode").unwrap().parse().unwrap()),
                other => panic!("{other:?} is no command of PMI-1"),
            };
            writeln!(&stream, "{answer}").unwrap();
        }
        Left::Silently
    }

    /// Waits until all processes have arrived; `false` at the time limit.
    fn wait_for_all(&self) -> bool {
        let mut arrived = self.arrived.lock().unwrap();
        *arrived += 1;
        let goal = arrived.div_ceil(self.size) * self.size;
        self.moved.notify_all();
        let missing = |arrived: &mut usize| *arrived < goal;
        let waited = self.moved.wait_timeout_while(arrived, LIMIT, missing);
        !waited.unwrap().1.timed_out()
    }

    fn put(&self, key: &str, value: &str) -> String {
        assert!(key.len() < 64 && value.len() < 256, "{key} is too long");
        let mut values = self.values.lock().unwrap();
        values.insert(key.to_owned(), value.to_owned());
        "cmd=put_result rc=0 msg=success".to_owned()
    }

    fn get(&self, key: &str) -> String {
        match self.values.lock().unwrap().get(key) {
            Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
            None => format!("cmd=get_result rc=-1 msg=key_{key}_not_found value=unknown"),
        }
    }
}
