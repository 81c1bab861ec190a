// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of this host for rows between two hosts: the interface with a given address.

use super::handshake::ServerHost;
use crate::machine;
use crate::place::{Place, pick_cores};
use crate::spec::Role;
use anyhow::{Context, Result};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{setsockopt, sockopt};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};

/// Bytes of the longest IP packet. The MTU of the loopback interface is one more.
const MTU_MAX: usize = 65_535;

/// TCP keep-alive: idle seconds before the first probe. After that, unanswered probes end the
/// connection, for example when the peer's host has lost power.
const IDLE_S: u32 = 30;
const INTERVAL_S: u32 = 10;
const QUESTIONS: u32 = 3;

/// Returns this host with its interface that has `addr`.
///
/// # Errors
/// No interface has the address.
pub(crate) fn place(addr: IpAddr) -> Result<Place> {
    let mut interfaces = getifaddrs().context("cannot list the interfaces")?;
    let has = |storage: &nix::sys::socket::SockaddrStorage| {
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
        v4.or(v6) == Some(addr)
    };
    let found = interfaces.find(|interface| interface.address.as_ref().is_some_and(has));
    let interface = found.with_context(|| format!("no interface of this host has {addr}"))?;
    Ok(Place {
        netns: None,
        addr,
        interface: interface.interface_name,
        cores: Vec::new(),
    })
}

/// Returns the MTU of the interface.
///
/// # Errors
/// The system does not report it.
pub(crate) fn mtu(place: &Place) -> Result<usize> {
    let file = format!("/sys/class/net/{}/mtu", place.interface);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let mtu: usize = text.trim().parse().context("an MTU is a number")?;
    Ok(mtu.min(MTU_MAX))
}

/// Returns the description of this host for a client.
///
/// # Errors
/// See [`mtu`].
pub(crate) fn describe(place: &Place) -> Result<ServerHost> {
    let facts = machine::facts();
    Ok(ServerHost {
        name: nix::unistd::gethostname()?.to_string_lossy().into_owned(),
        address: place.addr.to_string(),
        interface: place.interface.clone(),
        mtu: mtu(place)?,
        kernel: facts.kernel,
        cpu: facts.cpu,
        cores: facts.cores,
        pinned: pick_cores().map(|cores| cores[Role::Answerer.index()]),
        hypervisor: facts.hypervisor,
    })
}

/// Enables keep-alive, so that the connection ends when the other host fails.
///
/// # Errors
/// A system call fails.
pub(crate) fn keep_alive(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &QUESTIONS)?;
    Ok(())
}

/// Returns the place of an end on another host, of which only the address is used.
pub(crate) fn elsewhere(addr: IpAddr, interface: &str) -> Place {
    Place {
        netns: None,
        addr,
        interface: interface.into(),
        cores: Vec::new(),
    }
}

/// All addresses of this host, of both IP versions if available.
pub(crate) const ANYWHERE: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
];
