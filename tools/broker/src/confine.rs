// SPDX-License-Identifier: MIT OR Apache-2.0
//! Giving privileges up: what is needed to prepare, then what is needed to serve.

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

/// For namespaces and macvlans.
const PREPARING: [Capability; 3] = [CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW];

/// For sockets, and to remove the macvlans at the end. Threads that have them are in namespaces that
/// have nothing but a macvlan, and there is no way out of those without `setns`.
const SERVING: [Capability; 2] = [CAP_NET_ADMIN, CAP_NET_RAW];

/// Becomes `user`, and keeps what preparing takes. To be called before there are threads.
pub(crate) fn become_user(user: Account) -> io::Result<()> {
    caps::clear(None, CapSet::Bounding).map_err(failed)?;
    prctl::set_keepcaps(true)?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    keep(&PREPARING)
}

/// The calling thread keeps what serving takes.
pub(crate) fn keep_serving() -> io::Result<()> {
    keep(&SERVING)
}

/// The calling thread keeps nothing.
pub(crate) fn keep_nothing() -> io::Result<()> {
    keep(&[])
}

fn keep(kept: &[Capability]) -> io::Result<()> {
    let kept: CapsHashSet = kept.iter().copied().collect();
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)
}

fn failed(error: caps::errors::CapsError) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

/// System calls that serving takes, whatever their arguments: a call that is none of these fails with
/// EPERM. None opens a file, starts a program, changes a namespace or touches another process.
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
    // What the C library makes of `fstat`.
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
    // The listening socket's name, at the end; in a directory of this user's own.
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Those that aarch64 does not have.
#[cfg(target_arch = "x86_64")]
const CALLS_HERE: &[i64] = &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
const CALLS_HERE: &[i64] = &[];

/// Allows all threads of this process from here on only what serving takes.
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
    // The argument numbered `index` must be `value`, as far as `bits` go.
    let only = |index, bits: i32, value: i32| {
        let compared = SeccompCmpOp::MaskedEq(bits.unsigned_abs().into());
        let value = value.unsigned_abs().into();
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, compared, value)?;
        Ok::<_, BackendError>(vec![SeccompRule::new(vec![condition])?])
    };
    rules.insert(libc::SYS_socket, only(0, i32::MAX, libc::AF_PACKET)?);
    // Memory that can be run is refused.
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
