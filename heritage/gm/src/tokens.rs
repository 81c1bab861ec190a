// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bank of send tokens, for programs whose parts share a port.
//!
//! It is empty when a port is opened: the program then has all tokens, and puts some into the bank
//! to take them out elsewhere. The bank is a count for each priority and does not limit sends.

use crate::code::*;
use crate::error::{Failure, invalid};
use crate::machine::{enter, must};
use crate::port::gm_port;
use std::ffi::{c_int, c_uint};

fn account(priority: c_uint) -> Result<usize, Failure> {
    match priority < GM_NUM_PRIORITIES {
        true => Ok(priority as usize),
        false => Err(invalid(format!(
            "priority {priority} is neither 0 (low) nor 1 (high)"
        ))),
    }
}

/// Calls `change` with the count of `priority` in the bank of a port.
fn with_bank<T>(
    name: &str,
    port: *mut gm_port,
    priority: c_uint,
    change: impl FnOnce(&mut u32) -> T,
) -> T {
    must(name, || {
        let (machine, own) = enter(port)?;
        let mut world = machine.world();
        Ok(change(&mut world.port(own).banked[account(priority)?]))
    })
}

/// Takes a send token of `priority` from the bank. Returns 1, or 0 if the bank has none.
#[unsafe(no_mangle)]
pub extern "C" fn gm_alloc_send_token(port: *mut gm_port, priority: c_uint) -> c_int {
    with_bank("gm_alloc_send_token", port, priority, |banked| {
        let is_there = *banked > 0;
        *banked -= u32::from(is_there);
        c_int::from(is_there)
    })
}

/// Puts a send token of `priority` in the bank, which is empty at first.
#[unsafe(no_mangle)]
pub extern "C" fn gm_free_send_token(port: *mut gm_port, priority: c_uint) {
    with_bank("gm_free_send_token", port, priority, |banked| {
        *banked = banked.saturating_add(1);
    });
}

/// Puts `count` send tokens of `priority` in the bank.
#[unsafe(no_mangle)]
pub extern "C" fn gm_free_send_tokens(port: *mut gm_port, priority: c_uint, count: c_uint) {
    with_bank("gm_free_send_tokens", port, priority, |banked| {
        *banked = banked.saturating_add(count);
    });
}

/// Returns 1 if gm_alloc_send_token() would return 1, and 0 otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn gm_send_token_available(port: *mut gm_port, priority: c_uint) -> c_int {
    with_bank("gm_send_token_available", port, priority, |banked| {
        c_int::from(*banked > 0)
    })
}
