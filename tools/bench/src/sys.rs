// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unsafe calls of the bare rows: shared mappings, raw Ethernet sockets, batches of datagrams.
//!
//! These rows must not use Portolan's own crates. A limit that shared code with the system measured
//! against it would change together with that system.
#![allow(unsafe_code, reason = "mmap, AF_PACKET and sendmmsg have no safe form")]

mod ring;
mod xdp;

pub(crate) use ring::Ring;
pub(crate) use xdp::Xdp;

use std::fs::File;
use std::io;
use std::mem;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use nix::sys::socket::{SockaddrLike, SockaddrStorage};
use portolan_sys::memory::copy_raw;

/// Memory that another process may write at any time. It is copied in and out, never borrowed.
pub(crate) struct SharedMap {
    base: NonNull<u8>,
    len: NonZeroUsize,
}

impl SharedMap {
    /// Maps the whole of `file`.
    ///
    /// # Errors
    /// The file is empty or the system call fails.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        let file_len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        SharedMap::of(file.as_fd(), file_len)
    }

    /// Maps the first `len` bytes of `fd`.
    ///
    /// # Errors
    /// `len` is zero or the system call fails.
    fn of(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        SharedMap::at(fd, len, 0)
    }

    /// Maps `len` bytes of `fd` starting at `off`.
    fn at(fd: BorrowedFd<'_>, len: usize, off: libc::off_t) -> io::Result<Self> {
        let len = NonZeroUsize::new(len).ok_or_else(|| io::Error::other("nothing to map"))?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: without an address hint the kernel chooses a range that is unused in this
        // process.
        let base = unsafe { mmap(None, len, prot, flags, fd, off) }?;
        Ok(SharedMap {
            base: base.cast(),
            len,
        })
    }

    /// Maps private memory that is shared only with the kernel.
    ///
    /// # Errors
    /// `len` is zero or the system call fails.
    fn anonymous(len: usize) -> io::Result<Self> {
        let len = NonZeroUsize::new(len).ok_or_else(|| io::Error::other("nothing to map"))?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE;
        // SAFETY: as in `at`.
        let base = unsafe { mmap_anonymous(None, len, prot, flags) }?;
        Ok(SharedMap {
            base: base.cast(),
            len,
        })
    }

    /// Returns the address in the form that the kernel expects.
    fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Returns the aligned word at `off`.
    ///
    /// # Panics
    /// `off` is outside the mapping or not aligned.
    #[inline]
    pub(crate) fn word(&self, off: usize) -> &AtomicU64 {
        assert!(off.is_multiple_of(8) && off + 8 <= self.len.get());
        // SAFETY: inside the mapping and aligned, by the assertion (the base is page aligned). Both
        // processes access this word only through atomics, or through `read` of bytes they own by
        // protocol.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(off).cast()) }
    }

    /// Returns the aligned half word at `off`.
    ///
    /// # Panics
    /// `off` is outside the mapping or not aligned.
    #[inline]
    fn half_word(&self, off: usize) -> &AtomicU32 {
        assert!(off.is_multiple_of(4) && off + 4 <= self.len.get());
        // SAFETY: as in `word`; the other side is the kernel.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(off).cast()) }
    }

    /// Copies `bytes` to `off`.
    ///
    /// # Panics
    /// The range is outside the mapping.
    #[inline]
    pub(crate) fn write(&self, off: usize, bytes: &[u8]) {
        assert!(off <= self.len.get() && bytes.len() <= self.len.get() - off);
        // SAFETY: inside the mapping by the assertion; `bytes` is private memory, so nothing
        // overlaps.
        unsafe { copy_raw(bytes.as_ptr(), self.base.as_ptr().add(off), bytes.len()) }
    }

    /// Fills `bytes` from `off`.
    ///
    /// # Panics
    /// The range is outside the mapping.
    #[inline]
    pub(crate) fn read(&self, off: usize, bytes: &mut [u8]) {
        assert!(off <= self.len.get() && bytes.len() <= self.len.get() - off);
        // SAFETY: as in `write`.
        unsafe {
            copy_raw(self.base.as_ptr().add(off), bytes.as_mut_ptr(), bytes.len());
        }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: `at` or `anonymous` mapped this length; all references borrow `self`, so none
        // outlives it.
        let unmapped = unsafe { munmap(self.base.cast(), self.len.get()) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Opens a non-blocking raw Ethernet socket that bypasses the queueing discipline. It receives
/// nothing before [`bind_packet`].
///
/// # Errors
/// The process has no CAP_NET_RAW.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // Protocol 0: the socket receives nothing before `bind` sets protocol and interface. SAFETY: no
    // pointer is passed.
    let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel has just returned this descriptor, so no other owner exists.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let on: libc::c_int = 1;
    // SAFETY: the option reads an int, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            raw,
            libc::SOL_PACKET,
            libc::PACKET_QDISC_BYPASS,
            (&raw const on).cast(),
            socklen::<libc::c_int>(),
        )
    })?;
    Ok(socket)
}

/// Binds `socket` to frames of `ether_type` on `interface`.
///
/// # Errors
/// The interface does not exist, or the system call fails.
pub(crate) fn bind_packet(socket: &OwnedFd, interface: &str, ether_type: u16) -> io::Result<()> {
    let index = nix::net::if_::if_nametoindex(interface)?;
    // SAFETY: all zero is a valid sockaddr_ll.
    let mut addr: libc::sockaddr_ll = unsafe { mem::zeroed() };
    addr.sll_family = u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?;
    addr.sll_protocol = ether_type.to_be();
    addr.sll_ifindex = i32::try_from(index).map_err(io::Error::other)?;
    // SAFETY: `addr` is a sockaddr_ll of the length given.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const addr).cast(),
            socklen::<libc::sockaddr_ll>(),
        )
    })?;
    Ok(())
}

/// Returns the hardware address of a packet socket.
///
/// # Errors
/// `socket` is not a packet socket.
pub(crate) fn packet_mac(socket: BorrowedFd<'_>) -> io::Result<[u8; 6]> {
    // SAFETY: all zero is a valid sockaddr_ll.
    let mut addr: libc::sockaddr_ll = unsafe { mem::zeroed() };
    let mut len = socklen::<libc::sockaddr_ll>();
    // SAFETY: `addr` has room for `len` bytes; both outlive the call.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut addr).cast(), &raw mut len) })?;
    let [a, b, c, d, e, f, ..] = addr.sll_addr;
    Ok([a, b, c, d, e, f])
}

/// Allows other processes of this user to read this process's memory. Yama's restricted mode allows
/// that only to ancestors. Without Yama the call fails and is not needed; any other restriction
/// shows in `process_vm_readv`.
pub(crate) fn allow_any_tracer() {
    // SAFETY: no pointer is passed.
    let _ = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// Sends one frame or datagram on a non-blocking socket that is bound or connected. Returns `false`
/// if the socket buffer is full.
///
/// # Errors
/// The system call fails.
#[inline]
pub(crate) fn try_send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<bool> {
    // SAFETY: the kernel reads `bytes`, which outlives the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    Ok(none_if_full(count(sent))?.is_some())
}

/// Sends one datagram to `to` on a non-blocking socket. Returns `false` if the socket buffer is
/// full.
///
/// # Errors
/// The system call fails.
#[inline]
pub(crate) fn try_send_to(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: &SockaddrStorage,
) -> io::Result<bool> {
    let (name, len) = (to.as_ptr(), to.len());
    // SAFETY: the kernel reads `bytes` and `to`, which outlive the call, at their lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            0,
            name,
            len,
        )
    };
    Ok(none_if_full(count(sent))?.is_some())
}

/// Receives one frame or datagram. Returns `None` if none is available now.
#[inline]
pub(crate) fn try_receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, which outlives the call.
    let received = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            flags,
        )
    };
    none_if_empty(count(received))
}

/// Frames that one system call sends or receives.
pub(crate) struct Batch {
    frame_len: usize,
    /// The frames, end to end. `vectors` points into it, so it is never resized.
    bytes: Box<[u8]>,
    /// One entry per frame. `headers` points into it, so it is never resized.
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

impl Batch {
    /// Creates a batch of `count` frames of at most `frame_len` bytes.
    pub(crate) fn new(count: usize, frame_len: usize) -> Self {
        let empty = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: all zero is a valid mmsghdr: no address, no vector, no control data.
        let header: libc::mmsghdr = unsafe { mem::zeroed() };
        Batch {
            frame_len,
            bytes: vec![0; count * frame_len].into(),
            vectors: vec![empty; count].into(),
            headers: vec![header; count].into(),
        }
    }

    /// Returns the whole buffer of frame `index`.
    #[inline]
    pub(crate) fn frame_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.bytes[index * self.frame_len..][..self.frame_len]
    }

    /// Returns the first `len` bytes of frame `index`.
    #[inline]
    pub(crate) fn frame(&self, index: usize, len: usize) -> &[u8] {
        &self.bytes[index * self.frame_len..][..len]
    }

    /// Returns the bytes received in frame `index`.
    #[inline]
    pub(crate) fn received_len(&self, index: usize) -> usize {
        (self.headers[index].msg_len as usize).min(self.frame_len)
    }

    /// Sets the number of bytes of frame `index` to send.
    #[inline]
    pub(crate) fn set_len(&mut self, index: usize, len: usize) {
        self.vectors[index].iov_len = len.min(self.frame_len);
    }

    /// Sends the frames from `first` up to `end` with the lengths set by [`Batch::set_len`].
    /// Returns how many were sent; 0 if the socket buffer is full.
    ///
    /// # Errors
    /// The system refuses the first frame.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        first: usize,
        end: usize,
    ) -> io::Result<usize> {
        self.aim();
        let headers = &mut self.headers[first..end];
        let len = u32::try_from(headers.len()).map_err(io::Error::other)?;
        // SAFETY: `aim` has just pointed the headers at vectors and the vectors at frames. All are
        // owned by `self`, which is borrowed for the call; lengths are at most `frame_len`.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), len, 0) };
        Ok(none_if_full(count(sent as isize))?.unwrap_or(0))
    }

    /// Receives as many frames as are available and fit the batch; returns 0 if none is available
    /// now.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        for vector in &mut self.vectors {
            vector.iov_len = self.frame_len;
        }
        self.aim();
        let len = u32::try_from(self.headers.len()).map_err(io::Error::other)?;
        let (headers, flags) = (self.headers.as_mut_ptr(), libc::MSG_DONTWAIT);
        // SAFETY: as in `send`; the kernel writes at most `frame_len` bytes to each frame.
        let received =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, len, flags, ptr::null_mut()) };
        Ok(none_if_empty(count(received as isize))?.unwrap_or(0))
    }

    /// Points the headers and vectors at the buffers. This is repeated before each call, because
    /// borrowing the buffers in between invalidates older pointers. The cost is negligible compared
    /// with the system call.
    fn aim(&mut self) {
        let frames = self.bytes.chunks_exact_mut(self.frame_len);
        for (vector, frame) in self.vectors.iter_mut().zip(frames) {
            vector.iov_base = frame.as_mut_ptr().cast();
        }
        for (header, vector) in self.headers.iter_mut().zip(self.vectors.iter_mut()) {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
    }
}

fn socklen<T>() -> libc::socklen_t {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "socket structures are tens of bytes"
    )]
    let len = size_of::<T>() as libc::socklen_t;
    len
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

#[inline]
fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[inline]
fn none_if_empty(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Maps ENOBUFS to `None` as well. A device with a full ring returns it where a queueing discipline
/// would have queued the frame.
#[inline]
fn none_if_full(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(None),
        result => none_if_empty(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn two_mappings_show_the_same_bytes() {
        let file = tempfile::tempfile().expect("temporary file");
        file.set_len(8192).expect("room");
        let (one, other) = (
            SharedMap::new(&file).expect("map"),
            SharedMap::new(&file).expect("map"),
        );
        one.write(100, b"portolan");
        let mut seen = [0xa5; 8];
        other.read(100, &mut seen);
        assert_eq!(&seen, b"portolan");
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn reading_past_the_end_of_a_mapping_panics() {
        let file = tempfile::tempfile().expect("temporary file");
        file.set_len(4096).expect("room");
        SharedMap::new(&file).expect("map").read(4090, &mut [0; 8]);
    }

    #[test]
    fn batch_preserves_datagram_boundaries() {
        let (a, b) = (
            UdpSocket::bind("127.0.0.1:0"),
            UdpSocket::bind("127.0.0.1:0"),
        );
        let (a, b) = (a.expect("socket"), b.expect("socket"));
        a.connect(b.local_addr().expect("bound")).expect("connect");
        let mut tx = Batch::new(3, 16);
        for index in 0..3 {
            tx.frame_mut(index)
                .fill(u8::try_from(index).expect("small"));
            tx.set_len(index, index + 1);
        }
        assert_eq!(tx.send(a.as_fd(), 0, 3).expect("room"), 3);
        let mut rx = Batch::new(8, 16);
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let received = rx.receive(b.as_fd()).expect("receive");
            seen.extend((0..received).map(|i| rx.frame(i, rx.received_len(i)).to_vec()));
        }
        assert_eq!(seen, [vec![0], vec![1, 1], vec![2, 2, 2]]);
        assert_eq!(rx.receive(b.as_fd()).expect("nothing there is no error"), 0);
    }
}
