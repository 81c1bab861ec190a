// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a condition, or in a program's own event loop.

use crate::code::*;
use crate::failure::{Failure, guard, timed_out, timeout};
use crate::handle::{enter, portolan_node_t};
use crate::memory::Out;
use crate::types::*;
use portolan::{PeerEvent, PeerEventKind};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;

/// Makes progress, and sleeps in between, until `done` returns a value other than 0. It is called
/// after each turn, so its result must depend on state that handlers change.
///
/// Errors: PORTOLAN_ERR_NOBODY_LEFT when `done` still returns 0 and no further handler can run,
/// because all other processes of the job have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait_until(
    node: *mut portolan_node_t,
    done: Option<unsafe extern "C" fn(user: *mut c_void) -> c_int>,
    user: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        let done = done.ok_or_else(|| Failure::null("done"))?;
        // SAFETY: the program guarantees that its function may be called so.
        entered.node()?.wait_until(|| unsafe { done(user) } != 0)?;
        Ok(PORTOLAN_OK)
    })
}

/// Waits like portolan_wait_until(), at most `timeout_ns` nanoseconds.
///
/// Errors: PORTOLAN_ERR_TIMEOUT; those of portolan_wait_until().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait_until_for(
    node: *mut portolan_node_t,
    done: Option<unsafe extern "C" fn(user: *mut c_void) -> c_int>,
    user: *mut c_void,
    timeout_ns: u64,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        let done = done.ok_or_else(|| Failure::null("done"))?;
        let timeout = timeout(timeout_ns);
        // SAFETY: the program guarantees that its function may be called so.
        let is_done = || unsafe { done(user) } != 0;
        match entered.node()?.wait_until_timeout(is_done, timeout)? {
            true => Ok(PORTOLAN_OK),
            false => Err(timed_out("the condition has not become true", timeout)),
        }
    })
}

/// Returns the descriptor for a program's own event loop, which waits until it is readable. Call
/// portolan_arm() before each wait and portolan_disarm() after it. Never read or close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_event_fd(node: *mut portolan_node_t) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        Ok(entered.node()?.event_fd()?.as_raw_fd())
    })
}

/// Makes portolan_event_fd() readable as soon as there is work. Returns 1, or 0 if there is work
/// already: then do not wait, but call portolan_progress() and test the requests.
///
/// Errors: PORTOLAN_ERR_NOBODY_LEFT when the descriptor would stay silent, because all other
/// processes of the job have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_arm(node: *mut portolan_node_t) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        Ok(c_int::from(entered.node()?.arm()?))
    })
}

/// Reverts portolan_arm(), and handles what is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_disarm(node: *mut portolan_node_t) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        entered.node()?.disarm();
        Ok(PORTOLAN_OK)
    })
}

/// Takes the next event of a peer without waiting. Returns 1 and fills `*event`, or 0 if there is
/// none. In programs that have called this before, portolan_event_fd() becomes readable when there
/// may be an event.
///
/// Each loss is reported once, even if no operation needed the peer. Losses are the end of a
/// process of the job that `portolan run` has started, and a peer that this process waited for but
/// could no longer reach. A peer that returns and is lost again is reported again. A standalone
/// process gets an event when a peer connects, and one when it ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_next_peer_event(
    node: *mut portolan_node_t,
    event: *mut portolan_peer_event_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, event) = unsafe { (enter(node)?, Out::new("event", event)?) };
        let Some(next) = entered.node()?.next_peer_event() else {
            return Ok(0);
        };
        event.fill(&to_c(&next));
        Ok(1)
    })
}

fn to_c(event: &PeerEvent) -> portolan_peer_event_t {
    let mut reason = [0; PORTOLAN_PEER_REASON_LEN];
    let text = event.reason.to_string();
    let mut len = text.len().min(reason.len() - 1);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    for (to, byte) in reason.iter_mut().zip(text[..len].bytes()) {
        *to = byte as c_char;
    }
    portolan_peer_event_t {
        size: 0,
        rank: event.rank,
        kind: match event.kind {
            PeerEventKind::Joined => PORTOLAN_PEER_JOINED,
            PeerEventKind::Left => PORTOLAN_PEER_LEFT,
            _ => PORTOLAN_PEER_LOST,
        },
        generation: event.generation,
        reason,
    }
}
