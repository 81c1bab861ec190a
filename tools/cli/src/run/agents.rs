// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agents of a job as seen by `run`: one child process per host.

use super::hosts::{Host, Place};
use super::remote::{READY_LINE, RemoteProgram};
use super::ssh::{self, CONNECT_TIMEOUT_S, LOGIN_DELAY};
use super::wire::{Order, Report};
use crate::error::UserError;
use crate::launch_io::{LineSink, LineSource};
use anyhow::{Context, Result, bail};
use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Exit status of ssh when the connection, not the command, failed (ssh(1)).
const SSH_FAILED: i32 = 255;

/// Exit status of a shell that does not find the command (POSIX).
const NOT_FOUND: i32 = 127;

/// Time for other agents to report after one has failed to start. It covers a connection attempt
/// and the start-up files of a shell.
pub(super) const SETTLE_DELAY: Duration = Duration::from_secs(CONNECT_TIMEOUT_S as u64 + 5);

/// Time limit from the host's shell to the hello of the agent, which needs only the host's
/// processor and disk. It is short because a user is waiting.
const HELLO_DELAY: Duration = Duration::from_secs(10);

/// Time for an agent to end after its input was closed; then it is killed.
const END_DELAY: Duration = Duration::from_secs(2);

/// Interval between checks for an agent's end during [`END_DELAY`].
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Options for starting agents.
#[derive(Clone, Debug)]
pub(crate) struct AgentOptions {
    /// The command `portolan` on other machines.
    pub(crate) remote_program: RemoteProgram,
    /// The connection to the agent of the host that is [`Place::Connected`].
    pub(crate) connection: Option<Arc<TcpStream>>,
}

/// Relation of an agent to this process.
#[derive(Debug)]
enum Process {
    Child(Child),
    /// A child of another process, reached by a connection.
    Connection(Arc<TcpStream>),
}

/// An agent and its host.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) host: Host,
    pub(super) ranks: Vec<u32>,
    process: Process,
    pub(super) orders: LineSink,
    pub(super) reports: LineSource,
    pub(super) errors: LineSource,
    /// Set when the host's shell has become the agent; from then on `reports` carries the agent's
    /// output.
    is_reached: bool,
    /// Last line that arrived over `reports` before that.
    shell_output: String,
    /// Time at which the agent was spawned, later at which it was reached.
    since: Instant,
    /// Set by the agent's hello; from then on `errors` is shown to the user.
    pub(super) is_up: bool,
    /// Set when the agent sends nothing more.
    pub(super) is_done: bool,
    /// Lines that arrived over `errors` before the hello; they explain a failed start.
    output: Vec<String>,
    status: Option<ExitStatus>,
}

impl Agent {
    /// Starts the agent of `host`.
    pub(super) fn spawn(host: Host, ranks: Vec<u32>, options: &AgentOptions) -> Result<Agent> {
        if host.place == Place::Connected {
            return Agent::attach(host, ranks, options);
        }
        let mut command = command(&host, options)?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Detach the agent from the terminal's Ctrl-C: `run` receives it and notifies the
            // agents.
            .process_group(0);
        portolan_sys::inherit::unblock_signals(&mut command);
        portolan_sys::inherit::die_with_parent(&mut command, libc::SIGTERM);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .spawn()
            .map_err(|error| cannot_start(&program, &error))?;
        Ok(Agent {
            orders: LineSink::new(child.stdin.take().context("input of an agent")?.into())?,
            reports: LineSource::new(child.stdout.take().context("output of an agent")?.into())?,
            errors: LineSource::new(child.stderr.take().context("errors of an agent")?.into())?,
            is_reached: !matches!(host.place, Place::Ssh | Place::Slurm),
            shell_output: String::new(),
            since: Instant::now(),
            host,
            ranks,
            process: Process::Child(child),
            is_up: false,
            is_done: false,
            output: Vec::new(),
            status: None,
        })
    }

    /// Uses an agent that another process has started.
    fn attach(host: Host, ranks: Vec<u32>, options: &AgentOptions) -> Result<Agent> {
        let connection = options.connection.clone().context("no connection")?;
        Ok(Agent {
            orders: LineSink::new(connection.try_clone()?.into())?,
            reports: LineSource::new(connection.try_clone()?.into())?,
            errors: LineSource::ended(),
            is_reached: true,
            shell_output: String::new(),
            since: Instant::now(),
            host,
            ranks,
            process: Process::Connection(connection),
            is_up: false,
            is_done: false,
            output: Vec::new(),
            status: None,
        })
    }

    /// Returns the reports that have arrived. At the end of the stream, or after invalid data,
    /// `reports` is at its end too.
    pub(super) fn read_reports(&mut self) -> Vec<Report> {
        self.reports.fill();
        let mut reports = Vec::new();
        while let Some(line) = self.reports.next_line() {
            if !self.is_reached {
                // Text without an end of line may precede it.
                self.is_reached = line.ends_with(READY_LINE.as_bytes());
                self.since = Instant::now();
                self.shell_output = String::from_utf8_lossy(line).into_owned();
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(report) => reports.push(report),
                Err(error) => {
                    let text = String::from_utf8_lossy(line).into_owned();
                    self.output
                        .push(format!("unexpected output {text:?} ({error})"));
                    self.reports.close();
                    break;
                }
            }
        }
        reports
    }

    /// Returns the lines from standard error after the hello; earlier lines are kept.
    pub(super) fn read_errors(&mut self) -> Vec<String> {
        self.errors.fill();
        let mut lines = Vec::new();
        while let Some(line) = self.errors.next_line() {
            lines.push(String::from_utf8_lossy(line).trim_end().to_owned());
        }
        if self.is_up {
            return lines;
        }
        self.output.extend(lines);
        Vec::new()
    }

    /// Returns the deadline for the hello of the agent. `None` for agents of this machine, because
    /// the kernel reports their end.
    pub(super) fn start_deadline(&self) -> Option<Instant> {
        let is_local = matches!(self.host.place, Place::Here | Place::Namespace(..));
        if is_local || self.is_up || self.is_done {
            return None;
        }
        let delay = if self.is_reached {
            HELLO_DELAY
        } else {
            LOGIN_DELAY
        };
        Some(self.since + delay)
    }

    /// Ends an agent that missed its [`Agent::start_deadline`], and returns an error message for
    /// the user.
    pub(super) fn start_timeout_error(&mut self, options: &AgentOptions) -> UserError {
        let is_reached = self.is_reached;
        self.end();
        self.read_errors();
        let output = match self.output.is_empty() {
            true => String::new(),
            false => format!(" ({})", self.output.join("; ")),
        };
        let (name, seconds) = (&self.host.name, HELLO_DELAY.as_secs());
        let example = options.remote_program.example();
        UserError::new(match self.host.place {
            Place::Connected => format!(
                "the server on host {name} did not start its process within {seconds} s: restart \
                 `portolan bench --server` there"
            ),
            Place::Slurm => format!(
                "portolan on node {name} has printed nothing for {seconds} s{output}: check that `srun --overlap \
                 -N 1 -n 1 -w {name} {example} --version` prints a version, or give the path of portolan with \
                 --remote-program PATH"
            ),
            _ if is_reached => format!(
                "portolan on host {name} was started and printed nothing for {seconds} s{output}: check that \
                 `ssh {name} {example} --version` prints a version, or give the path of portolan with \
                 --remote-program PATH"
            ),
            _ => format!(
                "ssh has not reached a shell on host {name} within {} s{output}: check that `ssh -o \
                 BatchMode=yes {name} true` works and ends",
                LOGIN_DELAY.as_secs()
            ),
        })
    }

    /// Sends an order.
    pub(super) fn order(&mut self, order: &Order) -> Result<()> {
        self.orders.send(order)
    }

    /// Closes the agent's input, which ends the agent and its ranks, and waits for the end.
    pub(super) fn end(&mut self) -> Option<ExitStatus> {
        self.is_done = true;
        self.orders.close();
        self.reports.close();
        let child = match &mut self.process {
            Process::Child(child) => child,
            Process::Connection(connection) => {
                // A broken connection needs no shutdown.
                let _ = connection.shutdown(Shutdown::Both);
                return None;
            }
        };
        let deadline = Instant::now() + END_DELAY;
        while self.status.is_none() {
            self.status = child.try_wait().ok()?;
            if self.status.is_none() && Instant::now() >= deadline {
                child.kill().ok()?;
                self.status = Some(child.wait().ok()?);
            }
            if self.status.is_none() {
                std::thread::sleep(END_POLL_INTERVAL);
            }
        }
        self.status
    }

    /// Explains why the agent ended before it had finished.
    pub(super) fn loss(&mut self) -> String {
        let status = self.end();
        self.read_errors();
        let how = match status.map(super::wire::End::from) {
            Some(end) => end.to_string(),
            None => "no exit status".to_owned(),
        };
        let what = match self.host.place {
            Place::Ssh => "ssh",
            Place::Slurm => "srun",
            Place::Here | Place::Namespace(..) => "its agent",
            Place::Connected => {
                return format!(
                    "the connection to the server on host {} ended",
                    self.host.name
                );
            }
        };
        format!(
            "the connection to host {} ended ({what}: {how})",
            self.host.name
        )
    }

    /// Explains to the user why the agent did not start.
    pub(super) fn start_error(&mut self, options: &AgentOptions) -> UserError {
        let status = self.end();
        self.read_errors();
        if !self.is_reached && !self.shell_output.is_empty() {
            self.output.push(std::mem::take(&mut self.shell_output));
        }
        let name = self.host.name.clone();
        let output = if self.output.is_empty() {
            "no output".into()
        } else {
            self.output.join("; ")
        };
        let code = status.and_then(|status| status.code());
        UserError::new(match (&self.host.place, code) {
            (Place::Ssh, Some(SSH_FAILED)) => format!(
                "cannot reach host {name}: {output}; check the name in the hosts file, and that \
                 `ssh -o BatchMode=yes {name} true` works without a password"
            ),
            (Place::Ssh, Some(NOT_FOUND)) => format!(
                "portolan was not found on host {name}; searched: {} ({output}): install it there, \
                 or give its path with --remote-program PATH",
                options.remote_program.places()
            ),
            (Place::Slurm, _) => format!(
                "srun does not start portolan on node {name}: {output}; check that `srun --overlap -N 1 -n 1 -w \
                 {name} portolan --version` works, or give its path with --remote-program PATH"
            ),
            _ => format!(
                "the agent on host {name} does not start: {output}; check that `portolan --version` works there"
            ),
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

/// Options of srun for an agent:
/// - one process, in addition to other processes of the job on that node, with all processors;
/// - no PMI of Slurm, because the agent assigns the ranks;
/// - no message about the end, because the agent reports it.
const SRUN_OPTIONS: [&str; 7] = [
    "--nodes=1",
    "--ntasks=1",
    "--overlap",
    "--cpu-bind=none",
    "--mpi=none",
    "--chdir=/",
    "--quiet",
];

fn command(host: &Host, options: &AgentOptions) -> Result<Command> {
    let own = std::env::current_exe().context("finding the file of this program")?;
    let mut command;
    match &host.place {
        Place::Here => {
            command = Command::new(own);
        }
        Place::Namespace(namespace, cores) => {
            command = Command::new("ip");
            command.args(["netns", "exec", namespace]).arg(own);
            cores.bind(&mut command);
        }
        Place::Ssh => {
            command = ssh::command(&host.name);
            command.arg(options.remote_program.command_line());
            return Ok(command);
        }
        Place::Connected => bail!("the agent of host {} is already started", host.name),
        Place::Slurm => {
            command = Command::new("srun");
            command.args(SRUN_OPTIONS).arg("--nodelist");
            command.arg(&host.name).args(options.remote_program.words());
            return Ok(command);
        }
    }
    command.arg("agent");
    Ok(command)
}

/// Explains why a command that reaches hosts does not start.
pub(crate) fn cannot_start(program: &str, error: &std::io::Error) -> UserError {
    let package = match program {
        "ip" => "iproute2",
        "srun" => "slurm-client",
        _ => "openssh-client",
    };
    UserError::new(match error.kind() {
        ErrorKind::NotFound => {
            format!("the command `{program}` is missing: install it with `apt install {package}`")
        }
        _ => {
            let remedy = match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => "; raise `ulimit -n`",
                Some(libc::EAGAIN) => "; raise `ulimit -u`",
                Some(libc::EINVAL) if program == "ip" => {
                    "; this process may use none of the host's cores (`portolan lab list`): create the lab \
                     again with other --cores"
                }
                _ => "",
            };
            format!("the command `{program}` does not start: {error}{remedy}")
        }
    })
}
