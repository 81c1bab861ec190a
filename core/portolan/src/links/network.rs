// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which interface a job's network traffic takes.

use super::selection::{Candidate, Inventory, Selection};
use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use portolan_link::Interface;
use std::net::{IpAddr, Ipv4Addr};

/// The interface that a job's network traffic takes.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// If it is an Ethernet.
    pub(crate) interface: Option<Interface>,
    /// What the traffic passes; `None` for the loopback of a host without a network.
    pub(super) over: Option<Interface>,
    pub(crate) addr: IpAddr,
    pub(crate) prefix_len: u8,
}

/// Returns the value of the setting `network`; the default if it is not set.
///
/// # Errors
/// [`Error::Setting`] for a value that means nothing.
pub(super) fn selection(job: &Job) -> Result<Selection, Error> {
    let Some(value) = settings::NETWORK.of(job) else {
        return Ok(Selection::default());
    };
    value
        .parse()
        .map_err(|error| setting("network", value, error))
}

/// Returns the addresses among `interfaces` that the settings `interface` and `network` leave to the
/// job, the most likely to reach other hosts first. Without either setting there may be none.
///
/// # Errors
/// [`Error::Setting`] for a value that means nothing, or that leaves no address of this host.
pub(crate) fn candidates<'a>(
    job: &Job,
    interfaces: &'a [Interface],
) -> Result<Vec<Candidate<'a>>, Error> {
    let host = job.host_name();
    let selection = selection(job)?;
    let mut found = match settings::INTERFACE.of(job) {
        None => selection.candidates(&host, interfaces),
        Some(name) => {
            let named = Selection::of_interface(&name).candidates(&host, interfaces);
            if named.is_empty() {
                return Err(setting("interface", name, nothing_left(&host, interfaces)));
            }
            named
        }
    };
    if selection != Selection::default() {
        found.retain(|candidate| selection.allows(&host, candidate));
        if found.is_empty() {
            let value = settings::NETWORK.of(job).unwrap_or_default();
            return Err(setting("network", value, nothing_left(&host, interfaces)));
        }
    }
    Ok(found)
}

/// Says that a setting leaves no address of `host`, and lists those that it has.
fn nothing_left(host: &str, interfaces: &[Interface]) -> String {
    let inventory = Inventory(interfaces);
    format!("it selects no address on host {host}, which has {inventory}; select one of these")
}

fn setting(name: &'static str, value: String, why: impl ToString) -> Error {
    let why = why.to_string();
    Error::Setting { name, value, why }
}

impl Network {
    /// Returns the first of `candidates`, or loopback if there are none. Addresses of one link only are
    /// left out: peers could not tell on which of their links it is.
    pub(super) fn first(candidates: &[Candidate<'_>]) -> Network {
        let is_of_one_link =
            |addr| matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local());
        let reachable = |candidate: &&Candidate<'_>| !is_of_one_link(candidate.network.addr);
        let first = candidates.iter().find(reachable);
        first.map_or_else(Network::loopback, Network::of)
    }

    fn loopback() -> Network {
        Network {
            interface: None,
            over: None,
            addr: IpAddr::V4(Ipv4Addr::LOCALHOST),
            prefix_len: 8,
        }
    }

    fn of(candidate: &Candidate<'_>) -> Network {
        let interface = candidate.interface;
        let is_ethernet = interface.mac.is_some() && !interface.loopback;
        Network {
            interface: is_ethernet.then(|| interface.clone()),
            over: Some(interface.clone()),
            addr: candidate.network.addr,
            prefix_len: candidate.network.prefix_len,
        }
    }
}
