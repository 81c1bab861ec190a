// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random system calls on one descriptor.
#![allow(unsafe_code)]

use super::plan::Random;
use libc::{c_int, c_void, iovec, msghdr};
use std::io::{Error, Result};

fn result(value: isize) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::last_os_error())
}

/// Cuts a buffer into up to three vectors.
fn vectors(start: *mut u8, len: usize, random: &mut Random) -> [iovec; 3] {
    let first = random.len_below(len + 1);
    let second = random.len_below(len - first + 1);
    let piece = |from: usize, len: usize| iovec {
        // SAFETY: the piece is inside the buffer.
        iov_base: unsafe { start.add(from) }.cast(),
        iov_len: len,
    };
    [
        piece(0, first),
        piece(first, second),
        piece(first + second, len - first - second),
    ]
}

fn message(vectors: &mut [iovec; 3]) -> msghdr {
    // SAFETY: zero is valid for all fields.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = 3;
    message
}

/// Sends a part of `bytes` by a random call.
pub(crate) fn send(fd: c_int, bytes: &[u8], random: &mut Random) -> Result<usize> {
    let start = bytes.as_ptr().cast_mut();
    let (buf, len) = (start.cast::<c_void>(), bytes.len());
    let mut vectors = vectors(start, len, random);
    let message = message(&mut vectors);
    // SAFETY: all calls read inside `bytes`.
    let sent = unsafe {
        match random.below(6) {
            0 => libc::write(fd, buf, len),
            1 => libc::send(fd, buf, len, libc::MSG_NOSIGNAL),
            2 => libc::writev(fd, vectors.as_ptr(), 3),
            3 => libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL),
            4 => libc::sendto(fd, buf, len, libc::MSG_MORE, std::ptr::null(), 0),
            _ => return send_file(fd, bytes),
        }
    };
    result(sent)
}

/// Sends from a file; at most 64 KiB.
fn send_file(fd: c_int, bytes: &[u8]) -> Result<usize> {
    let bytes = &bytes[..bytes.len().min(65_536)];
    // SAFETY: all calls have valid arguments, and the file is closed once.
    unsafe {
        let file = libc::memfd_create(c"test".as_ptr(), 0);
        assert!(file >= 0);
        let put = libc::pwrite(file, bytes.as_ptr().cast(), bytes.len(), 0);
        assert_eq!(result(put).unwrap(), bytes.len());
        let mut at = 0;
        let sent = result(libc::sendfile(fd, file, &raw mut at, bytes.len()));
        libc::close(file);
        sent
    }
}

/// Receives into `bytes` by a random call.
pub(crate) fn receive(fd: c_int, bytes: &mut [u8], random: &mut Random) -> Result<usize> {
    let start = bytes.as_mut_ptr();
    let (buf, len) = (start.cast::<c_void>(), bytes.len());
    let mut vectors = vectors(start, len, random);
    let mut message = message(&mut vectors);
    // SAFETY: all calls write inside `bytes`.
    let got = unsafe {
        match random.below(8) {
            0 | 1 => libc::read(fd, buf, len),
            2 | 3 => libc::recv(fd, buf, len, 0),
            4 => libc::readv(fd, vectors.as_ptr(), 3),
            5 => libc::recvmsg(fd, &raw mut message, 0),
            6 => {
                let peeked = libc::recv(fd, buf, len, libc::MSG_PEEK);
                let Ok(peeked) = result(peeked) else {
                    return result(-1);
                };
                let before = bytes[..peeked].to_vec();
                let got = result(libc::recv(fd, buf, peeked.max(1), 0))?;
                assert_eq!(
                    before[..got.min(peeked)],
                    bytes[..got.min(peeked)],
                    "peeked"
                );
                return Ok(got);
            }
            _ => return splice(fd, bytes),
        }
    };
    result(got)
}

/// Receives through a pipe.
fn splice(fd: c_int, bytes: &mut [u8]) -> Result<usize> {
    let mut ends = [0; 2];
    // SAFETY: all calls have valid arguments, and both ends are closed once.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let none = std::ptr::null_mut();
        let len = bytes.len().min(60_000);
        let moved = result(libc::splice(fd, none, ends[1], none, len, 0));
        if let Ok(moved) = moved {
            let mut got = 0;
            while got < moved {
                got += result(libc::read(
                    ends[0],
                    bytes[got..].as_mut_ptr().cast(),
                    moved - got,
                ))
                .unwrap();
            }
        }
        let error = Error::last_os_error();
        libc::close(ends[0]);
        libc::close(ends[1]);
        moved.map_err(|_| error)
    }
}
