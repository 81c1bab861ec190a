// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task that drives a node: sleeps on its descriptor, and handles what has arrived.
#![allow(
    unsafe_code,
    reason = "Tokio leaves it to the caller that a descriptor stays the same"
)]

use crate::state::State;
use portolan::{Connecting, Error, Node, PeerEvent};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// Turns in a row for which other tasks of the runtime wait.
const TURNS_MAX: u32 = 64;

/// A node, the tasks that wait for it, and the signal for its driver.
pub(crate) struct Shared {
    state: Arc<Mutex<State>>,
    bell: Arc<Bell>,
}

/// Signal for the driver, which holds the node only while it works.
#[derive(Default)]
struct Bell {
    notify: Notify,
    is_over: AtomicBool,
    wake_count: AtomicU64,
}

/// Starts the driver of `node`.
pub(crate) fn start(mut node: Node) -> Result<Arc<Shared>, Error> {
    let system = |errno| Error::System {
        what: "watching the descriptor of a node",
        errno,
    };
    let descriptor = node.event_fd()?.try_clone_to_owned().map_err(system)?;
    // Tokio watches edges. They suffice, because the driver works until `arm` has found nothing,
    // and whatever comes later is a new edge.
    // SAFETY: an `OwnedFd` returns the same open descriptor until it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    let descriptor = registered.map_err(|error| system(error.into_parts().1))?;
    let shared = Arc::new(Shared {
        state: Arc::new(Mutex::new(State::new(node))),
        bell: Arc::default(),
    });
    let (state, bell) = (Arc::clone(&shared.state), Arc::clone(&shared.bell));
    tokio::spawn(async move { drive(&state, &bell, &descriptor).await });
    // Arms the descriptor for the first time.
    shared.bell.notify.notify_one();
    Ok(shared)
}

async fn drive(state: &Mutex<State>, bell: &Bell, descriptor: &AsyncFd<OwnedFd>) {
    while !bell.is_over.load(Ordering::Acquire) {
        tokio::select! {
            ready = descriptor.readable() => match ready {
                // Before the work: an event during it must be a new edge.
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return,
            },
            () = bell.notify.notified() => {}
        }
        let before = locked(state).received_count();
        let mut turns = 0;
        while !bell.is_over.load(Ordering::Acquire) && !locked(state).work() {
            turns += 1;
            if turns % TURNS_MAX == 0 {
                tokio::task::yield_now().await;
            }
        }
        if locked(state).received_count() > before {
            bell.wake_count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A panic of a handler ends the driver. The state stays valid for the tasks.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Calls `body` with the node; `None` after it was closed.
    pub(crate) fn with<T>(&self, body: impl FnOnce(&mut Node) -> T) -> Option<T> {
        let mut state = self.locked();
        let result = body(state.node()?);
        // Timers may have changed, and operations may have ended.
        self.bell.notify.notify_one();
        Some(result)
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Wakes the driver.
    pub(crate) fn ring(&self) {
        self.bell.notify.notify_one();
    }

    /// Takes the node out; tasks that wait are woken.
    pub(crate) fn take(&self) -> Option<Node> {
        let node = self.locked().take();
        self.bell.is_over.store(true, Ordering::Release);
        self.ring();
        node
    }

    pub(crate) fn wake_count(&self) -> u64 {
        self.bell.wake_count.load(Ordering::Relaxed)
    }

    pub(crate) fn poll_recv(
        &self,
        port: u16,
        context: &mut Context<'_>,
    ) -> Poll<Result<(Vec<u8>, u32), Error>> {
        let (poll, is_new) = self.locked().poll_recv(port, context);
        if is_new {
            self.ring();
        }
        poll
    }

    pub(crate) fn poll_event(&self, context: &mut Context<'_>) -> Poll<Result<PeerEvent, Error>> {
        let (poll, is_new) = self.locked().poll_event(context);
        if is_new {
            self.ring();
        }
        poll
    }

    pub(crate) fn poll_connected(
        &self,
        connecting: &Connecting,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        self.locked().poll_connected(connecting, context)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.bell.is_over.store(true, Ordering::Release);
        self.ring();
    }
}
