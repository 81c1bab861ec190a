// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends of GM's first versions, which report their end by an event, and a blocking copy between
//! processes of a host.

use crate::code::*;
use crate::conn::{Completion, Key, Reporting, gm_send_completion_callback_t};
use crate::error::Failure;
use crate::machine::{Machine, enter, must};
use crate::port::gm_port;
use crate::recover::recover;
use crate::send::{Call, gm_datagram_send, start_get, start_message, start_put};
use crate::wire::Kind;
use crate::world::PORTS;
use portolan_ffi::guard;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// Value before the status of a copy is known. No status has it.
const PENDING: c_int = -1;

/// Completion of a send that is reported by an event with the message's address.
fn listed(message: *mut c_void) -> Completion {
    Completion {
        callback: None,
        context: message,
        report: Reporting::List,
    }
}

/// Sends like gm_send_with_callback(), without a callback. When the send has ended, the port gets a
/// GM_SENT_EVENT whose `sent.message_list` is the address of a list with the message's address and
/// null, valid until the next call for the port. A failed send causes a GM_SENDS_FAILED_EVENT with
/// such a list. The send token is back when the event is received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_send(
    port: *mut gm_port,
    message: *mut c_void,
    size: c_uint,
    len: gm_size_t,
    priority: c_uint,
    target_node_id: c_uint,
    target_port_id: c_uint,
) {
    let call = Call {
        port,
        at: message.cast(),
        len,
        size,
        priority,
        node: target_node_id,
        to_port: target_port_id,
        completion: listed(message),
        addr: 0,
    };
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    must("gm_send", || unsafe { start_message(&call) });
}

/// Sends like gm_send(), to the port with the same number as this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_send_to_peer(
    port: *mut gm_port,
    message: *mut c_void,
    size: c_uint,
    len: gm_size_t,
    priority: c_uint,
    target_node_id: c_uint,
) {
    let own = crate::port::gm_get_port_id(port);
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { gm_send(port, message, size, len, priority, target_node_id, own) };
}

/// Writes to remote memory like gm_directed_send_with_callback(). Its end is reported like that of
/// gm_send(), with the address of `source`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_directed_send(
    port: *mut gm_port,
    source: *mut c_void,
    target: gm_remote_ptr_t,
    len: gm_size_t,
    priority: c_uint,
    target_node_id: c_uint,
    target_port_id: c_uint,
) {
    let call = Call {
        port,
        at: source.cast(),
        len,
        size: 0,
        priority,
        node: target_node_id,
        to_port: target_port_id,
        completion: listed(source),
        addr: target,
    };
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    must("gm_directed_send", || unsafe { start_put(&call) });
}

/// Sends the first `len` bytes of `message`, at most 4, like gm_datagram_send().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is GM's")]
pub unsafe extern "C" fn gm_datagram_send_4(
    port: *mut gm_port,
    message: u32,
    size: c_uint,
    len: gm_size_t,
    priority: c_uint,
    target_node_id: c_uint,
    target_port_id: c_uint,
    callback: gm_send_completion_callback_t,
    context: *mut c_void,
) {
    let mut bytes = message.to_ne_bytes();
    // A longer one is refused by its address.
    let at = match usize::try_from(len) {
        Ok(len) if len <= bytes.len() => bytes.as_mut_ptr(),
        _ => ptr::null_mut(),
    };
    // SAFETY: the bytes are copied before the call returns; the rest is guaranteed by the program.
    unsafe {
        gm_datagram_send(
            port,
            at.cast(),
            size,
            len,
            priority,
            target_node_id,
            target_port_id,
            callback,
            context,
        );
    }
}

impl Machine {
    /// Returns the node of a board of this process's host.
    fn node_of_board(&mut self, board: c_uint) -> Result<c_uint, Failure> {
        let node = self.node()?;
        let host = node.host_name(node.rank());
        let mut own = (0..node.size()).filter(|rank| node.host_name(*rank) == host);
        match own.nth(board as usize) {
            Some(rank) => Ok(rank + 1),
            None => {
                let text = format!("this host has no board {board}; its boards are its processes");
                Err(Failure::new(GM_NO_MATCH, text))
            }
        }
    }

    /// Checks that a copy can start: there is a send token, and no earlier send has failed.
    fn check_copy(&mut self, own: u8, node: c_uint, other: c_uint) -> Result<(), Failure> {
        let mut world = self.world();
        if world.port(own).send_tokens == 0 {
            return Err(Failure::new(GM_TRY_AGAIN, "there is no send token"));
        }
        let Some(other) = u8::try_from(other).ok().filter(|&p| usize::from(p) < PORTS) else {
            let text = format!("port {other} does not exist; ports are 0 to 7");
            return Err(Failure::new(GM_INVALID_PORT_NUMBER, text));
        };
        let key = Key {
            rank: node - 1,
            own,
            other,
            high: false,
        };
        match world.conn(key).is_disabled {
            true => Err(Failure::new(
                GM_BUSY,
                "an earlier send to that port has failed; call gm_resume_sending()",
            )),
            false => Ok(()),
        }
    }
}

/// Completion whose status is stored at `at`.
fn direct(at: *mut gm_status_t) -> Completion {
    Completion {
        callback: None,
        context: at.cast(),
        report: Reporting::Direct,
    }
}

/// Waits until a status is known.
///
/// # Safety
/// `at` must be valid, and the context of a completion of [`direct`].
unsafe fn wait_for(port: *mut gm_port, at: *mut gm_status_t) -> Result<gm_status_t, Failure> {
    loop {
        let (mut machine, _own) = enter(port)?;
        // SAFETY: guaranteed by the caller; written with the lock held.
        let status = unsafe { at.read_volatile() };
        if status != PENDING {
            return Ok(status);
        }
        machine.progress()?;
        machine.check_waits()?;
        drop(machine);
        std::thread::yield_now();
    }
}

/// Copies `length` bytes from `source_addr` of another process of this host to `target_addr`, and
/// returns when they are there. The source is the process with board `source_instance_id`, and its
/// port `source_port_id` must allow remote access to the registered memory. Takes a send token
/// meanwhile.
///
/// Errors: GM_NO_MATCH, GM_TRY_AGAIN without a send token, GM_BUSY after a failed send,
/// GM_PERMISSION_DENIED, GM_MEMORY_FAULT and others of a get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_directcopy_get(
    port: *mut gm_port,
    source_addr: *mut c_void,
    target_addr: *mut c_void,
    length: gm_size_t,
    source_instance_id: c_uint,
    source_port_id: c_uint,
) -> gm_status_t {
    guard(|| {
        let node = {
            let (mut machine, own) = enter(port)?;
            let node = machine.node_of_board(source_instance_id)?;
            machine.check_copy(own, node, source_port_id)?;
            node
        };
        let mut status = PENDING;
        let at = &raw mut status;
        let call = Call {
            port,
            at: target_addr.cast(),
            len: length,
            size: 0,
            priority: GM_LOW_PRIORITY,
            node,
            to_port: source_port_id,
            completion: direct(at),
            addr: source_addr.expose_provenance() as u64,
        };
        // SAFETY: the program passes valid memory, which is not used before this returns.
        unsafe { start_get(&call)? };
        // SAFETY: a live local.
        let status = unsafe { wait_for(port, at)? };
        if status == GM_SUCCESS {
            return Ok(GM_SUCCESS);
        }
        // Its failure must not delay later sends.
        let mut resumed = PENDING;
        let (target, end) = ((node, source_port_id), direct(&raw mut resumed));
        recover(port, GM_LOW_PRIORITY, target, end, Kind::Resume)?;
        Err(Failure::new(status, "the other process refused the copy"))
    })
}
