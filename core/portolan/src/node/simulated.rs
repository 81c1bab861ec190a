// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes of a simulation; see [`crate::simulated`].
//!
//! Invariant: no call here waits. A simulation makes no calls that wait, as their documentation
//! states.

use super::exchange::PreparedPlans;
use super::group::SPLIT_ID_MIN;
use super::{Group, Node};
use crate::clock::Clock;
use crate::engine::{Closing, Engine, InUse, Inner, Waiter};
use crate::error::Error;
use crate::links::Links;
use crate::liveness::Liveness;
use crate::model;
use crate::seal::Auth;
use crate::simulated::{SimulatedConfig, SimulatedJob};
use crate::start::bare_core;
use crate::table::Table;
use portolan_proto::{PeerId, StreamUse};
use portolan_sys::gate::{Pending, Serviced};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Simulated process of a job. It dereferences to its [`Node`]. Callers must not use the calls that
/// wait, because the virtual clock stands still meanwhile.
///
/// Dropping it ends the process without a farewell; see [`SimulatedNode::begin_close`].
#[derive(Debug)]
pub struct SimulatedNode {
    node: Node,
    closing: Option<Closing>,
}

impl SimulatedNode {
    /// Creates a simulated process of a job.
    ///
    /// # Errors
    /// [`Error::Setting`] for an invalid setting.
    pub fn new(config: SimulatedConfig, place: SimulatedJob) -> Result<SimulatedNode, Error> {
        let clock = Clock::simulated();
        let (birth, port) = (config.birth(), config.link.index());
        let mut job = place.job();
        config.set_options(&mut job);
        let links = Links::simulated(config.link);
        let (rank, size) = (job.rank, job.size);
        let liveness = Liveness::simulated(config.probes, Some((rank, size)), &job.secret, clock);
        let auth = Auth::of(&job)?;
        let mut core = bare_core(&job, auth, &links, StreamUse::Off, birth)?;
        let table = Table::simulated(port, place.first_port, size);
        for rank in 0..size {
            core.allow(PeerId(rank), &table.links_to(PeerId(rank)));
        }
        let own_job = Box::new(job.clone());
        let mut inner = Inner::new(job, auth, core, table, clock)?;
        inner.join(None);
        let node = Node {
            engine: Engine::new(inner, links, None, Some(liveness)).unguarded(),
            job: own_job,
            waiter: Waiter::of_job(1, 1),
            descriptor: None,
            all: Group::of_job(rank, size),
            next_group_id: SPLIT_ID_MIN,
            is_clean: true,
            // Dropping it must not wait.
            is_closed: true,
            model: model::Status::Off,
            plans: PreparedPlans::default(),
        };
        let closing = None;
        Ok(SimulatedNode { node, closing })
    }

    /// Prepares to sleep, as a wait does. Returns the longest sleep, or `None` if there is work
    /// already. [`SimulatedNode::wake_up`] ends the sleep.
    pub fn fall_asleep(&mut self) -> Option<Duration> {
        let engine = self.node.engine.hold_mut();
        engine.flush();
        match engine.advance_background() > 0 || engine.has_deferred() {
            true => None,
            false => engine.fall_asleep(),
        }
    }

    /// Ends a sleep: handles timers and notices of peers.
    pub fn wake_up(&mut self) {
        self.node.engine.enter().disarm();
    }

    /// Returns how urgently the helper has to continue the work of the last call.
    #[must_use]
    pub fn left_to_helper(&self) -> Pending {
        self.node.engine.pending()
    }

    /// Makes one pass of the helper. Returns `true` if it has moved something.
    pub fn run_helper(&mut self) -> bool {
        self.node.engine.serve() == Serviced::Moved
    }

    /// Delivers a datagram that a carrier of probes has sent to this process from the process at
    /// `from`.
    pub fn receive_probe(&self, bytes: &[u8], from: SocketAddr) {
        self.node.engine.read().receive_probe(bytes, from);
    }

    /// Delivers the news that no process received the datagram `quoted` at `destination`.
    pub fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        self.node.engine.read().receive_refusal(quoted, destination);
    }

    /// Begins to close as [`Node::close`] does, without waiting.
    pub fn begin_close(&mut self) {
        let engine = &mut *self.node.engine.enter();
        // Closing discards messages at ports, which may include reports of a mismatch.
        engine.inner.check_groups();
        self.closing = Some(engine.start_close());
    }

    /// Continues to close. Returns the result once everything sent has arrived.
    pub fn poll_close(&mut self) -> Option<Result<(), Error>> {
        let engine = &mut *self.node.engine.enter();
        let result = engine.poll_close(self.closing.as_mut()?)?;
        self.closing = None;
        Some(result.and_then(|()| engine.inner.check_unreported()))
    }

    /// Returns the memory in use.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        self.node.engine.read().inner.in_use()
    }
}

impl Deref for SimulatedNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl DerefMut for SimulatedNode {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.node
    }
}
