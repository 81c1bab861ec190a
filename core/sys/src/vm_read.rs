// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing another process's memory without its help, if the kernel allows it.
#![allow(unsafe_code, reason = "process_vm_readv and process_vm_writev")]

use crate::usage::{self, Call};
use std::io;

/// Copies `dst.len()` bytes from address `remote_addr` of process `pid`.
///
/// # Errors
/// EPERM if the kernel forbids it, ENOSYS if it does not support it, ESRCH if the process has
/// exited, EFAULT if its memory is not readable at that address. After any of them, part of `dst`
/// may be written.
pub fn read_process(pid: u32, remote_addr: u64, dst: &mut [u8]) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut done = 0;
    while done < dst.len() {
        // One call copies at most 2 GB. A copy may also stop early at an unmapped page, which the
        // next call then reports.
        let count = read_some(pid, remote_addr.wrapping_add(done as u64), &mut dst[done..])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done += count;
    }
    Ok(())
}

/// Copies `src` to address `remote_addr` of process `pid`, which has requested it.
///
/// # Errors
/// As [`read_process`]; part of `src` may be written.
pub fn write_process(pid: u32, remote_addr: u64, src: &[u8]) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut done = 0;
    while done < src.len() {
        let count = write_some(pid, remote_addr.wrapping_add(done as u64), &src[done..])?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        done += count;
    }
    Ok(())
}

fn write_some(pid: libc::pid_t, remote_addr: u64, src: &[u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: src.as_ptr().cast_mut().cast(),
        iov_len: src.len(),
    };
    let remote_base = usize::try_from(remote_addr).map_err(|_| io::ErrorKind::InvalidInput)?;
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(remote_base),
        iov_len: src.len(),
    };
    usage::count_call(Call::ProcessVmWritev);
    // SAFETY: `local` describes `src`, borrowed for the call, which only reads it. `remote` is an
    // address of another process, which offered that memory for writing (`RingReceiver::offer`) and
    // waits until the write has ended. The kernel checks that it is mapped there.
    let count =
        unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn read_some(pid: libc::pid_t, remote_addr: u64, dst: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: dst.as_mut_ptr().cast(),
        iov_len: dst.len(),
    };
    let remote_base = usize::try_from(remote_addr).map_err(|_| io::ErrorKind::InvalidInput)?;
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(remote_base),
        iov_len: dst.len(),
    };
    usage::count_call(Call::ProcessVmReadv);
    // SAFETY: `local` describes `dst`, borrowed mutably for the call; `remote` is an address of
    // another process, which the kernel checks there. If `pid` is this process, the caller named
    // its own memory by number and gets a copy as from any other process.
    let count =
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Lets other processes of this user read this one's memory, if Yama's `ptrace_scope` is 1 (which
/// permits only ancestors by default; see `Documentation/admin-guide/LSM/Yama.rst`).
///
/// The declaration covers any process of the user, because the peers' pids are not known yet.
/// Without Yama, or with scope 0, they have this right anyway. With scopes 2 and 3 no declaration
/// helps.
pub fn permit_readers() {
    use rustix::process::{PTracer, set_ptracer};
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    if scope.is_ok_and(|scope| scope.trim() == "1") {
        // If this fails, a reader gets EPERM and requests frames instead.
        let _ = set_ptracer(PTracer::Any);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bytes_by_address() {
        let source: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let mut copy = vec![0xa5; source.len()];
        read_process(std::process::id(), source.as_ptr() as u64, &mut copy).unwrap();
        assert!(copy == source);
    }

    #[test]
    fn unmapped_address_is_an_error() {
        let err = read_process(std::process::id(), 8, &mut [0; 16]).unwrap_err();
        assert_eq!(err.raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn writes_bytes_by_address() {
        let source: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let mut copy = vec![0xa5; source.len()];
        let target = copy.as_mut_ptr().expose_provenance() as u64;
        write_process(std::process::id(), target, &source).unwrap();
        assert!(copy == source);
        let err = write_process(std::process::id(), 8, &source).unwrap_err();
        assert_eq!(err.raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn exited_process_is_an_error() {
        // Above the kernel's largest pid (2^22).
        let err = read_process(1 << 30, 8, &mut [0; 16]).unwrap_err();
        assert_eq!(err.raw_os_error(), Some(libc::ESRCH));
    }
}
