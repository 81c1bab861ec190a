// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of measurements between two hosts.

use std::net::IpAddr;

/// Default port of the server. It lies above the privileged ports and below Linux's ephemeral ports
/// (from 32768), and is not in IANA's list. iperf3, sockperf and NetPIPE use other ports.
pub(crate) const PORT: u16 = 17_077;

/// Environment variable with the token. Command-line arguments would show it to all users of a
/// host.
pub const TOKEN_VARIABLE: &str = "PORTOLAN_BENCH_TOKEN";

/// Options of measurements between two hosts.
#[derive(Clone, Debug, clap::Args)]
pub struct RemoteArgs {
    /// Run as the other host of a measurement: wait for `--client` and run the answering ends of
    /// its rows, repeatedly.
    #[arg(long, conflicts_with_all = MEASURING)]
    pub(crate) server: bool,
    /// Measure between this host and HOST, which runs `portolan bench --server`.
    #[arg(long, value_name = "HOST", conflicts_with = "mtu")]
    pub(crate) client: Option<String>,
    /// TCP port of the server [default: the first of PORTOLAN_PORTS, or 17077].
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Address that the server listens on; without it all addresses of its host.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// Secret that authenticates a client to the server; the variable PORTOLAN_BENCH_TOKEN is
    /// safer. A server without one generates and prints one.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
}

/// Options of a measurement, which only the client may have.
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
    /// `PORTOLAN_PORTS` is not a valid range.
    pub(crate) fn port(&self) -> Result<u16, portolan::Error> {
        if let Some(port) = self.port {
            return Ok(port);
        }
        Ok(portolan::binding::port_range()?.nth(0).unwrap_or(PORT))
    }

    /// Returns the configured token, if any.
    pub(crate) fn given_token(&self) -> Option<String> {
        let variable = || std::env::var(TOKEN_VARIABLE).ok();
        let given = self.token.clone().or_else(variable);
        given.filter(|token| !token.is_empty())
    }
}
