// SPDX-License-Identifier: MIT OR Apache-2.0
//! AF_XDP sockets (Documentation/networking/af_xdp.rst): frames in an area of memory that the kernel
//! and processes share, handed to and fro by rings of descriptors.
//!
//! The one invariant: the area is read and written by copies and atomics only. Besides the kernel
//! other processes may have it.
//!
//! SYNC pair *xdp entry*: release of a ring's producer index, acquire of it: the entries before it are
//! readable. SYNC pair *xdp room*: release of the consumer index, acquire of it: the entries before it
//! may be written again. The kernel is the other side of both (net/xdp/xsk_queue.h).
#![allow(unsafe_code, reason = "reads and writes mapped memory")]

mod area;
mod ring;

pub use area::{Area, AreaLock};
pub use ring::{ConsumerRing, ProducerRing};

use crate::effort::{self, Call};
use libc::xdp_desc;
use ring::Which;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An AF_XDP socket, which is of one queue of one interface once it is bound.
#[derive(Debug)]
pub struct XdpSocket(OwnedFd);

/// How a socket that owns an area takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpSocketUse {
    /// The kernel copies frames to and from the area.
    Copy,
    /// The driver reads and writes the area where it can; else as [`XdpSocketUse::Copy`].
    Direct,
}

impl XdpSocket {
    /// Opens one.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` where the kernel has no such sockets.
    pub fn open() -> io::Result<XdpSocket> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        Ok(XdpSocket(socket_with(
            AddressFamily::XDP,
            kind,
            flags,
            None,
        )?))
    }

    /// A socket that another process has passed on.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> XdpSocket {
        XdpSocket(fd)
    }

    /// Registers all chunks of `area` and makes rings of that many entries (powers of two) for chunks
    /// to receive into and for those that have been sent.
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

    /// Makes a ring of `len` frames to send.
    ///
    /// # Errors
    /// The errno of `setsockopt`.
    pub fn make_tx_ring(&self, len: u32) -> io::Result<()> {
        Ok(sockopt::set_xdp_tx_ring_size(&self.0, len)?)
    }

    /// Makes a ring of `len` received frames.
    ///
    /// # Errors
    /// The errno of `setsockopt`.
    pub fn make_rx_ring(&self, len: u32) -> io::Result<()> {
        Ok(sockopt::set_xdp_rx_ring_size(&self.0, len)?)
    }

    /// Binds a socket that owns an area to a queue of an interface.
    ///
    /// # Errors
    /// `EBUSY` when another one has the queue, or had it some milliseconds ago; `EINVAL` when there is
    /// no such queue.
    pub fn bind_owner(&self, interface: u32, queue: u32, how: XdpSocketUse) -> io::Result<()> {
        let wakeup = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let flags = match how {
            XdpSocketUse::Copy => wakeup | SocketAddrXdpFlags::XDP_COPY,
            XdpSocketUse::Direct => wakeup,
        };
        Ok(bind(&self.0, &SocketAddrXdp::new(flags, interface, queue))?)
    }

    /// Binds a socket to the same queue and area as `owner`, whose rings for chunks it shares.
    ///
    /// # Errors
    /// The errno of `bind`.
    pub fn bind_beside(&self, owner: &XdpSocket, interface: u32, queue: u32) -> io::Result<()> {
        let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
        let beside = SocketAddrXdpWithSharedUmem {
            addr: SocketAddrXdp::new(flags, interface, queue),
            shared_umem_fd: owner.0.as_fd(),
        };
        Ok(bind(&self.0, &beside)?)
    }

    /// The ring of received frames, of as many entries as were made.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn rx_ring(&self, len: u32) -> io::Result<ConsumerRing<xdp_desc>> {
        ConsumerRing::map(self.as_fd(), Which::Rx, len)
    }

    /// The ring of frames to send.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn tx_ring(&self, len: u32) -> io::Result<ProducerRing<xdp_desc>> {
        ProducerRing::map(self.as_fd(), Which::Tx, len)
    }

    /// The ring of chunks to receive into, by their place in the area; of an owner.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn fill_ring(&self, len: u32) -> io::Result<ProducerRing<u64>> {
        ProducerRing::map(self.as_fd(), Which::Fill, len)
    }

    /// The ring of chunks whose frames have left, by their place in the area; of an owner.
    ///
    /// # Errors
    /// The errno of `mmap`.
    pub fn completion_ring(&self, len: u32) -> io::Result<ConsumerRing<u64>> {
        ConsumerRing::map(self.as_fd(), Which::Completion, len)
    }

    /// Whether the driver reads and writes the area itself.
    ///
    /// # Errors
    /// The errno of `getsockopt`.
    pub fn is_direct(&self) -> io::Result<bool> {
        let options = sockopt::xdp_options(&self.0)?;
        Ok(options.contains(rustix::net::xdp::XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Frames for this socket that were dropped since it was opened: its ring was full, or there was
    /// no chunk for them.
    ///
    /// # Errors
    /// The errno of `getsockopt`.
    pub fn drops(&self) -> io::Result<u64> {
        effort::calls(Call::Getsockopt);
        let told = sockopt::xdp_statistics(&self.0)?;
        Ok(told.rx_dropped + told.rx_ring_full.unwrap_or(0))
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
