// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection of a process to the agent that started it.

use super::wire::{EndedRank, InquiryReply, ToAgent, ToProcess, VERSION, Waits, Welcome};
use super::{FD_VARIABLE, Job, LaunchError, LineBuffer, LossReporter};
use crate::settings::{self, BadVariable};
use portolan_sys::usage::{self, Call};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// Maximum bytes of one read. Notices are short; a table takes several reads.
const READ_LEN: usize = 2 << 10;

/// Connection of a process to the agent that started it.
///
/// If it is dropped without [`Agent::bye`], the launcher counts the process as failed when it
/// exits.
#[derive(Debug)]
pub(super) struct Agent {
    stream: UnixStream,
    /// Set until the agent closes the connection.
    open: bool,
    exchanged: bool,
    problem_reported: bool,
    input: Input,
    gone: VecDeque<EndedRank>,
    inquiry_replies: VecDeque<InquiryReply>,
    /// Set when the agent has requested the process's pending waits.
    explain: bool,
    job: Job,
}

impl Agent {
    /// Takes over the connection named by [`FD_VARIABLE`]. Without the variable returns `None`:
    /// this process is then a job of one. Waits for the agent's welcome, which was sent before the
    /// process started.
    ///
    /// # Errors
    /// [`LaunchError::BadVariable`] and [`LaunchError::NotInherited`] if the variable does not name
    /// such a connection, for instance because this process has taken it already;
    /// [`LaunchError::Version`] if the launcher is of another version.
    pub(super) fn from_env() -> Result<Option<Agent>, LaunchError> {
        let Some(text) = settings::LAUNCH_FD.from_env() else {
            return Ok(None);
        };
        let fd: i32 = text.parse().map_err(|_| BadVariable {
            variable: FD_VARIABLE,
            value: text.clone(),
            expected: "a descriptor number; unset it to run as a job of one",
        })?;
        let owned = portolan_sys::inherit::claim_inherited_socket(fd)
            .map_err(|errno| LaunchError::NotInherited { fd, errno })?;
        Agent::from_stream(UnixStream::from(owned)).map(Some)
    }

    /// Reads the welcome from `stream`.
    fn from_stream(stream: UnixStream) -> Result<Agent, LaunchError> {
        let mut input = Input::new();
        let welcome = loop {
            match next_message(&mut input.lines)? {
                Some(ToProcess::Welcome(welcome)) => break welcome,
                Some(other) => return Err(LaunchError::Malformed(format!("{other:?}"))),
                None if input.read_more(&stream, RecvFlags::empty())? > 0 => {}
                None => return Err(LaunchError::Closed),
            }
        };
        Ok(Agent {
            stream,
            open: true,
            exchanged: false,
            problem_reported: false,
            input,
            gone: VecDeque::new(),
            inquiry_replies: VecDeque::new(),
            explain: false,
            job: welcomed(welcome)?,
        })
    }

    /// Returns the job, with the place of this process in it.
    #[must_use]
    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// Publishes this process's address, and waits for the addresses of all processes. They are
    /// ordered by rank.
    ///
    /// # Errors
    /// [`LaunchError::RankEnded`] when a rank ended before all addresses were known;
    /// [`LaunchError::Closed`] when the launcher ended.
    pub(super) fn exchange(&mut self, address: &Value) -> Result<Vec<Value>, LaunchError> {
        if std::mem::replace(&mut self.exchanged, true) {
            return Err(LaunchError::AlreadyExchanged);
        }
        self.send(&ToAgent::Address {
            address: address.clone(),
        })?;
        loop {
            match next_message(&mut self.input.lines)? {
                Some(ToProcess::Table { addresses }) => {
                    // Notices that arrived with the table are behind it.
                    self.take_notices();
                    self.input.lines.shrink();
                    return self.check_table(addresses);
                }
                Some(ToProcess::Gone(gone)) => return Err(LaunchError::RankEnded(gone)),
                Some(other) => return Err(LaunchError::Malformed(format!("{other:?}"))),
                None => self.wait_for_more()?,
            }
        }
    }

    /// Returns the next rank that ended early, if the agent has reported one. Does not wait.
    ///
    /// Without a notice this is one system call. That is too expensive for every turn of a spin
    /// loop: wait for [`Agent::fd`] to become readable instead.
    pub(super) fn poll(&mut self) -> Option<EndedRank> {
        if let Some(gone) = self.gone.pop_front() {
            return Some(gone);
        }
        if self.open {
            self.receive();
        }
        self.gone.pop_front()
    }

    /// Returns the next answer to an inquiry that [`Agent::poll`] has received.
    pub(super) fn poll_inquiry_reply(&mut self) -> Option<InquiryReply> {
        self.inquiry_replies.pop_front()
    }

    /// Returns whether the agent has requested the process's pending waits since the last call.
    pub(super) fn poll_explain(&mut self) -> bool {
        std::mem::take(&mut self.explain)
    }

    /// Reports the process's pending waits.
    pub(super) fn report_waits(&mut self, waits: Waits) {
        self.send_if_open(&ToAgent::Waits(waits));
    }

    /// Reports that this process has opened its links.
    pub(super) fn ready(&mut self) {
        self.send_if_open(&ToAgent::Ready);
    }

    /// Requests from the agent of `rank` the state of its process.
    pub(super) fn inquire(&mut self, rank: u32, asked: u64) {
        self.send_if_open(&ToAgent::Inquire { rank, asked });
    }

    /// Returns the descriptor that becomes readable when [`Agent::poll`] has a notice. After the
    /// agent has closed the connection it is -1, which `poll(2)` ignores.
    #[must_use]
    pub(super) fn fd(&self) -> RawFd {
        if self.open {
            self.stream.as_raw_fd()
        } else {
            -1
        }
    }

    /// Returns a reporter of lost peers, on the same connection; `None` if the process has no free
    /// descriptors.
    pub(super) fn loss_reporter(&self) -> Option<LossReporter> {
        let socket = self.stream.try_clone();
        socket.ok().map(|socket| LossReporter::new(socket.into()))
    }

    /// Reports a regular exit: if the process now exits with status 0, it has not failed.
    ///
    /// An agent that has exited is no error here; it is about to kill the process anyway.
    pub(super) fn bye(&mut self) {
        self.send_if_open(&ToAgent::Bye);
    }

    /// Reports a reason for which this process may fail. Only the first reason counts.
    pub(super) fn report_problem(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.problem_reported, true) {
            self.send_if_open(&ToAgent::Trouble {
                reason: reason.to_owned(),
            });
        }
    }

    /// Requests the end of the whole job with exit status `status`, because of `reason`.
    ///
    /// Returns at once; the caller should exit by itself.
    pub(super) fn abort(&mut self, status: i32, reason: &str) {
        self.send_if_open(&ToAgent::Abort {
            status,
            reason: reason.to_owned(),
        });
    }

    fn check_table(&self, addresses: Vec<Value>) -> Result<Vec<Value>, LaunchError> {
        if addresses.len() != self.job.size as usize {
            let what = format!("{} addresses for {} ranks", addresses.len(), self.job.size);
            return Err(LaunchError::Malformed(what));
        }
        Ok(addresses)
    }

    /// Blocks until bytes arrive.
    fn wait_for_more(&mut self) -> Result<(), LaunchError> {
        if self.input.read_more(&self.stream, RecvFlags::empty())? == 0 {
            self.open = false;
            return Err(LaunchError::Closed);
        }
        Ok(())
    }

    /// Handles messages that have arrived. An unexpected message or a broken connection ends the
    /// reception.
    fn receive(&mut self) {
        match self.input.read_more(&self.stream, RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(0) | Err(_) => self.open = false,
            Ok(_) => {}
        }
        self.take_notices();
    }

    fn take_notices(&mut self) {
        loop {
            match next_message(&mut self.input.lines) {
                Ok(Some(ToProcess::Gone(gone))) => self.gone.push_back(gone),
                Ok(Some(ToProcess::Word(word))) => self.inquiry_replies.push_back(word),
                Ok(Some(ToProcess::Explain)) => self.explain = true,
                Ok(None) => return,
                Ok(Some(_)) | Err(_) => {
                    log::warn!(
                        "unexpected message from the launcher; ignoring all further messages"
                    );
                    self.open = false;
                    return;
                }
            }
        }
    }

    fn send_if_open(&mut self, message: &ToAgent) {
        if let Err(error) = self.send(message) {
            log::debug!("connection to the launcher failed: {error}");
        }
    }

    fn send(&mut self, message: &ToAgent) -> Result<(), LaunchError> {
        let mut line = serde_json::to_vec(message)
            .map_err(|error| LaunchError::Malformed(error.to_string()))?;
        line.push(b'\n');
        Ok(self.stream.write_all(&line)?)
    }
}

/// Returns the job of a welcome of this version.
fn welcomed(welcome: Welcome) -> Result<Job, LaunchError> {
    if welcome.version != VERSION {
        return Err(LaunchError::Version {
            ours: VERSION,
            theirs: welcome.version,
        });
    }
    if !welcome.job.is_sound() {
        return Err(LaunchError::Malformed(format!("{welcome:?}")));
    }
    Ok(welcome.job)
}

fn next_message(lines: &mut LineBuffer) -> Result<Option<ToProcess>, LaunchError> {
    let Some(line) = lines.next_line() else {
        return Ok(None);
    };
    // The line may contain the secret, so the error reports only the column.
    serde_json::from_slice(line)
        .map(Some)
        .map_err(|error| LaunchError::Malformed(format!("column {}", error.column())))
}

/// Receiving half of the connection.
#[derive(Debug)]
struct Input {
    lines: LineBuffer,
    /// Allocated once: a poll without data costs one system call and touches no memory.
    bytes: Box<[u8; READ_LEN]>,
}

impl Input {
    fn new() -> Self {
        Input {
            lines: LineBuffer::default(),
            bytes: Box::new([0; READ_LEN]),
        }
    }

    /// Reads once. Returns the number of bytes, 0 at the end.
    fn read_more(&mut self, stream: &UnixStream, flags: RecvFlags) -> io::Result<usize> {
        loop {
            usage::count_call(Call::Recvfrom);
            match recv(stream, &mut self.bytes[..], flags) {
                Err(Errno::INTR) => {}
                // A process that was killed with unread bytes resets the connection.
                Err(Errno::CONNRESET) => return Ok(0),
                Err(errno) => return Err(errno.into()),
                Ok((len, _)) => return self.lines.append(&self.bytes[..len]).map(|()| len),
            }
        }
    }
}

#[cfg(test)]
mod tests;
