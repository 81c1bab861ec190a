// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events: receiving them in order, waiting for them, and the library's handling of those that the
//! program does not handle.

use crate::code::GM_SUCCESS;
use crate::conn::{Completion, Reporting};
use crate::error::Failure;
use crate::event::*;
use crate::machine::{Held, die, enter, is_shared, lock, must};
use crate::numbers::gm_htonp;
use crate::order::Arrived;
use crate::port::{gm_port, handle_of};
use crate::world::{Ended, Item, PORTS};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::time::{Duration, Instant};

/// The last event that was passed to the program, by port.
struct Events([UnsafeCell<gm_recv_event>; PORTS]);

// SAFETY: written with the machine's lock held; the program reads it only until its next call for
// the port.
unsafe impl Sync for Events {}

static EVENTS: Events = Events([const { UnsafeCell::new(gm_recv_event::NONE) }; PORTS]);

/// The list of the last event of a send without a callback, by port.
struct Lists([UnsafeCell<[*mut c_void; 2]>; PORTS]);

// SAFETY: as for `Events`.
unsafe impl Sync for Lists {}

static LISTS: Lists = Lists([const { UnsafeCell::new([ptr::null_mut(); 2]) }; PORTS]);

/// Stores the list of a send without a callback, and returns its event.
fn list(own: u8, ended: &Ended) -> gm_recv_event {
    let at = LISTS.0[usize::from(own)].get();
    // SAFETY: the lock is held, and the program does not read the last list after it has requested
    // the next event.
    unsafe { at.write([ended.completion.context, ptr::null_mut()]) };
    let message_list = gm_htonp(at.cast());
    gm_recv_event {
        sent: gm_sent_event_fields {
            message_list,
            reserved: [0; 17],
            r#type: type_of(ended.kind()),
        },
    }
}

/// Time that a wait spins before it sleeps: about the cost of a wake-up.
const SPIN: Duration = Duration::from_micros(100);

/// Longest sleep: the delay until a failed peer is noticed.
const SLEEP_MAX_MS: i32 = 50;

/// Longest sleep when other threads use the library, because their calls may handle the awaited
/// event.
const SHARED_SLEEP_MAX_MS: i32 = 1;

/// Takes the next event of a port, if there is one.
#[inline]
fn take(machine: &mut Held, own: u8) -> Option<gm_recv_event> {
    let mut world = machine.world();
    world.port(own).release_fast();
    let next = world.next_event(own)?;
    let port = world.port(own);
    Some(match next {
        Item::Message(Arrived { event, .. }) => {
            port.recv_tokens += 1;
            port.read_fast(&event);
            event
        }
        Item::Sent(ended) if ended.completion.report == Reporting::List => {
            port.send_tokens += 1;
            list(own, &ended)
        }
        Item::Sent(ended) => {
            port.ended.push_back(ended);
            gm_recv_event::bare(GM_SENT_EVENT)
        }
        Item::Alarm(number) => {
            port.alarmed.push_back(number);
            gm_recv_event::bare(GM_ALARM_EVENT)
        }
        Item::Violation(kind) => gm_recv_event::bare(kind.into()),
    })
}

/// Handles received messages and due alarms.
#[inline]
fn poll(machine: &mut Held, own: u8) -> Result<(), Failure> {
    machine.poll()?;
    let mut world = machine.world();
    let port = world.port(own);
    if !port.alarms.is_empty() {
        for number in port.alarms.take_due(Instant::now()) {
            port.low.push_back(Item::Alarm(number));
        }
    }
    Ok(())
}

fn hand_out(own: u8, event: gm_recv_event) -> *mut gm_recv_event {
    let at = EVENTS.0[usize::from(own)].get();
    // SAFETY: the lock is held, and the program does not read the last event after it has requested
    // the next one.
    unsafe { at.write(event) };
    at
}

/// Returns the next event of a port. Its type is GM_NO_RECV_EVENT when there is none. The event is
/// valid until the next call for the port. Pass events that the program does not handle to
/// gm_unknown().
#[unsafe(no_mangle)]
pub extern "C" fn gm_receive(port: *mut gm_port) -> *mut gm_recv_event {
    must("gm_receive", || {
        let (mut machine, own) = enter(port)?;
        let event = match take(&mut machine, own) {
            Some(event) => event,
            None => {
                poll(&mut machine, own)?;
                take(&mut machine, own).unwrap_or(gm_recv_event::NONE)
            }
        };
        Ok(hand_out(own, event))
    })
}

/// Returns 1 if gm_receive() would return an event, and 0 otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn gm_receive_pending(port: *mut gm_port) -> c_int {
    must("gm_receive_pending", || {
        let (mut machine, own) = enter(port)?;
        if !machine.world().has_events(own) {
            poll(&mut machine, own)?;
        }
        Ok(c_int::from(machine.world().has_events(own)))
    })
}

/// Returns the type of the event that gm_receive() would return. Stores the node that sent a
/// message in `sender`, or 0 for other events. `sender` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_next_event_peek(port: *mut gm_port, sender: *mut u16) -> c_int {
    must("gm_next_event_peek", || {
        let (mut machine, own) = enter(port)?;
        if !machine.world().has_events(own) {
            poll(&mut machine, own)?;
        }
        let (kind, node) = machine.world().peek_event(own);
        if !sender.is_null() {
            // SAFETY: the program passes valid arguments, as the function's documentation requires.
            unsafe { sender.write(node) };
        }
        Ok(c_int::from(kind))
    })
}

/// Waits for an event. Polls for the time `spin` before it sleeps.
fn wait(port: *mut gm_port, spin: Duration) -> Result<*mut gm_recv_event, Failure> {
    let begun = Instant::now();
    loop {
        let (mut machine, own) = enter(port)?;
        if let Some(event) = take(&mut machine, own) {
            return Ok(hand_out(own, event));
        }
        poll(&mut machine, own)?;
        if let Some(event) = take(&mut machine, own) {
            return Ok(hand_out(own, event));
        }
        if begun.elapsed() < spin {
            drop(machine);
            std::thread::yield_now();
            continue;
        }
        // Before a sleep, check for failed peers and for messages that have waited too long.
        machine.check_waits()?;
        if !machine.world().has_events(own) {
            // Senders must not wait until this process wakes up.
            machine.acknowledge()?;
            sleep(machine, own)?;
        }
    }
}

/// Sleeps until a message arrives, an alarm is due, or a check is due. Other threads may lock the
/// machine meanwhile.
fn sleep(mut machine: Held, own: u8) -> Result<(), Failure> {
    let timeout_max = match is_shared() {
        true => SHARED_SLEEP_MAX_MS,
        false => SLEEP_MAX_MS,
    };
    let next = machine.world().port(own).alarms.next();
    let left = next.map(|next| next.saturating_duration_since(Instant::now()).as_millis());
    let left = left.and_then(|left| i32::try_from(left).ok());
    let timeout = left.map_or(timeout_max, |left| left.min(timeout_max));
    if !portolan_ffi::arm(machine.node()?)? {
        machine.node()?.disarm();
        return Ok(());
    }
    let mut poll = libc::pollfd {
        fd: machine.event_fd,
        events: libc::POLLIN,
        revents: 0,
    };
    drop(machine);
    // SAFETY: `poll` is one valid entry.
    let _woken: c_int = unsafe { libc::poll(&raw mut poll, 1, timeout) };
    lock()?.node()?.disarm();
    Ok(())
}

/// Waits for an event like gm_receive(). It polls for a while before it sleeps.
#[unsafe(no_mangle)]
pub extern "C" fn gm_blocking_receive(port: *mut gm_port) -> *mut gm_recv_event {
    must("gm_blocking_receive", || wait(port, SPIN))
}

/// Waits for an event like gm_receive(). It sleeps at once when there is none.
#[unsafe(no_mangle)]
pub extern "C" fn gm_blocking_receive_no_spin(port: *mut gm_port) -> *mut gm_recv_event {
    must("gm_blocking_receive_no_spin", || wait(port, Duration::ZERO))
}

/// Action of the library for an event.
enum Action {
    Nothing,
    Call(Completion, c_int),
    CallAlarm(crate::alarm::Due),
    Die(&'static str),
}

/// Handles an event that the program does not handle. For an ended send or an alarm, calls its
/// function. A short message is copied to its buffer and received again, as an event without FAST
/// in its name. A token violation ends the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_unknown(port: *mut gm_port, event: *mut gm_recv_event) {
    must("gm_unknown", || {
        let (machine, own) = enter(port)?;
        if event.is_null() {
            return Err(Failure::null("event"));
        }
        // SAFETY: the program passes an event that gm_receive() has returned.
        let event = unsafe { *event };
        let action = decide(&machine, own, event);
        drop(machine);
        match action {
            Action::Nothing => {}
            Action::Call(completion, status) => {
                if let Some(callback) = completion.callback {
                    // SAFETY: the program registered this function to be called with this context.
                    unsafe { callback(handle_of(own), completion.context, status) };
                }
            }
            Action::CallAlarm(due) => due.call(),
            Action::Die(why) => die(why, 1),
        }
        Ok(())
    });
}

fn decide(machine: &Held, own: u8, event: gm_recv_event) -> Action {
    let mut world = machine.world();
    let port = world.port(own);
    // SAFETY: every bit pattern is valid for these integers.
    let fields = unsafe { event.recv };
    match c_uint::from(fields.r#type) {
        GM_SENDS_FAILED_EVENT => Action::Die("a send without a callback has failed"),
        // The event of a send without a callback.
        GM_SENT_EVENT if fields.message != 0 => Action::Nothing,
        GM_SENT_EVENT => match port.ended.pop_front() {
            Some(ended) => {
                port.send_tokens += 1;
                Action::Call(ended.completion, ended.status)
            }
            None => Action::Nothing,
        },
        GM_ALARM_EVENT => match port.alarmed.pop_front() {
            Some(number) => port
                .alarms
                .take(number)
                .map_or(Action::Nothing, Action::CallAlarm),
            None => Action::Nothing,
        },
        GM_SEND_TOKEN_VIOLATION_EVENT => Action::Die("the program has sent without a send token"),
        GM_RECV_TOKEN_VIOLATION_EVENT => {
            Action::Die("the program has provided a buffer without a receive token")
        }
        _ => {
            if let Some(kind) = slow_kind(fields.r#type) {
                let (from, to) = (gm_ntohp(fields.message), gm_ntohp(fields.buffer));
                // SAFETY: `from` is the slot of a short message, and `to` its buffer, which is
                // longer.
                unsafe { gm_memorize_message(from, to, u32::from_be(fields.length)) };
                port.recv_tokens = port.recv_tokens.saturating_sub(1);
                let recv = gm_recv_event_fields {
                    message: 0,
                    r#type: kind,
                    ..fields
                };
                let again = Arrived::new(gm_recv_event { recv }, 0);
                port.high.push_front(Item::Message(again));
            }
            Action::Nothing
        }
    }
}

const _: () = assert!(GM_SUCCESS == 0, "programs test a status for zero");
