// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server, with one thread per connection. A thread waits only for its connection and its own
//! child process. A child does not outlive its connection.

use super::admit::{Kind, admit};
use super::args::RemoteArgs;
use super::handshake::{self, BUILD, Call, Greeting, Reply, Request, VERSION};
use super::host;
use crate::args::{BenchArgs, Path};
use crate::competitor::Programs;
use crate::portolan_rows;
use crate::spec::{Program, Spec};
use crate::worker::{self, GRACE, lasts};
use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of connections. A client has two. The rest are connections without a token so
/// far, which are closed after ten seconds.
const CONNECTIONS_MAX: usize = 32;

/// Interval in milliseconds for detecting that a silent end has exited. The end of the connection
/// is detected at once.
const POLL_MS: u16 = 1000;

/// Bytes of a generated token. 64 bits cannot be guessed over a network, and a user can type them.
const TOKEN_LEN: usize = 8;

/// Services that the command provides to the server.
pub trait Hosting: Sync {
    /// Writes `line` to the log of the server.
    fn log(&self, line: &str);

    /// Runs an agent for one rank, connected to `connection`, until either ends.
    ///
    /// # Errors
    /// The agent does not start, or receives a command that a server's client never sends.
    fn serve_rank(&self, rank: &ServedRank, connection: TcpStream) -> Result<()>;
}

/// Rank of a row's job that a server runs. The server, not the client, sets all parameters of its
/// process.
#[derive(Clone, Debug)]
pub struct ServedRank {
    /// Arguments of this program.
    pub args: Vec<String>,
    /// Path of the messages.
    pub path: Path,
    /// Options of the job.
    pub options: BTreeMap<String, String>,
    /// Time limit of the whole run.
    pub limit: Duration,
}

/// Serves clients until the process is terminated.
///
/// # Errors
/// The port is in use, or the system refuses to listen.
pub fn serve(args: &BenchArgs, hosting: &dyn Hosting) -> Result<()> {
    let args = &args.remote;
    let listener = listen(args)?;
    let given = args.given_token();
    let token = match &given {
        Some(token) => token.clone(),
        None => random_token(),
    };
    let port = listener.local_addr()?.port();
    hosting.log(&announcement(port, given.is_none().then_some(&token)));
    Server {
        token,
        hosting,
        session: Mutex::default(),
        programs: Mutex::default(),
        connections: AtomicUsize::new(0),
    }
    .accept(&listener)
}

fn listen(args: &RemoteArgs) -> Result<TcpListener> {
    let addrs = args.bind.map_or(host::ANYWHERE.to_vec(), |addr| vec![addr]);
    let port = args.port()?;
    let addrs: Vec<SocketAddr> = addrs
        .into_iter()
        .map(|addr| SocketAddr::new(addr, port))
        .collect();
    TcpListener::bind(&addrs[..]).with_context(|| {
        format!(
            "--server cannot listen at TCP port {port}: choose another --port, or a --bind address of this host"
        )
    })
}

/// Returns the text that shows users how to reach the server.
fn announcement(port: u16, generated: Option<&String>) -> String {
    let token = match generated {
        Some(token) => format!(" --token {token}"),
        None => " and the same token".into(),
    };
    let port_option = match port {
        super::args::PORT => String::new(),
        port => format!(" --port {port}"),
    };
    format!(
        "waiting at TCP port {port}; on the other host: portolan bench pingpong stream rate --client \
         THIS-HOST{port_option}{token}"
    )
}

fn random_token() -> String {
    let bytes: [u8; TOKEN_LEN] = rand::random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Current holder of the server.
#[derive(Clone, Debug)]
struct Session {
    number: u64,
    client: SocketAddr,
}

struct Server<'a> {
    token: String,
    hosting: &'a dyn Hosting,
    session: Mutex<Option<Session>>,
    programs: Mutex<Programs>,
    connections: AtomicUsize,
}

impl Server<'_> {
    fn accept(&self, listener: &TcpListener) -> Result<()> {
        thread::scope(|scope| {
            loop {
                match listener.accept() {
                    Ok((stream, client)) => {
                        if self.connections.fetch_add(1, Relaxed) >= CONNECTIONS_MAX {
                            self.connections.fetch_sub(1, Relaxed);
                            let why = "rejected: too many connections; try again later";
                            self.log(client, why);
                            continue;
                        }
                        scope.spawn(move || {
                            self.serve_connection(stream, client);
                            self.connections.fetch_sub(1, Relaxed);
                        });
                    }
                    // The client has already closed the connection, or descriptors are temporarily
                    // exhausted.
                    Err(error) => {
                        self.hosting.log(&format!("a connection was lost: {error}"));
                        thread::sleep(Duration::from_millis(u64::from(POLL_MS)));
                    }
                }
            }
        })
    }

    fn serve_connection(&self, stream: TcpStream, client: SocketAddr) {
        if let Err(error) = self.try_serve(stream, client) {
            self.log(client, format!("{error:#}"));
        }
    }

    fn log(&self, client: SocketAddr, what: impl Display) {
        let ip = client.ip().to_canonical();
        self.hosting.log(&format!("client {ip}: {what}"));
    }

    fn try_serve(&self, stream: TcpStream, client: SocketAddr) -> Result<()> {
        host::keep_alive(&stream)?;
        let greeting = Greeting {
            portolan_bench: VERSION,
            build: BUILD.into(),
            nonce: rand::random::<u128>().to_string(),
        };
        handshake::send(&stream, &greeting)?;
        let call: Call = match handshake::receive(&stream) {
            Ok(call) => call,
            // A port scan.
            Err(error) if error.to_string().contains("ended") => return Ok(()),
            Err(error) => return Err(error),
        };
        match self.authenticate(&call, &greeting.nonce) {
            Ok(Request::Session) => self.hold(stream, client),
            Ok(Request::Bare { session, spec }) => {
                self.run(stream, client, (session, Kind::Bare), &spec)
            }
            Ok(Request::Rank { session, spec }) => {
                self.run(stream, client, (session, Kind::Rank), &spec)
            }
            Err(why) => self.refuse(&stream, client, &why),
        }
    }

    fn authenticate(&self, call: &Call, nonce: &str) -> Result<Request, String> {
        if (call.portolan_bench, call.build.as_str()) != (VERSION, BUILD) {
            return Err(format!(
                "the server has Portolan {BUILD}, the client {}: install the same version on both hosts",
                call.build
            ));
        }
        if !handshake::verify(&call.mac, &self.token, nonce) {
            return Err(
                "the token is wrong: specify the one that the server printed or was started with"
                    .into(),
            );
        }
        serde_json::from_value(call.request.clone())
            .map_err(|error| format!("the request is invalid ({error})"))
    }

    fn refuse(&self, stream: &TcpStream, client: SocketAddr, why: &str) -> Result<()> {
        self.log(client, format_args!("rejected: {why}"));
        handshake::send(stream, &Reply::Refused(why.into()))
    }

    /// Reserves the server for a client until the connection ends.
    fn hold(&self, mut stream: TcpStream, client: SocketAddr) -> Result<()> {
        let here = host::place(stream.local_addr()?.ip().to_canonical())?;
        let host = host::describe(&here)?;
        let number = rand::random();
        if let Some(other) = self.begin(Session { number, client }) {
            let ip = other.client.ip().to_canonical();
            let why = format!("{ip} is using this server: try again later");
            return self.refuse(&stream, client, &why);
        }
        self.log(client, "session started");
        let welcome = Reply::Welcome {
            session: number,
            host,
        };
        let ended = handshake::send(&stream, &welcome).map(|()| wait_for_end(&mut stream));
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.log(client, "session ended");
        ended
    }

    /// Begins a session, or returns the current one.
    fn begin(&self, session: Session) -> Option<Session> {
        let mut current = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if current.is_none() {
            *current = Some(session);
            return None;
        }
        current.clone()
    }

    fn is_session(&self, number: u64) -> bool {
        let current = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        current
            .as_ref()
            .is_some_and(|current| current.number == number)
    }

    /// Runs an end.
    fn run(
        &self,
        stream: TcpStream,
        client: SocketAddr,
        (session, kind): (u64, Kind),
        requested: &Spec,
    ) -> Result<()> {
        if !self.is_session(session) {
            return self.refuse(&stream, client, "the session has ended");
        }
        let here = host::place(stream.local_addr()?.ip().to_canonical())?;
        let mut spec = match admit(requested, kind, client.ip().to_canonical(), &here) {
            Ok(spec) => spec,
            Err(why) => return self.refuse(&stream, client, why),
        };
        if let Program::Competitor(competitor, ..) = spec.program {
            let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            match programs.file(competitor) {
                Ok(file) => spec.program_file = Some(file),
                Err(error) => return self.refuse(&stream, client, &format!("{error:#}")),
            }
        }
        handshake::send(&stream, &Reply::Go)?;
        match kind {
            Kind::Bare => run_bare(stream, &spec),
            Kind::Rank => self.hosting.serve_rank(&served(&spec)?, stream),
        }
    }
}

fn served(spec: &Spec) -> Result<ServedRank> {
    let Some((_, path)) = spec.program.job() else {
        bail!("a bare row has no rank");
    };
    let mut options = portolan_rows::options(spec, path);
    options.extend(spec.hosts[1].interface_option());
    Ok(ServedRank {
        args: worker::arguments(spec)?.to_vec(),
        path,
        options,
        limit: lasts(spec.pace) + GRACE,
    })
}

/// Runs the end of a bare row with `stream` as its connection, and kills it when the connection
/// ends.
fn run_bare(stream: TcpStream, spec: &Spec) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program's executable file")?;
    let mut child = Command::new(program)
        .args(worker::arguments(spec)?)
        .stdin(Stdio::from(OwnedFd::from(stream.try_clone()?)))
        .stdout(Stdio::from(OwnedFd::from(stream.try_clone()?)))
        .spawn()
        .context("cannot start this program as a worker")?;
    let deadline = Instant::now() + lasts(spec.pace) + GRACE;
    while child.try_wait()?.is_none() && Instant::now() < deadline && !is_closed(&stream)? {}
    // An error means that the process has already exited.
    let _ = child.kill();
    child.wait()?;
    Ok(())
}

/// Waits up to [`POLL_MS`] for the peer to close the connection.
fn is_closed(stream: &TcpStream) -> Result<bool> {
    // nix has no name for this flag.
    let hang_up = PollFlags::from_bits_retain(libc::POLLRDHUP);
    let mut polled = [PollFd::new(stream.as_fd(), hang_up)];
    match poll(&mut polled, PollTimeout::from(POLL_MS)) {
        Ok(count) => Ok(count > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error).context("waiting for a client"),
    }
}

/// Waits until the peer closes the connection.
fn wait_for_end(stream: &mut TcpStream) {
    let mut nothing = [0];
    loop {
        match stream.read(&mut nothing) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Unexpected data also ends the connection.
            _ => return,
        }
    }
}
