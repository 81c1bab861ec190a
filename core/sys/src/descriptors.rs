// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit of descriptors, and threads with a descriptor table of their own.
#![allow(
    unsafe_code,
    reason = "unshare and close_range are not in the standard library"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Returns the maximum number of descriptors of this process.
#[must_use]
pub fn limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Gives the calling thread a descriptor table of its own that contains only `retained`.
///
/// While threads share a table, the kernel takes a reference to the file in each system call of
/// each of them (`fdget` in `fs/file.c`). That costs about 50 ns per call on a socket, so a thread
/// that needs one descriptor should not impose it on all others.
///
/// From now on, descriptors that other threads open do not exist in this thread, and closing one
/// there does not close it here. This call therefore closes all descriptors except `retained`;
/// otherwise the other end of a pipe would wait for this thread.
///
/// # Errors
/// `ENOMEM`, or `ENOSYS` before Linux 5.9; the thread then keeps its table.
pub fn unshare_except(retained: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers; only the calling thread's table is copied.
    if unsafe { libc::unshare(libc::CLONE_FILES) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let retained = retained.as_raw_fd();
    if retained > 0 {
        close_range(0, retained - 1)?;
    }
    close_range(retained + 1, RawFd::MAX)
}

fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    // SAFETY: no pointers. The descriptors are closed in this thread's own table, where nothing
    // owns them.
    let returned = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn closing_in_this_thread_is_independent_of_other_threads() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (retained_reader, mut retained_writer) = io::pipe().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            unshare_except(retained_reader.as_fd()).unwrap();
            sender.send(()).unwrap();
            let mut byte = [0];
            (&retained_reader).read_exact(&mut byte).unwrap();
            // By now its number may be another thread's descriptor.
            (byte[0], retained_reader)
        });
        receiver.recv().unwrap();
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        retained_writer.write_all(b"x").unwrap();
        assert_eq!(thread.join().unwrap().0, b'x');
    }
}
