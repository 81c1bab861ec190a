// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that start other programs.

use crate::{process, real};
use libc::{c_char, c_int, c_void, pid_t};

type Strings = *const *const c_char;

unsafe extern "C" {
    static environ: Strings;
}

/// Calls `exec`, which only returns if it failed.
fn replace(exec: impl FnOnce() -> c_int) -> c_int {
    process::before_exec();
    process::leave_all(false);
    let result = exec();
    process::leave_all(true);
    result
}

fn own_environment() -> Strings {
    // SAFETY: the C library defines the variable; a race is the program's, as in its own call.
    unsafe { environ }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    replace(|| real::execve(path, argv, envp))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn execv(path: *const c_char, argv: Strings) -> c_int {
    replace(|| real::execve(path, argv, own_environment()))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn execvp(file: *const c_char, argv: Strings) -> c_int {
    replace(|| real::execvpe(file, argv, own_environment()))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    replace(|| real::execvpe(file, argv, envp))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    replace(|| real::fexecve(fd, argv, envp))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attr: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    process::before_exec();
    real::posix_spawn(pid, path, actions, attr, argv, envp)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attr: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    process::before_exec();
    real::posix_spawnp(pid, file, actions, attr, argv, envp)
}

/// Returns connections that a new program inherits to the kernel.
#[unsafe(no_mangle)]
extern "C-unwind" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    to: c_int,
) -> c_int {
    process::given_away(fd);
    real::posix_spawn_file_actions_adddup2(actions, fd, to)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn system(command: *const c_char) -> c_int {
    process::before_exec();
    real::system(command)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    process::before_exec();
    real::popen(command, mode)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn _exit(status: c_int) -> ! {
    process::unload();
    real::_exit(status)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
