// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshake of a connection between client and server.
//!
//! It has three lines of JSON: the server's greeting, the client's call and the server's reply.
//! After `Go` the connection belongs to the end of a row that the server runs.
//!
//! Neither side sends more than the other waits for. Lines are read byte by byte, so that no later
//! data is consumed. The token authenticates a client by challenge and response: the call carries a
//! message authentication code of the greeting's nonce. The token itself is not transmitted.

use crate::spec::Spec;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Version of this handshake. The format of a row's specification also depends on the version of
/// Portolan.
pub(crate) const VERSION: u32 = 1;

/// Version of Portolan.
pub(crate) const BUILD: &str = env!("CARGO_PKG_VERSION");

/// Time limit of each line. It is much longer than a round trip and the start of a process.
pub(crate) const LINE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum bytes of a line. A specification takes 600.
const LINE_LEN_MAX: usize = 16 << 10;

/// Context of the key derivation (BLAKE3). It separates these hashes from other uses of the same
/// token.
const PURPOSE: &str = "portolan bench 2026 token of a server";

/// The server's first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// [`VERSION`] of the server.
    pub(crate) portolan_bench: u32,
    /// [`BUILD`] of the server.
    pub(crate) build: String,
    /// A number that is never reused.
    pub(crate) nonce: String,
}

/// The client's line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// [`VERSION`] of the client.
    pub(crate) portolan_bench: u32,
    /// [`BUILD`] of the client.
    pub(crate) build: String,
    /// [`mac`] of the greeting's nonce.
    pub(crate) mac: String,
    /// Purpose of the connection, as JSON of a [`Request`]. It is parsed only after the rest has
    /// been verified.
    pub(crate) request: serde_json::Value,
}

/// Purpose of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// Reservation of the server until the connection closes.
    Session,
    /// Connection to the answering end of a bare row.
    Bare {
        /// Number of the session.
        session: u64,
        /// The row.
        spec: Box<Spec>,
    },
    /// Connection to the agent of rank 1.
    Rank {
        /// Number of the session.
        session: u64,
        /// The row.
        spec: Box<Spec>,
    },
}

/// The server's last line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// The session was accepted.
    Welcome {
        /// Number that the client sends with each row.
        session: u64,
        /// Host of the server.
        host: ServerHost,
    },
    /// The end has started.
    Go,
    /// The request was refused, with the reason as text.
    Refused(String),
}

/// Properties of a server's host that affect rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHost {
    /// Name of the host.
    pub name: String,
    /// The address that the client reached.
    pub address: String,
    /// Interface with that address.
    pub interface: String,
    /// MTU of that interface.
    pub mtu: usize,
    /// Kernel release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Cores that the server may use.
    pub cores: usize,
    /// Core that its ends are pinned to; absent if they are not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<usize>,
    /// Name of the hypervisor if there is one, `none` if not.
    pub hypervisor: String,
}

/// Returns the message authentication code of `nonce` under `token` in hexadecimal: keyed BLAKE3.
pub(crate) fn mac(token: &str, nonce: &str) -> String {
    let key = blake3::derive_key(PURPOSE, token.as_bytes());
    blake3::keyed_hash(&key, nonce.as_bytes())
        .to_hex()
        .to_string()
}

/// Returns true if `received` is the expected code. The time does not depend on its value.
pub(crate) fn verify(received: &str, token: &str, nonce: &str) -> bool {
    let expected = blake3::Hash::from_hex(mac(token, nonce));
    let received = blake3::Hash::from_hex(received);
    // Hashes are compared in constant time.
    matches!((expected, received), (Ok(expected), Ok(received)) if expected == received)
}

/// Sends a line.
///
/// # Errors
/// The connection has failed, or is blocked for [`LINE_TIMEOUT`].
pub(crate) fn send(mut stream: &TcpStream, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.set_write_timeout(Some(LINE_TIMEOUT))?;
    stream.write_all(&line).context("the connection ended")?;
    Ok(stream.set_write_timeout(None)?)
}

/// Receives a line.
///
/// # Errors
/// The connection has failed, no line arrives within [`LINE_TIMEOUT`], or the line is invalid.
pub(crate) fn receive<T: DeserializeOwned>(stream: &TcpStream) -> Result<T> {
    let line = receive_line(stream, Instant::now() + LINE_TIMEOUT)?;
    stream.set_read_timeout(None)?;
    serde_json::from_slice(&line).context("it does not use the protocol of `portolan bench`")
}

/// Receives a complete line by `end`. A peer that sends single bytes from time to time does not
/// extend the limit.
fn receive_line(mut stream: &TcpStream, end: Instant) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("no complete line within {} s", LINE_TIMEOUT.as_secs());
        }
        stream.set_read_timeout(Some(left))?;
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => bail!("the connection ended"),
            Ok(_) if byte == *b"\n" => return Ok(line),
            Ok(_) => line.extend(byte),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("no complete line within {} s", LINE_TIMEOUT.as_secs())
            }
            Err(error) => return Err(error).context("the connection ended"),
        }
        if line.len() > LINE_LEN_MAX {
            bail!("it does not use the protocol of `portolan bench`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_depends_on_token_and_nonce() {
        let code = mac("secret", "1");
        assert!(verify(&code, "secret", "1"));
        for (token, nonce) in [("other", "1"), ("secret", "2")] {
            assert!(!verify(&code, token, nonce));
        }
        assert!(!verify("", "secret", "1") && !verify("zz", "secret", "1"));
    }
}
