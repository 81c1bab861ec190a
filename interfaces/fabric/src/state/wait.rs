// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a queue or a counter. The endpoints choose between polling again, yielding and
//! sleeping.

use std::os::fd::RawFd;

use super::State;
use crate::errno::Errno;
use crate::idle::IdleAction;
use crate::wake::Wake;

impl State {
    /// Returns the way to wait for a counter. Several endpoints have no common descriptor, so there
    /// is no sleep.
    pub(crate) fn idle_action_of_cntr(&mut self, cntr: usize) -> IdleAction {
        let State { cntrs, eps, .. } = self;
        match cntrs[cntr].eps() {
            [ep] => eps[*ep].idle_action(),
            several => {
                let actions = several.iter().map(|&ep| eps[ep].idle_action());
                actions.fold(IdleAction::Yield, IdleAction::min)
            }
        }
    }

    /// Returns the way to wait for a queue, which is armed if the caller is to sleep.
    pub(crate) fn idle_action_of_cq(&mut self, cq: usize) -> Result<IdleAction, Errno> {
        let State { cqs, eps, .. } = self;
        let actions = cqs[cq].eps().iter().map(|&ep| eps[ep].idle_action());
        match actions.min() {
            Some(IdleAction::Sleep(_)) | None => self.arm_cq(cq).map(IdleAction::Sleep),
            Some(action) => Ok(action),
        }
    }

    /// Prepares a queue for a sleep on its descriptor.
    ///
    /// # Errors
    /// `AGAIN` if entries can be read or progress can be made now.
    pub(crate) fn try_wait(&mut self, cq: usize) -> Result<(), Errno> {
        self.progress_cq(cq);
        if self.cqs[cq].is_readable() {
            return Err(Errno::AGAIN);
        }
        let State { cqs, eps, .. } = self;
        if cqs[cq].eps().iter().any(|&ep| !eps[ep].arm()) {
            return Err(Errno::AGAIN);
        }
        self.arm_cq(cq).map(drop)
    }

    /// Ends a blocking read.
    pub(crate) fn signal(&mut self, cq: usize) -> Result<(), Errno> {
        self.wake(cq)?.notify_now();
        self.cqs[cq].signal();
        Ok(())
    }

    /// Returns the descriptor of a queue.
    pub(crate) fn wait_fd(&mut self, cq: usize) -> Result<RawFd, Errno> {
        Ok(self.wake(cq)?.fd())
    }

    fn arm_cq(&mut self, cq: usize) -> Result<RawFd, Errno> {
        let wake = self.wake(cq)?;
        wake.arm();
        Ok(wake.fd())
    }

    fn wake(&mut self, cq: usize) -> Result<&mut Wake, Errno> {
        let State { cqs, eps, .. } = self;
        cqs[cq].wake(|ep| eps[ep].wait_fds())
    }
}
