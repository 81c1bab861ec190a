// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group of the processes that receive on one interface: its shared descriptors, and how a process
//! joins.
//!
//! A queue of an interface belongs to one socket, and other sockets can share it only with that
//! socket's descriptor (`xp_assign_dev` of net/xdp/xsk_buff_pool.c). The first process therefore
//! founds a group. It attaches the program, creates the area, and listens on an abstract Unix
//! socket named after the interface's number and the user. Each later process connects and receives
//! all descriptors, including the listening one. Any member can serve the next process. The group's
//! resources are released with its last member.
//!
//! Members trust each other: each can read and write the frames of all members. Only processes of
//! one user are admitted.
//!
//! ```text
//! part     0 "PXDP"   4 version u16   6 part u8   7 mode u8   8 places u32   12 bytes of a chunk u32
//! ```
//! Little-endian. Each record travels with its descriptor, in the order of [`PARTS`].

use super::chunks::Layout;
use super::{ERRORS, QUEUE, XdpMode, program};
use crate::LinkError;
use portolan_sys::bpf::{self, XdpHook};
use portolan_sys::net::{self, Interface, MacAddr, XdpSocket, XdpSocketUse};
use portolan_sys::process::spawn_quiet;
use portolan_sys::seqpacket::{Seqpacket, SeqpacketListener, effective_uid};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time limit for a serving member or a founder. Attaching a program resets some NICs, which takes
/// seconds.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for the release of the previous group's queue, which the kernel frees a few
/// milliseconds after its last socket was closed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval between attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Time that the serving thread sleeps; a connection wakes it.
const SERVE_INTERVAL: Duration = Duration::from_secs(3600);

/// Endpoints by which a socket can be found: all except the broadcast endpoint.
const ENDPOINT_COUNT: u32 = 0xFFFF;

const MAGIC: [u8; 4] = *b"PXDP";
const VERSION: u16 = 1;
const RECORD_LEN: usize = 16;

/// Number of descriptors passed on: the listening socket, the area, the socket that owns it, the
/// map, and the program's attachment.
const PARTS: u8 = 5;

const PRIVILEGE_REMEDY: &str = "run it as root or give the program CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF \
     (`setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM`), or use the packet link";

/// Group of the processes on one interface, with its shared descriptors.
pub(super) struct Group {
    pub(super) mode: XdpMode,
    pub(super) layout: Layout,
    listener: SeqpacketListener,
    pub(super) file: OwnedFd,
    pub(super) owner: XdpSocket,
    pub(super) map: OwnedFd,
    /// Keeps the program attached while any process holds it.
    attachment: OwnedFd,
}

/// Parameters of a group.
pub(super) struct Purpose<'a> {
    pub(super) interface: &'a Interface,
    pub(super) mac: MacAddr,
    pub(super) mode: XdpMode,
    pub(super) chunk_len: u32,
}

impl Group {
    /// Joins the interface's group, or founds it.
    pub(super) fn enter(purpose: &Purpose<'_>) -> Result<Group, LinkError> {
        let interface = purpose.interface;
        let name = format!("portolan-xdp-{}-{}", interface.index, effective_uid());
        let deadline = Instant::now() + JOIN_TIMEOUT;
        loop {
            match SeqpacketListener::bind(name.as_bytes()) {
                Ok(listener) => return found(purpose, listener),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => {
                    let what = format!("listen on the abstract unix socket {name}");
                    return Err(ERRORS.system(what, error, "raise the limit of open files"));
                }
            }
            match join(&name, deadline) {
                Ok(group) => return Ok(group),
                // The last member left, or a founder failed; the next attempt reports why.
                Err(error) if is_transient(&error) && Instant::now() < deadline => {
                    thread::sleep(RETRY_INTERVAL);
                }
                Err(error) => {
                    let what = format!("join the processes that use AF_XDP on {}", interface.name);
                    let remedy = "use one version of Portolan, and check for stopped processes, or \
                                  another user's that listen under this name (`ss -xlp`)";
                    return Err(ERRORS.system(what, error, remedy));
                }
            }
        }
    }

    fn record(&self, part: u8) -> [u8; RECORD_LEN] {
        let mut record = [0; RECORD_LEN];
        record[..4].copy_from_slice(&MAGIC);
        record[4..6].copy_from_slice(&VERSION.to_le_bytes());
        record[6] = part;
        record[7] = self.mode.to_byte();
        record[8..12].copy_from_slice(&self.layout.place_count.to_le_bytes());
        record[12..].copy_from_slice(&self.layout.chunk_len.to_le_bytes());
        record
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; PARTS as usize] {
        [
            self.listener.as_fd(),
            self.file.as_fd(),
            self.owner.as_fd(),
            self.map.as_fd(),
            self.attachment.as_fd(),
        ]
    }

    /// Passes copies of all descriptors to the next waiting process, if it is this user's.
    fn serve(&self) -> io::Result<()> {
        let Some(connection) = self.listener.accept()? else {
            return Ok(());
        };
        if connection.peer_cred()?.uid != effective_uid() {
            return Ok(());
        }
        for (part, fd) in (0..).zip(self.descriptors()) {
            connection.send_with_fd(&self.record(part), fd)?;
        }
        Ok(())
    }
}

fn found(purpose: &Purpose<'_>, listener: SeqpacketListener) -> Result<Group, LinkError> {
    let (interface, name) = (purpose.interface, &purpose.interface.name);
    let failed = |what: String, remedy| move |errno| ERRORS.system(what, errno, remedy);
    let refused = || failed(format!("AF_XDP on {name}"), PRIVILEGE_REMEDY);
    let layout = Layout::new(purpose.chunk_len);
    let no_memory = "allow this process 20 MiB of memory and as much locked memory (`ulimit -l`)";
    let area_failed = || failed(format!("create the frame area for {name}"), no_memory);
    let file = layout.create_file().map_err(area_failed())?;
    let area = layout.map(file.as_fd()).map_err(area_failed())?;
    let owner = XdpSocket::open().map_err(refused())?;
    owner
        .own_area(&area, layout.fill_len(), layout.completion_len())
        .map_err(area_failed())?;
    // The owner neither sends nor receives, but the kernel binds only a socket that could.
    owner.make_tx_ring(1).map_err(area_failed())?;
    let how = match purpose.mode {
        XdpMode::Generic => XdpSocketUse::Copy,
        XdpMode::Native => XdpSocketUse::Direct,
    };
    let queue = u32::from(QUEUE);
    while_busy(|| owner.bind_owner(interface.index, queue, how)).map_err(failed(
        format!("bind an AF_XDP socket to queue {QUEUE} of {name}"),
        "end the program, perhaps another user's, that has AF_XDP sockets there, or use the packet link",
    ))?;
    let map = bpf::create_socket_map(ENDPOINT_COUNT).map_err(refused())?;
    let redirecting = program::redirecting(purpose.mac, bpf::number(map.as_fd()));
    let program = bpf::load_xdp(&redirecting).map_err(refused())?;
    let (hook, remedy) = match purpose.mode {
        XdpMode::Generic => (
            XdpHook::Generic,
            "detach the XDP program that is there (`ip link show` names it), or use the packet link",
        ),
        XdpMode::Native => (
            XdpHook::Native,
            "detach the XDP program that is there, lower the MTU, or use generic mode: not every driver \
             supports native mode",
        ),
    };
    let attachment = while_busy(|| bpf::attach_xdp(program.as_fd(), interface.index, hook))
        .map_err(failed(format!("attach an XDP program to {name}"), remedy))?;
    Ok(Group {
        mode: purpose.mode,
        layout,
        listener,
        file,
        owner,
        map,
        attachment,
    })
}

/// Retries while the kernel is still releasing the resources of another group.
fn while_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline =>
            {
                thread::sleep(RETRY_INTERVAL);
            }
            other => return other,
        }
    }
}

/// Returns `true` if another attempt may find a different group, or none.
fn is_transient(error: &io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EPERM | libc::EPROTO))
}

/// Requests the descriptors from any member of the group with this name.
fn join(name: &str, deadline: Instant) -> io::Result<Group> {
    let connection = Seqpacket::connect(name.as_bytes())?;
    // Any process may take a name, so the kernel must confirm the listener's user.
    if connection.peer_cred()?.uid != effective_uid() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    let mut parts = Vec::new();
    let mut parameters = None;
    while parts.len() < usize::from(PARTS) {
        // One byte more than a record, to detect longer ones.
        let mut record = [0; RECORD_LEN + 1];
        let Some(received) = connection.receive_with_fd(&mut record)? else {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            net::wait_readable(&[connection.as_fd().as_raw_fd()], left)?;
            continue;
        };
        if received.len == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let Some(fd) = received.fd else {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        };
        parameters = decode(&record[..received.len], parts.len());
        if parameters.is_none() {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        }
        parts.push(fd);
    }
    let (Some((mode, layout)), Ok(parts)) =
        (parameters, <[OwnedFd; PARTS as usize]>::try_from(parts))
    else {
        return Err(io::Error::from_raw_os_error(libc::EPROTO));
    };
    let [listener, file, owner, map, attachment] = parts;
    Ok(Group {
        mode,
        layout,
        listener: SeqpacketListener::from_fd(listener)?,
        file,
        owner: XdpSocket::from_fd(owner),
        map,
        attachment,
    })
}

/// Decodes the record of a part.
fn decode(record: &[u8], part: usize) -> Option<(XdpMode, Layout)> {
    let record: &[u8; RECORD_LEN] = record.try_into().ok()?;
    let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|index| record[at + index]));
    let version = u16::from_le_bytes([record[4], record[5]]);
    let layout = Layout {
        place_count: number(8),
        chunk_len: number(12),
    };
    let is_part = record[..4] == MAGIC && version == VERSION && usize::from(record[6]) == part;
    let mode = XdpMode::from_byte(record[7])?;
    (is_part && layout.is_valid()).then_some((mode, layout))
}

/// Thread with which a member serves newcomers; it ends when this is dropped.
pub(super) struct Server {
    /// Closed to end the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(group: &Arc<Group>) -> io::Result<Server> {
        let (stop, stopped) = UnixStream::pair()?;
        let group = Arc::clone(group);
        let thread = spawn_quiet("portolan-xdp", move || serve_all(&group, &stopped))?;
        Ok(Server {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve_all(group: &Group, stopped: &UnixStream) {
    loop {
        let fds = [group.listener.as_fd().as_raw_fd(), stopped.as_raw_fd()];
        let waited = net::wait_readable(&fds, SERVE_INTERVAL);
        if waited.is_err() || net::readiness(stopped.as_fd()).readable {
            return;
        }
        if let Err(error) = group.serve() {
            // Other members may serve the waiting process. Without descriptors this loop repeats at
            // once, so it pauses.
            log::info!("xdp link: cannot let a process join: {error}");
            thread::sleep(RETRY_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_complete_and_in_order() {
        let layout = Layout::new(2048);
        let mut record = [0; RECORD_LEN];
        record[..4].copy_from_slice(&MAGIC);
        record[4..8].copy_from_slice(&[1, 0, 2, XdpMode::Native.to_byte()]);
        record[8..12].copy_from_slice(&layout.place_count.to_le_bytes());
        record[12..].copy_from_slice(&layout.chunk_len.to_le_bytes());
        assert_eq!(decode(&record, 2), Some((XdpMode::Native, layout)));
        assert_eq!(decode(&record, 1), None);
        for len in 0..RECORD_LEN {
            assert_eq!(decode(&record[..len], 2), None);
        }
        for at in 0..RECORD_LEN {
            let mut broken = record;
            broken[at] ^= 0x80;
            assert_eq!(decode(&broken, 2), None, "{at}");
        }
    }
}
