// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unix sockets that keep record boundaries and pass descriptors. Most use the abstract namespace,
//! which frees their names with the process. All operations are non-blocking.
#![allow(
    unsafe_code,
    reason = "getsockopt(SO_PEERCRED) with a peer that has no pid here; a descriptor known by number"
)]

use crate::usage::{self, Call};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Connections that may wait to be accepted. The kernel limits this to `net.core.somaxconn`, which
/// has the same default; fewer processes than that share a host.
const BACKLOG: i32 = 4096;

/// Groups of a process that are read. The kernel allows 65,536; systems assign about ten.
const GROUPS_MAX: usize = 1024;

/// Credentials of the process at the other end, taken by the kernel when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCred {
    /// Process id, or `None` for a process in a pid namespace that is not visible from here.
    pub pid: Option<u32>,
    /// Effective user.
    pub uid: u32,
}

/// Returns the effective user of this process, which peers see in [`PeerCred::uid`].
#[must_use]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A listening socket with an abstract name.
#[derive(Debug)]
pub struct SeqpacketListener(OwnedFd);

impl SeqpacketListener {
    /// Binds the abstract name `name` (at most 107 bytes) and listens.
    ///
    /// # Errors
    /// `AddrInUse` if the name is taken in this network namespace.
    pub fn bind(name: &[u8]) -> io::Result<Self> {
        let socket = new_socket()?;
        net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        net::listen(&socket, BACKLOG)?;
        Ok(SeqpacketListener(socket))
    }

    /// Binds a name in text form and listens: a path, which must not exist, or `@NAME` in the
    /// abstract namespace.
    ///
    /// # Errors
    /// `AddrInUse` if the name is taken.
    pub fn bind_named(name: &str) -> io::Result<Self> {
        let socket = new_socket()?;
        net::bind(&socket, &named(name)?)?;
        net::listen(&socket, BACKLOG)?;
        Ok(SeqpacketListener(socket))
    }

    /// Wraps a listening socket received from another process. Either process may accept its
    /// connections.
    ///
    /// # Errors
    /// `EPROTOTYPE` if it is another kind of descriptor.
    pub fn from_fd(socket: OwnedFd) -> io::Result<Self> {
        let kind = net::sockopt::socket_type(&socket)?;
        if kind != SocketType::SEQPACKET || !net::sockopt::socket_acceptconn(&socket)? {
            return Err(Errno::PROTOTYPE.into());
        }
        Ok(SeqpacketListener(socket))
    }

    /// Returns the listening socket that systemd passed to this process, if exactly one
    /// (sd_listen_fds(3)).
    ///
    /// # Errors
    /// `EPROTOTYPE` if it is another kind of descriptor, and `EBUSY` if it was taken before.
    pub fn activated() -> io::Result<Option<Self>> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
        if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS") != Some(1) {
            return Ok(None);
        }
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(Errno::BUSY.into());
        }
        // SAFETY: the first descriptor that is passed is number 3, left open by the parent for this
        // process, and TAKEN admits one caller.
        let socket = unsafe { OwnedFd::from_raw_fd(3) };
        let listener = Self::from_fd(socket)?;
        rustix::io::fcntl_setfd(&listener.0, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&listener.0, true)?;
        Ok(Some(listener))
    }

    /// Accepts the next waiting connection, if any.
    ///
    /// # Errors
    /// Fails mostly for lack of descriptors.
    pub fn accept(&self) -> io::Result<Option<Seqpacket>> {
        usage::count_call(Call::Accept4);
        match net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Ok(Some(Seqpacket(socket))),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A reserved descriptor, for use when no other is left.
#[derive(Debug)]
pub struct ReserveFd(Option<OwnedFd>);

impl ReserveFd {
    /// Reserves a descriptor, if one is free.
    #[must_use]
    pub fn new(listener: &SeqpacketListener) -> ReserveFd {
        ReserveFd(listener.0.try_clone().ok())
    }

    /// Frees the reserved descriptor, accepts the next waiting connection with it, and closes that
    /// after `work`. Returns `None` if no descriptor is reserved, or no connection waits.
    pub fn accept_with<T>(
        &mut self,
        listener: &SeqpacketListener,
        work: impl FnOnce(Seqpacket) -> T,
    ) -> Option<T> {
        drop(self.0.take()?);
        let accepted = listener.accept();
        let result = accepted.ok().flatten().map(work);
        *self = ReserveFd::new(listener);
        result
    }
}

impl AsFd for SeqpacketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Seqpacket(OwnedFd);

/// A received record.
#[derive(Debug)]
pub struct Record {
    /// Bytes of the record in the caller's buffer.
    pub len: usize,
    /// Set if the record was longer than the buffer.
    pub truncated: bool,
    /// Descriptor that was passed with it; the last if there were several.
    pub fd: Option<OwnedFd>,
    /// Set if a passed descriptor was lost because this process had no free number or memory for it.
    pub fd_lost: bool,
}

impl Seqpacket {
    /// Connects to the listener of that abstract name. The connection is usable before the listener
    /// accepts it.
    ///
    /// # Errors
    /// `WouldBlock` while the listener's backlog is full, `ConnectionRefused` if no process
    /// listens.
    pub fn connect(name: &[u8]) -> io::Result<Self> {
        let socket = new_socket()?;
        net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Seqpacket(socket))
    }

    /// Connects to a listener by a name in text form, see [`SeqpacketListener::bind_named`].
    ///
    /// # Errors
    /// `NotFound` if there is no such path, and as [`Seqpacket::connect`].
    pub fn connect_named(name: &str) -> io::Result<Self> {
        let socket = new_socket()?;
        net::connect(&socket, &named(name)?)?;
        Ok(Seqpacket(socket))
    }

    /// Returns the groups that the other process had when the connection was made, the effective
    /// one first.
    ///
    /// # Errors
    /// `ERANGE` for a process of more than 1024 groups, or the error of `getsockopt`.
    pub fn peer_groups(&self) -> io::Result<Vec<u32>> {
        // SO_PEERGROUPS of asm-generic/socket.h, which the libc crate lacks.
        const SO_PEERGROUPS: libc::c_int = 59;
        let mut groups = [0_u32; GROUPS_MAX];
        let mut len = libc::socklen_t::try_from(size_of_val(&groups)).unwrap_or(0);
        let (fd, value) = (self.0.as_raw_fd(), groups.as_mut_ptr().cast());
        // SAFETY: `value` points to `len` writable bytes of a live local of plain integers.
        let status =
            unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_PEERGROUPS, value, &raw mut len) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut all = vec![self.ucred()?.gid];
        all.extend(groups.iter().take(len as usize / size_of::<u32>()));
        Ok(all)
    }

    /// Returns the credentials of the process that created the other end: it listened or connected.
    ///
    /// # Errors
    /// Returns the error of `getsockopt`.
    pub fn peer_cred(&self) -> io::Result<PeerCred> {
        let cred = self.ucred()?;
        let pid = u32::try_from(cred.pid).ok().filter(|&pid| pid != 0);
        Ok(PeerCred { pid, uid: cred.uid })
    }

    fn ucred(&self) -> io::Result<libc::ucred> {
        let mut cred = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
        let fd = self.0.as_raw_fd();
        let value = (&raw mut cred).cast();
        // SAFETY: `value` points to `len` writable bytes of a live local, and any bytes that the
        // kernel puts there are valid for its three integers. (rustix declares the pid nonzero,
        // which does not hold across pid namespaces.)
        let status = unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut len)
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(cred)
    }

    /// Sends one record.
    ///
    /// # Errors
    /// `WouldBlock` while the other end does not read.
    pub fn send(&self, record: &[u8]) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        usage::count_call(Call::Sendto);
        net::send(&self.0, record, flags)?;
        Ok(())
    }

    /// Sends one record with a descriptor.
    ///
    /// # Errors
    /// `WouldBlock`, or ETOOMANYREFS while this user has too many descriptors in flight.
    pub fn send_with_fd(&self, record: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        assert!(
            control.push(SendAncillaryMessage::ScmRights(&fds)),
            "space for one descriptor"
        );
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        usage::count_call(Call::Sendmsg);
        net::sendmsg(&self.0, &[IoSlice::new(record)], &mut control, flags)?;
        Ok(())
    }

    /// Receives one record, with the descriptor passed along. Returns `None` if none waits; an
    /// empty record means that the other end is closed.
    ///
    /// # Errors
    /// Returns the error of `recvmsg`, for example `ConnectionReset`.
    pub fn receive_with_fd(&self, buffer: &mut [u8]) -> io::Result<Option<Record>> {
        // Room for more descriptors than expected, so that the extra ones are received and closed.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        usage::count_call(Call::Recvmsg);
        let received =
            match net::recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                other => other?,
            };
        let fd = control.drain().filter_map(last_fd).last();
        let truncated = received.flags.contains(ReturnFlags::TRUNC);
        Ok(Some(Record {
            len: received.bytes.min(buffer.len()),
            truncated,
            fd_lost: fd.is_none() && received.flags.contains(ReturnFlags::CTRUNC),
            fd,
        }))
    }
}

impl AsFd for Seqpacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Converts a name in text form to an address.
fn named(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(match name.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(name)?,
    })
}

fn last_fd(message: RecvAncillaryMessage<'_>) -> Option<OwnedFd> {
    match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.last(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(test: &str) -> Vec<u8> {
        format!("portolan-sys-{test}-{}", std::process::id()).into_bytes()
    }

    #[test]
    fn record_and_descriptor_arrive_before_and_after_accept() {
        let name = name("record");
        let listener = SeqpacketListener::bind(&name).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let client = Seqpacket::connect(&name).unwrap();
        let memory = crate::memfd::create_sealed("portolan-test", 4096).unwrap();
        client.send_with_fd(b"hello", memory.as_fd()).unwrap();
        let server = listener.accept().unwrap().unwrap();
        let mut buffer = [0xa5; 8];
        let record = server.receive_with_fd(&mut buffer).unwrap().unwrap();
        assert_eq!(
            (&buffer[..], record.len, record.truncated),
            (&b"hello\xa5\xa5\xa5"[..], 5, false)
        );
        assert_eq!(crate::memfd::check(record.fd.unwrap(), 4096), Ok(()));
        assert!(server.receive_with_fd(&mut buffer).unwrap().is_none());
    }

    #[test]
    fn record_outlives_its_sender() {
        let name = name("outlives");
        let listener = SeqpacketListener::bind(&name).unwrap();
        let client = Seqpacket::connect(&name).unwrap();
        let memory = crate::memfd::create_sealed("portolan-test", 4096).unwrap();
        client.send_with_fd(b"last words", memory.as_fd()).unwrap();
        drop((client, memory));
        let server = listener.accept().unwrap().unwrap();
        let mut buffer = [0; 4];
        let record = server.receive_with_fd(&mut buffer).unwrap().unwrap();
        assert!(record.truncated && record.fd.is_some());
        assert_eq!(server.receive_with_fd(&mut buffer).unwrap().unwrap().len, 0);
    }

    #[test]
    fn credentials_are_those_of_this_process() {
        let name = name("cred");
        let listener = SeqpacketListener::bind(&name).unwrap();
        let client = Seqpacket::connect(&name).unwrap();
        let server = listener.accept().unwrap().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let own = PeerCred {
            pid: Some(std::process::id()),
            uid,
        };
        assert_eq!(
            (client.peer_cred().unwrap(), server.peer_cred().unwrap()),
            (own, own)
        );
    }

    #[test]
    fn names_may_be_paths_and_peer_groups_are_read() {
        let path = std::env::temp_dir().join(format!("portolan-sys-{}", std::process::id()));
        let path = path.to_str().unwrap();
        let _ = std::fs::remove_file(path);
        let missing = Seqpacket::connect_named(path).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let listener = SeqpacketListener::bind_named(path).unwrap();
        let client = Seqpacket::connect_named(path).unwrap();
        std::fs::remove_file(path).unwrap();
        let server = listener.accept().unwrap().unwrap();
        client.send(b"hello").unwrap();
        let record = server.receive_with_fd(&mut [0; 8]).unwrap().unwrap();
        assert!(record.len == 5 && record.fd.is_none());
        let groups = server.peer_groups().unwrap();
        assert_eq!(groups[0], rustix::process::getegid().as_raw());
        let others = rustix::process::getgroups().unwrap();
        assert_eq!(groups.len(), 1 + others.len());
    }

    #[test]
    fn name_is_free_after_the_listener_closes() {
        let name = name("free");
        let listener = SeqpacketListener::bind(&name).unwrap();
        let taken = SeqpacketListener::bind(&name).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let refused = Seqpacket::connect(&name).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        SeqpacketListener::bind(&name).unwrap();
    }
}
