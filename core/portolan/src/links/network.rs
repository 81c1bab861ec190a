// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which interface a job's network traffic takes.

use crate::error::Error;
use portolan_link::{Interface, InterfaceKind};
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

impl Network {
    /// The interface that the job names.
    pub(super) fn named(interfaces: &[Interface], name: String) -> Result<Network, Error> {
        let found = interfaces.iter().find(|interface| interface.name == name);
        let setting = |why: &str| Error::Setting {
            name: "interface",
            value: name.clone(),
            why: why.to_owned(),
        };
        let Some(interface) = found else {
            return Err(setting(
                "no such interface here; `portolan doctor` lists them",
            ));
        };
        Network::of(interface)
            .ok_or_else(|| setting("it has no address; give it one or name another"))
    }

    /// The interface that most likely joins the hosts of a cluster: hardware or the end of a cable to
    /// it, before anything that software has built. Bridges for containers and virtual machines never
    /// lead to another host.
    pub(super) fn best(interfaces: &[Interface]) -> Network {
        let rank = |interface: &Interface| match interface.kind {
            InterfaceKind::Device | InterfaceKind::Bond => Some(0),
            InterfaceKind::Veth => Some(1),
            InterfaceKind::Vlan | InterfaceKind::Bridge => Some(2),
            InterfaceKind::Tunnel | InterfaceKind::Other => Some(3),
            _ => None,
        };
        interfaces
            .iter()
            .filter(|interface| interface.up && interface.running)
            .filter_map(|interface| Some((rank(interface)?, Network::of(interface)?)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, network)| network)
            .unwrap_or_else(|| Network {
                interface: None,
                over: None,
                addr: IpAddr::V4(Ipv4Addr::LOCALHOST),
                prefix_len: 8,
            })
    }

    fn of(interface: &Interface) -> Option<Network> {
        let v4 = interface
            .networks
            .iter()
            .find(|network| network.addr.is_ipv4());
        let global_v6 = || {
            interface.networks.iter().find(
                |network| matches!(network.addr, IpAddr::V6(addr) if !addr.is_unicast_link_local()),
            )
        };
        let network = v4.or_else(global_v6)?;
        let is_ethernet = interface.mac.is_some() && !interface.loopback;
        Some(Network {
            interface: is_ethernet.then(|| interface.clone()),
            over: Some(interface.clone()),
            addr: network.addr,
            prefix_len: network.prefix_len,
        })
    }
}
