// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows through an active port of GAMMA, with flow control.
#![allow(unsafe_code, reason = "functions of a C library, which take pointers")]

use super::{CONTROL_LEN_MAX, Member};
use crate::logp::Endpoint;
use crate::spec::{Role, window};
use anyhow::{Context, Result, ensure};
use gamma::group::{gamma_how_many_nodes, gamma_my_node, gamma_my_par_pid, gamma_sync};
use gamma::init::{gamma_exit, gamma_init};
use gamma::port::{GO_FORTH, gamma_msglen, gamma_post_recv, gamma_set_active_port};
use gamma::semaphore::{gamma_signal, gamma_wait};
use gamma::send::{gamma_isend_flowctl, gamma_send_flowctl, gamma_wsend};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_ulong};
use std::ptr;

/// Number of the port at both ends, and of its semaphore.
const PORT: u16 = 1;
const SEMAPHORE: u16 = 1;

/// Buffers beyond a window: for control messages, and for the message before a burst. A buffer is
/// always armed, so the kind of the buffers has no effect.
const SPARE: u64 = 4;

thread_local! {
    /// Lengths of the messages in the buffers, in order. The handler runs in this thread.
    static LENGTHS: RefCell<VecDeque<c_ulong>> = const { RefCell::new(VecDeque::new()) };
}

/// This process as a GAMMA node.
pub(super) struct Gamma {
    node: u16,
    /// The receive buffers, armed in turn.
    buffers: Vec<Box<[u8]>>,
    next: usize,
}

/// Records the message, and notifies the program.
unsafe extern "C" fn on_message() {
    // SAFETY: written by the library before it calls the handler.
    let len = unsafe { gamma_msglen };
    LENGTHS.with_borrow_mut(|lengths| lengths.push_back(len));
    gamma_signal(SEMAPHORE);
}

impl Gamma {
    /// Joins for messages of `size` bytes.
    pub(super) fn join(size: usize) -> Result<Gamma> {
        // SAFETY: there are no arguments.
        must(unsafe { gamma_init(2, 0, ptr::null_mut()) }, "gamma_init")?;
        let count = gamma_how_many_nodes();
        ensure!(count == 2, "a row has 2 nodes, not {count}");
        let count = usize::try_from(window(size) + SPARE)?;
        let buffer = || vec![0; size.max(CONTROL_LEN_MAX)].into_boxed_slice();
        let mut gamma = Gamma {
            node: u16::try_from(gamma_my_node())?,
            buffers: (0..count).map(|_| buffer()).collect(),
            next: 0,
        };
        gamma.set_port()?;
        (1..count).try_for_each(|index| gamma.arm(index))?;
        // A message before that would find its buffer to be the last one.
        must(gamma_sync(), "gamma_sync")?;
        Ok(gamma)
    }

    fn set_port(&mut self) -> Result<()> {
        let pid = u8::try_from(gamma_my_par_pid())?;
        let (at, len) = (self.buffers[0].as_mut_ptr(), self.buffers[0].len());
        // SAFETY: the buffer stays in place until `gamma_exit`, and is read only while it holds a
        // message.
        let set = unsafe {
            gamma_set_active_port(
                PORT,
                1 - self.node,
                pid,
                PORT,
                Some(on_message),
                SEMAPHORE,
                GO_FORTH,
                at.cast(),
                len as c_ulong,
            )
        };
        must(set, "gamma_set_active_port")
    }

    /// Arms a buffer.
    #[inline]
    fn arm(&mut self, index: usize) -> Result<()> {
        let buffer = &mut self.buffers[index];
        let len = buffer.len() as c_ulong;
        // SAFETY: as in `set_port`.
        let armed = unsafe { gamma_post_recv(PORT, buffer.as_mut_ptr().cast(), len) };
        must(armed, "gamma_post_recv")
    }
}

fn must(code: c_int, what: &str) -> Result<()> {
    ensure!(code == 0, "{what}: code {code}");
    Ok(())
}

impl Endpoint for Gamma {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let len = message.len() as c_ulong;
        // SAFETY: the library has read the bytes when it returns.
        let sent = unsafe { gamma_send_flowctl(PORT, message.as_ptr().cast(), len) };
        must(sent, "gamma_send_flowctl")
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        must(gamma_wait(SEMAPHORE, 1), "gamma_wait")?;
        let len = LENGTHS.with_borrow_mut(VecDeque::pop_front);
        let len = usize::try_from(len.context("a signal without a message")?)?;
        let want = message.len();
        ensure!(len == want, "a message of {len} bytes instead of {want}");
        let index = self.next;
        message.copy_from_slice(&self.buffers[index][..len]);
        self.next = (index + 1) % self.buffers.len();
        self.arm(index)
    }
}

impl Member for Gamma {
    fn role(&self) -> Role {
        match self.node {
            0 => Role::Driver,
            _ => Role::Answerer,
        }
    }

    fn begin(&mut self, message: &[u8]) -> Result<()> {
        let len = message.len() as c_ulong;
        // SAFETY: the bytes do not change before `complete`.
        let begun = unsafe { gamma_isend_flowctl(PORT, message.as_ptr().cast(), len) };
        must(begun, "gamma_isend_flowctl")
    }

    fn complete(&mut self) -> Result<()> {
        must(gamma_wsend(PORT), "gamma_wsend")
    }

    fn end(&mut self) -> Result<()> {
        must(gamma_exit(), "gamma_exit")
    }
}
