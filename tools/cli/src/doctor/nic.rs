// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network interfaces, and the links that open on them.

use super::Finding;
use super::host::first_word;
use portolan_link::packet::{InterfaceRef, Packet, PacketConfig, lease};
use portolan_link::stream::Stream;
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::{Link, LinkError, PortRange};
use portolan_sys::ethtool::Ethtool;
use portolan_sys::net::{Interface, InterfaceKind, interfaces};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Offloads that affect small messages or bulk data, named as `ethtool -k` shows them.
const OFFLOADS: [&str; 6] = [
    "rx-gro",
    "tx-generic-segmentation",
    "tx-udp-segmentation",
    "tx-scatter-gather",
    "rx-checksum",
    "tx-checksum-ip-generic",
];

/// Endpoint number of the raw Ethernet link that is opened and closed at once; any number works.
const ENDPOINT: u16 = 1;

/// An interface.
#[derive(Debug, Serialize)]
pub(crate) struct Nic {
    pub(super) name: String,
    pub(super) driver: Option<String>,
    pub(super) kind: String,
    pub(super) loopback: bool,
    pub(super) ethernet: bool,
    pub(super) up: bool,
    pub(super) running: bool,
    pub(super) mtu: usize,
    /// Speed reported by the driver; virtual drivers often report none.
    pub(super) mbit_per_s: Option<u64>,
    pub(super) addresses: Vec<IpAddr>,
    /// State of each of [`OFFLOADS`] that the driver supports.
    pub(super) offloads: BTreeMap<String, bool>,
    /// Microseconds that received frames may wait for an interrupt; absent if not readable.
    pub(super) rx_coalescing_us: Option<u32>,
    pub(super) adaptive_coalescing: Option<bool>,
    /// Result of opening a UDP link on the interface; the next two fields are for other links.
    pub(super) udp: Finding,
    pub(super) packet: Finding,
    pub(super) stream: Finding,
    /// Effects on all traffic of the interface while a process uses AF_XDP there, by mode.
    pub(super) xdp_generic: &'static str,
    pub(super) xdp_native: &'static str,
    /// Set if the broker would open the raw socket.
    pub(super) by_broker: bool,
    /// Datagrams per call of the UDP link; 1 without segmentation offload, 0 without the link.
    pub(super) udp_segments: usize,
}

/// Returns all interfaces of this network namespace.
pub(super) fn all() -> Vec<Nic> {
    interfaces()
        .unwrap_or_default()
        .into_iter()
        .map(examine)
        .collect()
}

fn examine(interface: Interface) -> Nic {
    let ethtool = Ethtool::open(&interface.name).ok();
    let coalescing = ethtool
        .as_ref()
        .and_then(|ethtool| ethtool.coalescing().ok());
    let addresses: Vec<IpAddr> = interface
        .networks
        .iter()
        .map(|network| network.addr)
        .collect();
    let (udp, udp_segments) = open_udp(&addresses);
    let packet = open_packet(&interface.name);
    Nic {
        driver: ethtool.as_ref().and_then(|ethtool| ethtool.driver().ok()),
        kind: format!("{:?}", interface.kind).to_lowercase(),
        loopback: interface.loopback,
        ethernet: interface.mac.is_some() && !interface.loopback,
        up: interface.up,
        running: interface.running,
        mtu: interface.mtu,
        mbit_per_s: first_word(format!("/sys/class/net/{}/speed", interface.name))
            .and_then(|speed| speed.parse().ok()),
        offloads: ethtool
            .map(|ethtool| offloads(&ethtool))
            .unwrap_or_default(),
        rx_coalescing_us: coalescing.map(|coalescing| coalescing.rx_us),
        adaptive_coalescing: coalescing.map(|coalescing| coalescing.adaptive_rx),
        by_broker: packet.as_ref().is_ok_and(Packet::is_leased),
        packet: packet.into(),
        stream: open_stream(&addresses),
        xdp_generic: XDP_GENERIC,
        xdp_native: xdp_native(interface.kind),
        udp,
        udp_segments,
        addresses,
        name: interface.name,
    }
}

/// Effect of generic XDP on any interface (`netif_receive_generic_xdp` of net/core/dev.c,
/// `dev_xdp_install`).
const XDP_GENERIC: &str = "disables coalescing in hardware; large packets that other programs receive are copied once more";

/// Returns the effect of native XDP on all traffic (`veth_fix_features` of drivers/net/veth.c,
/// `virtnet_xdp_set` of drivers/net/virtio_net.c).
fn xdp_native(kind: InterfaceKind) -> &'static str {
    match kind {
        InterfaceKind::Veth => {
            "disables segmentation offload towards the interface for all programs: their bulk bandwidth falls to a tenth or less"
        }
        InterfaceKind::Device => {
            "disables coalescing in hardware, and some drivers reset the link for seconds"
        }
        _ => "most drivers of this kind do not support it",
    }
}

fn offloads(ethtool: &Ethtool) -> BTreeMap<String, bool> {
    let features = ethtool.features().unwrap_or_default().into_iter();
    let wanted = features.filter(|feature| OFFLOADS.contains(&feature.name.as_str()));
    wanted
        .map(|feature| (feature.name, feature.active))
        .collect()
}

/// Selects an address, IPv4 first: a link-local IPv6 address also needs a scope.
fn address_of(addresses: &[IpAddr]) -> Result<IpAddr, Finding> {
    let address = addresses.iter().find(|address| address.is_ipv4());
    address.or(addresses.first()).copied().ok_or(Finding {
        works: false,
        why_not: Some("the interface has no IP address".to_owned()),
    })
}

/// Listens as a job with streams would, and closes the socket.
fn open_stream(addresses: &[IpAddr]) -> Finding {
    match address_of(addresses) {
        Ok(address) => Stream::open((address, 0).into(), PortRange::default(), false).into(),
        Err(finding) => finding,
    }
}

/// Opens the UDP link as a job would, and closes it.
fn open_udp(addresses: &[IpAddr]) -> (Finding, usize) {
    let address = match address_of(addresses) {
        Ok(address) => address,
        Err(finding) => return (finding, 0),
    };
    match Udp::open(&UdpConfig::new(address)) {
        Ok(link) => (
            Finding {
                works: true,
                why_not: None,
            },
            link.caps().segments_max,
        ),
        Err(error) => (
            Finding {
                works: false,
                why_not: Some(error.to_string()),
            },
            0,
        ),
    }
}

fn open_packet(name: &str) -> Result<Packet, LinkError> {
    let mut config = PacketConfig::new(InterfaceRef::Name(name.to_owned()), ENDPOINT);
    config.broker = lease::broker_address(portolan::binding::settings::BROKER.from_env());
    Packet::open(&config)
}
