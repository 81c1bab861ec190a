// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a client and a server send each other before the work of a connection begins: three lines of
//! JSON, the server's greeting, the client's call and the server's answer. After `Go` the connection
//! belongs to the end of a row that the server runs.
//!
//! Nobody sends more than the other waits for, and lines are read byte by byte, so that nothing of what
//! follows is taken. The token authenticates a client by challenge and response: the call carries a
//! message authentication code of the greeting's nonce. The token itself does not travel.

use crate::spec::Spec;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Version of this handshake. What a row is told is a matter of the version of Portolan as well.
pub(crate) const VERSION: u32 = 1;

/// The version of Portolan.
pub(crate) const BUILD: &str = env!("CARGO_PKG_VERSION");

/// How long either may take for its line: a round trip and the start of a process take less by far.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of the longest line: a specification takes 600.
const LINE_LEN_MAX: usize = 16 << 10;

/// Separates these hashes from others of the same token (BLAKE3's key derivation).
const PURPOSE: &str = "portolan bench 2026 token of a server";

/// The server's first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// [`VERSION`] of the server.
    pub(crate) portolan_bench: u32,
    /// [`BUILD`] of the server.
    pub(crate) build: String,
    /// Never sent before.
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
    /// What the connection is for, as JSON of a [`Request`]: read only once the rest is in order.
    pub(crate) request: serde_json::Value,
}

/// What a connection is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// To have the server until the connection closes.
    Session,
    /// To talk with the answering end of a bare row.
    Bare {
        /// The number of the session.
        session: u64,
        /// The row.
        spec: Box<Spec>,
    },
    /// To talk with the agent of rank 1.
    Rank {
        /// The number of the session.
        session: u64,
        /// The row.
        spec: Box<Spec>,
    },
}

/// The server's last line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The session, and what is to be known of the server's host.
    Welcome {
        /// To be sent for each row.
        session: u64,
        /// The host.
        host: ServerHost,
    },
    /// The end runs.
    Go,
    /// A sentence for a person.
    Refused(String),
}

/// The host of a server, as far as rows depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHost {
    /// Its name.
    pub name: String,
    /// The address that the client reached.
    pub address: String,
    /// The interface that has it.
    pub interface: String,
    /// MTU of that.
    pub mtu: usize,
    /// Kernel release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Cores that the server may use.
    pub cores: usize,
    /// Core that its ends are pinned to; absent where they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<usize>,
    /// Name of the hypervisor if there is one, `none` if not.
    pub hypervisor: String,
}

/// The message authentication code of `nonce` under `token`, in hexadecimal: keyed BLAKE3.
pub(crate) fn mac(token: &str, nonce: &str) -> String {
    let key = blake3::derive_key(PURPOSE, token.as_bytes());
    blake3::keyed_hash(&key, nonce.as_bytes())
        .to_hex()
        .to_string()
}

/// Whether `received` is that code; takes as long whatever it is.
pub(crate) fn verify(received: &str, token: &str, nonce: &str) -> bool {
    let expected = blake3::Hash::from_hex(mac(token, nonce));
    let received = blake3::Hash::from_hex(received);
    // Hashes compare in constant time.
    matches!((expected, received), (Ok(expected), Ok(received)) if expected == received)
}

/// Sends a line.
///
/// # Errors
/// The other is gone, or takes nothing within [`PATIENCE`].
pub(crate) fn send(mut stream: &TcpStream, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&line).context("the connection ended")?;
    Ok(stream.set_write_timeout(None)?)
}

/// Receives a line.
///
/// # Errors
/// The other is gone, sends nothing within [`PATIENCE`], or sends something else.
pub(crate) fn receive<T: DeserializeOwned>(stream: &TcpStream) -> Result<T> {
    let line = receive_line(stream, Instant::now() + PATIENCE)?;
    stream.set_read_timeout(None)?;
    serde_json::from_slice(&line).context("it sends something else than `portolan bench` does")
}

/// A line that has come whole by `end`: who sends a byte now and then is waited for no longer than others.
fn receive_line(mut stream: &TcpStream, end: Instant) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("no whole line came in {} s", PATIENCE.as_secs());
        }
        stream.set_read_timeout(Some(left))?;
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => bail!("the connection ended"),
            Ok(_) if byte == *b"\n" => return Ok(line),
            Ok(_) => line.extend(byte),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("no whole line came in {} s", PATIENCE.as_secs())
            }
            Err(error) => return Err(error).context("the connection ended"),
        }
        if line.len() > LINE_LEN_MAX {
            bail!("it sends something else than `portolan bench` does");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_of_one_token_and_one_nonce() {
        let code = mac("secret", "1");
        assert!(verify(&code, "secret", "1"));
        for (token, nonce) in [("other", "1"), ("secret", "2")] {
            assert!(!verify(&code, token, nonce));
        }
        assert!(!verify("", "secret", "1") && !verify("zz", "secret", "1"));
    }
}
