// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening an endpoint.

use super::Endpoint;
use crate::clock::Clock;
use crate::directory::{Directory, EndpointAddress, endpoint_key, shm_name};
use crate::engine::{Descriptor, Engine, Inner, Waiter};
use crate::error::Error;
use crate::launch::{Job, PathChoice, check_env};
use crate::links::{Links, Plan};
use crate::seal::Auth;
use crate::start::{CONNECT_TIMEOUT, EndpointConfig, new_core, random, set_options, short_address};
use crate::table::Table;
use portolan_link::ShmConfig;
use portolan_link::shm::OpenConfig;
use portolan_sys::barrier;
use std::collections::HashMap;
use std::sync::Arc;

impl Endpoint {
    /// Opens an endpoint under a new address.
    ///
    /// # Errors
    /// [`Error::Link`] if a requested link cannot be opened, [`Error::Setting`] for an invalid
    /// setting, [`Error::Launch`] for an unknown variable.
    pub fn open(config: &EndpointConfig) -> Result<Endpoint, Error> {
        check_env()?;
        barrier::register_ahead();
        let token = random()?;
        let key = endpoint_key(&token);
        let job = standalone(config)?;
        let auth = auth_of(&job)?;
        let plan = Plan::new(&job)?;
        let directory = Arc::new(Directory::new(&token));
        let shm = ShmConfig::open(OpenConfig {
            name: shm_name(&token),
            directory: Arc::clone(&directory) as Arc<_>,
        });
        let mut links = Links::open(&plan, &job, shm)?;
        links.rest_networks();
        let (own, unstarted) = short_address(&plan, &links)?;
        let address = EndpointAddress::of(&own, token);
        directory.set_own(address);
        let liveness = unstarted.start_open(&key, Clock::new())?;
        let (mut core, model) = new_core(&job, auth, &links, &plan)?;
        let handshake_key = auth.handshake_key(&key);
        core.open(*address.as_bytes(), handshake_key, auth.is_sealed());
        let table = Table::of_endpoint(own, Arc::clone(&directory));
        let mut inner = Inner::new(job, auth, core, table, Clock::new())?;
        inner.set_directory(&directory, CONNECT_TIMEOUT);
        let descriptor = Descriptor::watching(&mut links)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Endpoint {
            engine: Engine::new(inner, links, None, Some(liveness))
                .published(&model)
                .guard()?,
            directory,
            address,
            waiter: Waiter::of_endpoint(cores),
            descriptor: Some(descriptor),
            armed_at: None,
            regions: HashMap::new(),
            removed_peers: Vec::new(),
            waits_when_dropped: true,
        })
    }
}

/// Returns a job without processes, which holds the settings. Its size grows with the peers.
fn standalone(config: &EndpointConfig) -> Result<Job, Error> {
    if config.path == PathChoice::Shm {
        return Err(Error::Setting {
            name: "path",
            value: "shm".to_owned(),
            why: "an endpoint always has a network address; write auto, which uses shared memory \
                  within a host"
                .to_owned(),
        });
    }
    let mut job = Job::alone([0; 16], random()?);
    // Peers may be on any host. Ranks are not used, and none may equal a peer's number.
    job.host_count = 2;
    (job.rank, job.size) = (u32::MAX, 0);
    set_options(&mut job, config);
    Ok(job)
}

/// Returns the setting `auth`. An endpoint always authenticates its peers.
pub(super) fn auth_of(job: &Job) -> Result<Auth, Error> {
    match Auth::of_job(job)? {
        Auth::None => Err(Error::Setting {
            name: "auth",
            value: "none".to_owned(),
            why: "endpoints authenticate their peers; write token or aead".to_owned(),
        }),
        auth => Ok(auth),
    }
}
