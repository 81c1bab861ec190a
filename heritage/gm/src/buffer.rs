// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers for messages, and the accepted sizes.

use crate::code::*;
use crate::error::{Failure, invalid};
use crate::event::GM_RECV_TOKEN_VIOLATION_EVENT;
use crate::machine::{enter, must};
use crate::port::gm_port;
use crate::world::{Item, Provided, SIZES};
use portolan_ffi::guard;
use std::ffi::{c_uint, c_void};

/// Returns whether a priority is the high one.
#[inline]
pub(crate) fn is_high(priority: c_uint) -> Result<bool, Failure> {
    match priority {
        GM_LOW_PRIORITY => Ok(false),
        GM_HIGH_PRIORITY => Ok(true),
        _ => Err(invalid(format!(
            "priority {priority} is neither 0 (low) nor 1 (high)"
        ))),
    }
}

/// Returns a size if it is valid.
#[inline]
pub(crate) fn checked_size(size: c_uint) -> Result<u8, Failure> {
    match u8::try_from(size) {
        Ok(size) if usize::from(size) < SIZES => Ok(size),
        _ => Err(invalid(format!("size {size} is above 31"))),
    }
}

/// Provides a buffer of gm_max_length_for_size(`size`) bytes for one message of that size and
/// priority. The buffer belongs to the library until an event names it. That event has `tag`, a
/// byte. Takes a receive token. If there is none, the port gets a GM_RECV_TOKEN_VIOLATION_EVENT and
/// the buffer is not taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_provide_receive_buffer_with_tag(
    port: *mut gm_port,
    ptr: *mut c_void,
    size: c_uint,
    priority: c_uint,
    tag: c_uint,
) {
    must("gm_provide_receive_buffer_with_tag", || {
        let (mut machine, own) = enter(port)?;
        let (size, high) = (checked_size(size)?, is_high(priority)?);
        let Ok(tag) = u8::try_from(tag) else {
            return Err(invalid(format!("tag {tag} is above 255")));
        };
        if ptr.is_null() {
            return Err(Failure::null("the buffer"));
        }
        let is_waited_for = {
            let mut world = machine.world();
            let port = world.port(own);
            let Some(left) = port.recv_tokens.checked_sub(1) else {
                let kind = u8::try_from(GM_RECV_TOKEN_VIOLATION_EVENT).unwrap_or(0);
                port.low.push_back(Item::Violation(kind));
                return Ok(());
            };
            port.recv_tokens = left;
            let at = ptr.cast();
            if let Some(buffers) = port.buffers(high, size) {
                buffers.push_back(Provided { at, tag });
            }
            world.retry_port(own);
            world.has_work()
        };
        match is_waited_for {
            true => machine.work(),
            false => Ok(()),
        }
    });
}

/// Does the same as gm_provide_receive_buffer_with_tag(), with tag 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_provide_receive_buffer(
    port: *mut gm_port,
    ptr: *mut c_void,
    size: c_uint,
    priority: c_uint,
) {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe { gm_provide_receive_buffer_with_tag(port, ptr, size, priority, 0) };
}

/// Sets the accepted sizes of `priority`: those whose bit is set in `mask`. Messages of other sizes
/// fail with GM_SEND_REJECTED. A new port accepts all sizes.
///
/// Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
#[unsafe(no_mangle)]
pub extern "C" fn gm_set_acceptable_sizes(
    port: *mut gm_port,
    priority: c_uint,
    mask: gm_size_t,
) -> gm_status_t {
    guard(|| {
        let (mut machine, own) = enter(port)?;
        let high = is_high(priority)?;
        {
            let mut world = machine.world();
            world.port(own).acceptable[usize::from(high)] = mask;
            world.retry_port(own);
        }
        machine.work()?;
        Ok(GM_SUCCESS)
    })
}
