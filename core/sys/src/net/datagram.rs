// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending and receiving datagrams, one by one or in runs of equal segments.
//!
//! Uses `syscall(2)` instead of libc's functions of the same names. Those are cancellation points,
//! for which a multithreaded process pays two atomic operations per call.
#![allow(unsafe_code, reason = "message headers are structures of pointers")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "syscall(2) returns a long, which is as wide as isize on Linux"
)]

use super::options::{ECN_BITS, ECN_CE};
use super::{SockAddr, checked_len, socklen_of};
use crate::usage::{self, Call};
use libc::{c_int, iovec, mmsghdr, msghdr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Sends `bytes` as one datagram to `to`.
///
/// # Errors
/// The errno of `sendto`. A pending error of the socket is also reported here; the datagram was
/// then not sent.
#[inline]
pub fn send_to(fd: BorrowedFd<'_>, to: &SockAddr, bytes: &[u8]) -> io::Result<usize> {
    usage::count_call(Call::Sendto);
    // SAFETY: `bytes` and `to` are live with the lengths given; the kernel copies both.
    checked_len(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            to.as_ptr(),
            to.len(),
        )
    } as isize)
}

/// Sends `bytes` on a bound or connected socket.
///
/// # Errors
/// The errno of `send`.
#[inline]
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    usage::count_call(Call::Sendto);
    // SAFETY: `bytes` is live with the length given; the kernel copies it.
    checked_len(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            ptr::null::<libc::sockaddr>(),
            0,
        )
    } as isize)
}

/// Receives one datagram into `buf`, or returns `None` if none is waiting. Returns the datagram's
/// full length; the part beyond `buf.len()` is lost.
///
/// # Errors
/// The errno of `recv`.
#[inline]
pub fn recv(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<usize>> {
    usage::count_call(Call::Recvfrom);
    // SAFETY: `buf` is live and exclusively borrowed, with the length given.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd.as_raw_fd(),
            buf.as_mut_ptr(),
            buf.len(),
            libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            ptr::null_mut::<libc::sockaddr>(),
            ptr::null_mut::<libc::socklen_t>(),
        )
    };
    none_if_empty(returned as isize)
}

/// Result of one [`recv_segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes received in all datagrams together.
    pub len: usize,
    /// Bytes of each datagram except the last, which may be shorter.
    pub segment_len: usize,
    /// Set if the last datagram did not fit and was truncated.
    pub truncated: bool,
    /// Set if the network marked every datagram for congestion (RFC 3168). The kernel only merges
    /// datagrams with equal marks. Reported only after [`super::report_marks`].
    pub marked: bool,
}

/// Receives one datagram, or a run merged by the kernel, into `buf`. Returns `None` if nothing is
/// waiting.
///
/// # Errors
/// The errno of `recvmsg`. A pending error of the socket is also reported here.
#[inline]
pub fn recv_segments(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<Received>> {
    let mut iov = [iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    }];
    // SAFETY: the entry describes `buf`, live and exclusively ours.
    unsafe { recv_into(fd, &mut iov) }
}

/// Receives one datagram or a run into the pieces that `iov` describes, in order.
///
/// # Safety
/// Every entry must describe memory that may be written during the call and has no other reference
/// meanwhile.
#[inline]
pub(super) unsafe fn recv_into(
    fd: BorrowedFd<'_>,
    iov: &mut [iovec],
) -> io::Result<Option<Received>> {
    let mut control = [Control::EMPTY; 2];
    let mut message = message_header(None, iov.as_mut_ptr(), iov.len());
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of_val(&control);
    usage::count_call(Call::Recvmsg);
    // SAFETY: `message` points at `iov` and `control`, live and exclusively ours, with their
    // lengths; the caller guarantees the memory that the entries describe.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            fd.as_raw_fd(),
            &raw mut message,
            libc::MSG_DONTWAIT,
        )
    };
    let Some(len) = none_if_empty(returned as isize)? else {
        return Ok(None);
    };
    let (segment_len, marked) = match message.msg_controllen {
        0 => (len, false),
        written => parse_control(&control[..written / size_of::<Control>()], len),
    };
    Ok(Some(Received {
        len,
        segment_len,
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        marked,
    }))
}

/// Returns the length of each datagram and the congestion mark, from the control messages of `len`
/// received bytes. Not inlined, because a single datagram has no control message.
#[inline(never)]
fn parse_control(control: &[Control], len: usize) -> (usize, bool) {
    let (mut segment_len, mut marked) = (len, false);
    for control in control {
        match (control.header.cmsg_level, control.header.cmsg_type) {
            // Length of a run's datagrams, an int.
            (libc::SOL_UDP, libc::UDP_GRO) => {
                segment_len = usize::try_from(control.value).unwrap_or(len);
            }
            // The byte of the IP header with the mark in its last two bits. It is a byte in IPv4
            // and an int in IPv6 (`ip_cmsg_recv_tos` of net/ipv4/ip_sockglue.c,
            // `ip6_datagram_recv_specific_ctl`).
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                marked = control.value.to_ne_bytes()[0] & ECN_BITS == ECN_CE;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                marked = control.value & c_int::from(ECN_BITS) == c_int::from(ECN_CE);
            }
            _ => {}
        }
    }
    (segment_len, marked)
}

/// One control message with one number, laid out as `cmsg(3)` prescribes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control {
    header: libc::cmsghdr,
    value: c_int,
    padding: c_int,
}

impl Control {
    const EMPTY: Control = Control {
        header: libc::cmsghdr {
            cmsg_len: 0,
            cmsg_level: 0,
            cmsg_type: 0,
        },
        value: 0,
        padding: 0,
    };

    /// Requests that the kernel cut the datagram every `segment_len` bytes.
    fn segment(segment_len: u16) -> Control {
        let header = libc::cmsghdr {
            cmsg_len: size_of::<libc::cmsghdr>() + size_of::<u16>(),
            cmsg_level: libc::SOL_UDP,
            cmsg_type: libc::UDP_SEGMENT,
        };
        // The kernel reads a u16 at the value's first bytes, in host order.
        let [low, high] = segment_len.to_ne_bytes();
        Control {
            header,
            value: c_int::from_ne_bytes([low, high, 0, 0]),
            padding: 0,
        }
    }
}

// The header's length is a multiple of its alignment, so the value follows it directly, and the
// total matches CMSG_SPACE.
const _: () = assert!(size_of::<libc::cmsghdr>().is_multiple_of(align_of::<libc::cmsghdr>()));
const _: () = assert!(size_of::<Control>() == size_of::<libc::cmsghdr>() + 8);

/// Sends gathered datagrams and runs of segments, with storage reused between calls.
pub struct Sender {
    iov: Vec<iovec>,
    messages: Vec<mmsghdr>,
}

// SAFETY: the vectors are scratch: they are cleared at the start of every call, so that no pointer
// in them is ever used after the call that stored it.
unsafe impl Send for Sender {}

impl Sender {
    /// Maximum number of pieces that one call gathers (`UIO_MAXIOV` of include/uapi/linux/uio.h).
    pub const PIECES_MAX: usize = 1024;

    /// Allocates memory for the largest call.
    #[must_use]
    pub fn new() -> Self {
        Sender {
            iov: Vec::with_capacity(Self::PIECES_MAX),
            messages: Vec::with_capacity(Self::PIECES_MAX),
        }
    }

    /// Sends the gathered `pieces` to `to`, or without it to the peer of the connected `fd`. They
    /// leave as one datagram, or, with `segment_len`, are cut by the kernel into datagrams of that
    /// length.
    ///
    /// # Errors
    /// The errno of `sendmsg`: `EMSGSIZE` and `EINVAL` for a segment or a run that is too long,
    /// `EIO` if the route cannot segment.
    pub fn send_gathered<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<&SockAddr>,
        segment_len: Option<u16>,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<usize> {
        self.iov.clear();
        self.iov.extend(pieces.map(iovec_of));
        let mut message = message_header(to, self.iov.as_mut_ptr(), self.iov.len());
        let mut control = Control::segment(segment_len.unwrap_or(0));
        if segment_len.is_some() {
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = size_of::<Control>();
        }
        usage::count_call(Call::Sendmsg);
        // SAFETY: `message` points at `to`, at `control` and at our vector. The entries of the
        // vector point at pieces borrowed for 'a, which outlives this call; the kernel only reads
        // them.
        checked_len(unsafe {
            libc::syscall(
                libc::SYS_sendmsg,
                fd.as_raw_fd(),
                &raw const message,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        } as isize)
    }

    /// Sends the gathered `pieces` in one system call as datagrams of `segment_len` bytes, the last
    /// perhaps shorter, without the kernel's segmentation. `to` is as for
    /// [`Sender::send_gathered`]. No piece may extend past the end of a datagram. Returns how many
    /// datagrams were sent, at least one.
    ///
    /// # Errors
    /// The errno of `sendmmsg` for the first datagram.
    pub fn send_each<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<&SockAddr>,
        segment_len: usize,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<usize> {
        self.iov.clear();
        self.messages.clear();
        let (mut pieces_open, mut filled) = (0, 0);
        for piece in pieces {
            self.iov.push(iovec_of(piece));
            pieces_open += 1;
            filled += piece.len();
            assert!(
                filled <= segment_len,
                "a piece extends past the end of its datagram"
            );
            if filled == segment_len {
                self.push_message(to, pieces_open);
                (pieces_open, filled) = (0, 0);
            }
        }
        if pieces_open > 0 {
            self.push_message(to, pieces_open);
        }
        self.point_messages_at_pieces();
        let count = c_uint_of(self.messages.len());
        usage::count_call(Call::Sendmmsg);
        // SAFETY: the messages point at `to` and at our vector of pieces, which no longer grows;
        // the pieces are borrowed for 'a, which outlives this call; the kernel only reads.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                self.messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        checked_len(sent as isize)
    }

    fn push_message(&mut self, to: Option<&SockAddr>, piece_count: usize) {
        let msg_hdr = message_header(to, ptr::null_mut(), piece_count);
        self.messages.push(mmsghdr {
            msg_hdr,
            msg_len: 0,
        });
    }

    /// Sets the pointers. Called last, when the vector of pieces no longer moves.
    fn point_messages_at_pieces(&mut self) {
        let mut next = self.iov.as_mut_ptr();
        for message in &mut self.messages {
            message.msg_hdr.msg_iov = next;
            next = next.wrapping_add(message.msg_hdr.msg_iovlen);
        }
    }
}

impl Default for Sender {
    fn default() -> Self {
        Self::new()
    }
}

fn iovec_of(piece: &[u8]) -> iovec {
    // The kernel's structure has one pointer type for both directions; sending only reads.
    iovec {
        iov_base: piece.as_ptr().cast_mut().cast(),
        iov_len: piece.len(),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "at most PIECES_MAX")]
fn c_uint_of(count: usize) -> libc::c_uint {
    count as libc::c_uint
}

fn message_header(to: Option<&SockAddr>, iov: *mut iovec, iov_count: usize) -> msghdr {
    // SAFETY: a C structure of numbers and pointers, for all of which zero is valid. It has private
    // padding on some systems, hence no literal.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    if let Some(to) = to {
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
    }
    message.msg_iov = iov;
    message.msg_iovlen = iov_count;
    message
}

fn none_if_empty(returned: isize) -> io::Result<Option<usize>> {
    match checked_len(returned) {
        Ok(len) => Ok(Some(len)),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

const _: () = assert!(socklen_of::<libc::sockaddr_in6>() == 28);

#[cfg(test)]
mod tests;
