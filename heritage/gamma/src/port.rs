// SPDX-License-Identifier: MIT OR Apache-2.0
//! Active Ports: a number that is bound to a port of another process for sending, and has buffers,
//! a handler and a semaphore for receiving.
//!
//! Buffers are armed in the order in which they were given; each takes one message. When the last
//! has been filled and the handler has armed no other, what comes next depends on the port's kind:
//! `GO_FORTH` arms the rest of the buffer; `GO_BACK` arms all of it again, when the signal that
//! announced the message has been collected and the program waits for the semaphore anew, or at once
//! if the handler gave no signal. The port's semaphore is signalled then when the handler returns. A
//! message that finds no armed buffer waits.

use crate::code::*;
use crate::machine::{Caller, Machine, lock, running};
use portolan::{Buffer, Context, Message, Node, PortConfig, Request, Target};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_int, c_uchar, c_ulong, c_void};
use std::ptr::NonNull;

/// After each message, the next one goes to the start of the buffer.
pub const GO_BACK: c_uchar = 0;
/// After each message, the next one goes behind it.
pub const GO_FORTH: c_uchar = 1;

/// In a handler: the port whose message is complete.
#[unsafe(no_mangle)]
pub static mut gamma_active_port: u16 = 0;

/// In a handler: bytes of the message; more than the buffer has if it was too short.
#[unsafe(no_mangle)]
pub static mut gamma_msglen: c_ulong = 0;

/// A receiver handler.
pub type gamma_handler_t = Option<unsafe extern "C" fn()>;

/// A buffer of the program's.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    at: *mut u8,
    len: usize,
}

impl Place {
    pub(crate) fn new(at: *mut c_void, len: c_ulong) -> Result<Place, Failure> {
        let too_long = || Failure::new(GAMMA_ERR_ARGUMENT, "the buffer is longer than memory");
        let len = usize::try_from(len).map_err(|_| too_long())?;
        if len > isize::MAX.unsigned_abs() {
            return Err(too_long());
        }
        let at = match (at.is_null(), len) {
            (false, _) => at.cast(),
            (true, 0) => NonNull::dangling().as_ptr(),
            (true, _) => return Err(Failure::new(GAMMA_ERR_NULL, "the buffer is null")),
        };
        Ok(Place { at, len })
    }

    /// What is behind the first `used` bytes.
    fn rest(self, used: usize) -> Place {
        let used = used.min(self.len);
        // SAFETY: not beyond the end of the program's buffer.
        let at = unsafe { self.at.add(used) };
        Place {
            at,
            len: self.len - used,
        }
    }

    pub(crate) fn buffer(self) -> Buffer {
        // SAFETY: the program's promise: the buffer is the library's until a message has filled it,
        // or the parallel section is over.
        unsafe { Buffer::from_raw_mut(self.at, self.len) }
    }
}

/// See the module documentation.
pub(crate) struct Port {
    number: u16,
    pub(crate) target: Cell<Target>,
    handler: Cell<gamma_handler_t>,
    semaphore: Cell<u16>,
    kind: Cell<c_uchar>,
    /// Armed buffers, in order.
    armed: RefCell<VecDeque<Place>>,
    /// The buffer that was filled last, if it waits to be armed again, and the semaphore and number
    /// of the signal that must have been collected before.
    filled: Cell<Option<Place>>,
    owed_for: Cell<(u16, u64)>,
    /// Bytes of the last message.
    last_len: Cell<u64>,
    /// The semaphore that its handler has signalled while it runs now.
    signalled: Cell<Option<u16>>,
    /// Set when the handler that runs now has signalled an error.
    has_erred: Cell<bool>,
    /// Non-blocking sends that nobody has asked after.
    pub(crate) sends: RefCell<VecDeque<Request>>,
}

/// A port, as a handler of the node's.
struct Incoming(&'static Port);

// SAFETY: a port is reached only under the machine's lock, which the thread that runs the handlers
// holds.
unsafe impl Send for Incoming {}

impl Port {
    /// Arms a buffer of the program's.
    fn arm(&self, caller: Caller<'_>, place: Place) -> Result<(), Failure> {
        match caller {
            Caller::Program(mut node) => match node.as_mut() {
                // Nobody waits for these requests: the handler gets their buffers.
                Some(node) => {
                    self.filled.set(None);
                    self.armed.borrow_mut().push_back(place);
                    let _ = node.post_recv(self.number, place.buffer())?;
                }
                None => return Err(crate::machine::in_handler()),
            },
            Caller::Handler(context) => {
                self.filled.set(None);
                self.arm_in_handler(context, place)?;
            }
        }
        Ok(())
    }

    fn arm_in_handler(&self, context: &mut Context<'_>, place: Place) -> Result<(), Failure> {
        self.armed.borrow_mut().push_back(place);
        let _ = context.post_recv(self.number, place.buffer())?;
        Ok(())
    }

    /// Arms the buffer that was filled last, if it still waits for that.
    pub(crate) fn arm_again(&self, node: &mut Node) -> Result<(), Failure> {
        let Some(place) = self.filled.take() else {
            return Ok(());
        };
        self.armed.borrow_mut().push_back(place);
        let _ = node.post_recv(self.number, place.buffer())?;
        Ok(())
    }

    /// Waits for the next message into the buffer that was filled last. One that comes soon is
    /// taken straight from its frame, which is cheaper than to arm the buffer; else that is armed.
    #[inline]
    pub(crate) fn take(
        &'static self,
        machine: &Machine,
        stop: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        machine.with_node(|node| {
            let Some(place) = self.filled.get() else {
                return Ok(());
            };
            // Who sends long messages will send more of them, and they are received at their place. One
            // without flow control is lost if it does not fit here and no buffer is armed.
            if self.last_len.get() > Node::TAKE_LEN_MAX as u64 || machine.best_effort.get() {
                return self.arm_again(node);
            }
            // SAFETY: the program's promise: the buffer is the port's until a message has filled it.
            // It is not used beyond `Node::take`.
            let bytes = unsafe { std::slice::from_raw_parts_mut(place.at, place.len) };
            let Some(got) = node.take(self.number, bytes, stop) else {
                return self.arm_again(node);
            };
            let len = got.len as u64;
            node.in_context(|context| self.received(machine, context, Some(place), len));
            Ok(())
        })
    }

    /// Whether a buffer waits for just that signal to be collected.
    #[inline]
    pub(crate) fn is_owed_for(&self, semaphore: u16, signal: u64) -> bool {
        self.filled.get().is_some() && self.owed_for.get() == (semaphore, signal)
    }

    /// A message is complete that an armed buffer was for.
    fn on_message(&'static self, context: &mut Context<'_>, message: &mut Message<'_>) {
        let machine = lock();
        let len = message.message_len();
        // Gives the memory back to the program.
        drop(message.take_buffer());
        let place = self.armed.borrow_mut().pop_front();
        self.received(&machine, context, place, len);
    }

    /// A message of `len` bytes is complete in `place`, as far as it fits.
    #[inline]
    fn received(
        &'static self,
        machine: &Machine,
        context: &mut Context<'_>,
        place: Option<Place>,
        len: u64,
    ) {
        let used = usize::try_from(len).unwrap_or(usize::MAX);
        let truncated = place.is_some_and(|place| place.len < used);
        self.last_len.set(len);
        self.filled.set(None);
        self.signalled.set(None);
        self.has_erred.set(false);
        match self.handler.get() {
            Some(handler) => self.run(machine, context, handler, len),
            None if truncated => machine.signal_error(self.semaphore.get()),
            None => {
                machine.signal(self.semaphore.get());
                self.signalled.set(Some(self.semaphore.get()));
            }
        }
        let Some(place) = place else { return };
        if !self.armed.borrow().is_empty() {
            return;
        }
        if let Err(failure) = self.after(machine, context, place, used) {
            // The port was open a moment ago; it can only be closed by the end of everything.
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
        // SAFETY: written under the lock only, and meant to be read in the handler.
        unsafe {
            gamma_active_port = self.number;
            gamma_msglen = len;
        }
        let before = machine.running.replace(Some(self));
        // SAFETY: the program's promise about its handler.
        machine.with_context(context, || unsafe { handler() });
        machine.running.set(before);
        // OpenFOAM's Pstream waits for the semaphore of handlers that only note the message. The buffer
        // is armed at once all the same: programs whose handlers do all the work never wait.
        if self.signalled.get().is_none() && !self.has_erred.get() {
            machine.signal(self.semaphore.get());
        }
    }

    /// What becomes of a buffer after its message, when no other is armed.
    fn after(
        &'static self,
        machine: &Machine,
        context: &mut Context<'_>,
        place: Place,
        used: usize,
    ) -> Result<(), Failure> {
        if self.kind.get() == GO_FORTH {
            let rest = place.rest(used);
            // A buffer without bytes is for messages without bytes, of which it takes any number.
            if rest.len > 0 || place.len == 0 {
                self.arm_in_handler(context, rest)?;
            }
            return Ok(());
        }
        match self.signalled.get() {
            Some(semaphore) => {
                self.filled.set(Some(place));
                let signal = machine.owe(semaphore, self);
                self.owed_for.set((semaphore, signal));
            }
            None => self.arm_in_handler(context, place)?,
        }
        Ok(())
    }
}

impl Machine {
    /// The port whose handler runs has signalled a semaphore.
    pub(crate) fn note_signal(&self, semaphore: u16) {
        if let Some(port) = self.running.get() {
            port.signalled.set(Some(semaphore));
        }
    }

    /// The port whose handler runs has signalled an error.
    pub(crate) fn note_error(&self) {
        if let Some(port) = self.running.get() {
            port.has_erred.set(true);
        }
    }
}

/// What both kinds of ports have in common.
struct Setting {
    port: u16,
    dest_node: u16,
    dest_par_pid: c_uchar,
    dest_port: u16,
    handler: gamma_handler_t,
    semaphore: u16,
    kind: c_uchar,
    place: Place,
}

fn set(setting: &Setting) -> Result<c_int, Failure> {
    let machine = running()?;
    let (node, size) = (u32::from(setting.dest_node), machine.size.get());
    if node >= size {
        let text = format!("node {node} does not exist: this group has {size}, numbered from 0");
        return Err(Failure::new(GAMMA_ERR_NODE, text));
    }
    if setting.dest_par_pid != machine.par_pid.get() {
        let text = format!(
            "parallel PID {} is not this group's, {}; groups do not send to one another",
            setting.dest_par_pid,
            machine.par_pid.get()
        );
        return Err(Failure::new(GAMMA_ERR_PAR_PID, text));
    }
    if setting.kind != GO_BACK && setting.kind != GO_FORTH {
        let text = format!("buffer kind {}: take GO_BACK or GO_FORTH", setting.kind);
        return Err(Failure::new(GAMMA_ERR_ARGUMENT, text));
    }
    let target = Target::new(node, setting.dest_port);
    let port = match machine.port(setting.port) {
        Ok(port) => port,
        Err(_) => make(&machine, setting.port, target)?,
    };
    // Before anything is changed: it may refuse.
    let caller = machine.caller()?;
    port.target.set(target);
    port.handler.set(setting.handler);
    port.semaphore.set(setting.semaphore);
    port.kind.set(setting.kind);
    port.arm(caller, setting.place)?;
    Ok(0)
}

fn make(machine: &Machine, number: u16, target: Target) -> Result<&'static Port, Failure> {
    let port: &'static Port = Box::leak(Box::new(Port {
        number,
        target: Cell::new(target),
        handler: Cell::new(None),
        semaphore: Cell::new(0),
        kind: Cell::new(GO_BACK),
        armed: RefCell::default(),
        filled: Cell::new(None),
        owed_for: Cell::new((0, 0)),
        last_len: Cell::new(0),
        signalled: Cell::new(None),
        has_erred: Cell::new(false),
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

/// Binds `port` to port `dest_port` of node `dest_node` for sending, and arms `buf` for receiving:
/// for each message, `handler` runs. `semaphore` is signalled when it returns without a call of
/// gamma_signal() or gamma_sigerr(). A port may be set again, which binds it anew and arms one more
/// buffer.
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
            let text = "handler is null; a port without one is set by gamma_set_passive_port()";
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
            place: Place::new(buf, len)?,
        })
    })
}

/// As gamma_set_active_port(), without a handler: each message signals the semaphore.
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
            place: Place::new(buf, len)?,
        })
    })
}

/// Arms the next receive buffer of `port`. Several may be armed; each takes one message. Handlers
/// may call it.
///
/// Errors: GAMMA_ERR_PORT, GAMMA_ERR_NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_post_recv(port: u16, buf: *mut c_void, len: c_ulong) -> c_int {
    guard(|| {
        let machine = running()?;
        let port = machine.port(port)?;
        let place = Place::new(buf, len)?;
        port.arm(machine.caller()?, place)?;
        Ok(0)
    })
}
