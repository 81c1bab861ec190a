// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMI-1 over the socket of a launcher: hydra of MPICH and Intel MPI, `srun --mpi=pmi2`.
//!
//! Requests and answers are lines of words `key=value`. The protocol is that of MPICH's
//! `simple_pmi` and of Slurm's `mpi/pmi2` plugin, which supports it too.

use super::{FENCE_LIMIT, Space};
use crate::launch::{LaunchError, LineBuffer};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// Name of this launcher in errors.
const NAME: &str = "PMI-1";

/// Bytes of one read; answers are shorter than 2 KiB.
const READ_LEN: usize = 2 << 10;

/// Length of a value that every PMI-1 server accepts, in bytes; used if the server reports none.
const VALUE_LEN_DEFAULT: usize = 256;

/// A connection to a PMI-1 server.
#[derive(Debug)]
pub(super) struct Pmi {
    stream: UnixStream,
    lines: LineBuffer,
    name: String,
    value_len_max: usize,
    rank: u32,
    size: u32,
}

/// Words of an answer.
struct Answer(String);

impl Answer {
    fn field(&self, key: &str) -> Option<&str> {
        let mut words = self.0.split(' ');
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}

impl Pmi {
    /// Takes over the socket `fd`.
    pub(super) fn connect(fd: i32) -> Result<Pmi, LaunchError> {
        let owned = portolan_sys::inherit::claim_inherited_socket(fd)
            .map_err(|source| refused(format!("PMI_FD names descriptor {fd}: {source}")))?;
        let number = |name: &str| {
            let value = std::env::var(name).ok()?;
            value.parse::<u32>().ok()
        };
        let (Some(rank), Some(size)) = (number("PMI_RANK"), number("PMI_SIZE")) else {
            return Err(refused("PMI_RANK or PMI_SIZE is not set or not a number"));
        };
        Pmi::over(UnixStream::from(owned), rank, size)
    }

    pub(super) fn over(stream: UnixStream, rank: u32, size: u32) -> Result<Pmi, LaunchError> {
        stream.set_read_timeout(Some(FENCE_LIMIT))?;
        let mut pmi = Pmi {
            stream,
            lines: LineBuffer::default(),
            name: String::new(),
            value_len_max: VALUE_LEN_DEFAULT,
            rank,
            size,
        };
        pmi.request(
            "cmd=init pmi_version=1 pmi_subversion=1",
            "response_to_init",
        )?;
        let maxes = pmi.request("cmd=get_maxes", "maxes")?;
        if let Some(len) = maxes.field("vallen_max").and_then(|text| text.parse().ok()) {
            // Servers count the final zero of a C string.
            let len: usize = len;
            pmi.value_len_max = len.saturating_sub(1).min(READ_LEN);
        }
        let name = pmi.request("cmd=get_my_kvsname", "my_kvsname")?;
        let name = name.field("kvsname").map(str::to_owned);
        pmi.name =
            name.ok_or_else(|| refused("the server returned no name of its key-value space"))?;
        Ok(pmi)
    }

    /// Sends a request and waits for the answer `expected`.
    fn request(&mut self, request: &str, expected: &str) -> Result<Answer, LaunchError> {
        self.send(request)?;
        let answer = Answer(self.next_line()?);
        if answer.field("cmd") != Some(expected) {
            // A value may be part of the line, so the line is not shown whole.
            let got = answer.field("cmd").unwrap_or("no command");
            return Err(refused(format!("expected {expected}, got {got}")));
        }
        match answer.field("rc") {
            None | Some("0") => Ok(answer),
            Some(rc) => {
                let why = answer.field("msg").unwrap_or_default();
                Err(refused(format!("{expected} with rc={rc} {why}")))
            }
        }
    }

    fn send(&mut self, request: &str) -> Result<(), LaunchError> {
        let line = format!("{request}\n");
        self.stream.write_all(line.as_bytes()).map_err(explain)
    }

    fn next_line(&mut self) -> Result<String, LaunchError> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return Ok(String::from_utf8_lossy(line).into_owned());
            }
            let mut bytes = [0; READ_LEN];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(LaunchError::Closed),
                Ok(len) => self.lines.append(&bytes[..len])?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(explain(error)),
            }
        }
    }
}

impl Space for Pmi {
    fn launcher(&self) -> &'static str {
        NAME
    }

    fn job_name(&self) -> String {
        self.name.clone()
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn value_len_max(&self) -> usize {
        self.value_len_max
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        let request = format!("cmd=put kvsname={} key={key} value={value}", self.name);
        self.request(&request, "put_result").map(drop)
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        self.request("cmd=barrier_in", "barrier_out").map(drop)
    }

    fn get(&mut self, _rank: u32, key: &str) -> Result<String, LaunchError> {
        let request = format!("cmd=get kvsname={} key={key}", self.name);
        let answer = self.request(&request, "get_result")?;
        let value = answer.field("value").map(str::to_owned);
        value.ok_or_else(|| refused(format!("{key} has no value")))
    }

    fn bye(&mut self) {
        if let Err(error) = self.request("cmd=finalize", "finalize_ack") {
            log::debug!("leaving the launcher: {error}");
        }
    }

    fn abort(&mut self, status: i32, _reason: &str) {
        if let Err(error) = self.send(&format!("cmd=abort exitcode={status}")) {
            log::debug!("connection to the launcher failed: {error}");
        }
    }
}

/// Converts an error. A wait that timed out is not an error of the connection.
fn explain(error: io::Error) -> LaunchError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let seconds = FENCE_LIMIT.as_secs();
            refused(format!(
                "no answer for {seconds} s: check that every process of the job calls `Node::join`"
            ))
        }
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => LaunchError::Closed,
        _ => LaunchError::System(error),
    }
}

fn refused(what: impl Into<String>) -> LaunchError {
    LaunchError::Foreign {
        launcher: NAME,
        what: what.into(),
    }
}
