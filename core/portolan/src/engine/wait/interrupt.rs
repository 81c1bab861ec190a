// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends waits with a timeout from other threads. For interfaces in which threads share a node.

use crate::engine::Inner;
use crate::error::Error;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ends the waits of a node that have a timeout, as if it had passed. Clones serve the same node.
#[derive(Clone, Debug)]
pub struct Interrupter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    count: AtomicUsize,
    /// Readable while there are interruptions, for waits that sleep.
    event: OwnedFd,
}

/// An interruption. Until it is dropped, waits with a timeout end at once.
#[derive(Debug)]
#[must_use = "waits are interrupted until this is dropped"]
pub struct Interruption<'a>(&'a Shared);

impl Interrupter {
    fn new() -> Result<Interrupter, Error> {
        // Each read takes back one write, so that concurrent interruptions are counted.
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let event = eventfd(0, flags).map_err(|errno| Error::System {
            what: "making a descriptor to interrupt waits",
            errno: errno.into(),
        })?;
        Ok(Interrupter(Arc::new(Shared {
            count: AtomicUsize::new(0),
            event,
        })))
    }

    /// Interrupts the node's waits.
    pub fn interrupt(&self) -> Interruption<'_> {
        self.0.count.fetch_add(1, Ordering::Release);
        if let Err(error) = write(&self.0.event, &1_u64.to_ne_bytes()) {
            log::warn!("interrupting a wait: {error}");
        }
        Interruption(&self.0)
    }

    fn is_raised(&self) -> bool {
        self.0.count.load(Ordering::Acquire) > 0
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.event.as_raw_fd()
    }
}

impl Inner {
    /// Returns the interrupter of this node's waits, made with the first call.
    pub(crate) fn interrupter(&mut self) -> Result<Interrupter, Error> {
        let interrupter = match self.interrupter.take() {
            Some(interrupter) => interrupter,
            None => Interrupter::new()?,
        };
        Ok(self.interrupter.insert(interrupter).clone())
    }

    /// Returns whether waits with a timeout must end.
    pub(super) fn is_interrupted(&self) -> bool {
        let interrupter = self.interrupter.as_ref();
        interrupter.is_some_and(Interrupter::is_raised)
    }
}

impl Drop for Interruption<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Release);
        // Does not block: the event was written before, and only this function reads it.
        let _ = read(&self.0.event, &mut [0; 8]);
    }
}
