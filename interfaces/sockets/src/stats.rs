// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line for each connection of a process, when it ends.
#![allow(unsafe_code)]

use crate::conn::{self, Conn, JOINED};
use crate::settings;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Reason for a connection to stay on the kernel.
#[repr(u32)]
#[derive(Clone, Copy)]
pub(crate) enum Why {
    /// The other end is on another host, or not TCP.
    Elsewhere = 1,
    /// The other end was not found within the host.
    Alone = 2,
    /// Memory or descriptors are exhausted.
    NoMemory = 3,
    /// A descriptor was passed to another process.
    Passed = 4,
    /// A descriptor was given to a program without the library, or to a stream of the C library.
    Inherited = 5,
    /// The program set an option or used a call that only the kernel has.
    Option = 6,
    /// The program sent out-of-band data.
    OutOfBand = 7,
    /// The process uses io_uring, which bypasses this library.
    Bypass = 8,
}

/// Words for the numbers of [`Why`]; 0 is a connection that ended before the search.
const WORDS: [&str; 9] = [
    "short",
    "elsewhere",
    "alone",
    "no-memory",
    "passed",
    "inherited",
    "option",
    "out-of-band",
    "io-uring",
];

static PATH: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());
static PID: AtomicI32 = AtomicI32::new(0);

/// A line in fixed memory: the program's heap cannot be used here.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let place = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Notes the file of the statistics.
pub(crate) fn load() {
    let Some(path) = settings::variable(settings::STATS) else {
        return;
    };
    // SAFETY: the copy is never freed.
    let copy = unsafe { libc::strdup(path.as_ptr()) };
    PATH.store(copy, Ordering::Release);
}

/// Notes the number of this process.
pub(crate) fn set_process(pid: i32) {
    PID.store(pid, Ordering::Relaxed);
}

/// Writes the line of a connection: process, end, whether it was joined, the reason, and the bytes
/// sent by ring and kernel and received from ring and kernel since both ends were joined.
pub(crate) fn write(conn: &Conn) {
    let path = PATH.load(Ordering::Acquire);
    if path.is_null() || !conn.was_used() {
        return;
    }
    let mut line = Line {
        bytes: [0; 256],
        len: 0,
    };
    let end = ["accepted", "connected"][conn.end()];
    let joined = if conn.state() == JOINED {
        "joined"
    } else {
        "kernel"
    };
    let why = WORDS.get(conn.why() as usize).unwrap_or(&"");
    let why = if joined == "joined" && conn.why() == 0 {
        "-"
    } else {
        why
    };
    let [a, b, c, d] = conn.counts.all().map(|count| count.load(Ordering::Relaxed));
    let pid = PID.load(Ordering::Relaxed);
    if writeln!(line, "{pid} {end} {joined} {why} {a} {b} {c} {d}").is_err() {
        return;
    }
    append(path, &line.bytes[..line.len]);
}

fn append(path: *const libc::c_char, line: &[u8]) {
    let error = crate::errno::last();
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_CREAT;
    // SAFETY: `path` ends with a zero byte.
    let fd = unsafe { libc::open(path, flags, 0o600) };
    if fd >= 0 {
        crate::real::write(fd, line.as_ptr().cast(), line.len());
        crate::real::close(fd);
    }
    crate::errno::set(error);
}

/// Writes the lines of the connections that are open at the end of the process.
pub(crate) fn write_open() {
    if PATH.load(Ordering::Acquire).is_null() {
        return;
    }
    for conn in conn::all() {
        write(&conn);
    }
}
