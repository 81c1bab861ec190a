// SPDX-License-Identifier: MIT OR Apache-2.0
//! A NIC: a thread in a network namespace that contains only a macvlan of the NIC.
//!
//! The macvlan is in bridge mode, so that the macvlans of one NIC can reach each other.

use crate::config::NicConfig;
use crate::{confine, netlink, rules};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoMacVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MacVlanMode,
};
use netlink_sys::Socket;
use nix::sched::{CloneFlags, unshare};
use portolan_link::packet::{ETHER_TYPE, lease};
use portolan_sys::mapping::Mapping;
use portolan_sys::net::{self, Interface, MacAddr, PacketRing, RingLayout};
use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// Maximum number of repeated reads of the list of sockets. A read takes microseconds, and the caller
/// tries again later.
const LIST_READS_MAX: usize = 16;

/// Name of each macvlan. Every macvlan has its own namespace.
const NAME: &CStr = c"portolan0";

/// Bytes of an Ethernet header in each ring slot.
const ETHERNET_LEN: usize = 14;

/// A served NIC. After it is dropped, the namespace is removed once no socket is in it.
pub(crate) struct Nic {
    pub(crate) config: NicConfig,
    pub(crate) mac: MacAddr,
    pub(crate) mtu: usize,
    work: SyncSender<Work>,
    /// Last assigned endpoint. Search continues after it, so that endpoints are reused as late as
    /// possible.
    last_endpoint: u16,
}

type Work = Box<dyn FnOnce(&Inside) + Send>;

/// State of the thread in the namespace.
pub(crate) struct Inside {
    macvlan: Interface,
    mac: MacAddr,
    route: Socket,
    /// Kernel's list of packet sockets in the namespace, opened before opening files is forbidden.
    sockets: File,
}

/// A socket that is ready to be passed to a client.
pub(crate) struct Opened {
    pub(crate) socket: OwnedFd,
    pub(crate) inode: u64,
    /// Mapping of the ring. While it exists, the socket's owner can neither change the ring nor add
    /// a transmit ring.
    pub(crate) ring: Mapping,
}

impl Nic {
    pub(crate) fn prepare(config: NicConfig) -> io::Result<Nic> {
        let (work, todo) = sync_channel(0);
        let (reply, replies) = sync_channel(1);
        let (name, endpoints) = (config.interface.clone(), config.endpoints);
        let serve = move || {
            let inside = Inside::prepare(&name, endpoints);
            match inside.and_then(|inside| confine::keep_serving_capabilities().map(|()| inside)) {
                Ok(inside) => {
                    let _ = reply.send(Ok((inside.mac, inside.macvlan.mtu)));
                    todo.iter().for_each(|work: Work| work(&inside));
                }
                Err(error) => drop(reply.send(Err(error))),
            }
        };
        let thread = thread::Builder::new().name(config.interface.clone());
        thread.spawn(serve)?;
        let (mac, mtu) = replies.recv().map_err(ended)??;
        Ok(Nic {
            config,
            mac,
            mtu,
            work,
            last_endpoint: 0,
        })
    }

    pub(crate) fn free_endpoint(&mut self, taken: &HashSet<u16>) -> Option<u16> {
        let count = self.config.endpoints;
        let next = |endpoint: u16| endpoint % count + 1;
        let all = std::iter::successors(Some(next(self.last_endpoint)), |&last| Some(next(last)));
        let free = all
            .take(count.into())
            .find(|endpoint| !taken.contains(endpoint))?;
        self.last_endpoint = free;
        Some(free)
    }

    /// Runs `work` on the thread in the namespace and returns its result.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inside) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (reply, replies) = sync_channel(1);
        let work: Work = Box::new(move |inside| {
            let _ = reply.send(work(inside));
        });
        self.work.send(work).map_err(ended)?;
        replies.recv().map_err(ended)?
    }
}

fn ended<E>(_: E) -> io::Error {
    io::Error::other("the thread of the NIC has ended")
}

impl Inside {
    /// Moves the calling thread to a new namespace and creates the macvlan there. The macvlan is
    /// enabled after the rules are installed.
    fn prepare(lower: &str, endpoints: u16) -> io::Result<Inside> {
        let missing = || io::Error::from_raw_os_error(libc::ENODEV);
        let lower = find(lower)?.ok_or_else(missing)?;
        let outside = netlink::route_socket()?;
        unshare(CloneFlags::CLONE_NEWNET)?;
        let here = File::open("/proc/thread-self/ns/net")?;
        netlink::change(
            &outside,
            NLM_F_CREATE | NLM_F_EXCL,
            RouteNetlinkMessage::NewLink(macvlan_of(lower.index, &here)),
        )?;
        let macvlan = find(&NAME.to_string_lossy())?.ok_or_else(missing)?;
        let mac = macvlan.mac.ok_or_else(missing)?;
        rules::install(NAME, mac, endpoints)?;
        let route = netlink::route_socket()?;
        let mut up = LinkMessage::default();
        up.header.index = macvlan.index;
        up.header.flags = LinkFlags::Up;
        up.header.change_mask = LinkFlags::Up;
        netlink::change(&route, 0, RouteNetlinkMessage::SetLink(up))?;
        Ok(Inside {
            macvlan,
            mac,
            route,
            sockets: File::open("/proc/thread-self/net/packet")?,
        })
    }

    /// Opens the socket for `endpoint`.
    pub(crate) fn open(&self, endpoint: u16, ring: &RingLayout) -> io::Result<Opened> {
        let socket = net::packet_socket()?;
        let fd = socket.as_fd();
        net::attach_filter(fd, &lease::filter(endpoint, self.mac))?;
        net::lock_filter(fd)?;
        net::set_mark(fd, rules::mark_of(endpoint))?;
        net::ignore_outgoing(fd)?;
        PacketRing::lay(fd, ring)?;
        let ring = Mapping::map(fd, ring.len())?;
        net::bind_packet(fd, self.macvlan.index, ETHER_TYPE)?;
        Ok(Opened {
            inode: nix::sys::stat::fstat(fd)?.st_ino,
            socket,
            ring,
        })
    }

    /// Returns the inodes of the sockets in the namespace, from the last column of the kernel's
    /// list.
    ///
    /// # Errors
    /// Also if the list changes all the time.
    pub(crate) fn inodes(&self) -> io::Result<HashSet<u64>> {
        // The kernel writes the list in pieces, each from a position. If a socket is closed between
        // two pieces, the second one lacks a socket.
        let mut list = self.read_sockets()?;
        for _ in 0..LIST_READS_MAX {
            let next = self.read_sockets()?;
            if next == list {
                let list = String::from_utf8_lossy(&list);
                let inode = |line: &str| line.split_whitespace().next_back()?.parse().ok();
                return Ok(list.lines().skip(1).filter_map(inode).collect());
            }
            list = next;
        }
        Err(io::Error::other(
            "the list of sockets changes while it is read",
        ))
    }

    fn read_sockets(&self) -> io::Result<Vec<u8>> {
        let (mut list, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match self.sockets.read_at(&mut piece, list.len() as u64)? {
                0 => return Ok(list),
                len => list.extend_from_slice(&piece[..len]),
            }
        }
    }

    /// Removes the macvlan. Remaining sockets are then disconnected.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = self.macvlan.index;
        netlink::change(&self.route, 0, RouteNetlinkMessage::DelLink(link))
    }
}

/// Returns the interface `name` in the calling thread's namespace.
fn find(name: &str) -> io::Result<Option<Interface>> {
    Ok(net::interfaces()?
        .into_iter()
        .find(|found| found.name == name))
}

/// Returns the request for a macvlan of interface `lower` in the namespace `here`.
fn macvlan_of(lower: u32, here: &File) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(NAME.to_string_lossy().into_owned()),
        LinkAttribute::Link(lower),
        LinkAttribute::NetNsFd(here.as_raw_fd()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::MacVlan),
            LinkInfo::Data(InfoData::MacVlan(vec![InfoMacVlan::Mode(
                MacVlanMode::Bridge,
            )])),
        ]),
    ];
    link
}

/// Returns the layout of a ring of `ring_len` bytes on a NIC with this MTU.
pub(crate) fn ring_of(mtu: usize, ring_len: u32) -> RingLayout {
    RingLayout::new(ETHERNET_LEN + mtu, ring_len as usize)
}
