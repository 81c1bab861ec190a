// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of a completion queue.
//!
//! It has no bound of its own: every entry stems from an operation that was accepted, and those are
//! bounded. So nothing is lost, which `FI_RM_ENABLED` promises.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::os::fd::RawFd;

use crate::errno::Errno;
use crate::wake::Wake;

/// A completion, as the longest format tells it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entry {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// Where a message came from, by the address vector; `ADDR_NOTAVAIL` for an unsolicited peer.
    pub(crate) source: u64,
}

/// An operation that failed.
pub(crate) struct Failure {
    pub(crate) entry: Entry,
    /// Bytes of the message that did not fit.
    pub(crate) beyond: usize,
    pub(crate) errno: Errno,
    /// One sentence, with the peer and the cause.
    pub(crate) text: String,
}

/// What an endpoint has to sleep on: its engine's descriptor, and its connection's, if it has one.
pub(super) type WaitFds = [Option<RawFd>; 2];

/// A completion queue.
pub(crate) struct Queue {
    entry_len: usize,
    thresholds: bool,
    /// The endpoints that report here, each once.
    eps: Vec<usize>,
    /// Somebody called `fi_cq_signal`.
    signalled: bool,
    /// The text of the failure that was read last, which `readerr` lent out.
    last_text: String,
    wake: Option<Wake>,
    entries: VecDeque<Entry>,
    failures: VecDeque<Failure>,
}

impl Queue {
    /// A queue whose entries are read in a format of `entry_len` bytes. With `thresholds` the
    /// application says how many entries a waiting read waits for.
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

    /// Bytes of an entry in the format that the application reads.
    #[inline]
    pub(super) fn entry_len(&self) -> usize {
        self.entry_len
    }

    /// Whether a waiting read may wait for several entries.
    pub(crate) fn has_thresholds(&self) -> bool {
        self.thresholds
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        if let Some(wake) = &mut self.wake {
            wake.ring();
        }
    }

    #[cold]
    pub(super) fn fail(&mut self, failure: Failure) {
        self.failures.push_back(failure);
        if let Some(wake) = &mut self.wake {
            wake.ring();
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

    /// Whether a read would return something.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.entries.is_empty() || self.has_failed()
    }

    /// Keep the text of the failure that was read last, to lend it until the next one.
    pub(crate) fn keep_text(&mut self, text: String) -> &str {
        self.last_text = text;
        &self.last_text
    }

    /// The text of the failure that was read last, as C wants it, or what there is to say without.
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

    /// The endpoints that report here.
    #[inline]
    pub(super) fn eps(&self) -> &[usize] {
        &self.eps
    }

    /// Have an endpoint report here. `fds` tells what it has to sleep on, if somebody sleeps here.
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

    /// Forget an endpoint that is being closed.
    pub(super) fn detach(&mut self, ep: usize, fds: impl FnOnce() -> Result<WaitFds, Errno>) {
        self.eps.retain(|&other| other != ep);
        // What was not to be had was not watched.
        if let Some(wake) = &self.wake
            && let Ok(fds) = fds()
        {
            fds.into_iter().flatten().for_each(|fd| wake.forget(fd));
        }
    }

    /// The descriptor to sleep on, made when first asked for. `fds_of` tells those of endpoints.
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

    /// End a read that waits, or the next one that would.
    pub(super) fn signal(&mut self) {
        self.signalled = true;
    }

    /// Whether a waiting read is to end all the same.
    pub(crate) fn take_signal(&mut self) -> bool {
        std::mem::take(&mut self.signalled)
    }
}

/// Also wake when one of these is readable.
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
    fn a_sleeper_wakes_for_engines_and_connections_until_they_are_closed() {
        let mut bells: Vec<Wake> = (0..4).map(|_| Wake::new().unwrap()).collect();
        let fds = [[0, 1], [2, 3]].map(|of| of.map(|at: usize| Some(bells[at].fd())));
        let mut queue = Queue::new(8, false, 0);
        // One before anybody asks for the descriptor, and one after.
        queue.attach(0, || Ok(fds[0])).unwrap();
        let fd = queue.wake(|ep| Ok(fds[ep])).unwrap().fd();
        queue.attach(1, || Ok(fds[1])).unwrap();
        for bell in &mut bells {
            assert!(!is_readable(fd, 0));
            bell.ring_now();
            assert!(is_readable(fd, 0));
            bell.arm();
        }
        (0..2).for_each(|ep| queue.detach(ep, || Ok(fds[ep])));
        bells.iter_mut().for_each(Wake::ring_now);
        assert!(!is_readable(fd, 0));
    }
}
