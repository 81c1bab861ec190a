// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start-up that a node and an endpoint share: creates a core that has the links.
//!
//! The one invariant: every setting of a job that does not configure a link is read here, so that
//! nodes and endpoints obey it alike.

use crate::address::Address;
use crate::clock::Clock;
use crate::engine::Placement;
use crate::error::Error;
use crate::fragments;
use crate::launch::{Job, PathChoice};
use crate::links::{self, LinkSettings, Links, Plan};
use crate::liveness::{self, Unstarted};
use crate::model;
use crate::multicast;
use crate::seal::Auth;
use crate::settings;
use crate::unexpected;
use portolan_link::{HostId, Interface, Network, PortRange};
use portolan_proto::{Config, Core, Limits, LinkId, Schedule, StreamUse};
use rand::TryRngCore;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time within which a session must open with a peer that answers liveness probes. The peer may
/// have begun with a long computation. The limit still ends the wait if a firewall passes only
/// probes.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(600);

/// Configuration of an [`Endpoint`](crate::binding::Endpoint).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Links to use. By default shared memory within a host, UDP and raw frames between hosts.
    pub path: PathChoice,
    /// Network interface. By default the one in `PORTOLAN_INTERFACE`, or a detected one.
    pub interface: Option<String>,
    /// Set to have a thread serve arriving frames while the program computes, independent of
    /// `PORTOLAN_PROGRESS`.
    pub progress_thread: bool,
    /// Set to encrypt and authenticate every frame on networks, as `auth=aead` does in a job. Both
    /// sides need it.
    pub encrypt: bool,
}

/// Applies `config` to the settings of `job`.
pub(crate) fn set_options(job: &mut Job, config: &EndpointConfig) {
    job.path = config.path;
    let mut set = |setting: settings::Setting, value: &str| {
        let name = setting.option.unwrap_or_default();
        job.options.insert(name.to_owned(), value.to_owned());
    };
    if let Some(interface) = &config.interface {
        set(settings::INTERFACE, interface);
    }
    if config.progress_thread {
        set(settings::PROGRESS, "thread");
    }
    if config.encrypt {
        set(settings::AUTH, "aead");
    }
}

/// Returns the address of this process, with the addresses of its host if `is_publisher`.
pub(crate) fn own_address(
    host_name: String,
    is_publisher: bool,
    plan: &Plan,
    links: &Links,
    liveness: Option<&Unstarted>,
) -> Result<Address, Error> {
    Ok(Address {
        host_name,
        host: HostId::current().map_err(|errno| Error::System {
            what: "reading /proc",
            errno,
        })?,
        links: links.addrs(),
        network: plan
            .network()
            .map(|network| (network.addr, network.prefix_len)),
        liveness: liveness.and_then(Unstarted::addr),
        addresses: plan
            .usable()
            .filter(|_| is_publisher)
            .map_or_else(Box::default, |usable| usable.addresses.clone().into()),
        unusable: plan
            .usable()
            .and_then(|usable| usable.unusable.as_deref())
            .map(Box::from),
    })
}

/// Returns the short form of the address of this process, for publication, and its liveness socket.
pub(crate) fn short_address(plan: &Plan, links: &Links) -> Result<(Address, Unstarted), Error> {
    let network = plan.network().ok_or_else(|| Error::System {
        what: "finding a network interface",
        errno: std::io::ErrorKind::AddrNotAvailable.into(),
    })?;
    let bind = plan
        .usable()
        .map_or(network.addr, |usable| usable.bind_both());
    let unstarted = Unstarted::bind(bind, plan.ports())?;
    let name = network.addr.to_string();
    let own = own_address(name, true, plan, links, Some(&unstarted))?;
    Ok((own, unstarted))
}

/// Creates the core of `job` with its links, and applies the stored model of this machine if it has
/// one.
pub(crate) fn new_core(
    job: &Job,
    auth: Auth,
    links: &Links,
    plan: &Plan,
) -> Result<(Core, model::Status), Error> {
    #[allow(
        clippy::disallowed_methods,
        reason = "what outlives a restart; read once"
    )]
    let epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let birth = Birth {
        epoch: u64::try_from(epoch).unwrap_or(u64::MAX),
        seed: random()?,
    };
    let mut core = bare_core(job, auth, links, plan.stream_use(links), birth)?;
    if let Some(len) = links.stream_buffer_len() {
        core.set_buffer_len(LinkId::STREAM, len);
    }
    if matches!(job.path, PathChoice::Packet | PathChoice::Xdp) {
        core.prefer(LinkId::PACKET);
    }
    let (stored, status) = model::load(plan.model());
    if let Some(stored) = &stored {
        core.choose(fragments::choice(job, &stored.choices)?);
    }
    if let model::Status::Refused(file, why) = &status {
        if plan.model().is_some() {
            return Err(Error::Setting {
                name: "model",
                value: file.display().to_string(),
                why: format!("{why}; name one that `portolan tune` has stored here, or off"),
            });
        }
        log::warn!("model: {status}");
    }
    Ok((core, status))
}

/// Values that are different at each start of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    /// Number that grows with each start of the same rank.
    epoch: u64,
    /// Random bytes, from which the core derives tokens.
    seed: [u8; 32],
}

impl Birth {
    /// Returns the values of a simulated process.
    pub(crate) fn simulated(epoch: u64, seed: [u8; 32]) -> Birth {
        Birth { epoch, seed }
    }
}

/// Creates the core of `job` with its links, without a model.
pub(crate) fn bare_core(
    job: &Job,
    auth: Auth,
    links: &Links,
    stream: StreamUse,
    birth: Birth,
) -> Result<Core, Error> {
    // Peers of an endpoint have no ranks.
    let is_endpoint = job.is_endpoint();
    let mut core = Core::new(Config {
        job_id: job.job_id,
        secret: auth.handshake_key(&job.secret),
        rank: job.rank,
        size: job.size,
        epoch: birth.epoch,
        seed: birth.seed,
        limits: Limits {
            schedule: schedule(job)?,
            stream,
            held_len_max: unexpected::of_job(job, is_endpoint)?,
            ..Limits::default()
        },
    });
    for (link, params) in links.params() {
        core.add_link(link, auth.narrow(params)?);
    }
    core.choose(fragments::choice(job, &model::Choices::default())?);
    Ok(core)
}

/// Returns the job's order of bulk transfers (setting `schedule`).
fn schedule(job: &Job) -> Result<Schedule, Error> {
    match settings::SCHEDULE.of(job).as_deref() {
        None | Some("shortest") => Ok(Schedule::ShortestFirst),
        Some("fair") => Ok(Schedule::Fair),
        Some("exclusive") => Ok(Schedule::Exclusive),
        Some(other) => Err(Error::Setting {
            name: "schedule",
            value: other.to_owned(),
            why: "write shortest, fair or exclusive".to_owned(),
        }),
    }
}

/// Checks the settings in `options` and `environment` for a job of `size` processes. Refuses values
/// that are invalid on every host. Values that depend on a host, such as an interface or a file,
/// are checked by the job's processes.
///
/// # Errors
/// [`Error::Setting`].
pub fn check_settings(
    options: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
    size: u32,
) -> Result<(), Error> {
    let mut job = Job::alone([0; 16], [0; 32]);
    job.size = size;
    for setting in settings::ALL {
        let Some(name) = setting.option else { continue };
        let set = |variable: &&String| !variable.is_empty();
        let variable = environment.get(setting.variable).filter(set);
        if let Some(value) = options.get(name).or(variable) {
            job.options.insert(name.to_owned(), value.clone());
        }
    }
    LinkSettings::of(&job)?;
    Auth::of_job(&job)?;
    schedule(&job)?;
    unexpected::of_job(&job, false)?;
    liveness::peer_timeout(&job)?;
    multicast::check(&job)?;
    fragments::check(&job)?;
    Placement::new(settings::PLACEMENT.of(&job), Clock::new()).map(|_| ())
}

/// Returns the ports that sockets of this process may be bound to, by its environment. For sockets
/// beside a [`Node`](crate::Node) or an [`Endpoint`](crate::binding::Endpoint), which read the setting
/// themselves.
///
/// # Errors
/// [`Error::Setting`] for a value that is not a range.
pub fn port_range() -> Result<PortRange, Error> {
    ports_of(&Job::alone([0; 16], [0; 32]))
}

/// Returns the ports that sockets of `job` may be bound to, for programs that join a job only
/// through [`Launch`](crate::binding::launch::Launch).
///
/// # Errors
/// As [`port_range`].
pub fn ports_of(job: &Job) -> Result<PortRange, Error> {
    links::ports(job)
}

/// Returns the addresses of this host that `job` may use, with their interfaces. The address most
/// likely to reach other hosts is first. The list may be empty.
///
/// # Errors
/// [`Error::Setting`] for an invalid setting or one that leaves no address; [`Error::System`] if
/// the interfaces cannot be listed.
pub fn candidates(job: &Job) -> Result<Vec<(Interface, Network)>, Error> {
    let interfaces = list_interfaces()?;
    let found = links::candidates(job, &interfaces)?.into_iter();
    Ok(found
        .map(|candidate| (candidate.interface.clone(), candidate.network))
        .collect())
}

/// Returns the two interfaces that share the long messages of `job` to hosts that are on both
/// networks, if this host has two.
///
/// # Errors
/// Those of [`candidates`].
pub fn two_networks(job: &Job) -> Result<Option<[String; 2]>, Error> {
    links::two_networks(job, &list_interfaces()?)
}

fn list_interfaces() -> Result<Vec<Interface>, Error> {
    portolan_link::interfaces().map_err(|errno| Error::System {
        what: "listing network interfaces",
        errno,
    })
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    rand::rngs::OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| Error::System {
            what: "asking the system for randomness",
            errno: std::io::Error::other(error),
        })?;
    Ok(bytes)
}
