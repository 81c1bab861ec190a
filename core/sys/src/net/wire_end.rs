// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a wire, for a program that acts as the wire: it receives every frame that leaves an
//! interface, in the kernel's form, to be sent into another interface.
//!
//! If the interface has these offloads, a frame may be a burst of segments or lack its checksum. A
//! header before the frame describes this (`PACKET_VNET_HDR` of packet(7)); it is passed on to the
//! other interface. A VLAN tag, which the kernel keeps separately, is put back into the frame.
//!
//! Invariant: [`WireEnd::send`] gets the bytes of [`WireEnd::receive`] unchanged.
#![allow(unsafe_code, reason = "recvmsg and send take pointers")]

use super::options::set;
use super::{bind_packet, checked_len, ignore_outgoing, packet_drops, packet_socket};
use libc::{c_int, cmsghdr, msghdr};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{mem, ptr};

/// Bytes before a frame: `struct virtio_net_hdr` of include/uapi/linux/virtio_net.h.
const OFFLOAD_LEN: usize = 10;

/// Bytes of the two addresses at the start of a frame.
const ADDRESSES_LEN: usize = 12;

/// Bytes of a VLAN tag, after the addresses (IEEE 802.1Q, clause 9).
const TAG_LEN: usize = 4;

/// EtherType of a tag if the kernel names none (`ETH_P_8021Q`).
const TAG_TYPE: u16 = 0x8100;

/// Twice the bytes of a time stamp and `struct tpacket_auxdata`, with their headers.
const CONTROL_LEN: usize = 128;

/// Buffer length for [`WireEnd::receive`]: the longest frame of any interface and all additions (64
/// KiB of an MTU or of a burst, and its headers).
pub const WIRE_FRAME_LEN_MAX: usize = 66 << 10;

/// A raw socket that captures the frames leaving an interface, and sends frames into it.
#[derive(Debug)]
pub struct WireEnd(OwnedFd);

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Range in the buffer of [`WireEnd::receive`].
    pub bytes: Range<usize>,
    /// Time at which the kernel received it, since the Unix epoch; `None` if the kernel gave no
    /// time.
    pub at: Option<Duration>,
}

impl Arrived {
    /// Returns the time since the kernel received the frame.
    #[must_use]
    #[allow(
        clippy::disallowed_methods,
        reason = "the kernel stamps frames by this clock; users of an age bound it"
    )]
    pub fn age(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        match (now, self.at) {
            (Ok(now), Some(at)) => now.saturating_sub(at),
            _ => Duration::ZERO,
        }
    }
}

#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

impl WireEnd {
    /// Captures all frames that leave the interface with number `interface`. The kernel keeps up to
    /// `buffer_len` bytes of unread frames, and as many of frames to send.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW` and `CAP_NET_ADMIN`, `ENODEV` if there is no such interface.
    pub fn open(interface: u32, buffer_len: usize) -> io::Result<WireEnd> {
        let socket = packet_socket()?;
        let fd = socket.as_fd();
        let buffer_len = c_int::try_from(buffer_len).unwrap_or(c_int::MAX / 2);
        for (level, name, value) in [
            (libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1),
            (libc::SOL_PACKET, libc::PACKET_AUXDATA, 1),
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, buffer_len),
            (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, buffer_len),
        ] {
            set(fd, level, name, value)?;
        }
        // Excludes frames that are sent into the interface here.
        ignore_outgoing(fd)?;
        bind_packet(fd, interface, ETHERTYPE_ALL)?;
        Ok(WireEnd(socket))
    }

    /// Receives the next frame into `buf` of [`WIRE_FRAME_LEN_MAX`] bytes, or returns `None` if there
    /// is none.
    ///
    /// # Errors
    /// `EINVAL` for a frame that the kernel cannot describe (a burst in a tunnel) or that is longer
    /// than `buf`; that frame is lost. `ENETDOWN` if the interface was removed.
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<Option<Arrived>> {
        let mut control = Control([0; CONTROL_LEN]);
        let mut pieces = [io::IoSliceMut::new(&mut buf[TAG_LEN..])];
        // SAFETY: a C structure of numbers and pointers, for all of which zero is valid.
        let mut message: msghdr = unsafe { mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr().cast();
        message.msg_iovlen = pieces.len();
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = CONTROL_LEN;
        // SAFETY: `message` points at `control` and `pieces`, live locals, with their lengths; an
        // `IoSliceMut` has the layout of an `iovec`.
        let returned =
            unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let len = match checked_len(returned) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        };
        let is_complete = message.msg_flags & libc::MSG_TRUNC == 0;
        if !is_complete || len < OFFLOAD_LEN + ADDRESSES_LEN {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (tag, at) = parse_control(&message);
        let mut bytes = TAG_LEN..TAG_LEN + len;
        if let Some(tag) = tag {
            insert(buf, tag);
            bytes.start = 0;
        }
        Ok(Some(Arrived { bytes, at }))
    }

    /// Sends a frame received by another end.
    ///
    /// # Errors
    /// `ENOBUFS` and `EAGAIN` if the interface's queue is full, `EMSGSIZE` if its MTU is shorter,
    /// `ENETDOWN` or `ENXIO` if it was removed.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: `frame` is live with the length given; the kernel copies it.
        let returned = unsafe {
            libc::send(
                self.0.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
            )
        };
        checked_len(returned).map(drop)
    }

    /// Returns the frames since the last call that found the kernel's buffer full.
    #[must_use]
    pub fn drops(&self) -> u32 {
        packet_drops(self.as_fd()).unwrap_or(0)
    }
}

impl AsFd for WireEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the destination and source addresses of a frame of [`WireEnd::receive`].
#[must_use]
pub fn wire_addresses(frame: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    let (to, rest) = frame.get(OFFLOAD_LEN..)?.split_first_chunk()?;
    Some((*to, *rest.first_chunk()?))
}

/// Returns a frame of [`WireEnd::receive`] without the kernel's header.
#[must_use]
pub fn wire_frame(frame: &[u8]) -> &[u8] {
    frame.get(OFFLOAD_LEN..).unwrap_or(&[])
}

#[allow(clippy::cast_possible_truncation, reason = "3")]
const ETHERTYPE_ALL: u16 = libc::ETH_P_ALL as u16;

/// Moves the bytes before the tag's place to the beginning of `buf`, and writes the tag.
fn insert(buf: &mut [u8], tag: [u8; TAG_LEN]) {
    const FRONT_LEN: usize = OFFLOAD_LEN + ADDRESSES_LEN;
    buf.copy_within(TAG_LEN..TAG_LEN + FRONT_LEN, 0);
    buf[FRONT_LEN..FRONT_LEN + TAG_LEN].copy_from_slice(&tag);
    // `hdr_len` and `csum_start` count from the frame's beginning, in host byte order; zero if
    // unused.
    for at in [2, 6] {
        let value = u16::from_ne_bytes([buf[at], buf[at + 1]]);
        if value > 0 {
            let moved = value.saturating_add(4);
            buf[at..at + 2].copy_from_slice(&moved.to_ne_bytes());
        }
    }
}

/// Returns the VLAN tag in wire format, and the time of the frame.
fn parse_control(message: &msghdr) -> (Option<[u8; TAG_LEN]>, Option<Duration>) {
    let (mut tag, mut at) = (None, None);
    // SAFETY: `message` was filled by a successful `recvmsg` of our caller.
    let mut header: *const cmsghdr = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the CMSG macros return only headers that lie within the control buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the kernel puts a `timespec` behind a header of this kind; the read does
                // not rely on its alignment.
                let stamp = unsafe {
                    ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::timespec>())
                };
                at = time_of(stamp);
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: as above, with a `tpacket_auxdata`.
                let auxiliary = unsafe {
                    ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>())
                };
                tag = tag_of(&auxiliary);
            }
            _ => {}
        }
        // SAFETY: as above; `header` belongs to `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    (tag, at)
}

fn tag_of(auxiliary: &libc::tpacket_auxdata) -> Option<[u8; TAG_LEN]> {
    if auxiliary.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let kind = match auxiliary.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
        0 => TAG_TYPE,
        _ => auxiliary.tp_vlan_tpid,
    };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), auxiliary.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

fn time_of(stamp: libc::timespec) -> Option<Duration> {
    let sec = u64::try_from(stamp.tv_sec).ok()?;
    let nsec = u32::try_from(stamp.tv_nsec).ok()?;
    Some(Duration::new(sec, nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_inserted_after_the_addresses_and_offsets_are_adjusted() {
        let mut buf = [0xa5; 4 + 10 + 12 + 3];
        let offload = [
            1u16.to_ne_bytes(),
            54u16.to_ne_bytes(),
            [0; 2],
            34u16.to_ne_bytes(),
            [7, 0],
        ];
        buf[4..14].copy_from_slice(&offload.concat());
        buf[14..26].copy_from_slice(b"tototofromme");
        buf[26..].copy_from_slice(b"etc");
        insert(&mut buf, [0x81, 0, 0, 42]);
        let moved = [
            1u16.to_ne_bytes(),
            58u16.to_ne_bytes(),
            [0; 2],
            38u16.to_ne_bytes(),
            [7, 0],
        ];
        assert_eq!(buf[..10], moved.concat());
        assert_eq!(buf[10..22], *b"tototofromme");
        assert_eq!(buf[22..26], [0x81, 0, 0, 42]);
        assert_eq!(buf[26..], *b"etc");
        let addresses = wire_addresses(&buf).unwrap();
        assert_eq!(addresses, (*b"tototo", *b"fromme"));
        assert_eq!(wire_addresses(&buf[..21]), None);
        assert_eq!(wire_frame(&buf)[..12], *b"tototofromme");
    }

    #[test]
    fn tag_is_read_from_auxiliary_data() {
        // SAFETY: a C structure of numbers.
        let mut auxiliary: libc::tpacket_auxdata = unsafe { mem::zeroed() };
        auxiliary.tp_vlan_tci = 0x6007;
        auxiliary.tp_vlan_tpid = 0x88a8;
        assert_eq!(tag_of(&auxiliary), None);
        auxiliary.tp_status = libc::TP_STATUS_VLAN_VALID;
        assert_eq!(tag_of(&auxiliary), Some([0x81, 0, 0x60, 7]));
        auxiliary.tp_status |= libc::TP_STATUS_VLAN_TPID_VALID;
        assert_eq!(tag_of(&auxiliary), Some([0x88, 0xa8, 0x60, 7]));
    }
}
