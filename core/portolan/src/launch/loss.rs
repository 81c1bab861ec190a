// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports lost peers to the launcher, before the program is notified.
//!
//! Most programs exit when a peer has failed, and may exit before that peer does. Without the
//! report, the launcher would count such a program as the first failure.

use super::wire::ToAgent;
use rustix::net::{SendFlags, send};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

/// Reports lost peers over the connection to the agent.
#[derive(Debug)]
pub(crate) struct LossReporter {
    /// Another descriptor of the connection to the agent.
    socket: OwnedFd,
    reported: RefCell<BTreeSet<u32>>,
}

impl LossReporter {
    pub(super) fn new(socket: OwnedFd) -> LossReporter {
        LossReporter {
            socket,
            reported: RefCell::default(),
        }
    }

    /// Reports the loss of `rank`, once.
    pub(crate) fn report(&self, rank: u32, why: String) {
        if !self.reported.borrow_mut().insert(rank) {
            return;
        }
        let Ok(mut line) = serde_json::to_vec(&ToAgent::Lost { rank, why }) else {
            return;
        };
        line.push(b'\n');
        // One short line fits the socket's buffer. An agent that has exited ends the job anyway.
        if let Err(errno) = send(&self.socket, &line, SendFlags::NOSIGNAL) {
            log::debug!("connection to the launcher failed: {errno}");
        }
    }
}
