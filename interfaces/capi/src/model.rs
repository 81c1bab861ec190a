// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measured model of this machine's paths, and choices that replace it.

use crate::code::*;
use crate::failure::guard;
use crate::handle::{enter, portolan_node_t};
use crate::memory;
use crate::node::copy_text;
use crate::types::*;
use portolan::binding::Plumbing as _;
use portolan::binding::model::{Choices, LonePieces, Status};
use std::ffi::{c_char, c_int};

/// Returns the state of the stored model of this machine's paths: PORTOLAN_MODEL_USED or another
/// constant of its group. A sentence with the file and the reason is copied to `text`, cut to `len`
/// bytes with a terminating zero. With `len` 0, `text` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_model(
    node: *mut portolan_node_t,
    text: *mut c_char,
    len: usize,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        let status = entered.node()?.model();
        // SAFETY: guaranteed by the program.
        unsafe { copy_text("text", text, len, &status.to_string())? };
        Ok(match status {
            Status::Absent => PORTOLAN_MODEL_ABSENT,
            Status::Used(_) => PORTOLAN_MODEL_USED,
            Status::Off => PORTOLAN_MODEL_OFF,
            Status::Refused(..) => PORTOLAN_MODEL_REFUSED,
        })
    })
}

/// Uses `*choices` from now on instead of the stored model. They select the path of a message, its
/// announcement, and the pieces that it is cut into. The limits of the protocol still apply.
///
/// Errors: PORTOLAN_ERR_NULL, PORTOLAN_ERR_STRUCT_SIZE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_choose(
    node: *mut portolan_node_t,
    choices: *const portolan_choices_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        // SAFETY: guaranteed by the program.
        let choices = unsafe { memory::take("choices", choices)? };
        // SAFETY: guaranteed by the program.
        let lone = unsafe { memory::elements("lone", choices.lone, choices.lone_count)? };
        let set = |len: usize| (len != 0).then_some(len);
        entered.node()?.choose(&Choices {
            eager_len_max: set(choices.eager_len_max),
            eager_len_max_shm: set(choices.eager_len_max_shm),
            packet_len_max: choices.packet_len_max,
            lone: lone.iter().map(pieces).collect(),
            frames: Vec::new(),
        });
        Ok(PORTOLAN_OK)
    })
}

fn pieces(given: &portolan_lone_pieces_t) -> LonePieces {
    LonePieces {
        message_len_max: given.message_len_max,
        call_len: given.call_len,
    }
}
