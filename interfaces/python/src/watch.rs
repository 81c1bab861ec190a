// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that complete without a call of the program: a thread of the package drives the node
//! while the program computes, and calls a function when a request has ended.
//!
//! The thread starts with the first such request, and sleeps until a message arrives: it leaves the
//! cores to the program's computation. It holds Python's lock for those functions only. The one invariant: the list of requests is changed under its own
//! lock, and requests are settled under that of the node.

use crate::error::Failure;
use crate::request::Request;
use crate::shared::{SLICE, Shared};
use parking_lot::{Condvar, Mutex, MutexGuard};
use portolan::binding::Plumbing as _;
use pyo3::prelude::*;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Name of the thread, as shown by tools.
const THREAD_NAME: &str = "portolan-watch";

/// A request, and the function that is called at its end or at the deadline.
struct Watched {
    request: Py<Request>,
    function: Option<Py<PyAny>>,
    deadline: Option<Instant>,
}

/// The requests of one node that its thread watches.
#[derive(Default)]
pub(crate) struct Watch {
    list: Mutex<List>,
    changed: Condvar,
    /// Set while the thread drives the node for the requests that it knows.
    is_driving: AtomicBool,
}

#[derive(Default)]
struct List {
    watched: Vec<Watched>,
    is_started: bool,
    is_closed: bool,
}

impl Watch {
    /// Ends the thread after it has reported the requests that it knows.
    pub(crate) fn close(&self) {
        self.list.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until there are requests. Returns `false` at the end.
    fn wait(&self) -> bool {
        let mut list = self.list.lock();
        while list.watched.is_empty() && !list.is_closed {
            self.changed.wait(&mut list);
        }
        !list.watched.is_empty()
    }
}

impl Shared {
    /// Makes the thread call `function` when `request` has ended, or at the deadline.
    pub(crate) fn watch(
        self: &Arc<Shared>,
        request: Py<Request>,
        function: Option<Py<PyAny>>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let mut list = self.watch.list.lock();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if !list.is_started {
            let shared = Arc::clone(self);
            let builder = thread::Builder::new().name(THREAD_NAME.to_owned());
            builder.spawn(move || run(&shared))?;
            list.is_started = true;
        }
        list.watched.push(Watched {
            request,
            function,
            deadline,
        });
        drop(list);
        self.watch.changed.notify_all();
        Ok(())
    }

    /// Returns whether the thread must learn of new requests.
    pub(crate) fn is_watching(&self) -> bool {
        self.watch.is_driving.load(Ordering::Acquire)
    }

    /// Drives the node until one of the requests has ended, at most for a slice. Returns those that
    /// have ended or are overdue.
    fn drive_watched(&self, patience: &mut Duration) -> Vec<Watched> {
        let mut node = self.turn(patience);
        self.watch.is_driving.store(true, Ordering::Release);
        let ended = self.take_overdue();
        if !ended.is_empty() {
            self.watch.is_driving.store(false, Ordering::Release);
            return ended;
        }
        let (mut requests, slice) = self.watched_requests();
        let got = self.run(&mut node, |node| {
            let first = node.wait_any_asleep(&mut requests, slice);
            let mut got = Vec::from_iter(first);
            while let Some(next) = node.test_any(&mut requests) {
                got.push(next);
            }
            Ok(got)
        });
        self.watch.is_driving.store(false, Ordering::Release);
        let ended = match got {
            Ok(got) => got
                .into_iter()
                .filter_map(|ended| {
                    let watched = self.take_watched(ended.request)?;
                    let request = watched.request.get();
                    request.settle(request.outcome(ended.result));
                    Some(watched)
                })
                .collect(),
            Err(_) => self.fail_all(),
        };
        MutexGuard::unlock_fair(node);
        ended
    }

    /// Removes requests that others have settled, and overdue ones.
    fn take_overdue(&self) -> Vec<Watched> {
        let now = Instant::now();
        let mut list = self.watch.list.lock();
        let is_over = |one: &mut Watched| {
            one.request.get().pending().is_none() || one.deadline.is_some_and(|at| at <= now)
        };
        list.watched.extract_if(.., is_over).collect()
    }

    /// Returns the requests, and the time until the first deadline.
    fn watched_requests(&self) -> (Vec<portolan::Request>, Duration) {
        let list = self.watch.list.lock();
        let requests = list
            .watched
            .iter()
            .filter_map(|one| one.request.get().pending());
        let deadline = list.watched.iter().filter_map(|one| one.deadline).min();
        let left = deadline.map_or(SLICE, |at| at.saturating_duration_since(Instant::now()));
        (requests.collect(), left.min(SLICE))
    }

    fn take_watched(&self, request: portolan::Request) -> Option<Watched> {
        let mut list = self.watch.list.lock();
        let mut watched = list.watched.iter();
        let index = watched.position(|one| one.request.get().pending() == Some(request))?;
        Some(list.watched.swap_remove(index))
    }

    /// Settles all requests of a node that was closed.
    fn fail_all(&self) -> Vec<Watched> {
        let all = std::mem::take(&mut self.watch.list.lock().watched);
        for watched in &all {
            watched.request.get().settle(Err(Failure::Closed));
        }
        all
    }
}

/// Drives the node while there are requests.
fn run(shared: &Arc<Shared>) {
    let mut patience = Duration::from_millis(1);
    while shared.watch.wait() {
        let ended = shared.drive_watched(&mut patience);
        if ended.is_empty() {
            continue;
        }
        patience = Duration::from_millis(1);
        let called = Python::try_attach(|py| report(py, &ended));
        if called.is_none() {
            // The interpreter is ending.
            std::mem::forget(ended);
            return;
        }
    }
}

/// Calls the functions of requests.
fn report(py: Python<'_>, ended: &[Watched]) {
    for watched in ended {
        if let Some(function) = &watched.function
            && let Err(error) = function.call1(py, (&watched.request,))
        {
            error.write_unraisable(py, Some(function.bind(py)));
        }
    }
}
