// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of the protocol, and its drops.

use crate::code::*;
use crate::failure::{Failure, guard};
use crate::handle::{enter, portolan_node_t};
use crate::memory::Out;
use crate::node::number;
use crate::types::portolan_counters_t;
use portolan::Counters;
use std::ffi::{CString, c_char, c_int, c_void};

/// Length of the first version of the counters.
const FIRST_LEN: usize = std::mem::offset_of!(portolan_counters_t, remote_requests);

/// Stores the counters of the protocol in this process in `*counters`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_counters(
    node: *mut portolan_node_t,
    counters: *mut portolan_counters_t,
) -> c_int {
    guard(|| {
        if counters.is_null() {
            return Err(Failure::null("counters"));
        }
        // SAFETY: guaranteed by the program.
        let (mut entered, counters) =
            unsafe { (enter(node)?, Out::grown("counters", counters, FIRST_LEN)?) };
        let node = entered.node()?;
        counters.fill(&to_c(&node.counters(), node.drops().values().sum()));
        Ok(PORTOLAN_OK)
    })
}

/// Converts every counter of the library by name. A new counter there is a compile error here until
/// it is added.
fn to_c(counters: &Counters, drops: u64) -> portolan_counters_t {
    let &Counters {
        frames_sent,
        frames_received,
        retransmits,
        timeouts,
        paths_left,
        messages_sent,
        messages_received,
        bytes_received,
        remote_requests,
        messages_held,
        best_effort_lost,
        placement_hits,
        placement_misses,
        placement_repaired_bytes,
        frames_marked,
        marks_heard,
        stream_bytes,
        link_full,
        pushes_placed: _,
        pushes_missed: _,
        // `drops` includes the drops of links.
        drops_by_reason: _,
    } = counters;
    portolan_counters_t {
        size: 0,
        frames_sent,
        frames_received,
        retransmits,
        timeouts,
        paths_left,
        messages_sent,
        messages_received,
        bytes_received,
        messages_held,
        best_effort_lost,
        placement_hits,
        placement_misses,
        placement_repaired_bytes,
        link_full,
        drops,
        remote_requests,
        frames_marked,
        marks_heard,
        stream_bytes,
    }
}

/// Calls `tell` for each reason for which this process dropped something. The arguments are the
/// reason's name, valid during that call, and the number of drops. Returns the number of reasons.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_drops(
    node: *mut portolan_node_t,
    tell: Option<unsafe extern "C" fn(reason: *const c_char, count: u64, user: *mut c_void)>,
    user: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        let tell = tell.ok_or_else(|| Failure::null("tell"))?;
        let drops = entered.node()?.drops();
        for (reason, &count) in &drops {
            // Names come from the library and contain no zeros.
            let reason = CString::new(*reason).unwrap_or_default();
            // SAFETY: the program guarantees that its function may be called in this way.
            unsafe { tell(reason.as_ptr(), count, user) };
        }
        Ok(number(drops.len() as u64))
    })
}
