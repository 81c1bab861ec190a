// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors across `exec`: passing one to a child, and claiming one passed by a parent.
//!
//! This module does not decide which data they carry. Invariant: a descriptor passed to a child is
//! inheritable only in that child, never in the parent, so no other child inherits it by accident.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set after [`claim_inherited_socket`] has succeeded in this process.
static CLAIMED: AtomicBool = AtomicBool::new(false);

/// Cores that fit a set of the C library (`CPU_SETSIZE` of sched.h).
pub const CORES_MAX: usize = libc::CPU_SETSIZE as usize;

/// Lets the child that `command` starts inherit `fd`, under its number in this process.
///
/// The parent's copy stays open until `command` is dropped.
#[allow(
    unsafe_code,
    reason = "pre_exec is the only way to act between fork and exec"
)]
pub fn give_fd(command: &mut Command, fd: OwnedFd) {
    let inheritable = move || {
        // SAFETY: `fd` is open, the closure owns it; F_SETFD changes only the child's table.
        match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: the closure calls fcntl only, which is async-signal-safe, and allocates nothing.
    unsafe { command.pre_exec(inheritable) };
}

/// Lets the child that `command` starts inherit only its standard descriptors, whatever else this
/// process has open.
#[allow(
    unsafe_code,
    reason = "pre_exec is the only way to act between fork and exec"
)]
pub fn give_nothing(command: &mut Command) {
    let close = || {
        let (first, last) = (3, libc::c_uint::MAX);
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        // SAFETY: no pointer is passed, and nothing is closed before the exec. A direct system
        // call, because the C library may be older than the function.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                // Before Linux 5.11: inherited descriptors stay open.
                error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => {
                    Ok(())
                }
                error => Err(error),
            },
        }
    };
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(close) };
}

/// Makes the kernel send `signal` to the child that `command` starts when the calling thread ends.
///
/// The setting is tied to the thread, not the process: call it, and spawn, from a thread that lives
/// as long as the process. A program with file capabilities or set-user-id loses the setting at
/// `exec`.
#[allow(
    unsafe_code,
    reason = "pre_exec is the only way to act between fork and exec"
)]
pub fn die_with_parent(command: &mut Command, signal: i32) {
    let parent = std::process::id();
    let tie = move || {
        // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died between fork and prctl; the signal would then never be sent.
        //
        // SAFETY: getppid cannot fail and touches no memory.
        let now = unsafe { libc::getppid() };
        if u32::try_from(now) == Ok(parent) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: the closure calls prctl and getppid only, both async-signal-safe; no allocation.
    unsafe { command.pre_exec(tie) };
}

/// Starts the child of `command` with no signal blocked. By default std passes this thread's mask
/// on.
#[allow(
    unsafe_code,
    reason = "pre_exec is the only way to act between fork and exec"
)]
pub fn unblock_signals(command: &mut Command) {
    let unblock = || {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises its argument.
        unsafe { libc::sigemptyset(none.as_mut_ptr()) };
        // SAFETY: the set is initialised, and the null pointer requests no former mask.
        let changed =
            unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) };
        match changed {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure calls sigemptyset and sigprocmask only, both async-signal-safe.
    unsafe { command.pre_exec(unblock) };
}

/// Restricts the child that `command` starts, and its descendants, to `cores`.
///
/// Spawning fails with `EINVAL` if this process may use none of them.
#[allow(
    unsafe_code,
    reason = "pre_exec is the only way to act between fork and exec"
)]
pub fn run_on(command: &mut Command, cores: &[usize]) {
    // SAFETY: a `cpu_set_t` is an array of integers, for which zeros are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for core in cores.iter().filter(|core| **core < CORES_MAX) {
        // SAFETY: the number is below the bits of the set, as CPU_SET requires.
        unsafe { libc::CPU_SET(*core, &mut set) };
    }
    let bind = move || {
        // SAFETY: the set is the closure's own, and its size is given; 0 is the calling thread.
        match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(bind) };
}

/// Claims the Unix stream socket `number` that the parent left open for this process, and sets its
/// close-on-exec flag.
///
/// # Errors
/// `EBADF` if it is not open, `ENOTSOCK` or `EPROTOTYPE` if it is another kind of descriptor.
/// `EBUSY` if it is not inheritable (so no parent passed it) or if this process has already claimed
/// one.
#[allow(unsafe_code, reason = "ownership of a descriptor known by number")]
pub fn claim_inherited_socket(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD on any number is harmless; it returns -1 for a closed one.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags == -1 {
        return Err(io::Error::last_os_error());
    }
    let stream = socket_option(number, libc::SO_TYPE)? == libc::SOCK_STREAM;
    if !stream || socket_option(number, libc::SO_DOMAIN)? != libc::AF_UNIX {
        return Err(io::Error::from_raw_os_error(libc::EPROTOTYPE));
    }
    if flags & libc::FD_CLOEXEC != 0 || CLAIMED.swap(true, Ordering::SeqCst) {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: as above; the descriptor is open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and inheritable, so it is not one that this process opened
    // through std (those close on exec); the parent passed it to us, and CLAIMED admits one caller.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns `true` if `number` is a Unix stream socket that a parent left open for this process.
#[must_use]
pub fn is_inherited_socket(number: RawFd) -> bool {
    socket_option(number, libc::SO_TYPE).is_ok_and(|kind| kind == libc::SOCK_STREAM)
        && socket_option(number, libc::SO_DOMAIN).is_ok_and(|domain| domain == libc::AF_UNIX)
}

/// Returns an integer option of level SOL_SOCKET.
#[allow(unsafe_code, reason = "getsockopt on a descriptor known by number")]
fn socket_option(number: RawFd, option: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut len: libc::socklen_t = 4;
    // SAFETY: `value` and `len` are live locals, and `len` is the size of `value`.
    let result = unsafe {
        libc::getsockopt(
            number,
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast::<libc::c_void>(),
            &raw mut len,
        )
    };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::process::Stdio;

    #[test]
    fn given_descriptor_is_inherited_under_its_number() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let number = theirs.as_raw_fd();
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("echo here >&{number}"));
        give_fd(&mut command, theirs.into());
        assert!(command.status().unwrap().success());
        drop(command);
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!(text, "here\n");
    }

    #[test]
    fn child_with_give_nothing_inherits_only_standard_descriptors() {
        let open = |prepare: fn(&mut Command)| {
            let (_ours, theirs) = UnixStream::pair().unwrap();
            let number = theirs.as_raw_fd();
            let mut command = Command::new("bash");
            command.arg("-c").arg(format!("echo here >&{number}"));
            give_fd(&mut command, theirs.into());
            prepare(&mut command);
            command.stderr(Stdio::null()).status().unwrap().success()
        };
        assert!(open(|_| ()));
        assert!(!open(give_nothing));
    }

    #[test]
    fn other_children_do_not_inherit_it() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let number = theirs.as_raw_fd();
        let mut holder = Command::new("true");
        give_fd(&mut holder, theirs.into());
        assert!(holder.status().unwrap().success());
        let other = Command::new("bash")
            .arg("-c")
            .arg(format!("echo here >&{number}"))
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(!other.success());
    }

    #[test]
    fn other_descriptors_are_refused() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let refused = claim_inherited_socket(theirs.as_fd().as_raw_fd()).unwrap_err();
        assert_eq!(
            refused.raw_os_error(),
            Some(libc::EBUSY),
            "closes on exec, so not inherited"
        );
        ours.write_all(b"still open").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let refused = claim_inherited_socket(file.as_raw_fd()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOTSOCK));
        let refused = claim_inherited_socket(-1).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn child_runs_on_the_given_cores() {
        let mine = || std::fs::read_to_string("/proc/self/status").unwrap();
        let list = |status: &str| -> String {
            let line = status
                .lines()
                .find(|line| line.starts_with("Cpus_allowed_list"));
            line.unwrap().split_whitespace().last().unwrap().to_owned()
        };
        let first: usize = list(&mine())
            .split(['-', ','])
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let mut command = Command::new("cat");
        command.arg("/proc/self/status");
        run_on(&mut command, &[first]);
        let output = command.output().unwrap();
        assert_eq!(
            list(&String::from_utf8(output.stdout).unwrap()),
            first.to_string()
        );
        let mut nowhere = Command::new("true");
        run_on(&mut nowhere, &[]);
        assert_eq!(
            nowhere.status().unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
    }

    #[test]
    fn child_dies_with_the_thread_that_started_it() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60");
            die_with_parent(&mut command, libc::SIGKILL);
            command.spawn().unwrap()
        })
        .join()
        .unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
