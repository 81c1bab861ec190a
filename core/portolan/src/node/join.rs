// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joining: makes a node from the launcher's data and the machine's links.
//!
//! The one invariant: every refusal happens here, before the first message.

use super::Group;
use super::Node;
use super::exchange::PreparedPlans;
use super::group::SPLIT_ID_MIN;
use crate::address::Address;
use crate::clock::Clock;
use crate::engine::{Engine, Inner, Waiter};
use crate::error::Error;
use crate::launch::{Job, Launch, LaunchError, Space};
use crate::links::{Links, Plan};
use crate::liveness::Unstarted;
use crate::seal::Auth;
use crate::start::{new_core, own_address, random};
use crate::table::Table;
use portolan_link::ShmConfig;
use portolan_proto::PeerId;

impl Node {
    /// Joins the job that this process was started in. Without a launcher, creates a job of one
    /// process.
    ///
    /// # Errors
    /// [`Error::Launch`] when the launcher has ended or has another version, [`Error::Link`] when a
    /// requested link cannot be opened, [`Error::Setting`] for an invalid setting.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> {
    /// let mut node = Node::join()?;
    /// println!("rank {} of {}", node.rank(), node.size());
    /// # Ok(()) }
    /// ```
    pub fn join() -> Result<Node, Error> {
        let mut launch = Launch::from_env()?;
        let joined = Node::join_by(&mut launch);
        if let (Err(error), Some(launch)) = (&joined, &mut launch) {
            launch.report_problem(&error.to_string());
        }
        joined
    }

    /// Joins the job of all processes that share the key-value space `space`, regardless of the
    /// launcher. For programs with a key-value store of their own.
    ///
    /// # Errors
    /// As [`Node::join`], and those of the space.
    ///
    /// # Examples
    /// See `interfaces/python/src/store.rs`, which joins over the store of a Python program.
    pub fn join_over(space: Box<dyn Space>) -> Result<Node, Error> {
        Node::join_by(&mut Some(Launch::over(space)?))
    }

    /// Joins, and takes over the launcher's connection on success.
    fn join_by(launch: &mut Option<Launch>) -> Result<Node, Error> {
        let job = match launch {
            Some(launch) => launch.job().clone(),
            None => Job::alone(random()?, random()?),
        };
        let plan = Plan::new(&job)?;
        let shm = ShmConfig::new(job.job_id, job.rank, job.secret);
        let links = Links::open(&plan, &job, shm)?;
        let unstarted = plan
            .usable()
            .map(|usable| Unstarted::bind(usable.bind_both(), plan.ports()))
            .transpose()?;
        let is_publisher = job.local_rank == 0;
        let own = own_address(
            job.host_name(),
            is_publisher,
            &plan,
            &links,
            unstarted.as_ref(),
        )?;
        let addresses = exchange(launch.as_mut(), own)?;
        let liveness = unstarted
            .map(|unstarted| unstarted.start(job.rank, job.size, &job.secret, Clock::new()))
            .transpose()?;
        let auth = Auth::of(&job)?;
        let (mut core, model) = new_core(&job, auth, &links, &plan)?;
        let ours = plan.usable().map(|usable| usable.addresses.clone());
        let table = Table::of_job(addresses, job.rank, ours.unwrap_or_default());
        for rank in 0..job.size {
            core.allow(PeerId(rank), &table.links_to(PeerId(rank)));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let waiter = Waiter::of_job(job.local_size.max(job.rivals), cores);
        let own_job = Box::new(job.clone());
        let all = Group::of_job(job.rank, job.size);
        let mut inner = Inner::new(job, auth, core, table, Clock::new())?;
        inner.join(launch.as_ref().and_then(Launch::loss_reporter));
        Ok(Node {
            engine: Engine::new(inner, links, launch.take(), liveness)
                .published(&model)
                .announced()
                .guard()?,
            job: own_job,
            waiter,
            descriptor: None,
            all,
            next_group_id: SPLIT_ID_MIN,
            is_clean: true,
            is_closed: false,
            model,
            plans: PreparedPlans::default(),
        })
    }
}

/// Publishes this process's address, and collects the addresses of all processes, by rank.
fn exchange(launch: Option<&mut Launch>, own: Address) -> Result<Vec<Address>, Error> {
    let Some(launch) = launch else {
        return Ok(vec![own]);
    };
    let malformed = |error: serde_json::Error| {
        Error::Launch(LaunchError::Malformed(format!("address: {error}")))
    };
    let value = serde_json::to_value(&own).map_err(malformed)?;
    let values = launch.exchange(&value)?;
    // One entry per process, kept for the life of the job: allocated without spare capacity.
    let mut table = Vec::with_capacity(values.len());
    for value in values {
        let mut address: Address = serde_json::from_value(value).map_err(malformed)?;
        address.links.shrink_to_fit();
        table.push(address);
    }
    Ok(table)
}
