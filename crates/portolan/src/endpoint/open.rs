// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening an endpoint.

use super::address::{EndpointAddress, endpoint_key, shm_name};
use super::rest::Rest;
use super::{Directory, Endpoint, Raw};
use crate::address::Address;
use crate::clock::Clock;
use crate::engine::{Engine, Inner, Placement};
use crate::error::Error;
use crate::launch::{Job, PathChoice};
use crate::links::{Links, Plan};
use crate::liveness::PEER_TIMEOUT;
use crate::liveness::Unstarted;
use crate::node::random;
use crate::ops::Ops;
use crate::settings;
use crate::table::Table;
use crate::wait::Waiter;
use crate::{engine, model};
use portolan_link::shm::OpenConfig;
use portolan_link::{HostId, ShmConfig};
use portolan_proto::{Config, Core, Instant, Limits, LinkId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How to open an [`Endpoint`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Links to use. By default shared memory within a host, UDP and raw frames between hosts.
    pub path: PathChoice,
    /// Network interface, instead of the one that `PORTOLAN_INTERFACE` names or that is found.
    pub interface: Option<String>,
}

impl Endpoint {
    /// Opens an endpoint under a new address.
    ///
    /// # Errors
    /// [`Error::Link`] when a link that was asked for cannot be opened, [`Error::Setting`] for a
    /// setting that cannot be.
    pub fn open(config: &EndpointConfig) -> Result<Endpoint, Error> {
        let token = random()?;
        let key = endpoint_key(&token);
        let job = standalone(config, key)?;
        refuse_sealing(&job)?;
        let plan = Plan::new(&job)?;
        let directory = Arc::new(Directory::new(&token));
        let shm = ShmConfig::open(OpenConfig {
            name: shm_name(&token),
            directory: Arc::clone(&directory) as Arc<_>,
        });
        let mut links = Links::open(&plan, &job, shm)?;
        links.rest_networks();
        let (own, unstarted) = own_address(&plan, &links)?;
        let address = EndpointAddress::of(&own, token);
        directory.set_own(address);
        let clock = Clock::new();
        let liveness = unstarted.start_open(&key, clock)?;
        let mut core = new_core(&links, config)?;
        core.open(*address.as_bytes(), key);
        let (stored, _) = model::load(plan.model());
        if let Some(stored) = &stored {
            core.choose(stored.choices.to_core());
        }
        let placement = Placement::new(settings::PLACEMENT.of(&job), clock)?;
        let table = Table::of_endpoint(own, Arc::clone(&directory));
        let inner = inner(core, job, table, placement, clock, &directory);
        let rest = Rest::new(&mut links)?;
        Ok(Endpoint {
            engine: Engine::new(inner, links, None, Some(liveness)),
            directory,
            address,
            waiter: Waiter::new(1, 1),
            rest,
            regions: HashMap::new(),
        })
    }
}

fn inner(
    core: Core,
    job: Job,
    table: Table,
    placement: Placement,
    clock: Clock,
    directory: &Arc<Directory>,
) -> Inner {
    Inner {
        placement: Box::new(placement),
        seals: None,
        core,
        ops: Ops::default(),
        clock,
        now: Instant::default(),
        peers: Vec::new(),
        table,
        watched: Vec::new(),
        pending: engine::Pending::default(),
        port_uses: Vec::new(),
        turn: 0,
        flush_wanted: false,
        pulls: Vec::new(),
        unreached: Vec::new(),
        scratch: Vec::new(),
        link_drops: BTreeMap::new(),
        peer_timeout: PEER_TIMEOUT,
        remote: Box::default(),
        raw: Some(Box::new(Raw::default())),
        directory: Some(Arc::clone(directory)),
        job,
    }
}

/// A job of nobody, which has a place for settings. Its size grows with the peers.
fn standalone(config: &EndpointConfig, key: [u8; 32]) -> Result<Job, Error> {
    if config.path == PathChoice::Shm {
        return Err(Error::Setting {
            name: "path",
            value: "shm".to_owned(),
            why: "an endpoint always has a network address; write auto, which uses shared memory \
                  within a host"
                .to_owned(),
        });
    }
    let mut job = Job::alone([0; 16], key);
    // Peers may be anywhere.
    job.host_count = 2;
    (job.rank, job.size) = (u32::MAX, 0);
    job.path = config.path;
    if let Some(interface) = &config.interface {
        let name = settings::INTERFACE.option.unwrap_or_default();
        job.options.insert(name.to_owned(), interface.clone());
    }
    Ok(job)
}

/// Frames between endpoints are not sealed in this version; nobody should believe that they are.
fn refuse_sealing(job: &Job) -> Result<(), Error> {
    match settings::AUTH.of(job) {
        Some(value) if value != "token" => Err(Error::Setting {
            name: "auth",
            value,
            why: "endpoints have auth=token only; unset it, or run the program by `portolan run`"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}

fn own_address(plan: &Plan, links: &Links) -> Result<(Address, Unstarted), Error> {
    let system = |what| move |source| Error::System { what, source };
    let network = plan.network().ok_or_else(|| {
        let none = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        system("finding a network interface")(none)
    })?;
    let unstarted = Unstarted::bind(network.addr)?;
    let own = Address {
        host_name: network.addr.to_string(),
        host: HostId::current().map_err(system("reading /proc"))?,
        links: links.addrs(),
        network: Some((network.addr, network.prefix_len)),
        liveness: unstarted.addr(),
    };
    Ok((own, unstarted))
}

fn new_core(links: &Links, config: &EndpointConfig) -> Result<Core, Error> {
    let epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let mut core = Core::new(Config {
        job_id: [0; 16],
        secret: random()?,
        // Ranks do not matter here, so none may equal a peer's number.
        rank: u32::MAX,
        size: 0,
        epoch: u64::try_from(epoch).unwrap_or(u64::MAX),
        seed: random()?,
        limits: Limits::default(),
    });
    for (link, params) in links.params() {
        core.add_link(link, params);
    }
    if config.path == PathChoice::Packet {
        core.prefer(LinkId::PACKET);
    }
    Ok(core)
}
