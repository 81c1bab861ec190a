// SPDX-License-Identifier: MIT OR Apache-2.0
//! The line: a process of a lab that delays frames, where the kernel has no netem.
//!
//! `lab up` starts it in the namespace of the switch, which holds the other ends of the hosts'
//! cables. It replaces the cables, and with more than two hosts the switch. It ends with `lab
//! down`, or by itself when no host is left. Its counts are in an unnamed file, its standard
//! output.
//!
//! Invariant: all its state is inside the process, so nothing is left when it ends.

mod carry;
mod frame_ring;
mod switch;

use super::link::{IN_FLIGHT_LEN, Link};
use super::{Options, ip, plan};
use crate::error::{UserError, user_error};
use anyhow::{Context, Result};
use carry::{Capacity, Carrier, Counts};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use portolan_sys::net;
use portolan_sys::process::{ProcessHandle, set_precise_timers};
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Line that the process prints when frames pass; any other line is an error message.
const READY: &str = "ready";

/// Shortest delay. A shorter one would be dominated by the time to wake this process. See
/// docs/results/lab.md for measurements.
pub(super) const DELAY_MIN: Duration = Duration::from_micros(50);

/// Largest number of bytes in flight on a cable with a rate. The rate determines the necessary
/// number; the limit exists because each host takes this much memory.
const RING_LEN_MAX: u64 = 256 << 20;

/// Bytes in flight on all cables of a lab without a rate, and the minimum for each.
const RING_LEN_ALL: u64 = 512 << 20;
const RING_LEN_MIN: u64 = 1 << 20;

/// Minimum kernel buffer for a port in bytes: 3 ms of 10 Gbit/s.
const KERNEL_LEN: u64 = 4 << 20;

/// Time for a killed process to end.
const END_TIME: Duration = Duration::from_secs(10);

/// A running line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pid: u32,
    counts: Option<Counts>,
}

/// Formats as in `portolan lab list`.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line process {}", self.pid)?;
        let Some(Counts { passed, late, lost }) = self.counts else {
            return Ok(());
        };
        write!(f, " passed {passed} late {late} lost {lost}")
    }
}

/// Returns an error for delays that a line cannot make.
pub(super) fn check(link: &Link) -> Result<()> {
    if link.delay < DELAY_MIN {
        user_error!(
            "--link: delay={} is shorter than {}, the shortest delay that a process can make, and this kernel has no \
             netem: make it longer, or leave it out",
            super::link::time(link.delay),
            super::link::time(DELAY_MIN)
        );
    }
    let in_flight = link.in_flight_len();
    if in_flight.is_some_and(|len| len > RING_LEN_MAX) {
        user_error!(
            "--link: {link} needs more than {} MiB of memory for the frames in flight on each cable: make rate= or delay= \
             smaller",
            RING_LEN_MAX >> 20
        );
    }
    Ok(())
}

/// Returns the bytes that may be in flight on each cable; further frames are lost.
fn ring_len(link: &Link, host_count: u32) -> u64 {
    match link.in_flight_len() {
        // Frames that wait because this process is late are in flight, too.
        Some(len) => 2 * len + RING_LEN_MIN,
        None => IN_FLIGHT_LEN
            .min(RING_LEN_ALL / u64::from(host_count))
            .max(RING_LEN_MIN),
    }
}

/// Returns the kernel's buffer for a port in bytes. It holds frames that the process has not
/// fetched yet, and frames in the port's queue. The queue must fill up before this buffer does.
fn kernel_len(link: &Link) -> u64 {
    // A short frame occupies several times its length in memory.
    KERNEL_LEN.max(link.queue_len.unwrap_or(0).saturating_mul(4))
}

/// Starts the line of a lab with existing interfaces, and returns when frames pass.
pub(super) fn start(options: &Options) -> Result<()> {
    let counts = tempfile::tempfile().context("creating the file of counts")?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["lab", "line", "--name", &options.name])
        .args(["--hosts", &options.host_count.to_string()])
        .args(["--link", &options.link.to_string()])
        .stdin(Stdio::null())
        .stdout(counts)
        .stderr(Stdio::piped())
        // The first line must be READY or the error; later log lines would never be read.
        .env_remove("RUST_LOG");
    // The line outlives this process. Pass it no pipe, or a reader that waits for the pipe's end
    // would wait for the end of the lab.
    portolan_sys::inherit::give_nothing(&mut command);
    portolan_sys::inherit::unblock_signals(&mut command);
    let free = free_cores(options);
    if !free.is_empty() {
        portolan_sys::inherit::run_on(&mut command, &free);
    }
    let mut child = command.spawn().context("starting the line of a lab")?;
    let mut output = String::new();
    let stderr = child.stderr.take().context("stderr of the line")?;
    BufReader::new(stderr)
        .read_line(&mut output)
        .context("reading from the line of a lab")?;
    let output = output.trim();
    if output != READY {
        child.wait().context("waiting for the line of a lab")?;
        return Err(UserError::new(format!(
            "--link: delay= is not possible: the process that delays frames ended: {}",
            output.trim_start_matches("portolan: ")
        ))
        .into());
    }
    Ok(())
}

/// Returns the usable cores that no host owns.
fn free_cores(options: &Options) -> Vec<usize> {
    let hosts: Vec<_> = (0..options.host_count)
        .map(|index| options.cores.of_host(index))
        .collect();
    if hosts.iter().any(|cores| cores.numbers().is_empty()) {
        return Vec::new();
    }
    let mut usable = portolan_bench::usable_cores();
    usable.retain(|core| !hosts.iter().any(|cores| cores.numbers().contains(core)));
    usable
}

/// Returns the line of the lab `name`; `None` if it has ended.
pub(super) fn find(name: &str) -> Result<Option<Line>> {
    let namespace = plan::switch_namespace(name);
    if !ip::namespaces().contains(&namespace) {
        return Ok(None);
    }
    let pid = ip::pids(&namespace)?
        .into_iter()
        .find(|pid| is_line(*pid, name));
    Ok(pid.map(|pid| Line {
        pid,
        counts: counts_of(pid),
    }))
}

/// Ends the line of the lab `name`, if it runs, and waits for its end.
pub(super) fn end(name: &str) -> Result<()> {
    for pid in ip::pids(&plan::switch_namespace(name))? {
        // Open a handle before the check, so that the number cannot be reused by another process.
        let Ok(process) = ProcessHandle::open(pid) else {
            continue;
        };
        if is_line(pid, name) {
            let ended = process.kill(END_TIME);
            ended.with_context(|| format!("ending the line of lab {name}, process {pid}"))?;
        }
    }
    Ok(())
}

/// Returns true if a process in the switch's namespace is the line; a user's tcpdump may run there,
/// too.
fn is_line(pid: u32, name: &str) -> bool {
    let Ok(words) = std::fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    let own = ["lab", "line", "--name", name].map(str::as_bytes);
    words.get(1..=own.len()) == Some(&own[..])
}

fn counts_of(pid: u32) -> Option<Counts> {
    let mut line = String::new();
    let file = std::fs::File::open(format!("/proc/{pid}/fd/1")).ok()?;
    file.take(100).read_to_string(&mut line).ok()?;
    Counts::parse(&line)
}

/// Runs the line process.
///
/// # Errors
/// The reason for a failure, which the command prints as one line on standard error.
pub(super) fn main(name: &str, host_count: u32, link: &Link) -> Result<()> {
    let mut carrier = make(name, host_count, link)?;
    eprintln!("{READY}");
    Ok(carrier.run()?)
}

fn make(name: &str, host_count: u32, link: &Link) -> Result<Carrier> {
    // Detach from the terminal, so that neither its Ctrl-C nor its end reaches this process. This
    // fails for a group leader, which is detached already.
    let _ = nix::unistd::setsid();
    std::env::set_current_dir("/").context("changing to the directory /")?;
    let namespace = Path::new(ip::NETNS_DIR).join(plan::switch_namespace(name));
    net::enter_netns(&namespace).context("entering the namespace of the switch")?;
    let (_, most) =
        getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raising the limit of open files")?;
    let interfaces = net::interfaces().context("listing the cables")?;
    let number = |index: u32| {
        let port = plan::port(index);
        let interface = interfaces.iter().find(|interface| interface.name == port);
        interface
            .map(|interface| interface.index)
            .with_context(|| format!("the lab has no cable {port}"))
    };
    let numbers = (0..host_count).map(number).collect::<Result<Vec<u32>>>()?;
    let counts = std::io::stdout().as_fd().try_clone_to_owned()?;
    let [ring_len, kernel_len] = [ring_len(link, host_count), kernel_len(link)]
        .map(|len| usize::try_from(len).unwrap_or(usize::MAX));
    let capacity = Capacity {
        ring_len,
        kernel_len,
    };
    let carrier = Carrier::new(&numbers, link.delay, &capacity, counts.into())?;
    // Without the priority some frames are late; they are counted.
    let _ = set_precise_timers();
    Ok(carrier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_len_is_twice_the_bytes_in_flight() {
        let len = |link: &str, hosts| ring_len(&link.parse().unwrap(), hosts);
        assert_eq!(len("rate=1g,delay=1ms", 2), 2 * 125_000 + (1 << 20));
        assert_eq!(len("delay=1ms", 2), 64 << 20);
        assert_eq!(len("delay=1ms", 64), 8 << 20);
        assert_eq!(len("delay=1ms", 1024), 1 << 20);
    }

    #[test]
    fn impossible_delays_are_refused_with_remedy() {
        let refused = |link: &str| check(&link.parse().unwrap()).unwrap_err().to_string();
        let error = refused("delay=5us");
        assert!(
            error.contains("delay=5us") && error.contains("50us"),
            "{error}"
        );
        let error = refused("rate=100g,delay=500ms");
        assert!(
            error.contains("256 MiB") && error.contains("delay="),
            "{error}"
        );
        assert!(check(&"1g,delay=100ms".parse().unwrap()).is_ok());
    }

    #[test]
    fn other_processes_are_not_the_line() {
        assert!(!is_line(std::process::id(), "lab"));
        assert!(!is_line(u32::MAX, "lab"));
    }
}
