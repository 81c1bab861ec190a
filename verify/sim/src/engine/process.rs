// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated process, as the world sees it, and the carrier of its liveness probes.

use super::oracle::Oracle;
use portolan::binding::EndpointAddress;
use portolan::binding::simulated::{Pending, ProbeWire};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A simulated process with its program.
pub(super) trait Process {
    /// Makes one turn of the engine, and of the program. Returns the number of frames, completions
    /// and submissions.
    fn turn(&mut self, oracle: &mut Oracle) -> usize;

    /// Returns the time of the program's next action.
    fn acts_at(&self) -> u64;

    /// Prepares to sleep. Returns the longest sleep; `None` if there is work.
    fn fall_asleep(&mut self) -> Option<Duration>;

    /// Ends a sleep.
    fn wake_up(&mut self);

    /// Returns how urgently the helper has to continue the work of the last call.
    fn left_to_helper(&self) -> Pending;

    /// Makes one pass of the helper. Returns `true` if it has moved something.
    fn run_helper(&mut self) -> bool;

    fn receive_probe(&self, bytes: &[u8], from: SocketAddr);

    fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr);

    /// Returns the address of an endpoint.
    fn address(&self) -> Option<EndpointAddress> {
        None
    }

    /// Introduces all processes to an endpoint, by number.
    fn meet(&mut self, addresses: &[EndpointAddress]) {
        let _ = addresses;
    }

    /// Lets the program do no more than complete what it has begun, and close then.
    fn leave(&mut self, oracle: &mut Oracle);

    /// Describes what the program waits for; `None` once it has ended all its work.
    fn unfinished(&self, oracle: &Oracle) -> Option<String>;

    /// Checks that nothing is in use, once nothing is in flight.
    fn check_free(&self, oracle: &mut Oracle);

    /// Begins to close.
    fn begin_close(&mut self);

    /// Continues to close. Returns the result once that is over.
    fn poll_close(&mut self) -> Option<Result<(), String>>;
}

/// Probe on its way.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) from_port: u32,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

/// Probes that processes have sent.
pub(super) type Outbox = Arc<Mutex<Vec<Probe>>>;

/// Carrier of the probes of one process.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) port: u32,
    pub(super) outbox: Outbox,
}

impl ProbeWire for Carrier {
    fn send(&self, bytes: &[u8], to: SocketAddr) {
        let probe = Probe {
            from_port: self.port,
            to,
            bytes: bytes.to_vec(),
        };
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.push(probe);
    }
}
