// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends: messages, datagrams, and access to the memory of other processes. Each takes a send
//! token, which the program gets back when its callback runs.

use crate::buffer::{checked_size, is_high};
use crate::code::*;
use crate::conn::{Completion, Key, Sending, gm_send_completion_callback_t};
use crate::error::{Failure, is_about_peer};
use crate::event::{GM_SEND_TOKEN_VIOLATION_EVENT, gm_max_length_for_size};
use crate::machine::{Held, Machine, enter, must};
use crate::port::{
    GM_PLUS_BEST_EFFORT, GM_PLUS_INLINE, GM_PLUS_LEN_MAX, GM_PLUS_UNACKNOWLEDGED, gm_port,
};
use crate::pump::{
    INLINE_LEN_MAX, control, post_reply, transmit, transmit_best_effort, transmit_long,
};
use crate::wire::{Header, Kind};
use crate::world::{Item, PORTS, World};
use std::ffi::{c_uint, c_void};

/// Longest message, in bytes.
const LEN_MAX: usize = (1 << 31) - 1;

/// Arguments of a send function.
pub(crate) struct Call {
    pub(crate) port: *mut gm_port,
    /// Address of the bytes; for a get, their destination.
    pub(crate) at: *mut u8,
    pub(crate) len: gm_size_t,
    pub(crate) size: c_uint,
    pub(crate) priority: c_uint,
    pub(crate) node: c_uint,
    pub(crate) to_port: c_uint,
    pub(crate) completion: Completion,
    pub(crate) addr: u64,
}

/// Checked values of a valid call.
struct Checked {
    key: Key,
    size: u8,
    len: usize,
}

impl Call {
    /// Checks the call. An error is the status for its callback.
    fn check(&self, own: u8, nodes: u32) -> Result<Checked, gm_status_t> {
        let invalid = |_: Failure| GM_INVALID_PARAMETER;
        let high = is_high(self.priority).map_err(invalid)?;
        let size = checked_size(self.size).map_err(invalid)?;
        let len = usize::try_from(self.len).map_err(|_| GM_INVALID_PARAMETER)?;
        if len > LEN_MAX || self.at.is_null() && len > 0 {
            return Err(GM_INVALID_PARAMETER);
        }
        let other = u8::try_from(self.to_port).ok();
        let Some(other) = other.filter(|other| usize::from(*other) < PORTS) else {
            return Err(GM_INVALID_PORT_NUMBER);
        };
        let rank = match self.node.checked_sub(1) {
            Some(rank) if rank < nodes => rank,
            _ => return Err(GM_SEND_TARGET_NODE_UNREACHABLE),
        };
        let key = Key {
            rank,
            own,
            other,
            high,
        };
        Ok(Checked { key, size, len })
    }

    /// Returns the bytes.
    ///
    /// # Safety
    /// They must be valid, and unchanged while the slice is used.
    unsafe fn bytes<'a>(&self, len: usize) -> &'a [u8] {
        // SAFETY: `check` has refused null for a non-zero length; the rest is guaranteed by the
        // caller.
        unsafe { portolan_ffi::bytes(self.at, len) }.unwrap_or(&[])
    }
}

impl World {
    /// Takes a send token. If there is none, an event notifies the program.
    #[inline]
    pub(crate) fn take_token(&mut self, own: u8) -> bool {
        let port = self.port(own);
        match port.send_tokens.checked_sub(1) {
            Some(left) => {
                port.send_tokens = left;
                true
            }
            None => {
                let kind = u8::try_from(GM_SEND_TOKEN_VIOLATION_EVENT).unwrap_or(0);
                port.low.push_back(Item::Violation(kind));
                false
            }
        }
    }

    /// Returns the checked values of a valid call. Notifies the program of an invalid one.
    #[inline]
    fn begin(&mut self, call: &Call, own: u8) -> Option<Checked> {
        if !self.take_token(own) {
            return None;
        }
        let status = match call.check(own, self.size) {
            Ok(checked) if !self.peer(checked.key.rank).has_failed => return Some(checked),
            Ok(checked) => {
                self.conn(checked.key).is_disabled = true;
                GM_SEND_TARGET_NODE_UNREACHABLE
            }
            Err(status) => status,
        };
        self.port(own).push_ended(call.completion, status);
        None
    }
}

impl Sending {
    /// Creates the entry of a send whose bytes follow their header.
    #[inline]
    pub(crate) fn short(completion: Completion) -> Sending {
        Sending {
            completion,
            request: None,
            place: (0, 0),
            is_get: false,
            is_drop: false,
            is_orphan: false,
        }
    }
}

impl Machine {
    /// Adds a send whose end the receiver will report.
    #[inline]
    pub(crate) fn note(&mut self, key: Key, sending: Sending) {
        self.world().conn(key).sent.push_back(sending);
    }

    /// Ends a send of which nothing was transmitted. Unless the receiver is the reason, later sends
    /// continue.
    #[cold]
    fn refuse(
        &mut self,
        key: Key,
        sending: Sending,
        error: portolan::Error,
    ) -> Result<(), Failure> {
        let is_lost = is_about_peer(&error);
        let status = Failure::from(error).record();
        {
            let mut world = self.world();
            world.end_send(key, sending, status);
            if is_lost {
                world.conn(key).is_disabled = true;
                world.fail_peer(key.rank);
            }
        }
        self.work()
    }

    /// Ends the send that was added last, whose header was not transmitted.
    #[cold]
    fn undo_send(
        &mut self,
        key: Key,
        has_bytes: bool,
        error: portolan::Error,
    ) -> Result<(), Failure> {
        if is_about_peer(&error) {
            self.world().fail_peer(key.rank);
            return self.work();
        }
        // Its bytes were transmitted, and the receiver will never get their header.
        if has_bytes {
            return Err(error.into());
        }
        let added = self.world().conn(key).sent.pop_back();
        match added {
            Some(sending) => self.refuse(key, sending, error),
            None => Ok(()),
        }
    }

    fn end_at_once(&mut self, own: u8, completion: Completion, status: gm_status_t) {
        self.world().port(own).push_ended(completion, status);
    }
}

/// Begins a call. Returns the machine and the checked values, unless the call has already ended.
#[inline]
fn begin(call: &Call) -> Result<Option<(Held, Checked)>, Failure> {
    let (mut machine, own) = enter(call.port)?;
    let checked = machine.world().begin(call, own);
    if let Some(Checked { key, .. }) = checked {
        machine.acknowledge_before(key)?;
    }
    Ok(checked.map(|checked| (machine, checked)))
}

/// Sends the bytes of a call as `kind`, or as `long_kind` if they are long.
///
/// # Safety
/// The bytes of the call must be valid and unchanged until its callback runs.
unsafe fn send(call: &Call, kind: Kind, long_kind: Kind) -> Result<(), Failure> {
    let Some((mut machine, checked)) = begin(call)? else {
        return Ok(());
    };
    let Checked { key, size, len } = checked;
    let is_message = kind == Kind::Data;
    if is_message && call.len > gm_max_length_for_size(call.size) {
        machine.end_at_once(key.own, call.completion, GM_INVALID_PARAMETER);
        return Ok(());
    }
    let is_small = is_message && len <= GM_PLUS_LEN_MAX as usize;
    let options = machine.world().port(key.own).options;
    if is_small && options & (GM_PLUS_UNACKNOWLEDGED | GM_PLUS_BEST_EFFORT) != 0 {
        let may_be_lost = options & GM_PLUS_BEST_EFFORT != 0;
        // SAFETY: guaranteed by the caller, see `# Safety`.
        return unsafe { send_unacknowledged(machine, call, &checked, (Kind::Loose, may_be_lost)) };
    }
    if len > INLINE_LEN_MAX {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        return unsafe { send_long(&mut machine, call, &checked, long_kind) };
    }
    let ack = {
        let mut world = machine.world();
        let conn = world.conn(key);
        // Added before it is sent, since its acknowledgement may arrive within the same call.
        conn.sent.push_back(Sending::short(call.completion));
        conn.mark_acknowledged(key.high)
    };
    let header = Header {
        size,
        len: u32::try_from(len).unwrap_or(u32::MAX),
        addr: call.addr,
        ..control(key, kind, ack, 0)
    };
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let bytes = unsafe { call.bytes(len) };
    let at_once = is_small && options & GM_PLUS_INLINE != 0;
    match transmit(machine.node()?, key.rank, &header, bytes, at_once) {
        Ok(()) => Ok(()),
        Err(error) => machine.undo_send(key, false, error),
    }
}

/// Sends like [`send`], with the bytes sent separately before their header. The send is added
/// before the header is sent.
///
/// # Safety
/// As [`send`].
#[cold]
unsafe fn send_long(
    machine: &mut Machine,
    call: &Call,
    checked: &Checked,
    kind: Kind,
) -> Result<(), Failure> {
    let Checked { key, size, len } = *checked;
    let tag = machine.world().new_tag();
    let mut sending = Sending::short(call.completion);
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let sent = unsafe { transmit_long(machine.node()?, key, tag, (call.at, len)) };
    match sent {
        Ok(request) => {
            sending.request = Some(request);
            sending.place = (call.at.addr(), len);
        }
        // No header without its bytes.
        Err(error) => return machine.refuse(key, sending, error),
    }
    let ack = {
        let mut world = machine.world();
        let conn = world.conn(key);
        conn.sent.push_back(sending);
        conn.mark_acknowledged(key.high)
    };
    let header = Header {
        size,
        len: u32::try_from(len).unwrap_or(u32::MAX),
        addr: call.addr,
        ..control(key, kind, ack, tag)
    };
    match transmit(machine.node()?, key.rank, &header, &[], true) {
        Ok(()) => Ok(()),
        Err(error) => machine.undo_send(key, true, error),
    }
}

/// Sends a message without an acknowledgement: it has ended when it was sent.
///
/// # Safety
/// The bytes of the call must be valid.
unsafe fn send_unacknowledged(
    mut machine: Held,
    call: &Call,
    checked: &Checked,
    (kind, may_be_lost): (Kind, bool),
) -> Result<(), Failure> {
    let Checked { key, size, len } = *checked;
    // The count of a message that may be lost is sent again by another one.
    let ack = match may_be_lost {
        true => machine.world().conn(key).accepted,
        false => machine.world().conn(key).mark_acknowledged(key.high),
    };
    let header = Header {
        size,
        len: u32::try_from(len).unwrap_or(u32::MAX),
        ..control(key, kind, ack, 0)
    };
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let bytes = unsafe { call.bytes(len) };
    let node = machine.node()?;
    let sent = match may_be_lost {
        true => transmit_best_effort(node, key.rank, &header, bytes),
        false => transmit(node, key.rank, &header, bytes, true),
    };
    let status = match sent {
        Ok(()) => GM_SUCCESS,
        Err(error) => {
            if is_about_peer(&error) {
                machine.world().fail_peer(key.rank);
            }
            Failure::from(error).record()
        }
    };
    machine.end_at_once(key.own, call.completion, status);
    Ok(())
}

/// Starts to send a message.
///
/// # Safety
/// The bytes of the call must be valid and unchanged until its end is reported.
pub(crate) unsafe fn start_message(call: &Call) -> Result<(), Failure> {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    unsafe { send(call, Kind::Data, Kind::LongData) }
}

/// Starts to write to remote memory.
///
/// # Safety
/// As [`start_message`].
pub(crate) unsafe fn start_put(call: &Call) -> Result<(), Failure> {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    unsafe { send(call, Kind::Put, Kind::LongPut) }
}

/// Starts to read remote memory.
///
/// # Safety
/// The memory of the call must be valid and unused until its end is reported.
pub(crate) unsafe fn start_get(call: &Call) -> Result<(), Failure> {
    let Some((mut machine, checked)) = begin(call)? else {
        return Ok(());
    };
    // SAFETY: guaranteed by the caller, see `# Safety`.
    unsafe { get(&mut machine, call, &checked) }
}

/// Sends `len` bytes with `size` and `priority` to port `target_port_id` of node `target_node_id`.
/// Messages of one pair of ports and one priority arrive in the order in which they were sent. When
/// the message was accepted into a buffer there, or has failed, gm_unknown() calls `callback` with
/// the status. The bytes must stay unchanged until then. Takes a send token. If there is none, the
/// port gets a GM_SEND_TOKEN_VIOLATION_EVENT, and nothing is sent.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is GM's")]
pub unsafe extern "C" fn gm_send_with_callback(
    port: *mut gm_port,
    message: *mut c_void,
    size: c_uint,
    len: gm_size_t,
    priority: c_uint,
    target_node_id: c_uint,
    target_port_id: c_uint,
    callback: gm_send_completion_callback_t,
    context: *mut c_void,
) {
    let call = Call {
        port,
        at: message.cast(),
        len,
        size,
        priority,
        node: target_node_id,
        to_port: target_port_id,
        completion: Completion::new(callback, context),
        addr: 0,
    };
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    must("gm_send_with_callback", || unsafe { start_message(&call) });
}

/// Sends like gm_send_with_callback(), to the port with the same number as this one.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is GM's")]
pub unsafe extern "C" fn gm_send_to_peer_with_callback(
    port: *mut gm_port,
    message: *mut c_void,
    size: c_uint,
    len: gm_size_t,
    priority: c_uint,
    target_node_id: c_uint,
    callback: gm_send_completion_callback_t,
    context: *mut c_void,
) {
    let own = crate::port::gm_get_port_id(port);
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe {
        gm_send_with_callback(
            port,
            message,
            size,
            len,
            priority,
            target_node_id,
            own,
            callback,
            context,
        );
    }
}

/// Sends up to gm_mtu() bytes that may be lost: on the network, or for lack of a buffer. The
/// callback runs when they were sent.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is GM's")]
pub unsafe extern "C" fn gm_datagram_send(
    port: *mut gm_port,
    message: *mut c_void,
    size: c_uint,
    len: gm_size_t,
    priority: c_uint,
    target_node_id: c_uint,
    target_port_id: c_uint,
    callback: gm_send_completion_callback_t,
    context: *mut c_void,
) {
    let call = Call {
        port,
        at: message.cast(),
        len,
        size,
        priority,
        node: target_node_id,
        to_port: target_port_id,
        completion: Completion::new(callback, context),
        addr: 0,
    };
    must("gm_datagram_send", || {
        let Some((mut machine, checked)) = begin(&call)? else {
            return Ok(());
        };
        if checked.len > INLINE_LEN_MAX || len > gm_max_length_for_size(size) {
            machine.end_at_once(checked.key.own, call.completion, GM_INVALID_PARAMETER);
            return Ok(());
        }
        // SAFETY: the program passes valid arguments, as the function's documentation requires.
        unsafe { send_unacknowledged(machine, &call, &checked, (Kind::Datagram, true)) }
    });
}

/// Writes `len` bytes to address `target` of the process with port `target_port_id` of node
/// `target_node_id`. That process must have registered the memory and called
/// gm_allow_remote_memory_access(). Its program gets no event. The write is ordered with messages
/// of the same ports and priority.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is GM's")]
pub unsafe extern "C" fn gm_directed_send_with_callback(
    port: *mut gm_port,
    source: *mut c_void,
    target: gm_remote_ptr_t,
    len: gm_size_t,
    priority: c_uint,
    target_node_id: c_uint,
    target_port_id: c_uint,
    callback: gm_send_completion_callback_t,
    context: *mut c_void,
) {
    let call = Call {
        port,
        at: source.cast(),
        len,
        size: 0,
        priority,
        node: target_node_id,
        to_port: target_port_id,
        completion: Completion::new(callback, context),
        addr: target,
    };
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    must("gm_directed_send_with_callback", || unsafe {
        start_put(&call)
    });
}

/// Does the same as gm_directed_send_with_callback().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is GM's")]
pub unsafe extern "C" fn gm_put(
    port: *mut gm_port,
    source: *mut c_void,
    target: gm_remote_ptr_t,
    len: gm_size_t,
    priority: c_uint,
    target_node_id: c_uint,
    target_port_id: c_uint,
    callback: gm_send_completion_callback_t,
    context: *mut c_void,
) {
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    unsafe {
        gm_directed_send_with_callback(
            port,
            source,
            target,
            len,
            priority,
            target_node_id,
            target_port_id,
            callback,
            context,
        );
    }
}

/// Reads `len` bytes at address `source` of the process with port `source_port_id` of node
/// `source_node_id` into `target`. The conditions are those of gm_directed_send_with_callback().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is GM's")]
pub unsafe extern "C" fn gm_get(
    port: *mut gm_port,
    source: gm_remote_ptr_t,
    target: *mut c_void,
    len: gm_size_t,
    priority: c_uint,
    source_node_id: c_uint,
    source_port_id: c_uint,
    callback: gm_send_completion_callback_t,
    context: *mut c_void,
) {
    let call = Call {
        port,
        at: target.cast(),
        len,
        size: 0,
        priority,
        node: source_node_id,
        to_port: source_port_id,
        completion: Completion::new(callback, context),
        addr: source,
    };
    // SAFETY: the program guarantees that the memory is valid and unused until the callback runs.
    must("gm_get", || unsafe { start_get(&call) });
}

/// Starts a get.
///
/// # Safety
/// The memory of the call must be valid, and unused by others until its callback runs.
unsafe fn get(machine: &mut Machine, call: &Call, checked: &Checked) -> Result<(), Failure> {
    let Checked { key, len, .. } = *checked;
    let (ack, tag) = {
        let mut world = machine.world();
        let tag = world.new_tag();
        (world.conn(key).mark_acknowledged(key.high), tag)
    };
    let at = match len {
        0 => std::ptr::NonNull::dangling().as_ptr(),
        _ => call.at,
    };
    // SAFETY: guaranteed by the caller, see `# Safety`.
    let request = unsafe { post_reply(machine.node()?, key, tag, (at, len))? };
    let header = Header {
        len: u32::try_from(len).unwrap_or(u32::MAX),
        addr: call.addr,
        ..control(key, Kind::Get, ack, tag)
    };
    machine.note(
        key,
        Sending {
            request: Some(request),
            place: (at.addr(), len),
            is_get: true,
            ..Sending::short(call.completion)
        },
    );
    match transmit(machine.node()?, key.rank, &header, &[], true) {
        Ok(()) => Ok(()),
        Err(error) => machine.undo_send(key, false, error),
    }
}

/// Allows other processes to read and write the registered memory of this one through this port.
///
/// Errors: GM_UNATTACHED, GM_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub extern "C" fn gm_allow_remote_memory_access(port: *mut gm_port) -> gm_status_t {
    portolan_ffi::guard(|| {
        let (machine, own) = enter(port)?;
        machine.world().port(own).allows_remote = true;
        Ok(GM_SUCCESS)
    })
}
