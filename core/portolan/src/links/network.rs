// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice of the interface and address for a job's network traffic.

use super::selection::{Candidate, Inventory, Selection};
use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use portolan_link::Interface;
use portolan_sys::net::is_of_one_link;
use std::net::{IpAddr, Ipv4Addr};

/// The most likely interface and address for a job's network traffic.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// The same interface if it is an Ethernet.
    pub(crate) interface: Option<Interface>,
    pub(crate) addr: IpAddr,
    pub(crate) prefix_len: u8,
}

/// Returns the addresses among `interfaces` that the job may use, the most likely to reach other
/// hosts first. `selection` is the value of the setting `network`. Without it and without the
/// setting `interface` the list may be empty.
///
/// # Errors
/// [`Error::Setting`] if one of the two settings leaves no address of this host.
pub(super) fn candidates<'a>(
    job: &Job,
    selection: Option<&Selection>,
    interfaces: &'a [Interface],
) -> Result<Vec<Candidate<'a>>, Error> {
    let host = job.host_name();
    let not_empty = |name, value: Option<String>, found: Vec<_>| match value {
        Some(value) if found.is_empty() => Err(nothing_left(name, value, &host, interfaces)),
        _ => Ok(found),
    };
    let interface = settings::INTERFACE.of(job);
    let base = interface.as_deref().map(Selection::of_interface);
    let base = base.as_ref().or(selection).cloned().unwrap_or_default();
    let mut found = base.candidates(&host, interfaces);
    if job.is_open() {
        // The published address of an endpoint has no field for an interface.
        found.retain(|candidate| !is_of_one_link(candidate.network.addr));
    }
    found = not_empty("interface", interface, found)?;
    if let Some(selection) = selection {
        found.retain(|candidate| selection.allows(&host, candidate));
    }
    not_empty("network", settings::NETWORK.of(job), found)
}

/// Reports that a setting leaves no address of `host`, and lists the addresses that it has.
fn nothing_left(name: &'static str, value: String, host: &str, interfaces: &[Interface]) -> Error {
    let inventory = Inventory(interfaces);
    let why = format!(
        "it selects no usable address on host {host}, which has {inventory}; addresses of \
         interfaces that are down or have no carrier cannot be used, nor can a libfabric endpoint use \
         IPv6 link-local addresses"
    );
    Error::Setting { name, value, why }
}

impl Network {
    /// Returns the first of `candidates`, or loopback if there are none.
    pub(super) fn first(candidates: &[Candidate<'_>]) -> Network {
        candidates
            .first()
            .map_or_else(Network::loopback, Network::of)
    }

    fn loopback() -> Network {
        Network {
            interface: None,
            addr: IpAddr::V4(Ipv4Addr::LOCALHOST),
            prefix_len: 8,
        }
    }

    fn of(candidate: &Candidate<'_>) -> Network {
        let interface = candidate.interface;
        let is_ethernet = interface.mac.is_some() && !interface.loopback;
        Network {
            interface: is_ethernet.then(|| interface.clone()),
            addr: candidate.network.addr,
            prefix_len: candidate.network.prefix_len,
        }
    }
}
