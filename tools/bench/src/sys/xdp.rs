// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bare AF_XDP socket with its own memory, rings and program
//! (Documentation/networking/af_xdp.rst).
//!
//! It uses queue 0 of an interface in copy mode. The program redirects the frames of one EtherType
//! to the socket.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lengths of a page, places in a mapping, and small constants of the kernel's"
)]

use super::{SharedMap, check, socklen};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a chunk: the kernel's headroom of 256 and any frame with an MTU up to 3,800.
const CHUNK: usize = 4096;

/// Entries of each ring. There are as many chunks to receive into, and as many to send from.
const COUNT: u32 = 256;

/// Instructions and attributes from include/uapi/linux/bpf.h.
const PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const XSKMAP: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const SKB_MODE: u32 = 2;
const DRIVER_MODE: u32 = 4;

/// A bare AF_XDP socket; see the module documentation.
pub(crate) struct Xdp {
    socket: OwnedFd,
    _map: OwnedFd,
    _attached: OwnedFd,
    area: SharedMap,
    rx: Ring,
    tx: Ring,
    fill: Ring,
    completion: Ring,
    /// Number of frames submitted; `left` counts the completed ones.
    sent: u32,
    left: u32,
}

/// A ring, with the position of its next entry.
struct Ring {
    memory: SharedMap,
    at: libc::xdp_ring_offset,
    entry_len: usize,
    next: u32,
}

impl Xdp {
    /// Opens a socket on queue 0 of `interface` for frames of `ether_type`.
    pub(crate) fn open(interface: &str, ether_type: u16, native: bool) -> io::Result<Xdp> {
        let index = nix::net::if_::if_nametoindex(interface)?;
        // SAFETY: no pointer is passed.
        let raw =
            check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the kernel has just returned this descriptor, so no other owner exists.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let fd = socket.as_fd();
        let area = SharedMap::anonymous(2 * COUNT as usize * CHUNK)?;
        let registration = libc::xdp_umem_reg {
            addr: area.addr(),
            len: (2 * COUNT as usize * CHUNK) as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(fd, libc::XDP_UMEM_REG, &registration)?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            set(fd, ring, &COUNT)?;
        }
        let offsets = offsets(fd)?;
        let (number, desc) = (mem::size_of::<u64>(), mem::size_of::<libc::xdp_desc>());
        let fill_at = libc::XDP_UMEM_PGOFF_FILL_RING.cast_signed();
        let completion_at = libc::XDP_UMEM_PGOFF_COMPLETION_RING.cast_signed();
        let mut fill = Ring::map(fd, fill_at, offsets.fr, number)?;
        let completion = Ring::map(fd, completion_at, offsets.cr, number)?;
        let rx = Ring::map(fd, libc::XDP_PGOFF_RX_RING, offsets.rx, desc)?;
        let tx = Ring::map(fd, libc::XDP_PGOFF_TX_RING, offsets.tx, desc)?;
        for chunk in 0..COUNT {
            fill.put(&(u64::from(chunk) * CHUNK as u64).to_ne_bytes());
        }
        bind(fd, index)?;
        let map = create_map()?;
        let program = load(ether_type, &map)?;
        let flags = if native { DRIVER_MODE } else { SKB_MODE };
        let attached = bpf_open(
            LINK_CREATE,
            &[number_of(&program), index, ATTACH_XDP, flags],
        )?;
        let (key, value) = (0_u32, number_of(&socket));
        let pointers = [&key, &value].map(|word| (&raw const *word).expose_provenance() as u64);
        bpf(
            MAP_UPDATE,
            &[u64::from(number_of(&map)), pointers[0], pointers[1], 0],
        )?;
        Ok(Xdp {
            socket,
            _map: map,
            _attached: attached,
            area,
            rx,
            tx,
            fill,
            completion,
            sent: 0,
            left: 0,
        })
    }

    /// Sends a frame. Returns `false` if the socket buffer is full.
    #[inline]
    pub(crate) fn try_send(&mut self, frame: &[u8]) -> io::Result<bool> {
        let mut chunk = [0; 8];
        while self.completion.take(&mut chunk) {
            self.left = self.left.wrapping_add(1);
        }
        if self.sent.wrapping_sub(self.left) < COUNT {
            let at = (COUNT + self.sent % COUNT) as usize * CHUNK;
            self.area.write(at, frame);
            let mut desc = [0; 16];
            desc[..8].copy_from_slice(&(at as u64).to_ne_bytes());
            desc[8..12].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
            self.tx.put(&desc);
            self.sent = self.sent.wrapping_add(1);
            self.kick()?;
            return Ok(true);
        }
        self.kick()?;
        Ok(false)
    }

    /// Starts transmission. Frames that the kernel cannot send now stay in the ring.
    #[inline]
    fn kick(&self) -> io::Result<()> {
        let (fd, none) = (self.socket.as_raw_fd(), std::ptr::null());
        // SAFETY: the length is zero, so nothing is read.
        let sent = unsafe { libc::send(fd, none, 0, libc::MSG_DONTWAIT) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => Ok(()),
            _ => Err(error),
        }
    }

    /// Copies the next frame to `bytes` and returns its length. Returns `None` if none is available
    /// now.
    #[inline]
    pub(crate) fn try_receive(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let mut desc = [0; 16];
        if !self.rx.take(&mut desc) {
            return None;
        }
        let [at @ .., _, _, _, _, _, _, _, _] = desc;
        let at = u64::from_ne_bytes(at) as usize;
        let len = u32::from_ne_bytes([desc[8], desc[9], desc[10], desc[11]]) as usize;
        let kept = len.min(bytes.len());
        self.area.read(at, &mut bytes[..kept]);
        self.fill.put(&((at - at % CHUNK) as u64).to_ne_bytes());
        Some(len)
    }
}

impl Ring {
    fn map(
        fd: BorrowedFd<'_>,
        off: libc::off_t,
        at: libc::xdp_ring_offset,
        entry_len: usize,
    ) -> io::Result<Ring> {
        let len = at.desc as usize + COUNT as usize * entry_len;
        Ok(Ring {
            memory: SharedMap::at(fd, len, off)?,
            at,
            entry_len,
            next: 0,
        })
    }

    #[inline]
    fn entry(&self) -> usize {
        self.at.desc as usize + (self.next % COUNT) as usize * self.entry_len
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        self.memory.half_word(self.at.producer as usize)
    }

    /// Puts an entry into the ring. It cannot overflow: a ring has as many entries as chunks.
    #[inline]
    fn put(&mut self, entry: &[u8]) {
        self.memory.write(self.entry(), entry);
        self.next = self.next.wrapping_add(1);
        self.producer().store(self.next, Ordering::Release);
    }

    /// Takes the next entry; returns false if there is none.
    #[inline]
    fn take(&mut self, entry: &mut [u8]) -> bool {
        if self.producer().load(Ordering::Acquire) == self.next {
            return false;
        }
        self.memory.read(self.entry(), entry);
        self.next = self.next.wrapping_add(1);
        let consumer = self.memory.half_word(self.at.consumer as usize);
        consumer.store(self.next, Ordering::Release);
        true
    }
}

fn set<T>(fd: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let (level, value) = (libc::SOL_XDP, (&raw const *value).cast());
    // SAFETY: the option reads a T, which outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, socklen::<T>()) })?;
    Ok(())
}

fn offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all zero is a valid structure of numbers.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
    let mut len = socklen::<libc::xdp_mmap_offsets>();
    let (level, value) = (libc::SOL_XDP, (&raw mut offsets).cast());
    // SAFETY: `offsets` has room for `len` bytes; both outlive the call.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            libc::XDP_MMAP_OFFSETS,
            value,
            &raw mut len,
        )
    })?;
    Ok(offsets)
}

fn bind(fd: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let addr = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let (name, len) = ((&raw const addr).cast(), socklen::<libc::sockaddr_xdp>());
    // The kernel releases a queue a few milliseconds after its last socket was closed.
    let mut attempts = 200;
    loop {
        // SAFETY: `addr` is a sockaddr_xdp of the length given.
        match check(unsafe { libc::bind(fd.as_raw_fd(), name, len) }) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && attempts > 0 => {
                attempts -= 1;
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => return other.map(drop),
        }
    }
}

/// Creates a map with one entry, for queue 0.
fn create_map() -> io::Result<OwnedFd> {
    bpf_open(MAP_CREATE, &[XSKMAP, 4, 4, 1, 0])
}

/// Loads the program. It redirects frames of `ether_type` to the socket of their queue and passes
/// all others to the kernel.
fn load(ether_type: u16, map: &OwnedFd) -> io::Result<OwnedFd> {
    let ether_type = i32::from(ether_type.to_be());
    let program = [
        op(0x61, 2, 1, 0, 0),                            // r2 = data
        op(0x61, 3, 1, 4, 0),                            // r3 = data_end
        op(0xbf, 4, 2, 0, 0),                            // r4 = r2 + 14
        op(0x07, 4, 0, 0, 14),                           //
        op(0x2d, 4, 3, 8, 0),                            // beyond the end: pass
        op(0x69, 4, 2, 12, 0),                           // r4 = EtherType
        op(0x55, 4, 0, 6, ether_type),                   // another: pass
        op(0x61, 2, 1, 16, 0),                           // r2 = queue
        op(0x18, 1, 1, 0, number_of(map).cast_signed()), // r1 = map
        op(0, 0, 0, 0, 0),                               //
        op(0xb7, 3, 0, 0, PASS),                         // r3: pass if there is no socket
        op(0x85, 0, 0, 0, REDIRECT_MAP),
        op(0x95, 0, 0, 0, 0),
        op(0xb7, 0, 0, 0, PASS),
        op(0x95, 0, 0, 0, 0),
    ];
    let license = c"MIT";
    let mut attribute = [0_u32; 18];
    let count = u32::try_from(program.len()).map_err(io::Error::other)?;
    attribute[..2].copy_from_slice(&[PROGRAM_XDP, count]);
    let pointers = [
        program.as_ptr().expose_provenance(),
        license.as_ptr().expose_provenance(),
    ];
    for (place, pointer) in [2, 4].into_iter().zip(pointers) {
        let bytes = (pointer as u64).to_ne_bytes();
        for half in 0..2 {
            let word = [0, 1, 2, 3].map(|byte| bytes[4 * half + byte]);
            attribute[place + half] = u32::from_ne_bytes(word);
        }
    }
    attribute[17] = ATTACH_XDP;
    bpf_open(PROGRAM_LOAD, &attribute)
}

/// Encodes an instruction, with the register fields in little-endian order.
fn op(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> u64 {
    let [a, b] = offset.to_ne_bytes();
    let [c, d, e, f] = immediate.to_ne_bytes();
    u64::from_ne_bytes([code, from << 4 | to, a, b, c, d, e, f])
}

fn number_of(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn bpf_open<T>(command: libc::c_int, attribute: &[T]) -> io::Result<OwnedFd> {
    let fd = bpf(command, attribute)?;
    // SAFETY: these commands return a new descriptor that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf<T>(command: libc::c_int, attribute: &[T]) -> io::Result<libc::c_int> {
    let (words, len) = (attribute.as_ptr(), mem::size_of_val(attribute));
    // SAFETY: the kernel reads `len` bytes of `attribute` and the memory that it points to; callers
    // keep both alive until this returns.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, words, len) };
    check(libc::c_int::try_from(returned).map_err(io::Error::other)?)
}
