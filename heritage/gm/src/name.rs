// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers and names of the nodes. Each process of the job is a node, numbered from 1. Its name is
//! that of its host. Further processes of a host have a number appended: `host:1`, `host:2`.

use crate::arrive::node_id;
use crate::code::*;
use crate::error::{Failure, invalid};
use crate::machine::{Machine, enter};
use crate::port::gm_port;
use parking_lot::Mutex;
use portolan_ffi::guard;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};

/// First bytes of a board's number: a locally administered address, and "PL".
const BOARD: [u8; 3] = [0x02, b'P', b'L'];

impl Machine {
    fn rank_of(&mut self, node: c_uint) -> Result<u32, Failure> {
        let nodes = self.world().size;
        match node.checked_sub(1) {
            Some(rank) if rank < nodes => Ok(rank),
            _ => Err(invalid(format!(
                "node {node} does not exist; nodes are 1 to {nodes}"
            ))),
        }
    }

    fn name_of(&mut self, rank: u32) -> Result<String, Failure> {
        Ok(portolan_ffi::name_of(self.node()?, rank))
    }

    fn find(&mut self, name: &str) -> Result<Option<u32>, Failure> {
        let size = self.world().size;
        for rank in 0..size {
            // The name of the first process of a host may also be written as that of its first
            // board.
            let own = self.name_of(rank)?;
            if own == name || name.strip_suffix(":0") == Some(&own) {
                return Ok(Some(rank));
            }
        }
        Ok(None)
    }
}

/// Runs a function that stores a value at `at`. `find` returns it.
///
/// # Safety
/// `at` must be null or valid for writes.
unsafe fn query<T>(
    port: *mut gm_port,
    at: *mut T,
    find: impl FnOnce(&mut Machine) -> Result<T, Failure>,
) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        let value = find(&mut machine)?;
        if at.is_null() {
            return Err(Failure::null("the pointer for a result"));
        }
        // SAFETY: not null; the rest is guaranteed by the caller.
        unsafe { at.write(value) };
        Ok(GM_SUCCESS)
    })
}

/// Returns the number of a board.
fn board_of(rank: u32) -> [u8; 6] {
    let [_, a, b, c] = rank.to_be_bytes();
    let [x, y, z] = BOARD;
    [x, y, z, a, b, c]
}

/// Stores `text` at `name`, with a final zero.
///
/// # Safety
/// `name` must be null or have GM_MAX_HOST_NAME_LEN bytes.
unsafe fn put_name(name: *mut c_char, text: &str) -> Result<c_int, Failure> {
    if name.is_null() {
        return Err(Failure::null("name"));
    }
    if text.len() >= GM_MAX_HOST_NAME_LEN as usize {
        let text = format!("the name {text} is longer than 127 bytes");
        return Err(Failure::new(GM_OUTPUT_BUFFER_TOO_SMALL, text));
    }
    for (index, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: guaranteed by the caller; the text is shorter than that.
        unsafe { name.add(index).cast::<u8>().write(byte) };
    }
    Ok(GM_SUCCESS)
}

/// Stores the number of this process's node in `node_id`.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_get_node_id(port: *mut gm_port, node_id: *mut c_uint) -> gm_status_t {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { query(port, node_id, |machine| Ok(machine.node()?.rank() + 1)) }
}

/// Stores the name of this process's node in `name`, which has GM_MAX_HOST_NAME_LEN bytes.
///
/// Errors: GM_INVALID_PARAMETER, GM_OUTPUT_BUFFER_TOO_SMALL, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_get_host_name(port: *mut gm_port, name: *mut c_char) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        let rank = machine.node()?.rank();
        let text = machine.name_of(rank)?;
        // SAFETY: the program passes valid arguments, as the function's documentation requires.
        unsafe { put_name(name, &text) }
    })
}

// The header has the number, as the generator does not write sums.
const _: () = assert!(GM_MAX_HOST_NAME_LEN + 1 == 129);

/// Names that gm_node_id_to_host_name() has returned, by node. They stay valid until the process
/// ends.
static NAMES: Mutex<BTreeMap<c_uint, CString>> = Mutex::new(BTreeMap::new());

/// Returns the name of a node, which must not be changed, or null if there is no such node.
#[unsafe(no_mangle)]
pub extern "C" fn gm_node_id_to_host_name(port: *mut gm_port, node: c_uint) -> *mut c_char {
    let mut found = std::ptr::null_mut();
    let _status = guard(|| {
        let (mut machine, _own) = enter(port)?;
        let rank = machine.rank_of(node)?;
        let name = CString::new(machine.name_of(rank)?).unwrap_or_default();
        // The name of a node does not change.
        let mut names = NAMES.lock();
        found = names.entry(node).or_insert(name).as_ptr().cast_mut();
        Ok::<_, Failure>(GM_SUCCESS)
    });
    found
}

/// Stores the name of a node in `name`. No other process is involved, so `timeout` is ignored.
///
/// Errors: those of gm_get_host_name().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_node_id_to_host_name_ex(
    port: *mut gm_port,
    _timeout: c_uint,
    node: c_uint,
    name: *mut [c_char; 129],
) -> gm_status_t {
    guard(|| {
        let (mut machine, _own) = enter(port)?;
        let rank = machine.rank_of(node)?;
        let text = machine.name_of(rank)?;
        // SAFETY: the program passes valid arguments, as the function's documentation requires.
        unsafe { put_name(name.cast(), &text) }
    })
}

/// Stores the number of the node with that name in `node`. No other process is involved, so
/// `timeout` is ignored.
///
/// Errors: GM_NO_MATCH, GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_host_name_to_node_id_ex(
    port: *mut gm_port,
    _timeout: c_uint,
    name: *const c_char,
    node: *mut c_uint,
) -> gm_status_t {
    let find = |machine: &mut Machine| {
        if name.is_null() {
            return Err(Failure::null("name"));
        }
        // SAFETY: the program passes a zero-terminated string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let found = machine.find(&name)?.map(|rank| rank + 1);
        found.ok_or_else(|| {
            let text = format!("no node of this job has the name {name}");
            Failure::new(GM_NO_MATCH, text)
        })
    };
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { query(port, node, find) }
}

/// Returns the number of the node with that name, or GM_NO_SUCH_NODE_ID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_host_name_to_node_id(
    port: *mut gm_port,
    name: *const c_char,
) -> c_uint {
    let mut node = GM_NO_SUCH_NODE_ID;
    // SAFETY: the program passes a zero-terminated string; `node` is valid for the result.
    match unsafe { gm_host_name_to_node_id_ex(port, 0, name, &raw mut node) } {
        GM_SUCCESS => node,
        _ => GM_NO_SUCH_NODE_ID,
    }
}

/// Stores the number of this process's board in `board_id`, which has 6 bytes.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_get_unique_board_id(
    port: *mut gm_port,
    board_id: *mut c_char,
) -> gm_status_t {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe {
        query(port, board_id.cast(), |machine| {
            Ok(board_of(machine.node()?.rank()))
        })
    }
}

/// Stores the number of the board of the job's first node in `board_id`, which has 6 bytes. That
/// node has no special role.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_get_mapper_unique_id(
    port: *mut gm_port,
    board_id: *mut c_char,
) -> gm_status_t {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { query(port, board_id.cast(), |_machine| Ok(board_of(0))) }
}

/// Stores the number of a node's board in `board_id`, which has 6 bytes.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_node_id_to_unique_id(
    port: *mut gm_port,
    node: c_uint,
    board_id: *mut c_char,
) -> gm_status_t {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe {
        query(port, board_id.cast(), |machine| {
            Ok(board_of(machine.rank_of(node)?))
        })
    }
}

/// Stores the number of the node with that board in `node`.
///
/// Errors: GM_NO_MATCH, GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_unique_id_to_node_id(
    port: *mut gm_port,
    board_id: *const c_char,
    node: *mut c_uint,
) -> gm_status_t {
    let find = |machine: &mut Machine| {
        if board_id.is_null() {
            return Err(Failure::null("board_id"));
        }
        // SAFETY: the program passes valid arguments, as the function's documentation requires.
        let [x, y, z, a, b, c] = unsafe { board_id.cast::<[u8; 6]>().read() };
        let rank = u32::from_be_bytes([0, a, b, c]);
        if [x, y, z] != BOARD || rank >= machine.world().size {
            let text = "no node of this job has this board";
            return Err(Failure::new(GM_NO_MATCH, text));
        }
        Ok(rank + 1)
    };
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { query(port, node, find) }
}

/// Stores the global number of a node in `global`. It is the same number.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_node_id_to_global_id(
    port: *mut gm_port,
    node: c_uint,
    global: *mut c_uint,
) -> gm_status_t {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { query(port, global, |machine| Ok(machine.rank_of(node)? + 1)) }
}

/// Stores the local number of the node with a global number in `node`. It is the same number.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_global_id_to_node_id(
    port: *mut gm_port,
    global: c_uint,
    node: *mut c_uint,
) -> gm_status_t {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { gm_node_id_to_global_id(port, global, node) }
}

/// Stores the highest number that a node may have in `node`.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_max_node_id(port: *mut gm_port, node: *mut c_uint) -> gm_status_t {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe {
        query(port, node, |_machine| {
            Ok(node_id(u32::from(u16::MAX) - 1).into())
        })
    }
}

/// Stores the highest number of a node of this job in `node`.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_max_node_id_in_use(
    port: *mut gm_port,
    node: *mut c_uint,
) -> gm_status_t {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { query(port, node, |machine| Ok(machine.world().size)) }
}
