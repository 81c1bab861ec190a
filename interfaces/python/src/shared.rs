// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node as its Python objects share it: the lock, waits that Ctrl-C can end, and what the program
//! has dropped.
//!
//! Threads take turns. A wait holds the lock, but makes way for calls of other threads at once, and
//! for their waits after a while that grows. Progress is made for all meanwhile.

use crate::error::{Closed, Failure};
use crate::handler::Raised;
use crate::watch::Watch;
use parking_lot::{Mutex, MutexGuard};
use portolan::Error;
use portolan::binding::{Interrupter, Owner, Plumbing as _};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait between two checks of Python's signals, and so the delay of Ctrl-C. Sleeping processes
/// of the library wake up as often.
pub(crate) const SLICE: Duration = Duration::from_millis(200);

/// Shortest and longest time after which a wait interrupts the wait of another thread, to see its
/// own result. The first one does so at once.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(64));

/// A node, its dropped requests, and exceptions of handlers.
pub(crate) struct Shared {
    node: Mutex<Option<portolan::Node>>,
    /// The process that has joined. In a forked child, a thread of the parent may hold the locks
    /// forever, and an interruption would reach the parent.
    owner: Owner,
    /// Ends the wait of the thread that has the lock.
    interrupter: Interrupter,
    pub(crate) watch: Watch,
    raised: Arc<Raised>,
    /// Requests that the program has dropped before they were complete.
    dropped: Mutex<Vec<portolan::Request>>,
    /// Attempts to connect that the program has dropped before they ended.
    dropped_attempts: Mutex<Vec<portolan::Connecting>>,
    has_dropped: AtomicBool,
    /// Set in a job of one process, in which waits without a limit end by themselves.
    is_alone: bool,
}

impl Shared {
    pub(crate) fn new(mut node: portolan::Node, is_alone: bool) -> Result<Shared, Failure> {
        Ok(Shared {
            is_alone,
            owner: Owner::this_process(),
            interrupter: node.interrupter()?,
            node: Mutex::new(Some(node)),
            watch: Watch::default(),
            raised: Arc::new(Raised::default()),
            dropped: Mutex::new(Vec::new()),
            dropped_attempts: Mutex::new(Vec::new()),
            has_dropped: AtomicBool::new(false),
        })
    }

    pub(crate) fn raised(&self) -> &Arc<Raised> {
        &self.raised
    }

    /// Runs a call that does not wait.
    pub(crate) fn enter<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut portolan::Node) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.check(py)?;
        let result = match self.node.try_lock() {
            Some(mut node) => self.run(&mut node, call),
            None => py.detach(|| self.run(&mut self.interrupt(), call)),
        };
        Ok(result?)
    }

    /// Runs a call that may wait, without Python's lock. Ctrl-C does not end it.
    pub(crate) fn enter_detached<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut portolan::Node) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.check(py)?;
        Ok(py.detach(|| self.run(&mut self.interrupt(), call))?)
    }

    /// Repeats `attempt`, which waits at most for the time that is passed to it, or without a limit.
    /// Returns `None` at the timeout. In between, Python handles signals.
    pub(crate) fn wait<R: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut portolan::Node, Option<Duration>) -> Result<Option<R>, Failure>
        + Send,
    ) -> PyResult<Option<R>> {
        self.check(py)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut patience = Duration::ZERO;
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let slice = match left {
                None if self.is_alone => None,
                None => Some(SLICE),
                Some(left) => Some(left.min(SLICE)),
            };
            let got = py.detach(|| {
                let mut node = self.turn(&mut patience);
                let got = self.run(&mut node, |node| attempt(node, slice));
                MutexGuard::unlock_fair(node);
                got
            })?;
            if got.is_some() {
                return Ok(got);
            }
            py.check_signals()?;
            self.raised.check()?;
            if deadline.is_some_and(|at| at <= Instant::now()) {
                return Ok(None);
            }
        }
    }

    /// Takes the lock for a call that does not wait.
    fn interrupt(&self) -> MutexGuard<'_, Option<portolan::Node>> {
        if let Some(node) = self.node.try_lock() {
            return node;
        }
        let _interruption = self.interrupter.interrupt();
        self.node.lock()
    }

    /// Takes the lock for a wait, after `patience` from another wait.
    pub(crate) fn turn(&self, patience: &mut Duration) -> MutexGuard<'_, Option<portolan::Node>> {
        let free = match patience.is_zero() {
            true => self.node.try_lock(),
            false => self.node.try_lock_for(*patience),
        };
        *patience = (*patience * 2).clamp(PATIENCE.0, PATIENCE.1);
        free.unwrap_or_else(|| self.interrupt())
    }

    /// Has the thread that watches requests look at their list again.
    pub(crate) fn refresh_watch(&self, py: Python<'_>) {
        if self.is_watching() {
            py.detach(|| drop(self.interrupt()));
        }
    }

    /// Takes the node, to close it.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Option<portolan::Node>> {
        self.check_owner()?;
        if self.raised.is_running() {
            return Err(in_handler());
        }
        self.watch.close();
        Ok(match self.node.try_lock() {
            Some(mut node) => node.take(),
            None => py.detach(|| self.interrupt().take()),
        })
    }

    /// Records that the program has dropped a request. A receive is then cancelled.
    pub(crate) fn on_dropped(&self, request: portolan::Request) {
        if self.is_forked() {
            return;
        }
        self.dropped.lock().push(request);
        self.has_dropped.store(true, Ordering::Release);
    }

    /// Records that the program has dropped an attempt to connect.
    pub(crate) fn on_dropped_attempt(&self, attempt: portolan::Connecting) {
        if self.is_forked() {
            return;
        }
        self.dropped_attempts.lock().push(attempt);
        self.has_dropped.store(true, Ordering::Release);
    }

    /// Returns whether this process is a forked child of the one that has joined.
    pub(crate) fn is_forked(&self) -> bool {
        self.owner.is_another()
    }

    /// Refuses calls in a forked child, before they take a lock.
    pub(crate) fn check_owner(&self) -> PyResult<()> {
        match self.is_forked() {
            true => Err(Failure::from(Error::Forked).into()),
            false => Ok(()),
        }
    }

    /// Refuses calls in forked children and in handlers, and raises the exception of an earlier
    /// handler.
    fn check(&self, _: Python<'_>) -> PyResult<()> {
        self.check_owner()?;
        if self.raised.is_running() {
            return Err(in_handler());
        }
        self.raised.check()
    }

    pub(crate) fn run<R>(
        &self,
        node: &mut Option<portolan::Node>,
        call: impl FnOnce(&mut portolan::Node) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let node = node.as_mut().ok_or(Failure::Closed)?;
        if self.has_dropped.load(Ordering::Relaxed) {
            self.end_dropped(node);
        }
        call(node)
    }

    /// Frees dropped requests that have ended.
    fn end_dropped(&self, node: &mut portolan::Node) {
        for attempt in std::mem::take(&mut *self.dropped_attempts.lock()) {
            // A peer that has been found meanwhile stays connected.
            drop(node.end_connect(attempt));
        }
        let mut dropped = std::mem::take(&mut *self.dropped.lock());
        dropped.retain(|request| {
            node.cancel(*request);
            matches!(node.test(*request), Ok(None))
        });
        let mut kept = self.dropped.lock();
        kept.append(&mut dropped);
        let attempts = self.dropped_attempts.lock();
        let has_dropped = !kept.is_empty() || !attempts.is_empty();
        self.has_dropped.store(has_dropped, Ordering::Relaxed);
    }
}

fn in_handler() -> PyErr {
    Closed::new_err(
        "a handler can only call send, send_tagged and reply, and the function of a reduction cannot \
         use the node; do the rest after the call that runs it",
    )
}

/// Converts a timeout in seconds.
pub(crate) fn timeout_of(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    // Deadlines that have passed do not wait. `f64::max` would turn an invalid number into 0.
    let positive = |seconds: f64| if seconds < 0.0 { 0.0 } else { seconds };
    let converted = seconds.map(|seconds| Duration::try_from_secs_f64(positive(seconds)));
    converted.transpose().map_err(|error| {
        PyValueError::new_err(format!(
            "invalid timeout: {error}; pass seconds, or None for no limit"
        ))
    })
}
