// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plan of the links to open, from the job's settings and the machine.

mod open;

use super::Links;
use super::network::{self, Network};
use super::selection::{Candidate, Selection};
use super::usable::Usable;
use crate::address::ENDPOINT_IPV4_MAX;
use crate::checksum::Choice;
use crate::error::Error;
use crate::launch::{Job, PathChoice};
use crate::settings;
use crate::streams;
use portolan_link::die::DieSpec;
use portolan_link::fault::FaultSpec;
use portolan_link::packet::lease;
use portolan_link::xdp::XdpMode;
use portolan_link::{Interface, PortRange};
use portolan_proto::StreamUse;
use std::fmt::Display;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Link for raw Ethernet frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Raw {
    Packet { is_required: bool },
    Xdp(XdpMode),
}

/// The links to open, from the job's settings and the machine.
#[derive(Debug)]
pub(crate) struct Plan {
    shm: bool,
    network: Option<Network>,
    usable: Option<Usable>,
    /// Set if UDP also uses a second network. `P6.8`
    has_second: bool,
    ports: PortRange,
    raw: Option<Raw>,
    /// Broker that opens raw Ethernet sockets.
    broker: Option<String>,
    fault: Option<FaultSpec>,
    checksum: Choice,
    /// Frame at which this process kills itself, and the number of frames until then.
    die: Option<(DieSpec, Arc<AtomicU64>)>,
    pcap: Option<PathBuf>,
    frame_len_max: Option<usize>,
    /// File of the model, or `off`.
    model: Option<String>,
    stream: StreamUse,
}

/// Settings of the links, independent of the machine.
#[derive(Debug)]
pub(crate) struct LinkSettings {
    selection: Option<Selection>,
    fault: Option<FaultSpec>,
    checksum: Choice,
    die: Option<DieSpec>,
    frame_len_max: Option<usize>,
    ports: PortRange,
    xdp: XdpMode,
}

impl LinkSettings {
    pub(crate) fn of(job: &Job) -> Result<LinkSettings, Error> {
        let die = parsed::<DieSpec>("die", settings::DIE.of(job))?;
        // Endpoints are in no job and have no ranks.
        let last = job.size.saturating_sub(1);
        if let Some(die) = die.filter(|die| job.size > 0 && die.rank > last) {
            return Err(Error::Setting {
                name: "die",
                value: die.to_string(),
                why: format!("the job has ranks from 0 to {last}: name one of them"),
            });
        }
        let frame_len_max = settings::FRAME_LEN_MAX.of(job);
        Ok(LinkSettings {
            selection: parsed("network", settings::NETWORK.of(job))?,
            fault: parsed("fault", settings::FAULT.of(job))?,
            checksum: Choice::of(job)?,
            die,
            frame_len_max: frame_len_max.map(parse_frame_len).transpose()?,
            ports: ports(job)?,
            xdp: parsed("xdp", settings::XDP.of(job))?.unwrap_or_default(),
        })
    }
}

/// Removes the candidates that do not fit into the address of an endpoint.
fn retain_published(candidates: &mut Vec<Candidate<'_>>) {
    let is_v4 = |candidate: &Candidate<'_>| candidate.network.addr.is_ipv4();
    if candidates.first().is_some_and(is_v4) {
        candidates.retain(is_v4);
        candidates.truncate(ENDPOINT_IPV4_MAX);
    } else {
        candidates.truncate(1);
    }
}

/// Returns the ports that sockets of `job` may be bound to.
///
/// # Errors
/// [`Error::Setting`] for a value that is not a range.
pub(crate) fn ports(job: &Job) -> Result<PortRange, Error> {
    Ok(parsed("ports", settings::PORTS.of(job))?.unwrap_or_default())
}

/// Returns the addresses among `interfaces` that `job` may use, the most likely to reach other
/// hosts first.
///
/// # Errors
/// [`Error::Setting`] for an invalid setting or one that leaves no address.
pub(crate) fn candidates<'a>(
    job: &Job,
    interfaces: &'a [Interface],
) -> Result<Vec<Candidate<'a>>, Error> {
    let selection = parsed("network", settings::NETWORK.of(job))?;
    network::candidates(job, selection.as_ref(), interfaces)
}

/// Returns the two interfaces that carry the long messages of `job` to hosts that are on both
/// networks, if there are two.
///
/// # Errors
/// Those of [`candidates`].
pub(crate) fn two_networks(
    job: &Job,
    interfaces: &[Interface],
) -> Result<Option<[String; 2]>, Error> {
    let found = candidates(job, interfaces)?;
    let mut usable = Usable::new(&found, interfaces, Ipv4Addr::LOCALHOST.into());
    let is_selected = settings::NETWORK.of(job).is_some();
    if !is_selected {
        usable.sort_by_speed();
    }
    let names = usable.two_networks(is_selected);
    Ok(names.map(|names| names.map(str::to_owned)))
}

/// Parses the value of a setting, if it is set.
fn parsed<T: FromStr<Err: Display>>(
    name: &'static str,
    value: Option<String>,
) -> Result<Option<T>, Error> {
    let parsed = value.map(|text| {
        text.parse().map_err(|error: T::Err| Error::Setting {
            name,
            value: text,
            why: error.to_string(),
        })
    });
    parsed.transpose()
}

impl Plan {
    /// Chooses the links by the job's path setting and the machine's interfaces.
    pub(crate) fn new(job: &Job) -> Result<Plan, Error> {
        let interfaces = portolan_link::interfaces().map_err(|errno| Error::System {
            what: "listing network interfaces",
            errno,
        })?;
        let wants_network = match job.path {
            PathChoice::Shm => false,
            PathChoice::Auto => job.host_count > 1,
            _ => true,
        };
        let settings = LinkSettings::of(job)?;
        // An empty selection is an error even if this job needs no network.
        let mut candidates = network::candidates(job, settings.selection.as_ref(), &interfaces)?;
        if job.is_open() {
            retain_published(&mut candidates);
        }
        let network = wants_network.then(|| Network::first(&candidates));
        let mut usable = network
            .as_ref()
            .map(|network| Usable::new(&candidates, &interfaces, network.addr));
        if settings.selection.is_none() {
            usable.iter_mut().for_each(Usable::sort_by_speed);
        }
        let is_selected = settings.selection.is_some();
        // The address of an endpoint has no field for the port of a second link.
        let has_second = !job.is_open()
            && (usable.as_ref()).is_some_and(|it| it.two_networks(is_selected).is_some());
        let die = settings.die.filter(|spec| spec.rank == job.rank);
        Ok(Plan {
            shm: matches!(job.path, PathChoice::Auto | PathChoice::Shm),
            raw: raw(job.path, settings.xdp).filter(|_| wants_network),
            broker: broker(job)?,
            network,
            usable,
            has_second,
            ports: settings.ports,
            fault: settings.fault,
            checksum: settings.checksum,
            die: die.map(|spec| (spec, spec.countdown())),
            pcap: recording(job)?,
            frame_len_max: settings.frame_len_max,
            model: settings::MODEL.of(job),
            stream: streams::usage(job)?,
        })
    }

    /// Returns the use of streams for transfers; off if `links` have none.
    pub(crate) fn stream_use(&self, links: &Links) -> StreamUse {
        match links.streams {
            Some(_) => self.stream,
            None => StreamUse::Off,
        }
    }

    /// Returns the ports that sockets may be bound to.
    pub(crate) fn ports(&self) -> PortRange {
        self.ports
    }

    pub(crate) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Returns the addresses that peers can use.
    pub(crate) fn usable(&self) -> Option<&Usable> {
        self.usable.as_ref()
    }

    /// Returns the setting that selects the model.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Returns the link for raw Ethernet frames. AF_XDP must be requested: attaching its program may
/// cost other programs their offloads.
fn raw(path: PathChoice, mode: XdpMode) -> Option<Raw> {
    match path {
        PathChoice::Xdp => Some(Raw::Xdp(mode)),
        PathChoice::Packet => Some(Raw::Packet { is_required: true }),
        PathChoice::Auto => Some(Raw::Packet { is_required: false }),
        PathChoice::Shm | PathChoice::Udp => None,
    }
}

/// Returns the broker that the settings name, or `None` for `off`.
fn broker(job: &Job) -> Result<Option<String>, Error> {
    let Some(name) = lease::broker_address(settings::BROKER.of(job)) else {
        return Ok(None);
    };
    if !name.starts_with(['/', '@']) {
        return Err(Error::Setting {
            name: "broker",
            value: name,
            why: "a whole path, @NAME, or off".to_owned(),
        });
    }
    Ok(Some(name))
}

/// Valid frame lengths of the UDP link, in bytes: the minimum is carried by every IPv4 path, the
/// maximum fits a datagram.
const FRAME_LENS: std::ops::RangeInclusive<usize> = 512..=65_507;

/// Returns the path for recordings, without the link's name. An invalid directory is an error even
/// if no network is used.
fn recording(job: &Job) -> Result<Option<PathBuf>, Error> {
    let Some(dir) = settings::PCAP.of(job) else {
        return Ok(None);
    };
    if !Path::new(&dir).is_dir() {
        return Err(Error::Setting {
            name: "pcap",
            value: dir,
            why: "this is no directory here; name one that this process may write to".to_owned(),
        });
    }
    Ok(Some(Path::new(&dir).join(format!("{}.pcap", job.rank))))
}

fn parse_frame_len(text: String) -> Result<usize, Error> {
    match text.parse() {
        Ok(len) if FRAME_LENS.contains(&len) => Ok(len),
        _ => Err(Error::Setting {
            name: "frame_len_max",
            value: text,
            why: "write a number of bytes from 512 to 65507".to_owned(),
        }),
    }
}
