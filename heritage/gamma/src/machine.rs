// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of this process's GAMMA, and the lock around it.
//!
//! The lock may be taken again by the thread that has it, because handlers run inside the library
//! and call it. Everything behind it is a cell, borrowed for moments, and never while a handler
//! runs; only the node itself stays borrowed then, which is how a call from a handler is known.

use crate::code::*;
use crate::port::Port;
use crate::semaphore::Semaphore;
use parking_lot::RawMutex;
use parking_lot::lock_api::{GetThreadId, RawMutex as _, ReentrantMutex, ReentrantMutexGuard};
use portolan::{Context, Node};
use portolan_ffi::this_thread;
use std::cell::{Cell, RefCell, RefMut};
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How far this process is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Before,
    Running,
    Exited,
    /// In a child of a process that was running.
    Forked,
}

/// See the module documentation.
pub(crate) struct Machine {
    pub(crate) phase: Cell<Phase>,
    pub(crate) node: RefCell<Option<Node>>,
    /// What a handler may do, while one runs.
    context: Cell<*mut Context<'static>>,
    pub(crate) rank: Cell<u32>,
    pub(crate) size: Cell<u32>,
    pub(crate) par_pid: Cell<u8>,
    /// Sends without flow control may lose messages, as they could in GAMMA.
    pub(crate) best_effort: Cell<bool>,
    /// By number, as far as they were set; they stay for the life of the process.
    pub(crate) ports: RefCell<Vec<Option<&'static Port>>>,
    /// The port whose handler runs.
    pub(crate) running: Cell<Option<&'static Port>>,
    /// By number, as far as they were used; they stay for the life of the process.
    pub(crate) semaphores: RefCell<Vec<Option<&'static Semaphore>>>,
}

// SAFETY: everything in it is reached through the lock, by one thread at a time. `context` points
// to what is on the stack of the thread that has the lock, and the addresses in ports are memory
// that the program lends to whichever thread is in the library.
unsafe impl Send for Machine {}

/// Tells threads apart.
pub(crate) struct ThisThread;

// SAFETY: no two threads that live at the same time have the same number, and none has 0.
unsafe impl GetThreadId for ThisThread {
    const INIT: Self = ThisThread;

    #[inline]
    fn nonzero_thread_id(&self) -> NonZeroUsize {
        NonZeroUsize::new(this_thread()).unwrap_or(NonZeroUsize::MAX)
    }
}

type Lock = ReentrantMutex<RawMutex, ThisThread, Machine>;

static MACHINE: Lock = Lock::const_new(
    RawMutex::INIT,
    ThisThread::INIT,
    Machine {
        phase: Cell::new(Phase::Before),
        node: RefCell::new(None),
        context: Cell::new(ptr::null_mut()),
        rank: Cell::new(0),
        size: Cell::new(1),
        par_pid: Cell::new(0),
        best_effort: Cell::new(false),
        ports: RefCell::new(Vec::new()),
        running: Cell::new(None),
        semaphores: RefCell::new(Vec::new()),
    },
);

/// Threads that want the lock.
static WANTING: AtomicUsize = AtomicUsize::new(0);

/// Whether two threads have ever met at the lock. From then on waits do not sleep with it.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Held in turn by threads that are in a barrier, so that those of one process are made one after the
/// other.
pub(crate) static BARRIER: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// The same for broadcasts, which no barrier waits for, as other processes may make them the other
/// way round.
pub(crate) static BROADCAST: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

pub(crate) type Held = ReentrantMutexGuard<'static, RawMutex, ThisThread, Machine>;

/// Runs in each child that the program forks: the parallel section is the parent's. The phase, which
/// every call looks at anyway, says so.
extern "C" fn disown() {
    // SAFETY: in the child this is the only thread. It may hold the lock, as any code that forks
    // from a handler does; cells stand it.
    let machine = unsafe { &*MACHINE.data_ptr() };
    if machine.phase.get() == Phase::Running {
        machine.phase.set(Phase::Forked);
    }
}

/// From now on children are told.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| portolan_ffi::watch_forks(disown));
}

/// The machine, in whatever phase.
#[inline]
pub(crate) fn lock() -> Held {
    MACHINE.try_lock().unwrap_or_else(|| lock_slowly())
}

#[cold]
fn lock_slowly() -> Held {
    SHARED.store(true, Ordering::Relaxed);
    WANTING.fetch_add(1, Ordering::Relaxed);
    let held = MACHINE.lock();
    WANTING.fetch_sub(1, Ordering::Relaxed);
    held
}

/// Whether a thread wants the lock, so that one that waits should step aside.
#[inline]
pub(crate) fn is_wanted() -> bool {
    WANTING.load(Ordering::Relaxed) > 0
}

/// Whether a wait should come back soon rather than sleep: other threads may want the lock.
pub(crate) fn is_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}

/// Lets a thread that wants the lock have it for a while.
pub(crate) fn step_aside(held: &mut Held) {
    ReentrantMutexGuard::bump(held);
    if is_shared() {
        ReentrantMutexGuard::unlocked(held, std::thread::yield_now);
    }
}

/// The machine between `gamma_init` and `gamma_exit`.
#[inline]
pub(crate) fn running() -> Result<Held, Failure> {
    let held = lock();
    if held.phase.get() == Phase::Running {
        return Ok(held);
    }
    Err(not_running(held.phase.get()))
}

#[cold]
fn not_running(phase: Phase) -> Failure {
    if phase == Phase::Forked {
        return portolan::Error::Forked.into();
    }
    if phase == Phase::Before {
        return Failure::new(GAMMA_ERR_NOT_INITIALISED, "call gamma_init() first");
    }
    Failure::new(
        GAMMA_ERR_EXITED,
        "gamma_exit() was called: the parallel section is over",
    )
}

/// From where a function was called.
pub(crate) enum Caller<'a> {
    Program(RefMut<'a, Option<Node>>),
    Handler(&'a mut Context<'static>),
}

impl Machine {
    /// The node, or what a handler has instead.
    #[inline]
    pub(crate) fn caller(&self) -> Result<Caller<'_>, Failure> {
        if let Ok(node) = self.node.try_borrow_mut() {
            return Ok(Caller::Program(node));
        }
        // SAFETY: set by `with_context`, whose caller does not use it while the handler runs; the
        // lock is this thread's, so that is now, and the reference is gone before it ends.
        match unsafe { self.context.get().as_mut() } {
            Some(context) => Ok(Caller::Handler(context)),
            None => Err(in_handler()),
        }
    }

    /// Runs `work` with the node, for functions that handlers cannot call.
    #[inline]
    pub(crate) fn with_node<T>(
        &self,
        work: impl FnOnce(&mut Node) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut node = self.node.try_borrow_mut().map_err(|_| in_handler())?;
        match node.as_mut() {
            Some(node) => work(node),
            None => Err(not_running(self.phase.get())),
        }
    }

    /// Runs a handler with `context` at hand.
    pub(crate) fn with_context(&self, context: &mut Context<'_>, handler: impl FnOnce()) {
        let before = self.context.replace(ptr::from_mut(context).cast());
        handler();
        self.context.set(before);
    }

    /// The port of that number, if it was set.
    #[inline]
    pub(crate) fn port(&self, number: u16) -> Result<&'static Port, Failure> {
        let ports = self.ports.borrow();
        match ports.get(usize::from(number)) {
            Some(Some(port)) => Ok(port),
            _ => Err(unset(number)),
        }
    }
}

#[cold]
fn unset(number: u16) -> Failure {
    let text = format!("port {number} was not set; call gamma_set_active_port() for it");
    Failure::new(GAMMA_ERR_PORT, text)
}

#[cold]
pub(crate) fn in_handler() -> Failure {
    Failure::new(
        GAMMA_ERR_IN_HANDLER,
        "this function waits, or sets a port, and cannot be called from a handler",
    )
}
