// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of GAMMA in this process, and the lock around it.
//!
//! The lock is reentrant, because handlers run inside the library and call it. All state behind the
//! lock is in cells, which are borrowed briefly and never while a handler runs. Only the node stays
//! borrowed then, which identifies calls from a handler.

use crate::code::*;
use crate::group::Collectives;
use crate::partition::Partition;
use crate::port::Port;
use crate::semaphore::Semaphore;
use parking_lot::RawMutex;
use parking_lot::lock_api::{GetThreadId, RawMutex as _, ReentrantMutex, ReentrantMutexGuard};
use portolan::{Context, Node};
use portolan_ffi::{Served, Serving, this_thread};
use std::cell::{Cell, RefCell, RefMut};
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Life phase of this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Before,
    Running,
    Exited,
    /// This process is a child of a process that was running.
    Forked,
}

/// The state; see the module documentation.
pub(crate) struct Machine {
    pub(crate) phase: Cell<Phase>,
    pub(crate) node: RefCell<Option<Node>>,
    /// Context of the handler that is running.
    context: Cell<*mut Context<'static>>,
    /// Index of this process in its group.
    pub(crate) rank: Cell<u32>,
    /// Number of processes in the group.
    pub(crate) size: Cell<u32>,
    pub(crate) par_pid: Cell<u8>,
    /// The groups of the job.
    pub(crate) partition: RefCell<Partition>,
    /// Portolan's groups for the collective operations.
    pub(crate) collectives: RefCell<Option<Collectives>>,
    /// Set if sends without flow control may lose messages, as in GAMMA.
    pub(crate) best_effort: Cell<bool>,
    /// Ports by number, up to the highest one set. They exist until the process exits.
    pub(crate) ports: RefCell<Vec<Option<&'static Port>>>,
    /// Port whose handler is running.
    pub(crate) running: Cell<Option<&'static Port>>,
    /// The thread that runs handlers while the program computes.
    serving: RefCell<Serving>,
    /// Set if there is such a thread.
    is_served: Cell<bool>,
    /// Semaphores by number, up to the highest one used. They exist until the process exits.
    pub(crate) semaphores: RefCell<Vec<Option<&'static Semaphore>>>,
}

// SAFETY: all fields are accessed with the lock held, by one thread at a time. `context` points to
// the stack of the thread that holds the lock. The addresses in ports refer to memory that the
// program makes available to whichever thread is in the library.
unsafe impl Send for Machine {}

/// Source of thread ids for the reentrant lock.
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
        partition: RefCell::new(Partition::empty()),
        collectives: RefCell::new(None),
        best_effort: Cell::new(false),
        ports: RefCell::new(Vec::new()),
        running: Cell::new(None),
        serving: RefCell::new(Serving::new()),
        is_served: Cell::new(false),
        semaphores: RefCell::new(Vec::new()),
    },
);

/// Number of threads that wait for the lock.
static WAITERS: AtomicUsize = AtomicUsize::new(0);

/// Set once two threads have contended for the lock. From then on, waits do not sleep with the lock
/// held.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Serialises the barriers of this process's threads.
pub(crate) static BARRIER: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// Serialises the broadcasts of this process's threads. It is a second lock because other processes
/// may run barriers and broadcasts in another order.
pub(crate) static BROADCAST: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

pub(crate) type Held = ReentrantMutexGuard<'static, RawMutex, ThisThread, Machine>;

/// Runs in each child that the program forks. The parallel section belongs to the parent. Every
/// call checks the phase anyway.
extern "C" fn disown() {
    // SAFETY: this is the only thread of the child. It may hold the lock, if a handler has forked,
    // but the field is a cell.
    let machine = unsafe { &*MACHINE.data_ptr() };
    if machine.phase.get() == Phase::Running {
        machine.phase.set(Phase::Forked);
    }
}

/// Installs the fork handler.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| portolan_ffi::watch_forks(disown));
}

/// Locks the machine in any phase.
#[inline]
pub(crate) fn lock() -> Held {
    MACHINE.try_lock().unwrap_or_else(|| lock_contended())
}

#[cold]
fn lock_contended() -> Held {
    SHARED.store(true, Ordering::Relaxed);
    WAITERS.fetch_add(1, Ordering::Relaxed);
    let held = MACHINE.lock();
    WAITERS.fetch_sub(1, Ordering::Relaxed);
    held
}

/// Returns true if a thread waits for the lock, so that the holder should release it.
#[inline]
pub(crate) fn has_waiters() -> bool {
    WAITERS.load(Ordering::Relaxed) > 0
}

/// Returns true if a wait should return soon instead of sleeping, because other threads may need
/// the lock.
pub(crate) fn is_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}

/// Releases the lock for a moment if another thread waits for it.
pub(crate) fn yield_lock(held: &mut Held) {
    ReentrantMutexGuard::bump(held);
    if is_shared() {
        ReentrantMutexGuard::unlocked(held, std::thread::yield_now);
    }
}

/// Locks the machine if it is between `gamma_init` and `gamma_exit`.
#[inline]
pub(crate) fn running() -> Result<Held, Failure> {
    let held = lock();
    if held.phase.get() == Phase::Running {
        if held.is_served.get() {
            held.on_call();
        }
        return Ok(held);
    }
    Err(not_running(held.phase.get()))
}

/// The machine for a pass of the thread that runs handlers.
struct Passing<'a> {
    ports: &'a RefCell<Vec<Option<&'static Port>>>,
    serving: RefMut<'a, Serving>,
    node: RefMut<'a, Option<Node>>,
}

impl Served for Passing<'_> {
    fn serving(&mut self) -> &mut Serving {
        &mut self.serving
    }

    fn node(&mut self) -> Option<&mut Node> {
        self.node.as_mut()
    }

    fn may_serve(&self) -> bool {
        let ports = self.ports.borrow();
        ports.iter().flatten().all(|port| port.runs_anywhere())
    }

    fn pass(&mut self) -> Result<usize, String> {
        // A failure is reported by the call of the program that it concerns.
        let moved = self.node.as_mut().map(|node| node.progress().unwrap_or(0));
        Ok(moved.unwrap_or(0))
    }
}

/// Runs `step` for the thread that runs handlers.
fn with(step: &mut dyn FnMut(&mut dyn Served)) -> Option<()> {
    let machine = lock();
    let serving = machine.serving.try_borrow_mut().ok()?;
    let node = machine.node.try_borrow_mut().ok()?;
    step(&mut Passing {
        ports: &machine.ports,
        serving,
        node,
    });
    Some(())
}

#[cold]
fn not_running(phase: Phase) -> Failure {
    if phase == Phase::Forked {
        return portolan::Error::Forked.into();
    }
    if phase == Phase::Before {
        return not_started();
    }
    Failure::new(
        GAMMA_ERR_EXITED,
        "gamma_exit() was called; the parallel section has ended",
    )
}

#[cold]
pub(crate) fn not_started() -> Failure {
    Failure::new(GAMMA_ERR_NOT_INITIALISED, "call gamma_init() first")
}

/// Origin of a call.
pub(crate) enum Caller<'a> {
    Program(RefMut<'a, Option<Node>>),
    Handler(&'a mut Context<'static>),
}

impl Machine {
    /// Counts a call of the program, and takes the node back from the thread that runs handlers.
    #[cold]
    fn on_call(&self) {
        // Both are borrowed while a handler runs on that thread.
        let (Ok(mut serving), Ok(mut node)) =
            (self.serving.try_borrow_mut(), self.node.try_borrow_mut())
        else {
            return;
        };
        if serving.on_call()
            && let Some(node) = node.as_mut()
        {
            serving.resume(node);
        }
    }

    /// Starts the thread that runs handlers.
    pub(crate) fn serve(&self) -> Result<(), Failure> {
        self.with_node(|node| {
            self.serving
                .borrow_mut()
                .start("gamma-handlers", node, with)?;
            Ok(())
        })?;
        self.is_served.set(true);
        Ok(())
    }

    /// Returns the node, or in a handler its context.
    #[inline]
    pub(crate) fn caller(&self) -> Result<Caller<'_>, Failure> {
        if let Ok(node) = self.node.try_borrow_mut() {
            return Ok(Caller::Program(node));
        }
        // SAFETY: set by `with_context`, whose caller does not use it while the handler runs. This
        // thread holds the lock, so the handler is running now, and the reference is dropped before
        // the handler returns.
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

    /// Runs a handler with access to `context`.
    pub(crate) fn with_context(&self, context: &mut Context<'_>, handler: impl FnOnce()) {
        let before = self.context.replace(ptr::from_mut(context).cast());
        handler();
        self.context.set(before);
    }

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
    let text = format!("port {number} is not set; call gamma_set_active_port() first");
    Failure::new(GAMMA_ERR_PORT, text)
}

#[cold]
pub(crate) fn in_handler() -> Failure {
    Failure::new(
        GAMMA_ERR_IN_HANDLER,
        "a handler must not call functions that wait or set a port",
    )
}
