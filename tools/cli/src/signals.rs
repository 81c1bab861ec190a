// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals as a descriptor to wait for, together with other descriptors.

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};

/// Signals that a user or a system sends to end a program.
pub(crate) const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A process; the signal may be for this process only.
    Process,
    /// The kernel: a terminal's signal also reaches the children of this process.
    Kernel,
}

/// Signals of this thread, blocked and queued; the old mask is restored on drop.
///
/// Children inherit the mask, unless they are started with
/// `portolan_sys::inherit::unblock_signals`.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    old_mask: SigSet,
}

impl Signals {
    /// Blocks and queues `signals` from now on.
    pub(crate) fn block(signals: &[Signal]) -> Result<Signals> {
        let set: SigSet = signals.iter().copied().collect();
        let old_mask = set
            .thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .context("blocking signals")?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let fd = SignalFd::with_flags(&set, flags).context("opening a signalfd")?;
        Ok(Signals { fd, old_mask })
    }

    /// Returns the descriptor, which is readable when a signal is queued.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the number of the next queued signal.
    pub(crate) fn next(&self) -> Option<i32> {
        self.next_from().map(|(number, _)| number)
    }

    /// Returns the number and the sender of the next queued signal.
    pub(crate) fn next_from(&self) -> Option<(i32, Sender)> {
        let info = self.fd.read_signal().ok()??;
        // Signals from processes have codes of 0 or below: SI_USER, SI_QUEUE, SI_TKILL
        // (sigaction(2)).
        let sender = match info.ssi_code {
            ..=0 => Sender::Process,
            _ => Sender::Kernel,
        };
        Some((i32::try_from(info.ssi_signo).ok()?, sender))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Drain the queue: signals for the finished job would act when they are unblocked.
        while self.next().is_some() {}
        if let Err(error) = self.old_mask.thread_set_mask() {
            log::error!("restoring the signal mask: {error}");
        }
    }
}
