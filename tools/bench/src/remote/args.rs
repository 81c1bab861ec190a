// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of measurements between two hosts.

use std::net::IpAddr;

/// Where the server waits unless told otherwise. Above the ports that need privilege, below those that
/// Linux gives to clients (from 32768), and not in IANA's list; iperf3, sockperf and NetPIPE have others.
pub(crate) const PORT: u16 = 17_077;

/// The variable that holds the token, where nobody else sees it: arguments are shown to all users of a host.
pub const TOKEN_VARIABLE: &str = "PORTOLAN_BENCH_TOKEN";

/// See the module documentation.
#[derive(Clone, Debug, clap::Args)]
pub struct RemoteArgs {
    /// Be the other host of a measurement: wait for `--client` elsewhere, run the answering ends of its
    /// rows, again and again.
    #[arg(long, conflicts_with_all = MEASURING)]
    pub(crate) server: bool,
    /// Measure between this host and HOST, where `portolan bench --server` runs.
    #[arg(long, value_name = "HOST", conflicts_with = "mtu")]
    pub(crate) client: Option<String>,
    /// TCP port of the server [default: the first of PORTOLAN_PORTS, or 17077].
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Address that the server waits at; otherwise all of its host.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// The secret that lets a client use the server; the variable PORTOLAN_BENCH_TOKEN holds it more
    /// safely. A server without one draws and prints one.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
}

/// Options that say what is measured: the client's business.
const MEASURING: [&str; 26] = [
    "metrics",
    "paths",
    "sizes",
    "versus",
    "interfaces",
    "mpis",
    "limits",
    "calls",
    "json",
    "hdr",
    "resume",
    "history",
    "iterations",
    "seconds",
    "mtu",
    "link",
    "repeat",
    "placement",
    "loss",
    "interfere",
    "senders",
    "schedule",
    "auth",
    "broker",
    "loopback",
    "client",
];

impl RemoteArgs {
    /// Returns the port of the server.
    ///
    /// # Errors
    /// `PORTOLAN_PORTS` is no range.
    pub(crate) fn port(&self) -> Result<u16, portolan::Error> {
        if let Some(port) = self.port {
            return Ok(port);
        }
        Ok(portolan::port_range()?.nth(0).unwrap_or(PORT))
    }

    /// The token that was given, if any.
    pub(crate) fn given_token(&self) -> Option<String> {
        let variable = || std::env::var(TOKEN_VARIABLE).ok();
        let given = self.token.clone().or_else(variable);
        given.filter(|token| !token.is_empty())
    }
}
