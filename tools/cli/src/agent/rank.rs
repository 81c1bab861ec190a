// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process of the job, as seen by its agent.

use crate::error::UserError;
use crate::launch_io::{self, LineSink, LineSource};
use crate::program;
use crate::run::wire::{End, Report, Start, Stream};
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use portolan::binding::launch::wire::{ProcessState, ToAgent, ToProcess, VERSION, Welcome};
use portolan::binding::launch::{FD_VARIABLE, Job};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Length in bytes from which an unfinished line of output is forwarded.
const LINE_LEN_HIGH: usize = 64 << 10;

/// Largest number of reads after a process ended. A pipe holds up to 1 MiB (pipe-max-size in
/// pipe(7)), and a read takes 64 KiB. The limit is needed because another process may still write
/// to the pipe.
const LAST_READS_MAX: usize = 32;

/// One process of the job.
#[derive(Debug)]
pub(super) struct Rank {
    rank: u32,
    child: Child,
    end: Option<End>,
    joined: bool,
    /// Set when the process has opened its links.
    ready: bool,
    left: bool,
    connection: UnixStream,
    pub(super) socket: LineSource,
    pub(super) messages: LineSink,
    pub(super) out: LineSource,
    pub(super) err: LineSource,
}

impl Rank {
    /// Starts the process and sends it the welcome.
    pub(super) fn spawn(start: &Start, program: &Path, local_rank: usize) -> Result<Rank> {
        let (ours, theirs) = UnixStream::pair().context("making a socket pair")?;
        let mut command = command(start, program, theirs.into());
        let mut child = command
            .spawn()
            .map_err(|error| UserError::new(program::explain(&start.workload.program, &error)))?;
        // The command holds the process's end of the socket; drop it, or no hang-up would be
        // reported.
        drop(command);
        let out = child.stdout.take().context("standard output of a rank")?;
        let err = child.stderr.take().context("standard error of a rank")?;
        let mut rank = Rank {
            rank: start.ranks[local_rank],
            child,
            end: None,
            joined: false,
            ready: false,
            left: false,
            socket: LineSource::new(launch_io::duplicate(ours.as_fd())?)?,
            messages: LineSink::new(launch_io::duplicate(ours.as_fd())?)?,
            connection: ours,
            out: LineSource::new(out.into())?,
            err: LineSource::new(err.into())?,
        };
        rank.send(&ToProcess::Welcome(welcome(start, local_rank)?))?;
        Ok(rank)
    }

    /// Returns how the process ended, if it has ended.
    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// Returns the process's id.
    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Returns the rank of the process in the job.
    pub(super) fn number(&self) -> u32 {
        self.rank
    }

    /// Returns the state of the process, unless it has ended.
    pub(super) fn state(&self) -> Option<ProcessState> {
        if self.end.is_some() {
            return None;
        }
        match kernel_state(self.child.id())? {
            // It has ended, and has not been reaped.
            'Z' | 'X' => None,
            'T' | 't' => Some(ProcessState::Stopped),
            _ if !self.ready => Some(ProcessState::Starting),
            _ => Some(ProcessState::Running),
        }
    }

    /// Returns true if both outputs of the process are at their end.
    pub(super) fn is_silent(&self) -> bool {
        self.out.is_at_end() && self.err.is_at_end()
    }

    /// Sends a message, unless the process has ended or left.
    pub(super) fn send(&mut self, message: &ToProcess) -> Result<()> {
        if self.end.is_some() || self.left {
            return Ok(());
        }
        self.messages.send(message)
    }

    /// Signals the process and its process group.
    pub(super) fn signal(&self, signal: i32) {
        let (Ok(pid), Ok(signal)) = (i32::try_from(self.child.id()), Signal::try_from(signal))
        else {
            return;
        };
        // The group has the process's number, which may be reused once the process has ended.
        if self.end.is_none() && killpg(Pid::from_raw(pid), signal).is_err() {
            log::debug!("rank {} has already ended", self.rank);
        }
    }

    /// Reads the process's messages to the launcher.
    pub(super) fn handle_socket(&mut self, reports: &mut LineSink) -> Result<()> {
        self.socket.fill();
        while let Some(line) = self.socket.next_line() {
            let rank = self.rank;
            match serde_json::from_slice(line) {
                Ok(ToAgent::Address { address }) => {
                    self.joined = true;
                    reports.send(&Report::Address { rank, address })?;
                }
                Ok(ToAgent::Ready) => self.ready = true,
                Ok(ToAgent::Inquire { rank: about, asked }) => {
                    reports.send(&Report::Inquire {
                        asker: rank,
                        rank: about,
                        asked,
                    })?;
                }
                Ok(ToAgent::Waits(waits)) => reports.send(&Report::Waits { rank, waits })?,
                Ok(ToAgent::Trouble { reason }) => {
                    reports.send(&Report::Trouble { rank, reason })?;
                }
                Ok(ToAgent::Abort { status, reason }) => {
                    reports.send(&Report::Abort {
                        rank,
                        status,
                        reason,
                    })?;
                }
                Ok(ToAgent::Lost { rank: peer, why }) => {
                    reports.send(&Report::Lost { rank, peer, why })?;
                }
                Ok(ToAgent::Bye) => self.leave(),
                Err(error) => {
                    log::warn!("rank {rank} sent an invalid message: {error}");
                    self.socket.close();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Forwards the output of the process, with at most `reads` reads.
    pub(super) fn forward(
        &mut self,
        stream: Stream,
        reads: usize,
        reports: &mut LineSink,
    ) -> Result<()> {
        let source = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        for _ in 0..reads {
            let more = source.fill();
            let mut bytes = Vec::new();
            while let Some(line) = source.next_line() {
                bytes.extend_from_slice(line);
                bytes.push(b'\n');
            }
            bytes.extend(source.take_partial(LINE_LEN_HIGH).unwrap_or_default());
            if !bytes.is_empty() {
                reports.send(&Report::Output {
                    rank: self.rank,
                    stream,
                    data: bytes.into(),
                })?;
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Checks for the end of the process, and reports it after all of its output.
    pub(super) fn check_end(&mut self, reports: &mut LineSink) -> Result<()> {
        if self.end.is_some() {
            return Ok(());
        }
        let Some(status) = self.child.try_wait().context("waiting for a rank")? else {
            return Ok(());
        };
        // Kill everything that the process started in its group. Its number cannot be reused this
        // soon, because the kernel assigns process numbers in a cycle.
        self.signal(libc::SIGKILL);
        let end = End::from(status);
        self.end = Some(end);
        self.drain_socket(reports)?;
        self.forward(Stream::Out, LAST_READS_MAX, reports)?;
        self.forward(Stream::Err, LAST_READS_MAX, reports)?;
        self.messages.close();
        let (joined, left) = (self.joined, self.left);
        reports.send(&Report::Ended {
            rank: self.rank,
            end,
            joined,
            left,
        })
    }

    fn drain_socket(&mut self, reports: &mut LineSink) -> Result<()> {
        for _ in 0..LAST_READS_MAX {
            if self.socket.is_at_end() {
                break;
            }
            self.handle_socket(reports)?;
        }
        self.socket.close();
        Ok(())
    }

    /// Handles the departure of the process. If another process joins with this rank, it finds the
    /// connection closed; otherwise it would wait for a welcome that was already used.
    fn leave(&mut self) {
        self.left = true;
        self.messages.close();
        if let Err(error) = self.connection.shutdown(Shutdown::Write) {
            log::debug!(
                "rank {} has already closed the connection: {error}",
                self.rank
            );
        }
    }
}

/// Returns the state letter of a process from `/proc/PID/stat` (proc(5)). The letter follows the
/// process name, which may contain any byte.
fn kernel_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.trim_start().chars().next()
}

fn command(start: &Start, program: &Path, socket: OwnedFd) -> Command {
    let mut command = Command::new(program);
    command
        .arg0(&start.workload.program)
        .args(&start.workload.args)
        .envs(&start.workload.environment)
        .env(FD_VARIABLE, socket.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    portolan_sys::inherit::give_fd(&mut command, socket);
    portolan_sys::inherit::unblock_signals(&mut command);
    portolan_sys::inherit::die_with_parent(&mut command, libc::SIGKILL);
    command
}

fn welcome(start: &Start, local_rank: usize) -> Result<Welcome> {
    let mut job = Job::alone(start.job_id, start.secret);
    job.rank = start.ranks[local_rank];
    job.size = start.size;
    job.local_rank = u32::try_from(local_rank)?;
    job.local_size = u32::try_from(start.ranks.len())?;
    job.host_count = start.host_count;
    job.rivals = start.rivals;
    job.path = start.workload.path;
    job.options.clone_from(&start.workload.options);
    job.host_name = Some(start.host.clone());
    Ok(Welcome {
        version: VERSION,
        job,
    })
}
