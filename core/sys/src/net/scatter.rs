// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving a run of datagrams into many pieces of memory with one call.
#![allow(unsafe_code, reason = "the kernel takes the pieces as pointers")]

use super::Received;
use super::datagram::recv_into;
use libc::iovec;
use std::io;
use std::os::fd::BorrowedFd;

/// Receives into scattered pieces, with storage reused between calls.
pub struct Scatter {
    iov: Vec<iovec>,
}

// SAFETY: the vector is scratch: it is cleared at the start of every call, so that no pointer in it
// is ever used after the call that stored it.
unsafe impl Send for Scatter {}

impl Scatter {
    /// Maximum number of pieces of one call (`UIO_MAXIOV` of include/uapi/linux/uio.h).
    pub const PIECES_MAX: usize = 1024;

    /// Allocates memory for calls of `pieces_max` pieces; longer ones allocate.
    #[must_use]
    pub fn new(pieces_max: usize) -> Self {
        Scatter {
            iov: Vec::with_capacity(pieces_max),
        }
    }

    /// Receives one datagram, or a run merged by the kernel, into consecutive `pieces`. Returns
    /// `None` if nothing is waiting. Only the returned length defines which bytes were written:
    /// headers and ends of datagrams need not coincide with pieces.
    ///
    /// # Errors
    /// As for [`super::recv_segments`]; `EMSGSIZE` for more than [`Scatter::PIECES_MAX`] pieces.
    pub fn receive<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        pieces: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<Option<Received>> {
        self.iov.clear();
        self.iov.extend(pieces.map(|piece| iovec {
            iov_base: piece.as_mut_ptr().cast(),
            iov_len: piece.len(),
        }));
        // SAFETY: every entry describes a piece that was borrowed exclusively for 'a, which
        // outlives this call, and the pieces are distinct because their borrows are.
        unsafe { recv_into(fd, &mut self.iov) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{SockAddr, send_to};
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn pieces_are_filled_in_their_order() {
        let rx = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tx = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = SockAddr::from(rx.local_addr().unwrap());
        let mut scatter = Scatter::new(3);
        let (mut a, mut b, mut c) = ([0xa5; 3], [0xa5; 4], [0xa5; 100]);
        let mut receive = |a: &mut [u8], b: &mut [u8], c: &mut [u8]| {
            let pieces = [a, b, c].into_iter();
            scatter.receive(rx.as_fd(), pieces).unwrap()
        };
        assert_eq!(receive(&mut a, &mut b, &mut c), None);
        for len in [2, 5, 12] {
            let sent: Vec<u8> = (0..len).collect();
            send_to(tx.as_fd(), &to, &sent).unwrap();
            let got = receive(&mut a, &mut b, &mut c).unwrap();
            assert_eq!((got.len, got.truncated), (sent.len(), false));
            let all = [&a[..], &b[..], &c[..]].concat();
            assert_eq!(all[..sent.len()], sent);
            assert!(all[sent.len()..].iter().all(|&byte| byte == 0xa5));
        }
        send_to(tx.as_fd(), &to, &[0; 200]).unwrap();
        assert!(receive(&mut a, &mut b, &mut c).unwrap().truncated);
    }
}
