// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery after a failed send: resuming with the next sends, or discarding them.

use crate::buffer::is_high;
use crate::code::*;
use crate::conn::{Completion, Key, Sending, gm_send_completion_callback_t};
use crate::error::{Failure, invalid};
use crate::machine::{Machine, enter, must};
use crate::port::gm_port;
use crate::pump::{control, transmit};
use crate::wire::Kind;
use crate::world::PORTS;
use std::ffi::{c_uint, c_void};

impl Machine {
    /// Sends a request about a connection, and notifies the program of its end.
    pub(crate) fn send_request(
        &mut self,
        key: Key,
        kind: Kind,
        completion: Completion,
    ) -> Result<(), Failure> {
        let (ack, has_failed) = {
            let mut world = self.world();
            let has_failed = world.peer(key.rank).has_failed;
            let conn = world.conn(key);
            if kind == Kind::Drop {
                // Added before it is sent, since its reply may arrive within the same call.
                conn.sent.push_back(Sending {
                    is_drop: true,
                    ..Sending::short(completion)
                });
            }
            (conn.mark_acknowledged(key.high), has_failed)
        };
        let is_sent = !has_failed && {
            let header = control(key, kind, ack, 0);
            match transmit(self.node()?, key.rank, &header, &[], true) {
                Ok(()) => true,
                Err(error) => {
                    self.on_send_error(key.rank, error)?;
                    false
                }
            }
        };
        let mut world = self.world();
        if !is_sent {
            world.fail_peer(key.rank);
        }
        if kind != Kind::Drop {
            world.conn(key).is_disabled &= !is_sent;
            let status = match is_sent {
                true => GM_SUCCESS,
                false => GM_SEND_TARGET_NODE_UNREACHABLE,
            };
            world.port(key.own).push_ended(completion, status);
        }
        Ok(())
    }
}

/// Implements both functions.
pub(crate) fn recover(
    port: *mut gm_port,
    priority: c_uint,
    (node, other): (c_uint, c_uint),
    completion: Completion,
    kind: Kind,
) -> Result<(), Failure> {
    let (mut machine, own) = enter(port)?;
    let high = is_high(priority)?;
    let nodes = machine.world().size;
    let rank = node.checked_sub(1).filter(|rank| *rank < nodes);
    let Some(rank) = rank else {
        return Err(invalid(format!(
            "node {node} does not exist; nodes are 1 to {nodes}"
        )));
    };
    let port = u8::try_from(other)
        .ok()
        .filter(|port| usize::from(*port) < PORTS);
    let Some(other) = port else {
        return Err(invalid(format!(
            "port {other} does not exist; ports are 0 to 7"
        )));
    };
    if !machine.world().take_token(own) {
        return Ok(());
    }
    let key = Key {
        rank,
        own,
        other,
        high,
    };
    if kind == Kind::Resume && !machine.world().conn(key).is_disabled {
        machine.world().port(own).push_ended(completion, GM_SUCCESS);
        return Ok(());
    }
    machine.send_request(key, kind, completion)
}

/// Resumes after a failed send: continues with the sends to the same port with the same priority
/// that have waited. Takes a send token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_resume_sending(
    port: *mut gm_port,
    priority: c_uint,
    target_node_id: c_uint,
    target_port_id: c_uint,
    callback: gm_send_completion_callback_t,
    context: *mut c_void,
) {
    let completion = Completion::new(callback, context);
    let target = (target_node_id, target_port_id);
    must("gm_resume_sending", || {
        recover(port, priority, target, completion, Kind::Resume)
    });
}

/// Discards the messages that were sent to a port with a priority and not accepted there. Their
/// callbacks get GM_SEND_DROPPED. Later sends are not affected. Takes a send token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_drop_sends(
    port: *mut gm_port,
    priority: c_uint,
    target_node_id: c_uint,
    target_port_id: c_uint,
    callback: gm_send_completion_callback_t,
    context: *mut c_void,
) {
    let completion = Completion::new(callback, context);
    let target = (target_node_id, target_port_id);
    must("gm_drop_sends", || {
        recover(port, priority, target, completion, Kind::Drop)
    });
}
