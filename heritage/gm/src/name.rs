// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who the nodes are: each process of the job is one, numbered from 1. Its name is that of its host; the
//! second process of a host and those after it have a number behind that, `host:1`, `host:2`.

use crate::arrive::node_id;
use crate::code::*;
use crate::error::{Failure, invalid};
use crate::machine::{Machine, enter};
use crate::port::gm_port;
use portolan_ffi::guard;
use std::ffi::{CStr, c_char, c_int, c_uint};

/// In front of the numbers of boards: an address of the kind that anybody may give, and "PL".
const BOARD: [u8; 3] = [0x02, b'P', b'L'];

impl Machine {
    /// The rank of a node.
    fn rank_of(&mut self, node: c_uint) -> Result<u32, Failure> {
        let nodes = self.world().size;
        match node.checked_sub(1) {
            Some(rank) if rank < nodes => Ok(rank),
            _ => Err(invalid(format!(
                "node {node}: there are {nodes}, numbered from 1"
            ))),
        }
    }

    fn name_of(&mut self, rank: u32) -> Result<String, Failure> {
        let node = self.node()?;
        let host = node.host_name(rank).unwrap_or_default();
        let before = (0..rank).filter(|other| node.host_name(*other).as_deref() == Some(&*host));
        Ok(match before.count() {
            0 => host,
            unit => format!("{host}:{unit}"),
        })
    }

    fn find(&mut self, name: &str) -> Result<Option<u32>, Failure> {
        let size = self.world().size;
        for rank in 0..size {
            // The first process of a host may be named as its first board, too.
            let own = self.name_of(rank)?;
            if own == name || name.strip_suffix(":0") == Some(&own) {
                return Ok(Some(rank));
            }
        }
        Ok(None)
    }
}

/// # Safety
/// `at` is null, or may be written.
unsafe fn put<T>(at: *mut T, value: T) -> Result<c_int, Failure> {
    if at.is_null() {
        return Err(Failure::null("the pointer for a result"));
    }
    // SAFETY: the caller's promise.
    unsafe { at.write(value) };
    Ok(GM_SUCCESS)
}

/// # Safety
/// `name` is null, or has GM_MAX_HOST_NAME_LEN bytes.
unsafe fn put_name(name: *mut c_char, text: &str) -> Result<c_int, Failure> {
    if name.is_null() {
        return Err(Failure::null("name"));
    }
    if text.len() >= GM_MAX_HOST_NAME_LEN as usize {
        let text = format!("the name {text} is longer than 127 bytes");
        return Err(Failure::new(GM_OUTPUT_BUFFER_TOO_SMALL, text));
    }
    for (index, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: the caller's promise; it is not longer.
        unsafe { name.add(index).cast::<u8>().write(byte) };
    }
    Ok(GM_SUCCESS)
}

/// `node_id` gets the number of this process's node.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_get_node_id(port: *mut gm_port, node_id: *mut c_uint) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        let rank = machine.node()?.rank();
        // SAFETY: the program's promise.
        unsafe { put(node_id, rank + 1) }
    })
}

/// `name`, of GM_MAX_HOST_NAME_LEN bytes, gets the name of this process's node.
///
/// Errors: GM_INVALID_PARAMETER, GM_OUTPUT_BUFFER_TOO_SMALL, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_get_host_name(port: *mut gm_port, name: *mut c_char) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        let rank = machine.node()?.rank();
        let text = machine.name_of(rank)?;
        // SAFETY: the program's promise.
        unsafe { put_name(name, &text) }
    })
}

/// `name`, of GM_MAX_HOST_NAME_LEN bytes, gets the name of a node.
///
/// Errors: those of gm_get_host_name().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_node_id_to_host_name_ex(
    port: *mut gm_port,
    _timeout: c_uint,
    node: c_uint,
    name: *mut c_char,
) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        let rank = machine.rank_of(node)?;
        let text = machine.name_of(rank)?;
        // SAFETY: the program's promise.
        unsafe { put_name(name, &text) }
    })
}

/// `node` gets the number of the node with that name. Nothing is asked of others, so there is nothing to
/// wait `timeout` microseconds for.
///
/// Errors: GM_NO_MATCH, GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_host_name_to_node_id_ex(
    port: *mut gm_port,
    _timeout: c_uint,
    name: *const c_char,
    node: *mut c_uint,
) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        if name.is_null() {
            return Err(Failure::null("name"));
        }
        // SAFETY: the program's promise: a string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        match machine.find(&name)? {
            // SAFETY: the program's promise.
            Some(rank) => unsafe { put(node, rank + 1) },
            None => {
                let text = format!("no node of this job has the name {name}");
                Err(Failure::new(GM_NO_MATCH, text))
            }
        }
    })
}

/// The number of the node with that name, or GM_NO_SUCH_NODE_ID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_host_name_to_node_id(
    port: *mut gm_port,
    name: *const c_char,
) -> c_uint {
    let mut node = GM_NO_SUCH_NODE_ID;
    // SAFETY: the program's promise about the name; the other place is here.
    match unsafe { gm_host_name_to_node_id_ex(port, 0, name, &raw mut node) } {
        GM_SUCCESS => node,
        _ => GM_NO_SUCH_NODE_ID,
    }
}

/// # Safety
/// `id` is null, or has 6 bytes.
unsafe fn put_board(id: *mut u8, rank: u32) -> Result<c_int, Failure> {
    let [_, a, b, c] = rank.to_be_bytes();
    // SAFETY: the caller's promise.
    unsafe {
        put(
            id.cast::<[u8; 6]>(),
            [BOARD[0], BOARD[1], BOARD[2], a, b, c],
        )
    }
}

/// `board_id`, 6 bytes, gets the number of this process's board.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_get_unique_board_id(
    port: *mut gm_port,
    board_id: *mut u8,
) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        let rank = machine.node()?.rank();
        // SAFETY: the program's promise.
        unsafe { put_board(board_id, rank) }
    })
}

/// `board_id`, 6 bytes, gets the number of the board of the job's first node, which has no more to do
/// with others than any.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_get_mapper_unique_id(
    port: *mut gm_port,
    board_id: *mut u8,
) -> gm_status_t {
    guard(|| {
        let (_machine, _own) = enter(port)?;
        // SAFETY: the program's promise.
        unsafe { put_board(board_id, 0) }
    })
}

/// `board_id`, 6 bytes, gets the number of a node's board.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_node_id_to_unique_id(
    port: *mut gm_port,
    node: c_uint,
    board_id: *mut u8,
) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        let rank = machine.rank_of(node)?;
        // SAFETY: the program's promise.
        unsafe { put_board(board_id, rank) }
    })
}

/// `node` gets the number of the node with that board.
///
/// Errors: GM_NO_MATCH, GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_unique_id_to_node_id(
    port: *mut gm_port,
    board_id: *const u8,
    node: *mut c_uint,
) -> gm_status_t {
    guard(|| {
        let (machine, _own) = enter(port)?;
        if board_id.is_null() {
            return Err(Failure::null("board_id"));
        }
        // SAFETY: the program's promise.
        let [x, y, z, a, b, c] = unsafe { board_id.cast::<[u8; 6]>().read() };
        let rank = u32::from_be_bytes([0, a, b, c]);
        if [x, y, z] != BOARD || rank >= machine.world().size {
            return Err(Failure::new(
                GM_NO_MATCH,
                "no node of this job has this board",
            ));
        }
        // SAFETY: the program's promise.
        unsafe { put(node, rank + 1) }
    })
}

/// `global` gets the number that all processes have for a node, which is the same.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_node_id_to_global_id(
    port: *mut gm_port,
    node: c_uint,
    global: *mut c_uint,
) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        machine.rank_of(node)?;
        // SAFETY: the program's promise.
        unsafe { put(global, node) }
    })
}

/// `node` gets the number that this process has for the node with a global number, which is the same.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_global_id_to_node_id(
    port: *mut gm_port,
    global: c_uint,
    node: *mut c_uint,
) -> gm_status_t {
    // SAFETY: the program's promise.
    unsafe { gm_node_id_to_global_id(port, global, node) }
}

/// `node` gets the highest number that a node may have.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_max_node_id(port: *mut gm_port, node: *mut c_uint) -> gm_status_t {
    guard(|| {
        let (_machine, _own) = enter(port)?;
        let highest = node_id(u32::from(u16::MAX) - 1);
        // SAFETY: the program's promise.
        unsafe { put(node, highest.into()) }
    })
}

/// `node` gets the highest number of a node of this job.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_max_node_id_in_use(
    port: *mut gm_port,
    node: *mut c_uint,
) -> gm_status_t {
    guard(|| {
        let (machine, _own) = enter(port)?;
        let nodes = machine.world().size;
        // SAFETY: the program's promise.
        unsafe { put(node, nodes) }
    })
}
