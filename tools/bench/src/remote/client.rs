// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client: a session with a server, and connections to the ends of rows.

use super::args::{RemoteArgs, TOKEN_VARIABLE};
use super::handshake::{
    self, BUILD, Call, Greeting, LINE_TIMEOUT, Reply, Request, ServerHost, VERSION,
};
use super::host;
use crate::control::Wire;
use crate::place::{Place, Site};
use crate::spec::Spec;
use crate::worker::{GRACE, lasts};
use anyhow::{Context, Result};
use portolan_sys::net;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;

/// Reason why no measurement with a server is possible. The message names the problem, its cause
/// and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The server requires a token.
    #[error(
        "--client needs the server's token: specify the one that `portolan bench --server` prints by --token \
         or in the variable {TOKEN_VARIABLE}"
    )]
    NoToken,
    /// `PORTOLAN_PORTS` is not a valid range.
    #[error(transparent)]
    Setting(#[from] portolan::Error),
    /// The host name cannot be resolved.
    #[error(
        "--client {host}: the name cannot be resolved ({cause}): specify a host name or address"
    )]
    NoAddress {
        /// Host as the user wrote it.
        host: String,
        /// Error of the resolver.
        cause: io::Error,
    },
    /// The connection failed.
    #[error(
        "--client {host}: cannot connect to TCP port {port} ({cause}): start `portolan bench \
         --server` on it, and open the port in its firewall"
    )]
    Unreachable {
        /// Host as the user wrote it.
        host: String,
        /// Port of the connection attempt.
        port: u16,
        /// Error of the system.
        cause: io::Error,
    },
    /// Another service answers at the port.
    #[error(
        "--client {host}: the service at port {port} is not `portolan bench --server` ({cause:#}): specify its \
         --port"
    )]
    Foreign {
        /// Host as the user wrote it.
        host: String,
        /// Port of the connection.
        port: u16,
        /// Error in its reply.
        cause: anyhow::Error,
    },
    /// The versions of client and server differ.
    #[error(
        "--client {host}: it has Portolan {there}, this host {here}: install the same version on \
         both hosts"
    )]
    OtherVersion {
        /// Host as the user wrote it.
        host: String,
        /// Version of the server.
        there: String,
        /// Version of this program.
        here: String,
    },
    /// The server refuses the request.
    #[error("--client {host}: the server rejected the request: {why}")]
    Refused {
        /// Host as the user wrote it.
        host: String,
        /// Reason of the server.
        why: String,
    },
    /// The two hosts cannot measure together.
    #[error("--client {host}: {cause:#}")]
    Host {
        /// Host as the user wrote it.
        host: String,
        /// The incompatibility.
        cause: anyhow::Error,
    },
}

/// A session with a server; it ends on drop.
pub(crate) struct Remote {
    host_arg: String,
    addr: SocketAddr,
    token: String,
    session: u64,
    pub(crate) host: ServerHost,
    session_stream: TcpStream,
}

impl Remote {
    /// Begins a session with the server of `args`; returns `None` if they name none.
    pub(crate) fn open(args: &RemoteArgs) -> Result<Option<Remote>, RemoteError> {
        let Some(host_arg) = args.client.clone() else {
            return Ok(None);
        };
        let token = args.given_token().ok_or(RemoteError::NoToken)?;
        let addr = reachable(&host_arg, args.port()?)?;
        let (session_stream, reply) = call(&host_arg, addr, &token, &Request::Session)?;
        let Reply::Welcome { session, host } = reply else {
            return Err(foreign(
                &host_arg,
                addr,
                anyhow::anyhow!("an unexpected reply"),
            ));
        };
        Ok(Some(Remote {
            host_arg,
            addr,
            token,
            session,
            host,
            session_stream,
        }))
    }

    /// Returns a site of this host and the server's.
    ///
    /// # Errors
    /// The interface that leads to the server cannot be found.
    pub(crate) fn site(&self) -> Result<Site, RemoteError> {
        let wrong = |cause| RemoteError::Host {
            host: self.host_arg.clone(),
            cause,
        };
        let own = || -> Result<(Place, usize)> {
            let here = host::place(self.session_stream.local_addr()?.ip().to_canonical())?;
            let mtu = host::mtu(&here)?;
            Ok((here, mtu))
        };
        let (here, mtu) = own().map_err(wrong)?;
        let there = host::elsewhere(self.addr.ip().to_canonical(), &self.host.interface);
        Ok(Site::hosts(mtu.min(self.host.mtu), [here, there]))
    }

    /// Starts the answering end of a bare row at the server. Reads from it time out after the
    /// longest duration of the row.
    pub(crate) fn answerer(&self, spec: &Spec) -> Result<Wire> {
        let stream = self.start_end(&Request::Bare {
            session: self.session,
            spec: Box::new(spec.clone()),
        })?;
        // The server's end times out earlier and reports the reason.
        stream.set_read_timeout(Some(lasts(spec.pace) + GRACE + LINE_TIMEOUT))?;
        Ok(Wire::new(stream.try_clone()?, stream))
    }

    /// Starts rank 1 of a job's row at the server. The connection is that of the rank's agent.
    pub(crate) fn rank(&self, spec: &Spec) -> Result<Arc<TcpStream>> {
        let request = Request::Rank {
            session: self.session,
            spec: Box::new(spec.clone()),
        };
        self.start_end(&request).map(Arc::new)
    }

    fn start_end(&self, request: &Request) -> Result<TcpStream> {
        let (stream, reply) = call(&self.host_arg, self.addr, &self.token, request)?;
        matches!(reply, Reply::Go)
            .then_some(stream)
            .context("the server sent an unexpected reply")
    }
}

/// Returns the first address of `host` that accepts a connection.
fn reachable(host: &str, port: u16) -> Result<SocketAddr, RemoteError> {
    let addresses = (host, port).to_socket_addrs();
    let addresses = addresses.map_err(|cause| RemoteError::NoAddress {
        host: host.to_owned(),
        cause,
    })?;
    let mut last = io::ErrorKind::NotFound.into();
    for address in addresses {
        match net::connect_within(address, portolan::binding::port_range()?, LINE_TIMEOUT) {
            Ok(_) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(unreachable(host, port, last))
}

fn unreachable(host: &str, port: u16, cause: io::Error) -> RemoteError {
    RemoteError::Unreachable {
        host: host.to_owned(),
        port,
        cause,
    }
}

fn foreign(host: &str, addr: SocketAddr, cause: anyhow::Error) -> RemoteError {
    RemoteError::Foreign {
        host: host.to_owned(),
        port: addr.port(),
        cause,
    }
}

/// Opens a connection for `request`, and returns it with the server's reply.
fn call(
    host: &str,
    addr: SocketAddr,
    token: &str,
    request: &Request,
) -> Result<(TcpStream, Reply), RemoteError> {
    let stream = net::connect_within(addr, portolan::binding::port_range()?, LINE_TIMEOUT);
    let stream = stream.map_err(|cause| unreachable(host, addr.port(), cause))?;
    let to_foreign = |cause| foreign(host, addr, cause);
    host::keep_alive(&stream).map_err(to_foreign)?;
    let greeting: Greeting = handshake::receive(&stream).map_err(to_foreign)?;
    if (greeting.portolan_bench, greeting.build.as_str()) != (VERSION, BUILD) {
        return Err(RemoteError::OtherVersion {
            host: host.to_owned(),
            there: greeting.build,
            here: BUILD.into(),
        });
    }
    let request = serde_json::to_value(request).map_err(|error| to_foreign(error.into()))?;
    let call = Call {
        portolan_bench: VERSION,
        build: BUILD.into(),
        mac: handshake::mac(token, &greeting.nonce),
        request,
    };
    handshake::send(&stream, &call).map_err(to_foreign)?;
    match handshake::receive(&stream).map_err(to_foreign)? {
        Reply::Refused(why) => Err(RemoteError::Refused {
            host: host.to_owned(),
            why,
        }),
        answer => Ok((stream, answer)),
    }
}
