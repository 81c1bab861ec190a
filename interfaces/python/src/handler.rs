// SPDX-License-Identifier: MIT OR Apache-2.0
//! Python functions as handlers of ports. They run in calls of the library. An exception that a
//! handler raises is raised again by the call in which it ran, or by the next one.
#![allow(
    unsafe_code,
    reason = "calls from handlers find the context of their handler by address"
)]

use parking_lot::Mutex;
use portolan::Context;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Node of the handler that runs in this thread, and the handler's context.
    static RUNNING: Cell<(*const Raised, *mut Context<'static>)> =
        const { Cell::new((ptr::null(), ptr::null_mut())) };
}

/// Exception of a handler of one node.
#[derive(Default)]
pub(crate) struct Raised {
    exception: Mutex<Option<PyErr>>,
    is_some: AtomicBool,
}

/// Restores the handler that ran before.
struct Restore((*const Raised, *mut Context<'static>));

impl Drop for Restore {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

impl Raised {
    /// Raises the exception of a handler, once.
    pub(crate) fn check(&self) -> PyResult<()> {
        if !self.is_some.load(Ordering::Acquire) {
            return Ok(());
        }
        self.is_some.store(false, Ordering::Release);
        match self.exception.lock().take() {
            Some(raised) => Err(raised),
            None => Ok(()),
        }
    }

    /// Records an exception. The first one is retained.
    pub(crate) fn record(&self, raised: PyErr) {
        let mut exception = self.exception.lock();
        // A later one is dropped after the lock is released, because that may run Python code.
        if exception.is_none() {
            *exception = Some(raised);
        }
        drop(exception);
        self.is_some.store(true, Ordering::Release);
    }

    /// Runs a Python handler with `context` available to its calls. Returns `None` if it has raised
    /// an exception, or the interpreter is ending.
    pub(crate) fn run<R>(
        &self,
        context: &mut Context<'_>,
        handler: impl FnOnce(Python<'_>) -> PyResult<R>,
    ) -> Option<R> {
        self.run_with(ptr::from_mut(context).cast(), handler)
    }

    /// Runs a Python function that can make no calls on the node.
    pub(crate) fn run_alone<R>(
        &self,
        function: impl FnOnce(Python<'_>) -> PyResult<R>,
    ) -> Option<R> {
        self.run_with(ptr::null_mut(), function)
    }

    fn run_with<R>(
        &self,
        context: *mut Context<'static>,
        function: impl FnOnce(Python<'_>) -> PyResult<R>,
    ) -> Option<R> {
        let restore = Restore(RUNNING.replace((ptr::from_ref(self), context)));
        let result = Python::try_attach(function);
        drop(restore);
        match result? {
            Ok(value) => Some(value),
            Err(raised) => {
                self.record(raised);
                None
            }
        }
    }

    /// Returns whether a handler of this node runs in this thread.
    pub(crate) fn is_running(&self) -> bool {
        ptr::eq(RUNNING.get().0, self)
    }

    /// Returns the context of this node's handler that runs in this thread.
    pub(crate) fn context(&self) -> Option<Running> {
        let (_, context) = RUNNING.get();
        (self.is_running() && !context.is_null()).then_some(Running(context))
    }
}

/// The handler that runs in this thread.
pub(crate) struct Running(*mut Context<'static>);

impl Running {
    /// Makes a call of the handler.
    pub(crate) fn call<R>(&self, call: impl FnOnce(&mut Context<'_>) -> R) -> R {
        // SAFETY: not null. `Raised::run` of this thread is on the stack and holds the only reference to the
        // context, which it does not use meanwhile. No call on a context runs Python code, so there
        // is one reference at a time.
        call(unsafe { &mut *self.0 })
    }
}
