// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two netlink queries of [`super::interfaces`].

use super::{Interface, InterfaceKind, MacAddr, Network};
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

/// Returns all interfaces, without their addresses.
pub(super) fn links() -> io::Result<Vec<Interface>> {
    let mut found = Vec::new();
    dump(
        RouteNetlinkMessage::GetLink(LinkMessage::default()),
        &mut |message| {
            if let RouteNetlinkMessage::NewLink(link) = message {
                found.push(interface_of(&link));
            }
        },
    )?;
    Ok(found)
}

/// Returns all addresses, each with the index of its interface.
pub(super) fn addresses() -> io::Result<Vec<(u32, Network)>> {
    let mut found = Vec::new();
    dump(
        RouteNetlinkMessage::GetAddress(AddressMessage::default()),
        &mut |message| {
            if let RouteNetlinkMessage::NewAddress(address) = message {
                found.extend(network_of(&address).map(|network| (address.header.index, network)));
            }
        },
    )?;
    Ok(found)
}

fn interface_of(link: &LinkMessage) -> Interface {
    let flags = link.header.flags;
    let loopback = flags.contains(LinkFlags::Loopback);
    let (mut name, mut mac, mut mtu, mut kernel_kind) = (String::new(), None, 0, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(value) => name.clone_from(value),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok().map(MacAddr),
            LinkAttribute::Mtu(value) => mtu = usize::try_from(*value).unwrap_or(0),
            LinkAttribute::LinkInfo(infos) => kernel_kind = kernel_kind_of(infos).or(kernel_kind),
            _ => {}
        }
    }
    let kind = InterfaceKind::of(&name, loopback, kernel_kind.as_deref());
    Interface {
        name,
        index: link.header.index,
        mac,
        mtu,
        up: flags.contains(LinkFlags::Up),
        // IFF_RUNNING is not used, because the kernel sets it up to 1 s later.
        running: flags.contains(LinkFlags::LowerUp),
        loopback,
        kind,
        networks: Vec::new(),
    }
}

fn kernel_kind_of(infos: &[LinkInfo]) -> Option<String> {
    infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}

/// Returns the address and prefix. `Local` is the interface's own address; on a point-to-point
/// link, `Address` is the remote end's.
fn network_of(message: &AddressMessage) -> Option<Network> {
    let local = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Local(addr) => Some(*addr),
            _ => None,
        });
    let address = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Address(addr) => Some(*addr),
            _ => None,
        });
    let addr = local.or(address)?;
    Some(Network {
        addr,
        prefix_len: message.header.prefix_len,
    })
}

/// Sends one query and passes each part of the reply to `take`.
fn dump(query: RouteNetlinkMessage, take: &mut dyn FnMut(RouteNetlinkMessage)) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(query));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    loop {
        let (reply, _) = socket.recv_from_full()?;
        if take_messages(&reply, take)? {
            return Ok(());
        }
    }
}

/// Processes the messages of one datagram. Returns `true` after the last one of the reply.
fn take_messages(mut bytes: &[u8], take: &mut dyn FnMut(RouteNetlinkMessage)) -> io::Result<bool> {
    while !bytes.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        // Messages start at multiples of four bytes (NLMSG_ALIGN).
        let len = usize::try_from(message.header.length)
            .unwrap_or(0)
            .next_multiple_of(4);
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(inner) => take(inner),
            _ => {}
        }
        bytes = bytes.get(len.max(4)..).unwrap_or_default();
    }
    Ok(false)
}
