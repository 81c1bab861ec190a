// SPDX-License-Identifier: MIT OR Apache-2.0
//! Active Ports. A port has a number. It is bound to a port of another process for sending, and has
//! buffers, a handler and a semaphore for receiving.
//!
//! Buffers are armed in the order in which they were passed; each receives one message. When the
//! last one was filled and the handler has armed no other, the port's kind decides:
//!
//! - `GO_FORTH` arms the rest of the buffer.
//! - `GO_BACK` arms the same buffer again, once the signal for the message was collected and the
//!   program waits for the semaphore again. If the handler has given no signal, the buffer is armed
//!   at once, and the port's semaphore is signalled when the handler returns.
//!
//! A message without an armed buffer waits.

use crate::code::*;
use crate::machine::{Caller, Machine, lock, running};
use portolan::binding::{Plumbing as _, TAKE_LEN_MAX};
use portolan::{Buffer, Context, Message, Node, PortConfig, Request, Target};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_int, c_uchar, c_ulong, c_void};
use std::ptr::NonNull;

/// After each message, the next one is written to the start of the buffer.
pub const GO_BACK: c_uchar = 0;
/// After each message, the next one is written behind it.
pub const GO_FORTH: c_uchar = 1;

/// In a handler: the port whose message is complete.
#[unsafe(no_mangle)]
pub static mut gamma_active_port: u16 = 0;

/// In a handler: length of the message in bytes. It exceeds the buffer's length if the buffer was
/// too short.
#[unsafe(no_mangle)]
pub static mut gamma_msglen: c_ulong = 0;

/// A receive handler.
pub type gamma_handler_t = Option<unsafe extern "C" fn()>;

/// A buffer of the program.
#[derive(Clone, Copy)]
pub(crate) struct UserBuffer {
    at: *mut u8,
    len: usize,
}

impl UserBuffer {
    pub(crate) fn new(at: *mut c_void, len: c_ulong) -> Result<UserBuffer, Failure> {
        let too_long = || {
            Failure::new(
                GAMMA_ERR_ARGUMENT,
                "the buffer length exceeds the memory of the process",
            )
        };
        let len = usize::try_from(len).map_err(|_| too_long())?;
        if len > isize::MAX.unsigned_abs() {
            return Err(too_long());
        }
        let at = match (at.is_null(), len) {
            (false, _) => at.cast(),
            (true, 0) => NonNull::dangling().as_ptr(),
            (true, _) => return Err(Failure::new(GAMMA_ERR_NULL, "the buffer is null")),
        };
        Ok(UserBuffer { at, len })
    }

    /// Returns the buffer without its first `used` bytes.
    fn rest(self, used: usize) -> UserBuffer {
        let used = used.min(self.len);
        // SAFETY: not beyond the end of the program's buffer.
        let at = unsafe { self.at.add(used) };
        UserBuffer {
            at,
            len: self.len - used,
        }
    }

    pub(crate) fn buffer(self) -> Buffer {
        // SAFETY: the program guarantees that the library owns the buffer until a message has
        // filled it, or the parallel section has ended.
        unsafe { Buffer::from_raw_mut(self.at, self.len) }
    }
}

/// A port; see the module documentation.
pub(crate) struct Port {
    number: u16,
    pub(crate) target: Cell<Target>,
    handler: Cell<gamma_handler_t>,
    semaphore: Cell<u16>,
    kind: Cell<c_uchar>,
    /// Set if the handler may run on a thread of the library.
    is_asynchronous: Cell<bool>,
    /// Armed buffers, in order.
    armed: RefCell<VecDeque<UserBuffer>>,
    /// The last filled buffer, if it waits to be armed again, with the semaphore and the number of
    /// the signal that must be collected first.
    filled: Cell<Option<UserBuffer>>,
    rearm_signal: Cell<(u16, u64)>,
    /// Length of the last message in bytes.
    last_len: Cell<u64>,
    /// The semaphore that the running handler has signalled.
    signalled: Cell<Option<u16>>,
    /// Set when the running handler has signalled an error.
    has_failed: Cell<bool>,
    /// Non-blocking sends whose completion was not collected.
    pub(crate) sends: RefCell<VecDeque<Request>>,
}

/// A port as a message handler of the node.
struct Incoming(&'static Port);

// SAFETY: a port is accessed only with the machine's lock held, and the thread that runs handlers
// holds it.
unsafe impl Send for Incoming {}

impl Port {
    /// Arms a buffer of the program.
    fn arm(&self, caller: Caller<'_>, user_buffer: UserBuffer) -> Result<(), Failure> {
        match caller {
            Caller::Program(mut node) => match node.as_mut() {
                // The requests are not awaited: the handler receives their buffers.
                Some(node) => {
                    self.filled.set(None);
                    self.armed.borrow_mut().push_back(user_buffer);
                    let _ = node.post_recv(self.number, user_buffer.buffer())?;
                }
                None => return Err(crate::machine::in_handler()),
            },
            Caller::Handler(context) => {
                self.filled.set(None);
                self.arm_in_handler(context, user_buffer)?;
            }
        }
        Ok(())
    }

    fn arm_in_handler(
        &self,
        context: &mut Context<'_>,
        user_buffer: UserBuffer,
    ) -> Result<(), Failure> {
        self.armed.borrow_mut().push_back(user_buffer);
        let _ = context.post_recv(self.number, user_buffer.buffer())?;
        Ok(())
    }

    /// Arms the last filled buffer, if it still waits for that.
    pub(crate) fn rearm(&self, node: &mut Node) -> Result<(), Failure> {
        let Some(user_buffer) = self.filled.take() else {
            return Ok(());
        };
        self.armed.borrow_mut().push_back(user_buffer);
        let _ = node.post_recv(self.number, user_buffer.buffer())?;
        Ok(())
    }

    /// Waits for the next message for the last filled buffer. A message that arrives soon is copied
    /// directly from its frame, which is cheaper than arming the buffer. Otherwise the buffer is
    /// armed.
    #[inline]
    pub(crate) fn take(
        &'static self,
        machine: &Machine,
        stop: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        machine.with_node(|node| {
            let Some(user_buffer) = self.filled.get() else {
                return Ok(());
            };
            // A sender of long messages is likely to send more, which are better received in place.
            // A message without flow control is lost if it does not fit here and no buffer is
            // armed.
            if self.last_len.get() > TAKE_LEN_MAX as u64 || machine.best_effort.get() {
                return self.rearm(node);
            }
            // SAFETY: the program guarantees that the port owns the buffer until a message has
            // filled it. The slice is not used after `Node::take`.
            let bytes = unsafe { std::slice::from_raw_parts_mut(user_buffer.at, user_buffer.len) };
            let Some(envelope) = node.take(self.number, bytes, stop) else {
                return self.rearm(node);
            };
            let len = envelope.len as u64;
            node.in_context(|context| self.received(machine, context, Some(user_buffer), len));
            Ok(())
        })
    }

    /// Returns true if messages may be handled on a thread of the library.
    pub(crate) fn runs_anywhere(&self) -> bool {
        self.is_asynchronous.get() || self.handler.get().is_none()
    }

    /// Returns true if a buffer waits for exactly this signal to be collected.
    #[inline]
    pub(crate) fn is_waiting_for(&self, semaphore: u16, signal: u64) -> bool {
        self.filled.get().is_some() && self.rearm_signal.get() == (semaphore, signal)
    }

    /// Handles a complete message that was received into an armed buffer.
    fn on_message(&'static self, context: &mut Context<'_>, message: &mut Message<'_>) {
        let machine = lock();
        let len = message.message_len();
        // Return the memory to the program.
        drop(message.take_buffer());
        let user_buffer = self.armed.borrow_mut().pop_front();
        self.received(&machine, context, user_buffer, len);
    }

    /// Handles a message of `len` bytes that is complete in `user_buffer`, as far as it fits.
    #[inline]
    fn received(
        &'static self,
        machine: &Machine,
        context: &mut Context<'_>,
        user_buffer: Option<UserBuffer>,
        len: u64,
    ) {
        let used = usize::try_from(len).unwrap_or(usize::MAX);
        let truncated = user_buffer.is_some_and(|user_buffer| user_buffer.len < used);
        self.last_len.set(len);
        self.filled.set(None);
        self.signalled.set(None);
        self.has_failed.set(false);
        match self.handler.get() {
            Some(handler) => self.run(machine, context, handler, len),
            None if truncated => machine.signal_error(self.semaphore.get()),
            None => {
                machine.signal(self.semaphore.get());
                self.signalled.set(Some(self.semaphore.get()));
            }
        }
        let Some(user_buffer) = user_buffer else {
            return;
        };
        if !self.armed.borrow().is_empty() {
            return;
        }
        if let Err(failure) = self.after(machine, context, user_buffer, used) {
            // The port was open a moment ago. Only the end of the parallel section can close it.
            drop(failure);
        }
    }

    fn run(
        &'static self,
        machine: &Machine,
        context: &mut Context<'_>,
        handler: unsafe extern "C" fn(),
        len: u64,
    ) {
        // SAFETY: written with the lock held, and intended to be read in the handler.
        unsafe {
            gamma_active_port = self.number;
            gamma_msglen = len;
        }
        let before = machine.running.replace(Some(self));
        // SAFETY: the program guarantees that its handler may be called.
        machine.with_context(context, || unsafe { handler() });
        machine.running.set(before);
        // OpenFOAM's Pstream waits for the semaphore although its handlers only record the message.
        // The buffer is still armed at once, because programs whose handlers do all the work never
        // wait.
        if self.signalled.get().is_none() && !self.has_failed.get() {
            machine.signal(self.semaphore.get());
        }
    }

    /// Handles a buffer after its message, if no other buffer is armed.
    fn after(
        &'static self,
        machine: &Machine,
        context: &mut Context<'_>,
        user_buffer: UserBuffer,
        used: usize,
    ) -> Result<(), Failure> {
        if self.kind.get() == GO_FORTH {
            let rest = user_buffer.rest(used);
            // An empty buffer accepts any number of empty messages.
            if rest.len > 0 || user_buffer.len == 0 {
                self.arm_in_handler(context, rest)?;
            }
            return Ok(());
        }
        match self.signalled.get() {
            Some(semaphore) => {
                self.filled.set(Some(user_buffer));
                let signal = machine.rearm_after(semaphore, self);
                self.rearm_signal.set((semaphore, signal));
            }
            None => self.arm_in_handler(context, user_buffer)?,
        }
        Ok(())
    }
}

impl Machine {
    /// Records that the running handler has signalled a semaphore.
    pub(crate) fn record_signal(&self, semaphore: u16) {
        if let Some(port) = self.running.get() {
            port.signalled.set(Some(semaphore));
        }
    }

    /// Records that the running handler has signalled an error.
    pub(crate) fn record_error(&self) {
        if let Some(port) = self.running.get() {
            port.has_failed.set(true);
        }
    }
}

/// Arguments that both kinds of ports share.
struct Setting {
    port: u16,
    dest_node: u16,
    dest_par_pid: c_uchar,
    dest_port: u16,
    handler: gamma_handler_t,
    semaphore: u16,
    kind: c_uchar,
    user_buffer: UserBuffer,
}

fn set(setting: &Setting) -> Result<c_int, Failure> {
    let machine = running()?;
    let target = target(&machine, setting)?;
    if setting.kind != GO_BACK && setting.kind != GO_FORTH {
        let text = format!(
            "buffer kind {} is unknown; use GO_BACK or GO_FORTH",
            setting.kind
        );
        return Err(Failure::new(GAMMA_ERR_ARGUMENT, text));
    }
    let port = match machine.port(setting.port) {
        Ok(port) => port,
        Err(_) => make(&machine, setting.port, target)?,
    };
    // Check this before any change, because it may fail.
    let caller = machine.caller()?;
    port.target.set(target);
    port.handler.set(setting.handler);
    port.semaphore.set(setting.semaphore);
    port.kind.set(setting.kind);
    port.arm(caller, setting.user_buffer)?;
    Ok(0)
}

/// Returns the destination, which may be in another group of the job.
fn target(machine: &Machine, setting: &Setting) -> Result<Target, Failure> {
    let ranks = machine.ranks_of(setting.dest_par_pid)?;
    let (node, size) = (u32::from(setting.dest_node), ranks.end - ranks.start);
    if node >= size {
        let text =
            format!("node {node} does not exist; the group has {size} nodes, numbered from 0");
        return Err(Failure::new(GAMMA_ERR_NODE, text));
    }
    Ok(Target::new(ranks.start + node, setting.dest_port))
}

fn make(machine: &Machine, number: u16, target: Target) -> Result<&'static Port, Failure> {
    let port: &'static Port = Box::leak(Box::new(Port {
        number,
        target: Cell::new(target),
        handler: Cell::new(None),
        semaphore: Cell::new(0),
        kind: Cell::new(GO_BACK),
        is_asynchronous: Cell::new(false),
        armed: RefCell::default(),
        filled: Cell::new(None),
        rearm_signal: Cell::new((0, 0)),
        last_len: Cell::new(0),
        signalled: Cell::new(None),
        has_failed: Cell::new(false),
        sends: RefCell::default(),
    }));
    let incoming = Incoming(port);
    let run = move |context: &mut Context<'_>, mut message: Message<'_>| {
        let Incoming(port) = &incoming;
        port.on_message(context, &mut message);
    };
    machine.with_node(|node| Ok(node.open_active(number, PortConfig::default(), run)?))?;
    let mut ports = machine.ports.borrow_mut();
    let index = usize::from(number);
    if index >= ports.len() {
        ports.resize(index + 1, None);
    }
    ports[index] = Some(port);
    Ok(port)
}

/// Binds `port` to port `dest_port` of node `dest_node` for sending, in the group of this process or
/// another one with the parallel PID `dest_par_pid`. Arms `buf` for receiving.
/// `handler` runs for each message. `semaphore` is signalled when the handler returns without a
/// call of gamma_signal() or gamma_sigerr(). Setting a port again changes its binding and arms one
/// more buffer.
///
/// Errors: GAMMA_ERR_NODE, GAMMA_ERR_PAR_PID, GAMMA_ERR_ARGUMENT, GAMMA_ERR_NULL,
/// GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is GAMMA's")]
pub unsafe extern "C" fn gamma_set_active_port(
    port: u16,
    dest_node: u16,
    dest_par_pid: c_uchar,
    dest_port: u16,
    handler: gamma_handler_t,
    semaphore: u16,
    buffer_kind: c_uchar,
    buf: *mut c_void,
    len: c_ulong,
) -> c_int {
    guard(|| {
        if handler.is_none() {
            let text = "handler is null; use gamma_set_passive_port() for a port without a handler";
            return Err(Failure::new(GAMMA_ERR_NULL, text));
        }
        set(&Setting {
            port,
            dest_node,
            dest_par_pid,
            dest_port,
            handler,
            semaphore,
            kind: buffer_kind,
            user_buffer: UserBuffer::new(buf, len)?,
        })
    })
}

/// Sets a port as gamma_set_active_port() does, without a handler: each message signals the
/// semaphore.
///
/// Errors: those of gamma_set_active_port().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is GAMMA's")]
pub unsafe extern "C" fn gamma_set_passive_port(
    port: u16,
    dest_node: u16,
    dest_par_pid: c_uchar,
    dest_port: u16,
    semaphore: u16,
    buffer_kind: c_uchar,
    buf: *mut c_void,
    len: c_ulong,
) -> c_int {
    guard(|| {
        set(&Setting {
            port,
            dest_node,
            dest_par_pid,
            dest_port,
            handler: None,
            semaphore,
            kind: buffer_kind,
            user_buffer: UserBuffer::new(buf, len)?,
        })
    })
}

/// Arms the next receive buffer of `port`. Several buffers may be armed; each receives one message.
/// Handlers may call it.
///
/// Errors: GAMMA_ERR_PORT, GAMMA_ERR_NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_post_recv(port: u16, buf: *mut c_void, len: c_ulong) -> c_int {
    guard(|| {
        let machine = running()?;
        let port = machine.port(port)?;
        let user_buffer = UserBuffer::new(buf, len)?;
        port.arm(machine.caller()?, user_buffer)?;
        Ok(0)
    })
}

/// Lets the handler of `port` run on a thread of the library while the program computes, as GAMMA's
/// handlers ran when a message arrived. It takes effect once it has been called for every port with
/// a handler. From then on, the program may use the handlers' data only within gamma_atomic(), and
/// waits do not sleep. Not in the original.
///
/// Errors: GAMMA_ERR_PORT, GAMMA_ERR_SYSTEM, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_handle_at_once(port: u16) -> c_int {
    guard(|| {
        let machine = running()?;
        let port = machine.port(port)?;
        machine.serve()?;
        port.is_asynchronous.set(true);
        Ok(0)
    })
}
