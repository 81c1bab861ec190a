// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals as something to wait for beside other descriptors.

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};

/// Signals that a person or a system sends to end a program.
pub(crate) const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A process, perhaps to this one alone.
    Process,
    /// The kernel: what a terminal sends goes to children of this process, too.
    Kernel,
}

/// Signals of this thread, kept from acting and queued; as before on drop.
///
/// Children inherit this, unless they are started with `portolan_sys::inherit::unblock_signals`.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Queues `signals` from now on.
    pub(crate) fn take(signals: &[Signal]) -> Result<Signals> {
        let set: SigSet = signals.iter().copied().collect();
        let before = set
            .thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .context("blocking signals")?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let fd = SignalFd::with_flags(&set, flags).context("opening a signalfd")?;
        Ok(Signals { fd, before })
    }

    /// Readable when a signal is queued.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The number of the next queued signal.
    pub(crate) fn next(&self) -> Option<i32> {
        self.next_from().map(|(number, _)| number)
    }

    /// The number of the next queued signal, and who sent it.
    pub(crate) fn next_from(&self) -> Option<(i32, Sender)> {
        let info = self.fd.read_signal().ok()??;
        // Codes of what processes send are 0 or negative: SI_USER, SI_QUEUE, SI_TKILL (sigaction(2)).
        let sender = match info.ssi_code {
            ..=0 => Sender::Process,
            _ => Sender::Kernel,
        };
        Some((i32::try_from(info.ssi_signo).ok()?, sender))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What is still queued would act now; the job it was meant for is over.
        while self.next().is_some() {}
        if let Err(error) = self.before.thread_set_mask() {
            log::error!("restoring the signal mask: {error}");
        }
    }
}
