// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints of a simulation; see [`crate::simulated`].
//!
//! Invariant: no call here waits.

use super::Endpoint;
use super::open::auth_of;
use crate::clock::Clock;
use crate::directory::{Directory, EndpointAddress, endpoint_key};
use crate::engine::{self, Engine, InUse, Inner, Waiter};
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
use std::sync::Arc;
use std::time::Duration;

/// State of closing.
#[derive(Debug)]
pub(super) enum Closing {
    /// Closes when it is dropped, and waits then: not simulated.
    Waits,
    /// Ends when it is dropped, without a farewell.
    Never,
    Begun(engine::Closing),
}

impl Endpoint {
    /// Opens a simulated endpoint. Dropping it ends the process without a farewell; see
    /// [`Endpoint::begin_close`].
    ///
    /// # Errors
    /// [`Error::Setting`] for an invalid setting.
    pub fn simulated(config: SimulatedConfig) -> Result<Endpoint, Error> {
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
        Ok(Endpoint {
            engine: Engine::new(inner, links, None, Some(liveness)).unguarded(),
            directory,
            address,
            waiter: Waiter::of_endpoint(1),
            descriptor: None,
            armed_at: None,
            regions: HashMap::new(),
            removed_peers: Vec::new(),
            closing: Closing::Never,
        })
    }

    /// Prepares to sleep, as [`Endpoint::wait`] does. Returns the longest sleep, or `None` if there is
    /// something to poll for. The next poll ends the sleep.
    pub fn fall_asleep(&mut self) -> Option<Duration> {
        if !self.has_nothing() {
            return None;
        }
        let engine = self.engine.hold_mut();
        let after = engine.fall_asleep();
        self.armed_at = after.map(|_| engine.inner.last_clock_read());
        after
    }

    /// Returns how urgently the helper has to continue the work of the last call.
    #[must_use]
    pub fn left_to_helper(&self) -> Pending {
        self.engine.pending()
    }

    /// Makes one pass of the helper. Returns `true` if it has moved something.
    pub fn run_helper(&mut self) -> bool {
        self.engine.serve() == Serviced::Moved
    }

    /// Delivers a datagram that a carrier of probes has sent to this process from the process at
    /// `from`.
    pub fn receive_probe(&self, bytes: &[u8], from: SocketAddr) {
        self.engine.read().receive_probe(bytes, from);
    }

    /// Delivers the news that no process received the datagram `quoted` at `destination`.
    pub fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        self.engine.read().receive_refusal(quoted, destination);
    }

    /// Begins to close, as dropping an endpoint does that is not simulated.
    pub fn begin_close(&mut self) {
        let closing = self.engine.enter().start_close();
        self.closing = Closing::Begun(closing);
    }

    /// Continues to close. Returns the result once everything sent has arrived.
    pub fn poll_close(&mut self) -> Option<Result<(), Error>> {
        match &mut self.closing {
            Closing::Begun(closing) => self.engine.enter().poll_close(closing),
            _ => None,
        }
    }

    /// Returns the memory in use.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        self.engine.read().inner.in_use()
    }
}
