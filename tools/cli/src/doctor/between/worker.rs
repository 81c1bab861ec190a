// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of `doctor --between` on each host. It opens sockets at the addresses that a job
//! would use, sends from each to each address of the other process, and reports what arrived.

use super::report::{HostReport, Nic, Offer};
use super::results::Results;
use super::sockets::Sockets;
use anyhow::{Context, Result};
use portolan::binding::launch::Launch;
use portolan_link::{Interface, InterfaceKind};

/// Runs one process.
///
/// # Errors
/// No launcher has started it, or a setting excludes all addresses.
pub(super) fn run() -> Result<HostReport> {
    let mut launch =
        Launch::from_env()?.context("this command is started by `portolan doctor --between`")?;
    let result = examine(&mut launch);
    match &result {
        Ok(_) => launch.bye(),
        Err(error) => launch.report_problem(&format!("{error:#}")),
    }
    result
}

fn examine(launch: &mut Launch) -> Result<HostReport> {
    let job = launch.job().clone();
    let ports = portolan::binding::ports_of(&job)?;
    let interfaces = portolan_link::interfaces()?;
    let (own, mut sockets) = Sockets::open(&job, ports)?;
    let offers = launch.exchange(&serde_json::to_value(&own)?)?;
    let other = offers
        .get(1 - job.rank as usize)
        .context("no other process")?;
    let other: Offer = serde_json::from_value(other.clone())?;
    let mut results = Results::new(own.token, &other);
    sockets.probe(&own.ends, &mut results)?;
    Ok(HostReport {
        host: job.host_name.unwrap_or_default(),
        nics: interfaces.iter().map(nic).collect(),
        raw_refused: sockets.raw_refused,
        ports: (!ports.is_any()).then(|| ports.to_string()),
        arrived: results.arrived(),
        failed: results.failed(),
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
