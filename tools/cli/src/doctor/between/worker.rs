// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of `doctor --between` on each host. It opens sockets at the addresses that a job
//! would use, sends from each to each address of the other process, and reports what arrived.

use super::seen::{Nic, Offer, Seen};
use super::sockets::Sockets;
use super::ways::Ways;
use anyhow::{Context, Result};
use portolan::launch::Launch;
use portolan_link::{Interface, InterfaceKind};

/// Runs one process.
///
/// # Errors
/// No launcher has started it, or a setting excludes all addresses.
pub(super) fn run() -> Result<Seen> {
    let mut launch = Launch::from_env()?.context("`portolan doctor --between` starts this")?;
    let result = examine(&mut launch);
    match &result {
        Ok(_) => launch.bye(),
        Err(error) => launch.tell_trouble(&format!("{error:#}")),
    }
    result
}

fn examine(launch: &mut Launch) -> Result<Seen> {
    let job = launch.job().clone();
    let ports = portolan::ports_of(&job)?;
    let interfaces = portolan_link::interfaces()?;
    let (own, mut sockets) = Sockets::open(&job, ports)?;
    let told = launch.exchange(&serde_json::to_value(&own)?)?;
    let other = told
        .get(1 - job.rank as usize)
        .context("no other process")?;
    let other: Offer = serde_json::from_value(other.clone())?;
    let mut ways = Ways::new(own.token, &other);
    sockets.probe(&own.ends, &mut ways)?;
    Ok(Seen {
        host: job.host_name.unwrap_or_default(),
        nics: interfaces.iter().map(nic).collect(),
        raw_refused: sockets.raw_refused,
        ports: (!ports.is_any()).then(|| ports.to_string()),
        arrived: ways.arrived(),
        failed: ways.failed(),
        ends: own.ends,
    })
}

fn nic(interface: &Interface) -> Nic {
    let networks = interface.networks.iter();
    Nic {
        name: interface.name.clone(),
        up: interface.up,
        running: interface.running,
        is_inner: matches!(
            interface.kind,
            InterfaceKind::Loopback
                | InterfaceKind::ContainerBridge
                | InterfaceKind::VirtualMachineBridge
        ),
        addrs: networks.map(|network| network.addr).collect(),
    }
}
