// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints of a simulation; see [`crate::simulated`].
//!
//! Invariant: no call here waits.

use super::Endpoint;
use super::open::auth_of;
use crate::clock::Clock;
use crate::directory::{Directory, EndpointAddress, endpoint_key};
use crate::engine::{Closing, Engine, InUse, Inner, Waiter};
use crate::error::Error;
use crate::launch::Job;
use crate::links::{Links, simulated_address};
use crate::liveness::Liveness;
use crate::simulated::SimulatedConfig;
use crate::start::{CONNECT_TIMEOUT, bare_core};
use crate::table::Table;
use portolan_proto::StreamUse;
use portolan_sys::gate::{Pending, Serviced};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// Endpoint of a simulation. It dereferences to its [`Endpoint`]. Callers must not use the calls that
/// wait, because the virtual clock stands still meanwhile.
///
/// Dropping it ends the process without a farewell; see [`SimulatedEndpoint::begin_close`].
#[derive(Debug)]
pub struct SimulatedEndpoint {
    endpoint: Endpoint,
    closing: Option<Closing>,
}

impl SimulatedEndpoint {
    /// Opens a simulated endpoint.
    ///
    /// # Errors
    /// [`Error::Setting`] for an invalid setting.
    pub fn new(config: SimulatedConfig) -> Result<SimulatedEndpoint, Error> {
        let clock = Clock::simulated();
        let (token, birth, port) = (config.token(), config.birth(), config.link.index());
        let mut job = Job::alone([0; 16], [0; 32]);
        (job.rank, job.size) = (u32::MAX, 0);
        config.set_options(&mut job);
        let auth = auth_of(&job)?;
        let key = endpoint_key(&token);
        let directory = Arc::new(Directory::new(&token));
        let mut links = Links::simulated(config.link);
        links.rest_networks();
        let own = simulated_address(port);
        let address = EndpointAddress::of(&own, token).with_pid(port);
        directory.set_own_simulated(address);
        let liveness = Liveness::simulated(config.probes, None, &key, clock);
        let mut core = bare_core(&job, auth, &links, StreamUse::Off, birth)?;
        let handshake_key = auth.handshake_key(&key);
        core.open(*address.as_bytes(), handshake_key, auth.is_sealed());
        let table = Table::of_endpoint(own, Arc::clone(&directory));
        let mut inner = Inner::new(job, auth, core, table, clock)?;
        inner.set_directory(&directory, CONNECT_TIMEOUT);
        let endpoint = Endpoint {
            engine: Engine::new(inner, links, None, Some(liveness)).unguarded(),
            directory,
            address,
            waiter: Waiter::of_endpoint(1),
            descriptor: None,
            armed_at: None,
            regions: HashMap::new(),
            removed_peers: Vec::new(),
            // Dropping it must not wait.
            waits_when_dropped: false,
        };
        let closing = None;
        Ok(SimulatedEndpoint { endpoint, closing })
    }

    /// Prepares to sleep, as [`Endpoint::wait`] does. Returns the longest sleep, or `None` if there is
    /// something to poll for. The next poll ends the sleep.
    pub fn fall_asleep(&mut self) -> Option<Duration> {
        if !self.endpoint.has_nothing() {
            return None;
        }
        let engine = self.endpoint.engine.hold_mut();
        let after = engine.fall_asleep();
        self.endpoint.armed_at = after.map(|_| engine.inner.last_clock_read());
        after
    }

    /// Returns how urgently the helper has to continue the work of the last call.
    #[must_use]
    pub fn left_to_helper(&self) -> Pending {
        self.endpoint.engine.pending()
    }

    /// Makes one pass of the helper. Returns `true` if it has moved something.
    pub fn run_helper(&mut self) -> bool {
        self.endpoint.engine.serve() == Serviced::Moved
    }

    /// Delivers a datagram that a carrier of probes has sent to this process from the process at
    /// `from`.
    pub fn receive_probe(&self, bytes: &[u8], from: SocketAddr) {
        self.endpoint.engine.read().receive_probe(bytes, from);
    }

    /// Delivers the news that no process received the datagram `quoted` at `destination`.
    pub fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        self.endpoint
            .engine
            .read()
            .receive_refusal(quoted, destination);
    }

    /// Begins to close, as dropping an [`Endpoint`] does, without waiting.
    pub fn begin_close(&mut self) {
        self.closing = Some(self.endpoint.engine.enter().start_close());
    }

    /// Continues to close. Returns the result once everything sent has arrived.
    pub fn poll_close(&mut self) -> Option<Result<(), Error>> {
        let closing = self.closing.as_mut()?;
        let result = self.endpoint.engine.enter().poll_close(closing)?;
        self.closing = None;
        Some(result)
    }

    /// Returns the memory in use.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        self.endpoint.engine.read().inner.in_use()
    }
}

impl Deref for SimulatedEndpoint {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl DerefMut for SimulatedEndpoint {
    fn deref_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }
}
