// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes for C programs: checks of the calling thread and of calls from handlers.
//!
//! The first checks of every call are always inlined. As calls with results in memory, they would
//! take as long as all other work that the interface adds to a short message.
//!
//! A handle is never freed, even when its node is closed, so that a late call is reported instead
//! of reading memory with another owner.

use crate::code::*;
use crate::failure::Failure;
use portolan::binding::Plumbing as _;
use portolan::{Claimed, Context, Error, Node, Registration};
use portolan_ffi::{this_thread, watch_forks};
use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

/// First word of a handle.
const MAGIC: u64 = u64::from_le_bytes(*b"portonod");

/// Owner of a closed node; no thread has this number.
const NOBODY: usize = 0;

/// Owner of a node in a forked child of the process that joined; no thread has this number.
const FORKED: usize = usize::MAX;

/// A node, and the objects that C programs name by numbers.
pub(crate) struct Joined {
    pub(crate) node: Node,
    /// Claimed messages that were not received yet, by claim number.
    pub(crate) claims: BTreeMap<u64, Claimed>,
    pub(crate) claim_count: u64,
    /// Registered memory, by key.
    pub(crate) registered: BTreeMap<u64, Registration>,
}

/// This process, as a member of its job.
pub struct portolan_node_t {
    magic: u64,
    /// The thread that may call.
    owner: AtomicUsize,
    /// Set during a call. Atomic, because portolan_adopt() reads it from another thread.
    busy: AtomicBool,
    /// Context of the running handler; null otherwise.
    context: Cell<*mut Context<'static>>,
    node: UnsafeCell<Option<Joined>>,
}

// SAFETY: only the thread that `owner` names uses `context` and `node`; the caller of
// `portolan_adopt` does not.
unsafe impl Sync for portolan_node_t {}
// SAFETY: a `Node` may move between threads; `context` is null except during a call.
unsafe impl Send for portolan_node_t {}

/// All handles ever made, so that leak checkers find no loss.
static HANDLES: Mutex<Vec<&'static portolan_node_t>> = Mutex::new(Vec::new());

/// Runs in each forked child. The owner check of every call then detects nodes that a child must
/// not use. The lock is free unless another thread was joining; the library itself refuses such a
/// call too.
extern "C" fn disown() {
    if let Ok(handles) = HANDLES.try_lock() {
        let owned = |owner: &AtomicUsize| owner.load(Ordering::Relaxed) != NOBODY;
        for handle in handles.iter().filter(|handle| owned(&handle.owner)) {
            handle.owner.store(FORKED, Ordering::Relaxed);
        }
    }
}

impl portolan_node_t {
    pub(crate) fn make(node: Node) -> &'static portolan_node_t {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| watch_forks(disown));
        let handle = Box::leak(Box::new(portolan_node_t {
            magic: MAGIC,
            owner: AtomicUsize::new(this_thread()),
            busy: AtomicBool::new(false),
            context: Cell::new(ptr::null_mut()),
            node: UnsafeCell::new(Some(Joined {
                node,
                claims: BTreeMap::new(),
                claim_count: 0,
                registered: BTreeMap::new(),
            })),
        }));
        let mut handles = HANDLES.lock().unwrap_or_else(|broken| broken.into_inner());
        handles.push(handle);
        handle
    }

    /// Takes the node of a handle that is being closed.
    pub(crate) fn take(entered: &mut Entered) -> Option<Joined> {
        entered.handle.owner.store(NOBODY, Ordering::Release);
        // SAFETY: as in `Entered::joined`.
        unsafe { (*entered.handle.node.get()).take() }
    }

    pub(crate) fn adopt(&self) -> Result<(), Failure> {
        match self.owner.load(Ordering::Acquire) {
            NOBODY => return Err(closed()),
            FORKED => return Err(Failure::from(Error::Forked)),
            _ => {}
        }
        if self.busy.load(Ordering::Acquire) {
            return Err(Failure::new(
                PORTOLAN_ERR_WRONG_THREAD,
                "the node's thread is in a function of the library; call portolan_adopt() after it \
                 returns",
            ));
        }
        self.owner.store(this_thread(), Ordering::Release);
        Ok(())
    }

    /// Marks that a call is in progress.
    #[inline]
    fn entered(&'static self) -> Entered {
        self.busy.store(true, Ordering::Relaxed);
        Entered { handle: self }
    }

    /// Runs a handler with `context` available to its calls.
    pub(crate) fn with_context(&self, context: &mut Context<'_>, handler: impl FnOnce()) {
        let before = self.context.replace(ptr::from_mut(context).cast());
        handler();
        self.context.set(before);
    }
}

#[cold]
fn closed() -> Failure {
    Failure::new(
        PORTOLAN_ERR_CLOSED,
        "the node was closed by portolan_close()",
    )
}

/// A call in progress. Dropping it releases the node.
pub(crate) struct Entered {
    handle: &'static portolan_node_t,
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        self.handle.busy.store(false, Ordering::Release);
    }
}

impl Entered {
    #[inline]
    pub(crate) fn node(&mut self) -> Result<&mut Node, Failure> {
        Ok(&mut self.joined()?.node)
    }

    #[inline]
    pub(crate) fn joined(&mut self) -> Result<&mut Joined, Failure> {
        // SAFETY: this thread owns the node, and `busy` prevents every other `Entered` while this
        // one exists.
        unsafe { (*self.handle.node.get()).as_mut() }.ok_or_else(closed)
    }

    pub(crate) fn handle(&self) -> &'static portolan_node_t {
        self.handle
    }
}

/// Origin of a call that both the program and a handler may make.
pub(crate) enum Caller {
    Program(Entered),
    Handler(&'static mut Context<'static>),
}

impl Caller {
    /// Returns the call, if it was not made from a handler.
    pub(crate) fn program(self) -> Result<Entered, Failure> {
        match self {
            Caller::Program(entered) => Ok(entered),
            Caller::Handler(_) => Err(in_handler()),
        }
    }

    /// Returns `true` if a port has a handler, which then receives the buffers posted there.
    pub(crate) fn has_handler(&mut self, port: u16) -> Result<bool, Failure> {
        Ok(match self {
            Caller::Program(entered) => entered.node()?.has_handler(port)?,
            Caller::Handler(context) => context.has_handler(port)?,
        })
    }
}

/// Returns the handle behind a pointer.
///
/// # Safety
/// `node` is null, or points to a handle. Most other pointers to readable memory are detected.
#[inline(always)]
pub(crate) unsafe fn handle(
    node: *const portolan_node_t,
) -> Result<&'static portolan_node_t, Failure> {
    if node.is_null() {
        return Err(no_node());
    }
    if !node.is_aligned() {
        return Err(not_a_node());
    }
    // SAFETY: guaranteed by the caller; handles are never freed.
    let handle = unsafe { &*node };
    if handle.magic != MAGIC {
        return Err(not_a_node());
    }
    Ok(handle)
}

#[cold]
fn no_node() -> Failure {
    Failure::new(
        PORTOLAN_ERR_NULL,
        "node is null; call portolan_join() first",
    )
}

#[cold]
fn not_a_node() -> Failure {
    Failure::new(PORTOLAN_ERR_HANDLE, "this pointer is not a node")
}

/// Checks that the caller may call, from the program or from a handler.
///
/// # Safety
/// As [`handle`].
#[inline(always)]
pub(crate) unsafe fn enter_any(node: *const portolan_node_t) -> Result<Caller, Failure> {
    // SAFETY: guaranteed by the caller.
    let handle = unsafe { owned(node)? };
    if !handle.busy.load(Ordering::Relaxed) {
        return Ok(Caller::Program(handle.entered()));
    }
    let context = handle.context.get();
    if context.is_null() {
        return Err(in_handler());
    }
    // SAFETY: set by `with_context`; its caller does not use it while the handler runs. This thread
    // owns the node, so the handler runs now, and the reference ends before the handler does.
    Ok(Caller::Handler(unsafe { &mut *context }))
}

/// Checks that the caller may call, and is not a handler.
///
/// # Safety
/// As [`handle`].
#[inline(always)]
pub(crate) unsafe fn enter(node: *const portolan_node_t) -> Result<Entered, Failure> {
    // SAFETY: guaranteed by the caller.
    let handle = unsafe { owned(node)? };
    if handle.busy.load(Ordering::Relaxed) {
        return Err(in_handler());
    }
    Ok(handle.entered())
}

/// Returns the handle behind a pointer, if this thread may use it.
///
/// # Safety
/// As [`handle`].
#[inline(always)]
unsafe fn owned(node: *const portolan_node_t) -> Result<&'static portolan_node_t, Failure> {
    // SAFETY: guaranteed by the caller.
    let handle = unsafe { handle(node)? };
    if handle.owner.load(Ordering::Relaxed) == this_thread() {
        return Ok(handle);
    }
    Err(foreign(handle))
}

#[cold]
fn in_handler() -> Failure {
    Failure::new(
        PORTOLAN_ERR_IN_HANDLER,
        "this function waits, or changes the node, and cannot be called from a handler or a \
         condition; let the handler record the work, and do it after the call",
    )
}

#[cold]
fn foreign(handle: &portolan_node_t) -> Failure {
    match handle.owner.load(Ordering::Acquire) {
        NOBODY => return closed(),
        FORKED => return Failure::from(Error::Forked),
        _ => {}
    }
    Failure::new(
        PORTOLAN_ERR_WRONG_THREAD,
        "the node belongs to another thread; call portolan_adopt() first, and stop using the node \
         there",
    )
}
