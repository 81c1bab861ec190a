// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint for several threads. It calls the component's hooks without holding its lock.

#![allow(
    unsafe_code,
    reason = "passes memory of the component to the endpoint, and calls its hooks"
)]

use crate::mailbox::Mailbox;
use crate::types::*;
use portolan::{
    Cause, Cookie, Endpoint, EndpointConfig, Error, RawAccess, RawCompletion, RawError, RawKind,
    RawPiece,
};
use portolan_ffi::{Guard, Guarded, yield_core};
use std::cell::UnsafeCell;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module documentation.
pub struct Channel {
    endpoint: Guarded<Endpoint>,
    /// Filled by the endpoint's hook, with the lock held.
    arriving: Arc<Shared>,
    /// Emptied by the thread that has set `is_polled`.
    leaving: UnsafeCell<Mailbox>,
    /// Set while a thread polls. Its hooks and other threads may call other functions meanwhile.
    is_polled: AtomicBool,
    hooks: portolan_btl_hooks_t,
}

/// A mailbox behind the lock of its endpoint.
struct Shared(UnsafeCell<Mailbox>);

// SAFETY: reached with the endpoint's lock held only: by the endpoint's hook, which runs within calls of the
// endpoint, and by `Channel::poll`.
unsafe impl Sync for Shared {}

// SAFETY: `endpoint` and `arriving` are reached with the lock held, `leaving` with `is_polled` set; `hooks` is
// never written, and its pointer is only returned.
unsafe impl Sync for Channel {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Channel {}

impl Channel {
    /// Opens an endpoint. `is_shared` is set if several threads call concurrently.
    pub(crate) fn open(hooks: portolan_btl_hooks_t, is_shared: bool) -> Result<Channel, Error> {
        let mut endpoint = Endpoint::open(&EndpointConfig::default())?;
        let arriving = Arc::new(Shared(UnsafeCell::default()));
        let filled = Arc::clone(&arriving);
        endpoint.on_active(move |message| {
            // SAFETY: the hook runs within calls of the endpoint, all of which are made with the lock held; no other
            // reference lives during such a call.
            unsafe { &mut *filled.mailbox() }.push_message(message);
        })?;
        Ok(Channel {
            endpoint: Guarded::new(endpoint, is_shared),
            arriving,
            leaving: UnsafeCell::default(),
            is_polled: AtomicBool::new(false),
            hooks,
        })
    }

    /// Locks the endpoint for this thread.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, Endpoint> {
        self.endpoint.lock()
    }

    /// Registers memory for access by peers. Returns its key.
    pub(crate) fn register(&self, memory: RawPiece) -> Result<u64, Error> {
        let access = RawAccess {
            read: true,
            write: true,
        };
        loop {
            // Random, so that a peer cannot guess the key of another registration.
            let key = rand::random();
            // SAFETY: the component keeps the memory until it deregisters it.
            let result = unsafe {
                self.lock()
                    .register(memory, access, key, memory.ptr.addr() as u64)
            };
            match result {
                Ok(()) => return Ok(key),
                Err(Error::KeyInUse { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a turn of the endpoint and calls the hooks with its messages and completions, in order. Returns their
    /// count.
    #[inline]
    pub(crate) fn poll(&self) -> usize {
        // Called from a hook, or while another thread polls: a new message would overtake those in `leaving`.
        if self.is_polled.load(Ordering::Relaxed) || self.is_polled.swap(true, Ordering::Acquire) {
            return 0;
        }
        let (is_filled, yields) = self.fill();
        let count = if is_filled { self.deliver() } else { 0 };
        self.is_polled.store(false, Ordering::Release);
        if yields {
            self.yield_core();
        }
        count
    }

    /// Yields the core. Other threads may poll meanwhile.
    #[cold]
    fn yield_core(&self) {
        let duration = yield_core();
        self.lock().note_yield(duration);
    }

    /// Runs a turn. Returns true if there is anything to deliver, and true if the core should be yielded.
    #[inline]
    fn fill(&self) -> (bool, bool) {
        let mut endpoint = self.lock();
        // No reference to the mailbox exists while the endpoint polls: its hook makes one.
        let (_, yields) = endpoint.poll_unyielding(&mut |done| {
            // SAFETY: the lock is held, and the hook is not running.
            unsafe { &mut *self.arriving.mailbox() }.push_completion(done);
        });
        // SAFETY: the lock is held, and the endpoint is not polling.
        let arriving = unsafe { &mut *self.arriving.mailbox() };
        if arriving.is_empty() {
            return (false, yields);
        }
        // SAFETY: this thread has set `is_polled`.
        std::mem::swap(arriving, unsafe { &mut *self.leaving.get() });
        (true, yields)
    }

    fn deliver(&self) -> usize {
        let hooks = &self.hooks;
        // SAFETY: this thread has set `is_polled`.
        let leaving = unsafe { &mut *self.leaving.get() };
        leaving.drain(
            |tag, bytes| {
                if let Some(on_message) = hooks.on_message {
                    // SAFETY: the component passed this function and its first argument.
                    unsafe { on_message(hooks.user, tag, bytes.as_ptr().cast(), bytes.len()) };
                }
            },
            |done| self.report(done),
        )
    }

    fn report(&self, done: &RawCompletion) {
        let why = done.error.as_ref().map(sentence);
        let completion = portolan_btl_done_t {
            context: done.cookie.context,
            kind: match done.kind {
                RawKind::Send => PORTOLAN_BTL_SENT,
                _ => PORTOLAN_BTL_REMOTE,
            },
            status: done.error.as_ref().map_or(PORTOLAN_BTL_OK, status_of),
            why: why.as_ref().map_or(std::ptr::null(), |why| why.as_ptr()),
        };
        // Only the component's own operations have a context.
        if let Some(on_done) = self
            .hooks
            .on_done
            .filter(|_| done.cookie != Cookie::default())
        {
            // SAFETY: the component passed this function and its first argument.
            unsafe { on_done(self.hooks.user, &raw const completion) };
        }
    }
}

impl Shared {
    fn mailbox(&self) -> *mut Mailbox {
        self.0.get()
    }
}

fn status_of(error: &RawError) -> i32 {
    match error {
        RawError::PeerGone(cause) => status_of_peer_failure(*cause),
        _ => PORTOLAN_BTL_FAILED,
    }
}

/// Returns the status of an operation with a failed peer.
pub(crate) fn status_of_peer_failure(cause: Cause) -> i32 {
    match cause {
        // The peer has finalized and does not wait for the operation: the job need not be aborted.
        Cause::Closed => PORTOLAN_BTL_FAILED,
        _ => PORTOLAN_BTL_GONE,
    }
}

#[cold]
fn sentence(error: &RawError) -> CString {
    CString::new(error.to_string()).unwrap_or_default()
}
