// SPDX-License-Identifier: MIT OR Apache-2.0
//! AF_XDP sockets (Documentation/networking/af_xdp.rst): frames in a memory area shared by the
//! kernel and processes, exchanged through rings of descriptors.
//!
//! Invariant: the area is read and written only by copies and atomics, because processes other than
//! the kernel may access it.
//!
//! SYNC pair *xdp entry*: release of a ring's producer index, acquire of it: the entries before it
//! are readable. SYNC pair *xdp space*: release of the consumer index, acquire of it: the entries
//! before it may be written again. The kernel is the other side of both (net/xdp/xsk_queue.h).
#![allow(unsafe_code, reason = "reads and writes mapped memory")]

mod area;
mod ring;

pub use area::{Area, AreaLock};
pub use ring::{ConsumerRing, ProducerRing};

use crate::usage::{self, Call};
use libc::xdp_desc;
use ring::Which;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An AF_XDP socket, bound to one queue of one interface.
#[derive(Debug)]
pub struct XdpSocket(OwnedFd);

/// Mode of a socket that owns an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpSocketUse {
    /// The kernel copies frames to and from the area.
    Copy,
    /// The driver accesses the area directly if it can; otherwise as [`XdpSocketUse::Copy`].
    Direct,
}

impl XdpSocket {
    /// Opens a socket.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` if the kernel has no such sockets.
    pub fn open() -> io::Result<XdpSocket> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        Ok(XdpSocket(socket_with(
            AddressFamily::XDP,
            kind,
            flags,
            None,
        )?))
    }

    /// Wraps a socket passed on by another process.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> XdpSocket {
        XdpSocket(fd)
    }

    /// Registers all chunks of `area`, and creates the fill and completion rings with these numbers
    /// of entries (powers of two).
    ///
    /// # Errors
    /// `ENOBUFS` beyond the limit of locked memory (`ulimit -l`) without `CAP_IPC_LOCK`.
    pub fn own_area(&self, area: &Area, fill_len: u32, completion_len: u32) -> io::Result<()> {
        let (addr, len) = area.chunks();
        let registration = XdpUmemReg {
            addr,
            len,
            chunk_size: area.chunk_len(),
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&self.0, registration)?;
        sockopt::set_xdp_umem_fill_ring_size(&self.0, fill_len)?;
        sockopt::set_xdp_umem_completion_ring_size(&self.0, completion_len)?;
        Ok(())
    }

    /// Creates a ring of `len` frames to send.
    ///
    /// # Errors
    /// The errno of `setsockopt`.
    pub fn make_tx_ring(&self, len: u32) -> io::Result<()> {
        Ok(sockopt::set_xdp_tx_ring_size(&self.0, len)?)
    }

    /// Creates a ring of `len` received frames.
    ///
    /// # Errors
    /// The errno of `setsockopt`.
    pub fn make_rx_ring(&self, len: u32) -> io::Result<()> {
        Ok(sockopt::set_xdp_rx_ring_size(&self.0, len)?)
    }

    /// Binds a socket that owns an area to a queue of an interface.
    ///
    /// # Errors `EBUSY` if another socket has the queue, or had it a few milliseconds ago; `EINVAL`
    /// if there is no such queue.
    pub fn bind_owner(&self, interface: u32, queue: u32, how: XdpSocketUse) -> io::Result<()> {
        let wakeup = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let flags = match how {
            XdpSocketUse::Copy => wakeup | SocketAddrXdpFlags::XDP_COPY,
            XdpSocketUse::Direct => wakeup,
        };
        Ok(bind(&self.0, &SocketAddrXdp::new(flags, interface, queue))?)
    }

    /// Binds a socket to the queue and area of `owner`, and shares its chunk rings.
    ///
    /// # Errors
    /// The errno of `bind`.
    pub fn bind_shared(&self, owner: &XdpSocket, interface: u32, queue: u32) -> io::Result<()> {
        let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
        let shared = SocketAddrXdpWithSharedUmem {
            addr: SocketAddrXdp::new(flags, interface, queue),
            shared_umem_fd: owner.0.as_fd(),
        };
        Ok(bind(&self.0, &shared)?)
    }

    /// Maps the ring of received frames, with the number of entries that it was created with.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn rx_ring(&self, len: u32) -> io::Result<ConsumerRing<xdp_desc>> {
        ConsumerRing::map(self.as_fd(), Which::Rx, len)
    }

    /// Maps the ring of frames to send.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn tx_ring(&self, len: u32) -> io::Result<ProducerRing<xdp_desc>> {
        ProducerRing::map(self.as_fd(), Which::Tx, len)
    }

    /// Maps the fill ring of an owner: chunks to receive into, by their offset in the area.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn fill_ring(&self, len: u32) -> io::Result<ProducerRing<u64>> {
        ProducerRing::map(self.as_fd(), Which::Fill, len)
    }

    /// Maps the completion ring of an owner: chunks with frames that have left, by their offset in
    /// the area.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn completion_ring(&self, len: u32) -> io::Result<ConsumerRing<u64>> {
        ConsumerRing::map(self.as_fd(), Which::Completion, len)
    }

    /// Returns `true` if the driver accesses the area directly.
    ///
    /// # Errors
    /// The errno of `getsockopt`.
    pub fn is_direct(&self) -> io::Result<bool> {
        let options = sockopt::xdp_options(&self.0)?;
        Ok(options.contains(rustix::net::xdp::XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Returns the frames for this socket dropped since it was opened, because its ring was full or
    /// no chunk was free.
    ///
    /// # Errors
    /// The errno of `getsockopt`.
    pub fn drops(&self) -> io::Result<u64> {
        usage::count_call(Call::Getsockopt);
        let statistics = sockopt::xdp_statistics(&self.0)?;
        Ok(statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0))
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
