// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounts of send tokens that a program may keep here, by priority; half of the tokens for each.

use crate::code::*;
use crate::error::{Failure, invalid};
use crate::machine::{enter, must};
use crate::port::gm_port;
use crate::world::SEND_TOKENS;
use std::ffi::{c_int, c_uint};

/// Tokens of a priority's account.
const EACH: u32 = SEND_TOKENS / GM_NUM_PRIORITIES;

fn account(priority: c_uint) -> Result<usize, Failure> {
    match priority < GM_NUM_PRIORITIES {
        true => Ok(priority as usize),
        false => Err(invalid(format!("priority {priority}: 0 is low, 1 high"))),
    }
}

/// Takes a send token of `priority`: 1, or 0 when there is none.
#[unsafe(no_mangle)]
pub extern "C" fn gm_alloc_send_token(port: *mut gm_port, priority: c_uint) -> c_int {
    must("gm_alloc_send_token", || {
        let (machine, own) = enter(port)?;
        let mut world = machine.world();
        let taken = &mut world.port(own).allotted[account(priority)?];
        let is_left = *taken < EACH;
        *taken += u32::from(is_left);
        Ok(c_int::from(is_left))
    })
}

/// Gives a send token of `priority` back.
#[unsafe(no_mangle)]
pub extern "C" fn gm_free_send_token(port: *mut gm_port, priority: c_uint) {
    must("gm_free_send_token", || {
        let (machine, own) = enter(port)?;
        let mut world = machine.world();
        let taken = &mut world.port(own).allotted[account(priority)?];
        match taken.checked_sub(1) {
            Some(left) => *taken = left,
            None => return Err(invalid("no token of this priority was taken")),
        }
        Ok(())
    });
}

/// Whether a send token of `priority` could be taken: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn gm_send_token_available(port: *mut gm_port, priority: c_uint) -> c_int {
    must("gm_send_token_available", || {
        let (machine, own) = enter(port)?;
        let taken = machine.world().port(own).allotted[account(priority)?];
        Ok(c_int::from(taken < EACH))
    })
}
