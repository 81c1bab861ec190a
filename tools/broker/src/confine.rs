// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reduction of privileges: first to those needed for preparation, then to those needed for
//! serving.

use crate::config::Account;
use caps::Capability::{self, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN};
use caps::{CapSet, CapsHashSet};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io;

/// Capabilities for creating namespaces and macvlans.
const PREPARING: [Capability; 3] = [CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW];

/// Capabilities for opening sockets, and for removing the macvlans at the end. Threads with them
/// run in namespaces that contain only a macvlan. The system call filter excludes `setns`, so they
/// cannot leave.
const SERVING: [Capability; 2] = [CAP_NET_ADMIN, CAP_NET_RAW];

/// Switches to `user` and retains the capabilities for preparation. It must be called before other
/// threads exist.
pub(crate) fn become_user(user: Account) -> io::Result<()> {
    caps::clear(None, CapSet::Bounding).map_err(failed)?;
    prctl::set_keepcaps(true)?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    restrict_to(&PREPARING)
}

/// Reduces the calling thread's capabilities to those for serving.
pub(crate) fn keep_serving_capabilities() -> io::Result<()> {
    restrict_to(&SERVING)
}

/// Drops all capabilities of the calling thread.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    restrict_to(&[])
}

fn restrict_to(kept: &[Capability]) -> io::Result<()> {
    let kept: CapsHashSet = kept.iter().copied().collect();
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)
}

fn failed(error: caps::errors::CapsError) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

/// System calls that serving needs, with any arguments. All other calls fail with EPERM. None of
/// them opens a file, starts a program, changes a namespace or affects another process.
const CALLS: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // The C library implements `fstat` with it.
    libc::SYS_newfstatat,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    // Removes the path of the listening socket at the end, in a directory that this user owns.
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// System calls that do not exist on aarch64.
#[cfg(target_arch = "x86_64")]
const CALLS_HERE: &[i64] = &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
const CALLS_HERE: &[i64] = &[];

/// Restricts all threads of this process to the system calls that serving needs.
pub(crate) fn filter_calls() -> io::Result<()> {
    let wrong = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let program = program().map_err(|error| wrong(&error))?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| wrong(&error))
}

fn program() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for &call in CALLS.iter().chain(CALLS_HERE) {
        rules.insert(call, Vec::new());
    }
    // Argument `index` must be equal to `value` in the bits of `bits`.
    let only = |index, bits: i32, value: i32| {
        let compared = SeccompCmpOp::MaskedEq(bits.unsigned_abs().into());
        let value = value.unsigned_abs().into();
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, compared, value)?;
        Ok::<_, BackendError>(vec![SeccompRule::new(vec![condition])?])
    };
    rules.insert(libc::SYS_socket, only(0, i32::MAX, libc::AF_PACKET)?);
    // Executable memory is refused.
    rules.insert(libc::SYS_mmap, only(2, libc::PROT_EXEC, 0)?);
    rules.insert(libc::SYS_mprotect, only(2, libc::PROT_EXEC, 0)?);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    filter.try_into()
}
