// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint for the component's threads.
//!
//! If one thread calls, messages are passed to the component from within a turn of the endpoint, without a copy. Calls
//! that the component makes meanwhile run after the turn. If several threads call, messages are stored until the
//! endpoint's lock is released.

#![allow(
    unsafe_code,
    reason = "passes memory of the component to the endpoint, and calls its hooks"
)]

use crate::mailbox::Mailbox;
use crate::operation::{Change, Deferred, Operation};
use crate::types::*;
use portolan::binding::{
    ActiveMessage, Cookie, Endpoint, EndpointAddress, PeerIndex, PeerInserter, RawCompletion,
    RawError, RawKind, RawPiece, SubmitError,
};
use portolan::{Cause, EndpointConfig, Error};
use portolan_ffi::{Guard, Guarded, yield_core};
use std::cell::UnsafeCell;
use std::ffi::{CString, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module documentation.
pub struct Channel {
    endpoint: Guarded<Endpoint>,
    address: EndpointAddress,
    inserter: PeerInserter,
    /// Set if several threads call concurrently.
    is_shared: bool,
    /// State that the endpoint's hook uses.
    intake: Arc<Intake>,
    /// Emptied by the thread that has set `is_polled`.
    leaving: UnsafeCell<Mailbox>,
    /// Calls that callbacks made during a turn of the endpoint, in order.
    deferred: UnsafeCell<Vec<Deferred>>,
    /// Set while a thread polls. Its hooks and other threads may call other functions meanwhile.
    is_polled: AtomicBool,
    hooks: portolan_btl_hooks_t,
}

/// Receives the endpoint's messages. Reached with the lock of the endpoint held.
struct Intake {
    hooks: portolan_btl_hooks_t,
    /// Messages that were not delivered at once.
    mailbox: UnsafeCell<Mailbox>,
    /// Set during the turns of an endpoint that one thread uses. Messages are delivered at once, and calls of the
    /// callbacks are deferred.
    in_turn: AtomicBool,
    /// Number of messages delivered in this turn.
    delivered_count: UnsafeCell<usize>,
}

// SAFETY: reached with the endpoint's lock held only: by the endpoint's hook, which runs within calls of the
// endpoint, and by `Channel::poll`. `in_turn` is never set if several threads call.
unsafe impl Sync for Intake {}
// SAFETY: nothing in it belongs to a thread; the pointer of `hooks` is only returned.
unsafe impl Send for Intake {}

// SAFETY: `endpoint` and `intake` are reached with the lock held, `leaving` with `is_polled` set, and `deferred` only
// if one thread calls; `hooks` is never written, and its pointer is only returned.
unsafe impl Sync for Channel {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Channel {}

impl Channel {
    /// Opens an endpoint. `is_shared` is set if several threads call concurrently.
    pub(crate) fn open(hooks: portolan_btl_hooks_t, is_shared: bool) -> Result<Channel, Error> {
        let mut endpoint = Endpoint::open(&EndpointConfig::default())?;
        let intake = Arc::new(Intake {
            hooks,
            mailbox: UnsafeCell::default(),
            in_turn: AtomicBool::new(false),
            delivered_count: UnsafeCell::new(0),
        });
        let filled = Arc::clone(&intake);
        endpoint.on_active(move |message| filled.accept(message))?;
        Ok(Channel {
            address: endpoint.address(),
            inserter: endpoint.inserter(),
            endpoint: Guarded::new(endpoint, is_shared),
            is_shared,
            intake,
            leaving: UnsafeCell::default(),
            deferred: UnsafeCell::default(),
            is_polled: AtomicBool::new(false),
            hooks,
        })
    }

    /// Returns the endpoint's own address.
    pub(crate) fn address(&self) -> &EndpointAddress {
        &self.address
    }

    /// Locks the endpoint for this thread. Not during a turn.
    #[inline]
    fn lock(&self) -> Guard<'_, Endpoint> {
        self.endpoint.lock()
    }

    /// Returns true if a callback calls during a turn, so that the endpoint is in use.
    #[inline]
    fn in_turn(&self) -> bool {
        self.intake.in_turn.load(Ordering::Relaxed)
    }

    #[cold]
    fn defer(&self, call: Deferred) {
        // SAFETY: one thread calls, and `run_deferred` takes the list before it makes the calls.
        unsafe { &mut *self.deferred.get() }.push(call);
    }

    /// Sends two pieces as one message, or returns [`SubmitError::Again`] if it must be queued.
    #[inline]
    pub(crate) fn inject(
        &self,
        peer: PeerIndex,
        tag: u8,
        pieces: [&[u8]; 2],
    ) -> Result<(), SubmitError> {
        if self.in_turn() {
            return Err(SubmitError::Again);
        }
        self.lock().inject_active(peer, tag, pieces)
    }

    /// Submits an operation. Returns PORTOLAN_BTL_DONE, or PORTOLAN_BTL_OK if a completion follows.
    ///
    /// # Safety
    /// The memory of the operation is valid until then.
    #[inline]
    pub(crate) unsafe fn submit(&self, operation: Operation) -> Result<c_int, SubmitError> {
        if self.in_turn() {
            self.defer(Deferred::Operation(operation));
            return Ok(PORTOLAN_BTL_OK);
        }
        // SAFETY: the caller's promise.
        unsafe { operation.submit(&mut self.lock()) }
    }

    /// Changes the peers or the registered memory.
    ///
    /// # Safety
    /// Registered memory is valid until it is deregistered.
    pub(crate) unsafe fn change(&self, change: Change) -> Result<(), Error> {
        if self.in_turn() {
            self.defer(Deferred::Change(change));
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { change.apply(&mut self.lock()) }
    }

    /// Inserts a peer. Returns its number.
    pub(crate) fn insert(&self, address: EndpointAddress) -> Result<PeerIndex, Error> {
        if self.in_turn() {
            self.defer(Deferred::Change(Change::Insert(address)));
            return self.inserter.insert(&address);
        }
        self.lock().insert(&address)
    }

    /// Registers memory for access by peers. Returns its key.
    ///
    /// # Safety
    /// The memory is valid until it is deregistered.
    pub(crate) unsafe fn register(&self, memory: RawPiece) -> Result<u64, Error> {
        loop {
            // Random, so that a peer cannot guess the key of another registration.
            let key = rand::random();
            // SAFETY: the caller's promise.
            match unsafe { self.change(Change::Register { memory, key }) } {
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
        if self.is_polled.load(Ordering::Relaxed) {
            return 0;
        }
        if !self.is_shared {
            self.is_polled.store(true, Ordering::Relaxed);
        } else if self.is_polled.swap(true, Ordering::Acquire) {
            return 0;
        }
        let (mut count, is_filled, yields) = self.turn();
        if self.has_deferred() {
            self.run_deferred();
        }
        if is_filled {
            count += self.deliver();
        }
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

    /// Runs a turn. Returns the number of messages delivered, true if there is anything left to deliver, and true if
    /// the core should be yielded.
    #[inline]
    fn turn(&self) -> (usize, bool, bool) {
        let mut endpoint = self.lock();
        let intake = &*self.intake;
        intake.in_turn.store(!self.is_shared, Ordering::Relaxed);
        // No reference to the mailbox exists while the endpoint polls: its hook makes one.
        let (_, yields) = endpoint.poll_unyielding(&mut |done| {
            // SAFETY: the lock is held, and the hook is not running.
            unsafe { &mut *intake.mailbox.get() }.push_completion(done);
        });
        intake.in_turn.store(false, Ordering::Relaxed);
        // SAFETY: the lock is held, and the endpoint is not polling.
        let (arriving, count) = unsafe {
            (
                &mut *intake.mailbox.get(),
                &mut *intake.delivered_count.get(),
            )
        };
        let count = std::mem::take(count);
        if arriving.is_empty() {
            return (count, false, yields);
        }
        // SAFETY: this thread has set `is_polled`.
        std::mem::swap(arriving, unsafe { &mut *self.leaving.get() });
        (count, true, yields)
    }

    #[inline]
    fn has_deferred(&self) -> bool {
        // SAFETY: the list is changed only while one thread calls, by callbacks and by `run_deferred`.
        !unsafe { &*self.deferred.get() }.is_empty()
    }

    /// Makes the calls that callbacks made during the turn, in order. After an operation for which there is no
    /// capacity, operations wait for the next turn.
    #[cold]
    fn run_deferred(&self) {
        // SAFETY: one thread calls, and no turn is running.
        let calls = std::mem::take(unsafe { &mut *self.deferred.get() });
        let mut waiting = Vec::new();
        for call in calls {
            match call {
                Deferred::Change(change) => {
                    // SAFETY: the promise of the caller that deferred it.
                    if let Err(error) = unsafe { change.apply(&mut self.lock()) } {
                        eprintln!("portolan: a call within a callback failed: {error}");
                    }
                }
                Deferred::Operation(operation) if waiting.is_empty() => {
                    if !self.retry(&operation) {
                        waiting.push(Deferred::Operation(operation));
                    }
                }
                operation @ Deferred::Operation(_) => waiting.push(operation),
            }
        }
        // SAFETY: as above. Completions were reported outside of turns, so that nothing was deferred meanwhile.
        unsafe { *self.deferred.get() = waiting };
    }

    /// Submits a deferred operation, and reports the completion of one that has ended. Returns false if there is no
    /// capacity.
    fn retry(&self, operation: &Operation) -> bool {
        // SAFETY: the promise of the caller that deferred it.
        let result = unsafe { operation.submit(&mut self.lock()) };
        let (context, kind) = operation.completion();
        let (status, why) = match result {
            Ok(PORTOLAN_BTL_DONE) => (PORTOLAN_BTL_OK, None),
            Ok(_) => return true,
            Err(SubmitError::Again) => return false,
            Err(error) => (status_of_refusal(&error), Some(sentence(&error))),
        };
        self.complete(&portolan_btl_done_t {
            context,
            kind,
            status,
            why: why.as_ref().map_or(std::ptr::null(), |why| why.as_ptr()),
        });
        true
    }

    fn deliver(&self) -> usize {
        // SAFETY: this thread has set `is_polled`.
        let leaving = unsafe { &mut *self.leaving.get() };
        leaving.drain(
            |tag, bytes| self.intake.pass(tag, bytes),
            |done| self.report(done),
        )
    }

    fn report(&self, done: &RawCompletion) {
        // Only the component's own operations have a context.
        if done.cookie == Cookie::default() {
            return;
        }
        let why = done.error.as_ref().map(sentence);
        self.complete(&portolan_btl_done_t {
            context: done.cookie.context,
            kind: match done.kind {
                RawKind::Send => PORTOLAN_BTL_SENT,
                _ => PORTOLAN_BTL_REMOTE,
            },
            status: done.error.as_ref().map_or(PORTOLAN_BTL_OK, status_of),
            why: why.as_ref().map_or(std::ptr::null(), |why| why.as_ptr()),
        });
    }

    fn complete(&self, completion: &portolan_btl_done_t) {
        if let Some(on_done) = self.hooks.on_done {
            // SAFETY: the component passed this function and its first argument.
            unsafe { on_done(self.hooks.user, completion) };
        }
    }
}

impl Intake {
    /// Passes a message to the component, in order after those in the mailbox.
    #[inline]
    fn accept(&self, message: ActiveMessage<'_>) {
        // SAFETY: the hook runs within calls of the endpoint, all of which are made with the lock held; no other
        // reference lives during such a call.
        let mailbox = unsafe { &*self.mailbox.get() };
        if !self.in_turn.load(Ordering::Relaxed) || !mailbox.is_empty() {
            return self.store(message);
        }
        // SAFETY: as above.
        unsafe { *self.delivered_count.get() += 1 };
        self.pass(message.tag, message.bytes);
    }

    /// Stores a message. Not inlined: the call would need registers that each delivery would save.
    #[cold]
    #[inline(never)]
    fn store(&self, message: ActiveMessage<'_>) {
        // SAFETY: as in `accept`, whose reference is no longer used.
        unsafe { &mut *self.mailbox.get() }.push_message(message);
    }

    #[inline]
    fn pass(&self, tag: u8, bytes: &[u8]) {
        let hooks = &self.hooks;
        if let Some(on_message) = hooks.on_message {
            // SAFETY: the component passed this function and its first argument.
            unsafe { on_message(hooks.user, tag, bytes.as_ptr().cast(), bytes.len()) };
        }
    }
}

/// Returns the status of an operation that was refused.
pub(crate) fn status_of_refusal(error: &SubmitError) -> i32 {
    match error {
        SubmitError::PeerGone(cause) => status_of_peer_failure(*cause),
        _ => PORTOLAN_BTL_FAILED,
    }
}

fn status_of(error: &RawError) -> i32 {
    match error {
        RawError::PeerGone(cause) => status_of_peer_failure(*cause),
        _ => PORTOLAN_BTL_FAILED,
    }
}

/// Returns the status of an operation with a failed peer.
fn status_of_peer_failure(cause: Cause) -> i32 {
    match cause {
        // The peer has finalized and does not wait for the operation: the job need not be aborted.
        Cause::Closed => PORTOLAN_BTL_FAILED,
        _ => PORTOLAN_BTL_GONE,
    }
}

#[cold]
fn sentence(error: &impl ToString) -> CString {
    CString::new(error.to_string()).unwrap_or_default()
}
