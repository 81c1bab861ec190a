// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP's congestion controls. All that the kernel offers to this process are measured, and the
//! fastest one counts.

use anyhow::{Context, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;

/// File with the names of those that need no privilege, separated by spaces (tcp(7)).
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// File with the names of all installed ones; some of them may require CAP_NET_ADMIN.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Bytes of a name, including the final zero (`TCP_CA_NAME_MAX` of include/net/tcp.h).
const NAME_LEN: usize = 16;

/// Name of a congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Congestion([u8; NAME_LEN]);

impl Congestion {
    /// Returns the congestion controls that this process may choose. With `everywhere`, returns
    /// only those that need no privilege, so that the other host can use them as well. `None` is
    /// the kernel's default, if the kernel does not list any.
    pub(crate) fn offered(everywhere: bool) -> Vec<Option<Congestion>> {
        let file = if everywhere { ALLOWED } else { AVAILABLE };
        let names = fs::read_to_string(file).unwrap_or_default();
        let named = names
            .split_whitespace()
            .filter_map(|name| Congestion::try_from(name.to_owned()).ok())
            .filter(|congestion| everywhere || congestion.may_be_chosen());
        let all: Vec<_> = named.map(Some).collect();
        match all.is_empty() {
            true => vec![None],
            false => all,
        }
    }

    /// Tries the congestion control on an unconnected socket.
    fn may_be_chosen(self) -> bool {
        let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
        socket(family, SockType::Stream, flags, None).is_ok_and(|socket| self.set(&socket).is_ok())
    }

    /// Selects the congestion control for `stream`.
    ///
    /// # Errors
    /// The kernel no longer has it.
    pub(crate) fn set(self, stream: &impl AsFd) -> Result<()> {
        let name = String::from(self);
        setsockopt(stream, sockopt::TcpCongestion, &OsString::from(&name))
            .with_context(|| format!("TCP_CONGESTION {name}"))
    }
}

impl TryFrom<String> for Congestion {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let mut bytes = [0; NAME_LEN];
        let place = bytes[..NAME_LEN - 1].get_mut(..name.len());
        place
            .ok_or("longer than such a name may be")?
            .copy_from_slice(name.as_bytes());
        Ok(Congestion(bytes))
    }
}

impl From<Congestion> for String {
    fn from(name: Congestion) -> String {
        let len = name
            .0
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(NAME_LEN);
        String::from_utf8_lossy(&name.0[..len]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn congestion_names_round_trip_and_long_ones_are_rejected() {
        let bbr = Congestion::try_from("bbr".to_owned()).expect("short");
        let text = serde_json::to_string(&bbr).expect("serializes");
        assert_eq!(text, "\"bbr\"");
        assert_eq!(
            serde_json::from_str::<Congestion>(&text).expect("parses"),
            bbr
        );
        assert!(Congestion::try_from("x".repeat(NAME_LEN)).is_err());
    }

    #[test]
    fn available_congestion_controls_can_be_set() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        for everywhere in [false, true] {
            for congestion in Congestion::offered(everywhere).into_iter().flatten() {
                congestion.set(&stream).expect("offered");
            }
        }
        let (here, anywhere) = (Congestion::offered(false), Congestion::offered(true));
        assert!(anywhere.iter().all(|congestion| here.contains(congestion)));
    }
}
