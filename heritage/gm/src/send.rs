// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends: messages, datagrams, bytes into the memory of others and out of it. Each takes a send token,
//! which is the program's again when its callback runs.

use crate::buffer::{checked_size, is_high};
use crate::code::*;
use crate::conn::{Key, Sending, Told, gm_send_completion_callback_t};
use crate::error::{Failure, is_about_peer};
use crate::event::{GM_SEND_TOKEN_VIOLATION_EVENT, gm_max_length_for_size};
use crate::machine::{Held, Machine, enter, must};
use crate::port::{GM_PLUS_INLINE, GM_PLUS_LEN_MAX, GM_PLUS_UNACKNOWLEDGED, gm_port};
use crate::pump::{INLINE_LEN_MAX, control, expect_answer, transmit, transmit_long};
use crate::wire::{Header, Kind};
use crate::world::{Item, PORTS, World};
use std::ffi::{c_uint, c_void};

/// Longest message, in bytes.
const LEN_MAX: usize = (1 << 31) - 1;

/// What the program wants to send.
struct Call {
    port: *mut gm_port,
    /// Where the bytes are, or of a get, where they go.
    at: *mut u8,
    len: gm_size_t,
    size: c_uint,
    priority: c_uint,
    node: c_uint,
    to_port: c_uint,
    told: Told,
    addr: u64,
}

/// What is known of a call that can be carried out.
struct Checked {
    key: Key,
    size: u8,
    len: usize,
}

impl Call {
    /// Why it cannot be carried out, as the status that its callback gets.
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

    /// The bytes.
    ///
    /// # Safety
    /// They are there, and stay as they are while the slice is used.
    unsafe fn bytes<'a>(&self, len: usize) -> &'a [u8] {
        // SAFETY: not null where there are bytes, which `check` has seen; the rest is the caller's promise.
        unsafe { portolan_ffi::bytes(self.at, len) }.unwrap_or(&[])
    }
}

impl World {
    /// Takes a send token; an event tells the program that there was none.
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

    /// What is known of a call that can be carried out; of another one the program is told.
    #[inline]
    fn begin(&mut self, call: &Call, own: u8) -> Option<Checked> {
        if !self.take_token(own) {
            return None;
        }
        let status = match call.check(own, self.size) {
            Ok(checked) if !self.peer(checked.key.rank).is_gone => return Some(checked),
            Ok(checked) => {
                self.conn(checked.key).is_disabled = true;
                GM_SEND_TARGET_NODE_UNREACHABLE
            }
            Err(status) => status,
        };
        self.port(own).push_ended(call.told, status);
        None
    }
}

impl Sending {
    /// Of bytes that follow their header.
    #[inline]
    pub(crate) fn short(told: Told) -> Sending {
        Sending {
            told,
            request: None,
            place: (0, 0),
            is_get: false,
            is_drop: false,
            is_orphan: false,
        }
    }
}

impl Machine {
    /// Notes a send whose end a receiver will tell.
    #[inline]
    pub(crate) fn note(&mut self, key: Key, sending: Sending) {
        self.world().conn(key).sent.push_back(sending);
    }

    /// Ends a send of which nothing has left. If that is not its receiver's doing, those after it go on.
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
                world.lose(key.rank);
            }
        }
        self.work()
    }

    /// The same of the send that was noted last, whose header did not leave.
    #[cold]
    fn take_back(
        &mut self,
        key: Key,
        has_bytes: bool,
        error: portolan::Error,
    ) -> Result<(), Failure> {
        if is_about_peer(&error) {
            self.world().lose(key.rank);
            return self.work();
        }
        // They have left, and their receiver will never hear of them.
        if has_bytes {
            return Err(error.into());
        }
        let noted = self.world().conn(key).sent.pop_back();
        match noted {
            Some(sending) => self.refuse(key, sending, error),
            None => Ok(()),
        }
    }

    fn end_at_once(&mut self, own: u8, told: Told, status: gm_status_t) {
        self.world().port(own).push_ended(told, status);
    }
}

/// Begins a call: the machine and what is known, unless it has ended already.
#[inline]
fn begin(call: &Call) -> Result<Option<(Held, Checked)>, Failure> {
    let (mut machine, own) = enter(call.port)?;
    let checked = machine.world().begin(call, own);
    if let Some(Checked { key, .. }) = checked {
        machine.acknowledge_before(key)?;
    }
    Ok(checked.map(|checked| (machine, checked)))
}

/// Sends what a call is about, as `kind`, or if it is long, as `long_kind`.
///
/// # Safety
/// The bytes of the call are there, and stay as they are until its callback runs.
unsafe fn send(call: &Call, kind: Kind, long_kind: Kind) -> Result<(), Failure> {
    let Some((mut machine, checked)) = begin(call)? else {
        return Ok(());
    };
    let Checked { key, size, len } = checked;
    let is_message = kind == Kind::Data;
    if is_message && call.len > gm_max_length_for_size(call.size) {
        machine.end_at_once(key.own, call.told, GM_INVALID_PARAMETER);
        return Ok(());
    }
    let is_small = is_message && len <= GM_PLUS_LEN_MAX as usize;
    let options = machine.world().port(key.own).options;
    if is_small && options & GM_PLUS_UNACKNOWLEDGED != 0 {
        // SAFETY: the caller's promise.
        return unsafe { send_alone(machine, call, &checked, Kind::Loose) };
    }
    if len > INLINE_LEN_MAX {
        // SAFETY: the caller's promise.
        return unsafe { send_long(&mut machine, call, &checked, long_kind) };
    }
    let ack = {
        let mut world = machine.world();
        let conn = world.conn(key);
        // Noted before it leaves, since its acknowledgement may come with the same call.
        conn.sent.push_back(Sending::short(call.told));
        conn.tell(key.high)
    };
    let header = Header {
        size,
        len: u32::try_from(len).unwrap_or(u32::MAX),
        addr: call.addr,
        ..control(key, kind, ack, 0)
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { call.bytes(len) };
    let at_once = is_small && options & GM_PLUS_INLINE != 0;
    match transmit(machine.node()?, key.rank, &header, bytes, at_once) {
        Ok(()) => Ok(()),
        Err(error) => machine.take_back(key, false, error),
    }
}

/// The same of bytes that travel by themselves, and leave before their header, which is noted before it leaves.
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
    let mut sending = Sending::short(call.told);
    // SAFETY: the caller's promise.
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
        conn.tell(key.high)
    };
    let header = Header {
        size,
        len: u32::try_from(len).unwrap_or(u32::MAX),
        addr: call.addr,
        ..control(key, kind, ack, tag)
    };
    match transmit(machine.node()?, key.rank, &header, &[], true) {
        Ok(()) => Ok(()),
        Err(error) => machine.take_back(key, true, error),
    }
}

/// Sends a message that nobody acknowledges: it has ended when it has left.
///
/// # Safety
/// The bytes of the call are there.
unsafe fn send_alone(
    mut machine: Held,
    call: &Call,
    checked: &Checked,
    kind: Kind,
) -> Result<(), Failure> {
    let Checked { key, size, len } = *checked;
    // What may be lost tells nothing.
    let ack = match kind {
        Kind::Datagram => 0,
        _ => machine.world().conn(key).tell(key.high),
    };
    let header = Header {
        size,
        len: u32::try_from(len).unwrap_or(u32::MAX),
        ..control(key, kind, ack, 0)
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { call.bytes(len) };
    let status = match transmit(machine.node()?, key.rank, &header, bytes, true) {
        Ok(()) => GM_SUCCESS,
        Err(error) => {
            if is_about_peer(&error) {
                machine.world().lose(key.rank);
            }
            Failure::from(error).record()
        }
    };
    machine.end_at_once(key.own, call.told, status);
    Ok(())
}

/// Sends `len` bytes with `size` and `priority` to port `target_port_id` of node `target_node_id`. Of one
/// pair of ports and priority, messages arrive in the order in which they were sent. When it has been
/// accepted into a buffer there, or has failed, gm_unknown() calls `callback` with the reason; until then
/// the bytes must stay as they are. Takes a send token; when there is none, the port gets a
/// GM_SEND_TOKEN_VIOLATION_EVENT, and nothing is sent.
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
        told: Told { callback, context },
        addr: 0,
    };
    // SAFETY: the program's promise.
    must("gm_send_with_callback", || unsafe {
        send(&call, Kind::Data, Kind::LongData)
    });
}

/// As gm_send_with_callback(), to the port with the same number as this one.
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
    // SAFETY: the program's promise.
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

/// Sends up to gm_mtu() bytes that may be lost: on the network, or for want of a buffer. The callback
/// runs when they have left.
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
        told: Told { callback, context },
        addr: 0,
    };
    must("gm_datagram_send", || {
        let Some((mut machine, checked)) = begin(&call)? else {
            return Ok(());
        };
        if checked.len > INLINE_LEN_MAX || len > gm_max_length_for_size(size) {
            machine.end_at_once(checked.key.own, call.told, GM_INVALID_PARAMETER);
            return Ok(());
        }
        // SAFETY: the program's promise.
        unsafe { send_alone(machine, &call, &checked, Kind::Datagram) }
    });
}

/// Writes `len` bytes to address `target` of the process with port `target_port_id` of node
/// `target_node_id`, which has registered that memory and called gm_allow_remote_memory_access(). The
/// program there gets no event. It is in order with messages of the same ports and priority.
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
        told: Told { callback, context },
        addr: target,
    };
    // SAFETY: the program's promise.
    must("gm_directed_send_with_callback", || unsafe {
        send(&call, Kind::Put, Kind::LongPut)
    });
}

/// The same as gm_directed_send_with_callback().
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
    // SAFETY: the program's promise.
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
/// `source_node_id` into `target`, under the conditions of gm_directed_send_with_callback().
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
        told: Told { callback, context },
        addr: source,
    };
    must("gm_get", || {
        let Some((mut machine, checked)) = begin(&call)? else {
            return Ok(());
        };
        // SAFETY: the program's promise: the memory is the library's until the callback runs.
        unsafe { get(&mut machine, &call, &checked) }
    });
}

/// # Safety
/// The memory of the call is there and nobody else's until its callback runs.
unsafe fn get(machine: &mut Machine, call: &Call, checked: &Checked) -> Result<(), Failure> {
    let Checked { key, len, .. } = *checked;
    let (ack, tag) = {
        let mut world = machine.world();
        let tag = world.new_tag();
        (world.conn(key).tell(key.high), tag)
    };
    let at = match len {
        0 => std::ptr::NonNull::dangling().as_ptr(),
        _ => call.at,
    };
    // SAFETY: the caller's promise.
    let request = unsafe { expect_answer(machine.node()?, key, tag, (at, len))? };
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
            ..Sending::short(call.told)
        },
    );
    match transmit(machine.node()?, key.rank, &header, &[], true) {
        Ok(()) => Ok(()),
        Err(error) => machine.take_back(key, false, error),
    }
}

/// Lets other processes read and write the memory that this one has registered, by this port.
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
