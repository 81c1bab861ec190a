// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows through GM's messages into buffers by size, with or without the options of GM+.
#![allow(unsafe_code, reason = "functions of a C library, which take pointers")]

use super::{CONTROL_LEN_MAX, ControlBuffers, Member};
use crate::logp::Endpoint;
use crate::spec::{Role, window};
use anyhow::{Result, ensure};
use gm::buffer::gm_provide_receive_buffer_with_tag;
use gm::code::{GM_API_VERSION_1_6, GM_LOW_PRIORITY, GM_SUCCESS, gm_status_t};
use gm::event::{
    GM_FAST_PEER_RECV_EVENT, GM_NO_RECV_EVENT, GM_PEER_RECV_EVENT, gm_recv_event_fields,
};
use gm::event::{gm_max_length_for_size, gm_min_size_for_length};
use gm::memory::gm_dma_malloc;
use gm::name::{gm_get_node_id, gm_max_node_id_in_use};
use gm::port::{
    GM_PLUS_BEST_EFFORT, GM_PLUS_INLINE, gm_close, gm_init, gm_open, gm_port, gm_set_port_options,
};
use gm::receive::{gm_receive, gm_unknown};
use gm::send::gm_send_to_peer_with_callback;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::ptr;

/// Options that GM+ adds. As in the paper, small messages may be lost.
pub(super) const PLUS: c_uint = GM_PLUS_INLINE | GM_PLUS_BEST_EFFORT;

/// Polls without a message after which a message of GM+ counts as lost: a few seconds.
const POLLS_MAX: u64 = 50_000_000;

/// Port number on both sides, one that GM reserves for programs.
const PORT: c_uint = 2;

/// Maximum number of sends in flight. A port has 64 tokens, half of them for low priority.
const IN_FLIGHT_MAX: usize = 24;

/// Receive buffers of each size for control messages: one for the current message, and one that the
/// receiver still uses.
const CONTROL_BUFFERS: u64 = 2;

/// Port of this process.
pub(super) struct Gm {
    port: *mut gm_port,
    node: c_uint,
    /// Bytes of the row's own messages.
    size: usize,
    control: ControlBuffers,
    /// Number of sends in flight. It is boxed because callbacks store its address.
    in_flight: Box<Cell<usize>>,
    /// Messages that arrived while this end waited for a send.
    early: VecDeque<gm_recv_event_fields>,
    /// Set if losses are not repaired.
    may_lose: bool,
}

impl Gm {
    /// Opens the port for messages of `size` bytes, with `options`.
    pub(super) fn open(size: usize, options: c_uint) -> Result<Gm> {
        must(gm_init(), "gm_init")?;
        let mut port = ptr::null_mut();
        let name = c"bench".as_ptr();
        // SAFETY: the handle is written to a local variable; the name is a C string.
        let opened = unsafe { gm_open(&raw mut port, 0, PORT, name, GM_API_VERSION_1_6) };
        must(opened, "gm_open")?;
        must(gm_set_port_options(port, options), "gm_set_port_options")?;
        let (mut node, mut last) = (0, 0);
        // SAFETY: both results are written to local variables.
        let statuses = unsafe {
            let own = gm_get_node_id(port, &raw mut node);
            [own, gm_max_node_id_in_use(port, &raw mut last)]
        };
        statuses
            .into_iter()
            .try_for_each(|status| must(status, "the numbers of nodes"))?;
        ensure!(last == 2, "a row has 2 nodes, not {last}");
        let gm = Gm {
            port,
            node,
            size,
            control: ControlBuffers::default(),
            in_flight: Box::default(),
            early: VecDeque::new(),
            may_lose: options & GM_PLUS_BEST_EFFORT != 0,
        };
        let class = class(size);
        for other in (class_min()..=self::class(CONTROL_LEN_MAX)).filter(|other| *other != class) {
            gm.provide(other, CONTROL_BUFFERS)?;
        }
        // A window, or the burst of LogP's loops with the message before it, and the control
        // messages.
        gm.provide(class, window(size) + CONTROL_BUFFERS)?;
        Ok(gm)
    }

    fn provide(&self, class: c_uint, count: u64) -> Result<()> {
        for _ in 0..count {
            let buffer = gm_dma_malloc(self.port, gm_max_length_for_size(class));
            ensure!(!buffer.is_null(), "no memory for a buffer of size {class}");
            self.give(buffer, class);
        }
        Ok(())
    }

    fn give(&self, buffer: *mut c_void, class: c_uint) {
        // SAFETY: memory allocated by the library for that size, which has no other user.
        unsafe {
            gm_provide_receive_buffer_with_tag(self.port, buffer, class, GM_LOW_PRIORITY, 0);
        }
    }

    /// Returns the next event if it is a message, and runs callbacks.
    #[inline]
    fn next(&mut self) -> Option<gm_recv_event_fields> {
        // SAFETY: the port is open; the event is valid until the next call.
        unsafe {
            let event = gm_receive(self.port);
            let fields = (*event).recv;
            match c_uint::from(fields.r#type) {
                GM_PEER_RECV_EVENT | GM_FAST_PEER_RECV_EVENT => return Some(fields),
                GM_NO_RECV_EVENT => {}
                _ => gm_unknown(self.port, event),
            }
        }
        None
    }

    /// Copies a received message to `message` and provides its buffer again.
    #[inline]
    fn take(&mut self, fields: &gm_recv_event_fields, message: &mut [u8]) -> Result<()> {
        let len = u32::from_be(fields.length) as usize;
        ensure!(
            len == message.len(),
            "a message of {len} bytes instead of {}",
            message.len()
        );
        let at = match c_uint::from(fields.r#type) {
            GM_FAST_PEER_RECV_EVENT => fields.message,
            _ => fields.buffer,
        };
        // SAFETY: the library keeps these bytes valid until the buffer is provided again.
        let bytes = unsafe { std::slice::from_raw_parts(pointer(at).cast::<u8>(), len) };
        message.copy_from_slice(bytes);
        self.give(pointer(fields.buffer), c_uint::from(fields.size));
        Ok(())
    }

    /// Waits until at most `most` sends are in flight.
    fn complete_sends(&mut self, most: usize) {
        while self.in_flight.get() > most {
            let message = self.next();
            self.early.extend(message);
        }
    }
}

/// Converts an address from an event.
fn pointer(address: u64) -> *mut c_void {
    let address = usize::try_from(u64::from_be(address)).unwrap_or(0);
    ptr::with_exposed_provenance_mut(address)
}

fn class(len: usize) -> c_uint {
    gm_min_size_for_length(len as u64)
}

/// Returns the size class of the shortest control message, one byte.
fn class_min() -> c_uint {
    class(1)
}

fn must(status: gm_status_t, what: &str) -> Result<()> {
    ensure!(status == GM_SUCCESS, "{what}: status {status}");
    Ok(())
}

/// Callback of a completed send.
unsafe extern "C" fn on_sent(_: *mut gm_port, context: *mut c_void, status: gm_status_t) {
    // SAFETY: `context` is the cell of a `Gm`, which outlives its sends.
    let in_flight = unsafe { &*context.cast::<Cell<usize>>() };
    in_flight.set(in_flight.get() - 1);
    if status != GM_SUCCESS {
        eprintln!("portolan bench: a send by GM has ended with status {status}");
        std::process::exit(1);
    }
}

impl Endpoint for Gm {
    fn release(&mut self) -> Result<()> {
        self.complete()
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.complete_sends(IN_FLIGHT_MAX - 1);
        self.in_flight.set(self.in_flight.get() + 1);
        let message = match message.len() == self.size {
            true => message,
            false => self.control.copy(message),
        };
        // SAFETY: the bytes do not change before the peer has answered and so has received them
        // all. The loop keeps the buffer of its messages until `release`, and `control` holds
        // copies of control messages. The library only reads them.
        unsafe {
            gm_send_to_peer_with_callback(
                self.port,
                message.as_ptr().cast_mut().cast(),
                class(message.len()),
                message.len() as u64,
                GM_LOW_PRIORITY,
                3 - self.node,
                Some(on_sent),
                ptr::from_ref(&*self.in_flight).cast_mut().cast(),
            );
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        let mut polls = 0;
        loop {
            let early = self.early.pop_front();
            if let Some(fields) = early.or_else(|| self.next()) {
                return self.take(&fields, message);
            }
            polls += 1;
            ensure!(
                !self.may_lose || polls < POLLS_MAX,
                "a message of GM+ was lost, which it does not repair: repeat the measurement"
            );
        }
    }
}

impl Member for Gm {
    fn role(&self) -> Role {
        match self.node {
            1 => Role::Driver,
            _ => Role::Answerer,
        }
    }

    fn complete(&mut self) -> Result<()> {
        self.complete_sends(0);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.complete()?;
        gm_close(self.port);
        Ok(())
    }
}
