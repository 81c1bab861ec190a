// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of a completion queue.
//!
//! The queue has no limit of its own. Every entry belongs to an accepted operation, and the number
//! of those is bounded. No entry is lost, as `FI_RM_ENABLED` requires.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::os::fd::RawFd;

use crate::errno::Errno;
use crate::wake::Wake;

/// A completion, with the fields of the longest format.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entry {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// Index of the message's source in the address vector; `ADDR_NOTAVAIL` for a peer that was not
    /// inserted.
    pub(crate) source: u64,
}

/// A failed operation.
pub(crate) struct Failure {
    pub(crate) entry: Entry,
    /// Number of bytes of the message that did not fit.
    pub(crate) beyond: usize,
    pub(crate) errno: Errno,
    /// Error message, one sentence with the peer and the cause.
    pub(crate) text: String,
}

/// Descriptors that an endpoint's user sleeps on: its engine's, and its connection's if it has one.
pub(super) type WaitFds = [Option<RawFd>; 2];

/// A completion queue.
pub(crate) struct Queue {
    entry_len: usize,
    thresholds: bool,
    /// Endpoints that report to this queue, without duplicates.
    eps: Vec<usize>,
    /// Set by `fi_cq_signal`.
    signalled: bool,
    /// Text of the most recently read failure, to which `readerr` returned a pointer.
    last_text: String,
    wake: Option<Wake>,
    entries: VecDeque<Entry>,
    failures: VecDeque<Failure>,
}

impl Queue {
    /// Creates a queue whose entries are read in a format of `entry_len` bytes. With `thresholds`
    /// set, a blocking read may wait for several entries.
    pub(crate) fn new(entry_len: usize, thresholds: bool, capacity: usize) -> Queue {
        Queue {
            entry_len,
            thresholds,
            eps: Vec::new(),
            signalled: false,
            last_text: String::new(),
            wake: None,
            entries: VecDeque::with_capacity(capacity),
            failures: VecDeque::new(),
        }
    }

    /// Returns the bytes of an entry in the application's format.
    #[inline]
    pub(super) fn entry_len(&self) -> usize {
        self.entry_len
    }

    /// Returns true if a blocking read may wait for several entries.
    pub(crate) fn has_thresholds(&self) -> bool {
        self.thresholds
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        if let Some(wake) = &mut self.wake {
            wake.notify();
        }
    }

    #[cold]
    pub(super) fn fail(&mut self, failure: Failure) {
        self.failures.push_back(failure);
        if let Some(wake) = &mut self.wake {
            wake.notify();
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    pub(crate) fn pop_failure(&mut self) -> Option<Failure> {
        self.failures.pop_front()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Returns true if entries or failures can be read.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        !self.entries.is_empty() || self.has_failed()
    }

    /// Stores the text of the most recently read failure. The pointer to it stays valid until the
    /// next failure is read.
    pub(crate) fn store_text(&mut self, text: String) -> &str {
        self.last_text = text;
        &self.last_text
    }

    /// Returns the text of the most recently read failure as a C string, or a generic text if there
    /// is none.
    pub(crate) fn last_text(&mut self, errno: i32) -> &CStr {
        let text = &mut self.last_text;
        if text.is_empty() {
            *text = format!("error {errno} of libfabric");
        }
        if !text.ends_with('\0') {
            text.push('\0');
        }
        CStr::from_bytes_until_nul(text.as_bytes()).unwrap_or_default()
    }

    /// Returns the endpoints that report to this queue.
    #[inline]
    pub(super) fn eps(&self) -> &[usize] {
        &self.eps
    }

    /// Makes an endpoint report to this queue. `fds` returns the endpoint's descriptors, and is
    /// called if the queue has one to sleep on.
    pub(super) fn attach(
        &mut self,
        ep: usize,
        fds: impl FnOnce() -> Result<WaitFds, Errno>,
    ) -> Result<(), Errno> {
        if self.eps.contains(&ep) {
            return Ok(());
        }
        self.eps.push(ep);
        match &self.wake {
            Some(wake) => watch(wake, fds()?),
            None => Ok(()),
        }
    }

    /// Removes an endpoint that is being closed.
    pub(super) fn detach(&mut self, ep: usize, fds: impl FnOnce() -> Result<WaitFds, Errno>) {
        self.eps.retain(|&other| other != ep);
        // Descriptors that could not be opened were not watched.
        if let Some(wake) = &self.wake
            && let Ok(fds) = fds()
        {
            fds.into_iter().flatten().for_each(|fd| wake.forget(fd));
        }
    }

    /// Returns the descriptor to sleep on, which is created by the first call. `fds_of` returns the
    /// descriptors of an endpoint.
    pub(super) fn wake(
        &mut self,
        fds_of: impl Fn(usize) -> Result<WaitFds, Errno>,
    ) -> Result<&mut Wake, Errno> {
        if self.wake.is_none() {
            let wake = Wake::new().map_err(|_| Errno::NOMEM)?;
            let mut eps = self.eps.iter();
            eps.try_for_each(|&ep| watch(&wake, fds_of(ep)?))?;
            self.wake = Some(wake);
        }
        self.wake.as_mut().ok_or(Errno::NOMEM)
    }

    /// Ends a blocking read in progress, or the next one.
    pub(super) fn signal(&mut self) {
        self.signalled = true;
    }

    /// Returns true if a blocking read must return without entries, and clears the signal.
    pub(crate) fn take_signal(&mut self) -> bool {
        std::mem::take(&mut self.signalled)
    }
}

/// Also wakes for these descriptors.
fn watch(wake: &Wake, fds: WaitFds) -> Result<(), Errno> {
    let mut fds = fds.into_iter().flatten();
    let watched = fds.try_for_each(|fd| wake.watch(fd));
    watched.map_err(|_| Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::harness::is_readable;

    #[test]
    fn sleeper_wakes_for_attached_endpoints_only() {
        let mut events: Vec<Wake> = (0..4).map(|_| Wake::new().unwrap()).collect();
        let fds = [[0, 1], [2, 3]].map(|of| of.map(|at: usize| Some(events[at].fd())));
        let mut queue = Queue::new(8, false, 0);
        // Attach one endpoint before the descriptor is created, and one after.
        queue.attach(0, || Ok(fds[0])).unwrap();
        let fd = queue.wake(|ep| Ok(fds[ep])).unwrap().fd();
        queue.attach(1, || Ok(fds[1])).unwrap();
        for event in &mut events {
            assert!(!is_readable(fd, 0));
            event.notify_now();
            assert!(is_readable(fd, 0));
            event.arm();
        }
        (0..2).for_each(|ep| queue.detach(ep, || Ok(fds[ep])));
        events.iter_mut().for_each(Wake::notify_now);
        assert!(!is_readable(fd, 0));
    }
}
