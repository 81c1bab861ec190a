// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of io_uring, by which a program reads, writes and changes epoll sets without the C
//! library. The connections of such a process stay on the kernel.
#![allow(unsafe_code)]

use crate::stats::Why;
use crate::{conn, give_back, real, table};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FOUND: AtomicBool = AtomicBool::new(false);

/// Number of calls of [`is_used`].
static SEARCHES: AtomicU32 = AtomicU32::new(0);

/// Returns true if the process has an io_uring. A library may make the system call itself, so
/// the descriptors are searched at the 1st, 2nd, 4th, 8th ... call.
pub(crate) fn is_used() -> bool {
    let searches = SEARCHES.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if !FOUND.load(Ordering::Relaxed) && searches.is_power_of_two() && has_ring() {
        found();
    }
    FOUND.load(Ordering::Relaxed)
}

/// Returns all connections to the kernel, because the process has an io_uring.
pub(crate) fn found() {
    if FOUND.swap(true, Ordering::Relaxed) {
        return;
    }
    for fd in table::known() {
        if let Some(conn) = conn::of(fd) {
            give_back::hand_over(&conn, fd, Why::Bypass);
        }
    }
}

/// Searches the descriptors of this process, without memory of the program's heap.
fn has_ring() -> bool {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero byte.
    let dir = unsafe { libc::open(c"/proc/self/fd".as_ptr(), flags) };
    if dir < 0 {
        return false;
    }
    let mut entries = [0_u64; 256];
    let mut found = false;
    while !found {
        let len = size_of_val(&entries);
        // SAFETY: the buffer has this length.
        let got = unsafe { libc::syscall(libc::SYS_getdents64, dir, entries.as_mut_ptr(), len) };
        let Some(got) = usize::try_from(got).ok().filter(|got| *got > 0) else {
            break;
        };
        // SAFETY: the kernel wrote `got` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), got) };
        found = names(bytes).any(is_ring);
    }
    real::close(dir);
    found
}

/// Returns the names of directory entries, of the kernel's `struct linux_dirent64`.
fn names(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const LEN_AT: usize = 16;
    const NAME_AT: usize = 19;
    std::iter::from_fn(move || {
        let len = u16::from_ne_bytes([*bytes.get(LEN_AT)?, *bytes.get(LEN_AT + 1)?]);
        let entry = bytes.get(..usize::from(len))?;
        bytes = bytes.get(usize::from(len)..)?;
        entry.get(NAME_AT..)?.split(|byte| *byte == 0).next()
    })
}

fn is_ring(name: &[u8]) -> bool {
    let mut path = [0_u8; 64];
    let mut rest = &mut path[..63];
    if rest.write_all(b"/proc/self/fd/").is_err() || rest.write_all(name).is_err() {
        return false;
    }
    let mut target = [0_u8; 64];
    // SAFETY: the path ends with a zero byte, and the target has this length.
    let len = unsafe { libc::readlink(path.as_ptr().cast(), target.as_mut_ptr().cast(), 64) };
    usize::try_from(len).is_ok_and(|len| target.starts_with(b"anon_inode:[io_uring]") && len == 21)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_is_found_among_many_descriptors() {
        let open: Vec<_> = (0..300)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        assert!(!has_ring());
        let mut parameters = [0_u32; 30];
        // SAFETY: the parameters have the kernel's size of 120 bytes.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
        if ring < 0 {
            println!("SKIPPED: the kernel has no io_uring for this process");
            return;
        }
        assert!(has_ring());
        real::close(i32::try_from(ring).unwrap());
        drop(open);
    }
}
