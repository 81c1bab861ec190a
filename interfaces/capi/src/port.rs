// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports, and the handlers of active ones.

use crate::code::*;
use crate::failure::{Failure, guard};
use crate::handle::{enter, portolan_node_t};
use crate::types::{PORTOLAN_IN_PLACE, portolan_message_t};
use portolan::{Context, Message, PortConfig};
use std::ffi::{c_int, c_void};
use std::ptr;

/// Runs for each message to an active port, inside calls of the library. With `node` it may call
/// functions that start an operation without waiting (portolan_isend(), portolan_isend_copy(),
/// portolan_post_recv(), the same with tags, portolan_iput(), portolan_iget(), portolan_iatomic()),
/// portolan_rank() and portolan_size(). Its sends leave after it returns. It must return: no
/// exception, no longjmp().
pub type portolan_handler_t = Option<
    unsafe extern "C" fn(
        node: *mut portolan_node_t,
        message: *const portolan_message_t,
        user: *mut c_void,
    ),
>;

/// Converts a port number.
#[inline]
pub(crate) fn number(port: u32) -> Result<u16, Failure> {
    u16::try_from(port).map_err(|_| out_of_range(port))
}

#[cold]
fn out_of_range(port: u32) -> Failure {
    let text = format!("port {port} does not exist: ports are numbered from 0 to 65535");
    Failure::new(PORTOLAN_ERR_PORT, text)
}

/// Opens a port for portolan_recv() and portolan_post_recv(). Messages that arrived earlier are
/// held for it.
///
/// Errors: PORTOLAN_ERR_PORT, PORTOLAN_ERR_PORT_IN_USE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_open(node: *mut portolan_node_t, port: u32) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        entered.node()?.open(number(port)?, PortConfig::default())?;
        Ok(PORTOLAN_OK)
    })
}

/// Opens a port as an active port: `handler` runs for each message, with `user` as its last
/// argument. With PORTOLAN_IN_PLACE in `flags` it reads messages where they are. Otherwise each
/// message goes to a posted buffer, which the handler receives.
///
/// Errors: PORTOLAN_ERR_PORT, PORTOLAN_ERR_PORT_IN_USE, PORTOLAN_ERR_ARGUMENT for unknown flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_open_active(
    node: *mut portolan_node_t,
    port: u32,
    flags: u32,
    handler: portolan_handler_t,
    user: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        let port = number(port)?;
        let function = handler.ok_or_else(|| Failure::null("handler"))?;
        let config = match flags {
            0 => PortConfig::default(),
            PORTOLAN_IN_PLACE => PortConfig::in_place(),
            other => {
                let text = format!("flags {other:#x}: a port accepts PORTOLAN_IN_PLACE only");
                return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
            }
        };
        let handler = Handler {
            function,
            user,
            node: entered.handle(),
        };
        let run = move |context: &mut Context<'_>, message: Message<'_>| {
            handler.run(context, message);
        };
        entered.node()?.open_active(port, config, run)?;
        Ok(PORTOLAN_OK)
    })
}

struct Handler {
    function: unsafe extern "C" fn(*mut portolan_node_t, *const portolan_message_t, *mut c_void),
    user: *mut c_void,
    node: &'static portolan_node_t,
}

// SAFETY: `user` belongs to the program. A program that moves the node to another thread moves
// `user` with it.
unsafe impl Send for Handler {}

impl Handler {
    #[inline]
    fn run(&self, context: &mut Context<'_>, mut message: Message<'_>) {
        let message_len = message.message_len();
        let (at, len) = (message.bytes().as_ptr(), message.bytes().len());
        let (buffer, buffer_len) = match message.take_buffer() {
            // Memory of the program: dropping the buffer has no other effect.
            Some(buffer) => (buffer.as_ptr().cast_mut(), buffer.len()),
            None => (ptr::null_mut(), 0),
        };
        let c_message = portolan_message_t {
            size: size_of::<portolan_message_t>(),
            bytes: at.cast(),
            len: len as u64,
            message_len,
            buffer: buffer.cast(),
            buffer_len: buffer_len as u64,
            source: message.source(),
            port: u32::from(message.port()),
        };
        let node = ptr::from_ref(self.node).cast_mut();
        // SAFETY: the program guarantees that its handler may be called in this way.
        self.node.with_context(context, || unsafe {
            (self.function)(node, &c_message, self.user)
        });
    }
}
