// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that the kernel runs on received frames (XDP), and the map by which such a program
//! redirects them to sockets.
//!
//! The four commands of bpf(2) are called directly. The crates for it (aya, libbpf-rs) load object
//! files, which need clang or a nightly compiler; a program of twenty instructions needs neither.
//!
//! Invariant: pointers in an attribute come from slices that outlive the call, and the kernel keeps
//! none of them.
#![allow(unsafe_code, reason = "bpf(2) takes pointers")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction (`struct bpf_insn` of include/uapi/linux/bpf.h; RFC 9669).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination in the lower four bits, source in the upper ones.
    pub registers: u8,
    /// Offset of a jump or an address.
    pub offset: i16,
    /// Constant operand.
    pub immediate: i32,
}

/// Attachment point of a program in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpHook {
    /// On socket buffers, after the driver; works on any interface (`XDP_FLAGS_SKB_MODE`).
    Generic,
    /// In the driver (`XDP_FLAGS_DRV_MODE`).
    Native,
}

/// Commands (`enum bpf_cmd`).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

/// `BPF_MAP_TYPE_XSKMAP`, `BPF_PROG_TYPE_XDP` and the attach type `BPF_XDP`.
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// Fails if the element exists (`BPF_NOEXIST`).
const NO_EXIST: u64 = 1;

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of include/uapi/linux/if_link.h.
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// Name of program and map shown by `bpftool`; at most 15 letters.
const NAME: [u8; 16] = *b"portolan_xdp\0\0\0\0";

/// Leading fields of `union bpf_attr` for each command; the rest is zero.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_len: u32,
    value_len: u32,
    entry_count: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct MapElement {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Creates a map from numbers below `entry_count` to AF_XDP sockets.
///
/// # Errors
/// `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN` (`CAP_SYS_ADMIN` before Linux 5.8).
pub fn create_socket_map(entry_count: u32) -> io::Result<OwnedFd> {
    let attribute = MapCreate {
        map_type: MAP_TYPE_XSKMAP,
        key_len: 4,
        value_len: 4,
        entry_count,
        flags: 0,
        inner_map: 0,
        numa_node: 0,
        name: NAME,
    };
    open(MAP_CREATE, &attribute)
}

/// Inserts `socket` into a free place of a map; closing the socket empties the place.
///
/// # Errors
/// `EEXIST` if another socket is there.
pub fn insert_socket(map: BorrowedFd<'_>, at: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = number(socket);
    call(MAP_UPDATE_ELEM, &element(map, &at, Some(&value))).map(drop)
}

/// Empties a place of a map.
///
/// # Errors
/// `EINVAL` or `ENOENT` if the place is empty.
pub fn remove_socket(map: BorrowedFd<'_>, at: u32) -> io::Result<()> {
    call(MAP_DELETE_ELEM, &element(map, &at, None)).map(drop)
}

/// Loads a program for frames. The kernel refuses programs that it cannot prove to terminate and to
/// access only the frame.
///
/// # Errors
/// `EPERM` as for the map; `EACCES` or `EINVAL` for a program that is refused.
pub fn load_xdp(program: &[Instruction]) -> io::Result<OwnedFd> {
    let attribute = ProgramLoad {
        kind: PROG_TYPE_XDP,
        instruction_count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr().expose_provenance() as u64,
        license: c"MIT".as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_len: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: NAME,
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    open(PROG_LOAD, &attribute)
}

/// Runs `program` on the frames received by the interface with that number, until all copies of the
/// returned descriptor are closed.
///
/// # Errors
/// `EBUSY` if the interface has such a program already; `EOPNOTSUPP` if its driver does not support
/// it; `ERANGE` or `EINVAL` for an MTU that the driver cannot combine with it.
pub fn attach_xdp(program: BorrowedFd<'_>, interface: u32, hook: XdpHook) -> io::Result<OwnedFd> {
    let attribute = LinkCreate {
        program: number(program),
        interface,
        attach_type: ATTACH_XDP,
        flags: match hook {
            XdpHook::Generic => FLAG_GENERIC,
            XdpHook::Native => FLAG_NATIVE,
        },
    };
    open(LINK_CREATE, &attribute)
}

/// Returns the number of a descriptor, for an instruction or an attribute.
#[must_use]
pub fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn element(map: BorrowedFd<'_>, at: &u32, value: Option<&u32>) -> MapElement {
    let address = |word: &u32| std::ptr::from_ref(word).expose_provenance() as u64;
    MapElement {
        map: number(map),
        _padding: 0,
        key: address(at),
        value: value.map_or(0, address),
        flags: value.map_or(0, |_| NO_EXIST),
    }
}

fn open<A>(command: libc::c_int, attribute: &A) -> io::Result<OwnedFd> {
    let fd = call(command, attribute)?;
    // SAFETY: each command used here returns a new descriptor with no other owner; the kernel
    // closes those of bpf(2) on exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn call<A>(command: libc::c_int, attribute: &A) -> io::Result<libc::c_int> {
    // SAFETY: `attribute` is one of the structures above, a live prefix of the union that the
    // command reads, with its length; its pointers are borrowed by the callers of this function
    // until it returns.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attribute),
            size_of::<A>(),
        )
    };
    match libc::c_int::try_from(returned) {
        Ok(value @ 0..) => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}
