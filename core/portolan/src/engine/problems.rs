// SPDX-License-Identifier: MIT OR Apache-2.0
//! Problems around a process rather than on a wire: a process runs out of a resource, is a forked
//! child, or has not opened a port.
//!
//! Invariant: each problem is reported where users see it, with the object, the cause and the
//! remedy.

use super::{Engine, Inner, PortUse};
use crate::error::Error;
use crate::launch::Launch;
use crate::links::Links;
use crate::ops::OpKind;
use portolan_proto::{Cause, Instant, LinkId, OpError, OpId, PeerId, PortId};
use portolan_sys::shortage::Shortage;
use portolan_sys::wait::wait_readable;
use std::time::Duration;

/// Time to wait for the reason of a peer's end. The launcher gets it within milliseconds, or later
/// on a busy host.
const REPORT_WAIT: Duration = Duration::from_millis(100);

/// First message at a port that was not opened.
#[derive(Debug)]
pub(crate) struct Unopened {
    pub(super) port: PortId,
    pub(super) peer: PeerId,
    pub(super) since: Instant,
}

/// Time after which a message at an unopened port is reported. Programs that open their ports after
/// joining do so sooner. `P9.9`
const UNOPENED_REPORT_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of such messages that are recorded. One is enough to report a forgotten port; a
/// flood is reported in part.
const UNOPENED_MAX: usize = 64;

impl Inner {
    #[cold]
    pub(super) fn refused_rank(&self, rank: u32) -> Error {
        let size = self.job.size;
        match self.check_owner() {
            Ok(()) => Error::NoSuchRank { rank, size },
            Err(forked) => forked,
        }
    }

    /// Returns an error in a forked child of the process that has joined.
    #[inline]
    pub(crate) fn check_owner(&self) -> Result<(), Error> {
        match self.owner.is_another() {
            true => Err(Error::Forked),
            false => Ok(()),
        }
    }

    /// Returns the error for an unknown request, or for a wait that ended before its request.
    #[cold]
    pub(crate) fn stale(&self) -> Error {
        self.check_owner().err().unwrap_or(Error::StaleRequest)
    }

    /// Tests whether the wait for `op` has ended. Either `op` is done, or it is a receive from any
    /// source and no other process is left.
    #[inline]
    pub(crate) fn has_ended(&self, op: OpId) -> bool {
        self.ops.is_done(op) || self.has_no_sender() && self.is_from_anybody(op)
    }

    /// Returns whether no further event can arrive: this wait has slept without one, every other
    /// process of the job has ended, and this process has received what it sent to itself.
    #[inline]
    pub(crate) fn has_no_sender(&self) -> bool {
        self.is_idle && self.is_last() && self.has_own_messages()
    }

    /// Tests like [`Inner::has_no_sender`] whether a wait with a deadline must end before it. In a
    /// job of one process it lasts until its deadline.
    #[inline]
    pub(crate) fn is_deserted(&self) -> bool {
        self.job.size > 1 && self.has_no_sender()
    }

    /// Returns an error if no further message can reach a program that polls. In a job of one
    /// process there is no such error, because the process may still send to itself.
    #[inline]
    pub(crate) fn check_any_sender(&self) -> Result<(), Error> {
        self.check_owner()?;
        match self.job.size > 1 && self.is_last() && self.has_own_messages() {
            true => Err(self.no_sender_error()),
            false => Ok(()),
        }
    }

    /// Returns the error of a wait that no process can end.
    #[cold]
    pub(crate) fn no_sender_error(&self) -> Error {
        let others = self.job.size - 1;
        self.check_owner()
            .err()
            .unwrap_or(Error::NobodyLeft { others })
    }

    /// Returns an error if no further message can arrive from `source`, or from any process if
    /// `source` is `None`.
    pub(crate) fn check_sender(&self, source: Option<PeerId>) -> Result<(), Error> {
        match source {
            Some(peer) => self.check_gone(peer),
            None => self.check_any_sender(),
        }
    }

    /// Tests whether no message that this process has sent to itself is in flight. A message that
    /// waits for a receive does not count.
    fn has_own_messages(&self) -> bool {
        let mut transfers = self.core.unfinished_transfers();
        let moves = transfers.any(|(.., has_begun)| has_begun);
        !moves && self.core.unfinished_peers().next().is_none() && self.pending.is_empty()
    }

    /// Returns the peer that alone can complete `op`.
    #[inline]
    pub(crate) fn awaited_peer(&self, op: OpId) -> Option<PeerId> {
        self.ops.kind(op)?.awaited_peer()
    }

    pub(crate) fn is_from_anybody(&self, op: OpId) -> bool {
        matches!(
            self.ops.kind(op),
            Some(OpKind::Recv { source: None, .. } | OpKind::RecvTagged { source: None })
        )
    }

    /// Fails a receive if no process is left that could send to it.
    pub(crate) fn end_orphan(&mut self, op: OpId) {
        let is_over = self.is_last() && self.is_from_anybody(op) && self.check_owner().is_ok();
        if is_over && !self.ops.is_done(op) && self.withdraw(op) {
            let error = self.no_sender_error();
            self.ops.fail(op, error);
        }
    }

    /// Records that a message of `peer` waits at a port that was not opened.
    #[cold]
    pub(crate) fn note_unopened(&mut self, port: PortId, peer: PeerId) {
        if self.unopened.len() < UNOPENED_MAX {
            let since = self.read_clock();
            self.unopened.push(Unopened { port, peer, since });
        }
    }

    /// Reports messages that have waited long at ports that are not open.
    pub(super) fn report_unopened(&mut self) {
        let now = self.now;
        let unopened = std::mem::take(&mut self.unopened);
        let is_due = |item: &Unopened| now.since(item.since) >= UNOPENED_REPORT_AFTER;
        let (due, rest): (Vec<_>, Vec<_>) = unopened.into_iter().partition(is_due);
        self.unopened = rest;
        for Unopened { port, peer, .. } in due {
            if self.port_use(port) == PortUse::Closed {
                log::warn!(
                    "a message from rank {} on {} has waited 1 s at port {}, which rank {} has not \
                     opened; open the port there, or send to an open port",
                    peer.0,
                    self.host_of(peer),
                    port.number,
                    self.rank()
                );
            }
        }
    }

    /// Returns the error of an operation for the program.
    pub(crate) fn op_error(&self, op: OpId, error: OpError) -> Error {
        match error {
            OpError::PeerFailed(peer, cause) => self.peer_error(peer, cause),
            OpError::Truncated { message_len } => {
                let (port, source) = match self.ops.kind(op) {
                    Some(OpKind::Recv { port, source }) => (port.number, source),
                    _ => (0, None),
                };
                Error::Truncated {
                    source_rank: source.map_or(u32::MAX, |peer| peer.0),
                    port,
                    message_len,
                    buffer_len: self.ops.bytes(op).len(),
                }
            }
            OpError::Refused => {
                let rank = match self.ops.kind(op) {
                    Some(OpKind::Send(peer)) => peer.0,
                    _ => u32::MAX,
                };
                Error::Refused { rank }
            }
            OpError::Remote(peer, fault) => Error::RemoteRefused {
                rank: peer.0,
                host: self.host_of(peer),
                fault,
            },
            OpError::Fault { written } => self.fault_error(op, written),
            OpError::PeerFault(peer) => self.peer_fault_error(op, peer),
            OpError::MemoryFull { held_len, limit } => {
                Error::UnexpectedMemoryFull { held_len, limit }
            }
            _ => Error::Cancelled,
        }
    }
}

impl Engine {
    /// Updates the state of `op` after a poll found it incomplete. Fails a receive that no process
    /// can match. In a job of one process a receive does not fail, because the process may still
    /// send to itself.
    pub(crate) fn on_empty_poll(&mut self, op: OpId) {
        let peer = self.inner.awaited_peer(op);
        self.on_empty_poll_from(peer);
        if peer.is_none() && self.inner.job.size > 1 && self.inner.has_own_messages() {
            self.inner.end_orphan(op);
        }
    }

    /// Does the work of a wait for a program that polls. Watches `source`. If that is `None`,
    /// receives the last messages of a job after all other processes have ended.
    pub(crate) fn on_empty_poll_from(&mut self, source: Option<PeerId>) {
        self.catch_up();
        match source {
            Some(peer) if self.inner.is_gone(peer) => {}
            Some(peer) => self.watch_while_polled(peer),
            None if self.inner.is_last() => self.receive_all(),
            None => {}
        }
    }

    /// Drops what a forked child shares with its parent, above all rings and sockets, without
    /// notifying any peer. Only the parent may close them properly.
    #[cold]
    pub(crate) fn abandon(&mut self) -> usize {
        std::mem::forget(std::mem::replace(&mut self.links, Links::none()));
        std::mem::forget(self.launch.take());
        std::mem::forget(self.liveness.take());
        std::mem::forget(self.meeting.take());
        0
    }

    /// Waits briefly for the launcher to report why the process of an awaited `peer` has ended. The
    /// end of the process's sockets is detected first.
    #[cold]
    pub(super) fn await_report(&mut self, peer: PeerId) {
        let end = self.inner.read_clock() + REPORT_WAIT;
        loop {
            self.handle_launcher();
            let fd = self.launch.as_ref().map_or(-1, Launch::fd);
            let left = end.since(self.inner.read_clock());
            let info = self.inner.peers.get(peer.0 as usize);
            if fd < 0 || left.is_zero() || info.is_none_or(|info| info.report.is_some()) {
                return;
            }
            if wait_readable(&[fd], Some(left)).is_err() {
                return;
            }
        }
    }

    /// Gives up a peer after its end of a connection was closed. If the peer has reported an
    /// exhausted resource, that is the cause.
    pub(super) fn on_departure(&mut self, peer: PeerId, link: LinkId, cause: Cause) {
        self.links.disconnect(peer, link);
        let info = self.inner.peers.get_mut(peer.0 as usize);
        let is_awaited = info
            .as_ref()
            .is_some_and(|info| info.watched_since.is_some());
        let exhausted = info.and_then(|info| info.exhausted.take());
        if exhausted.is_none() && cause == Cause::ProcessExited && is_awaited {
            self.await_report(peer);
        }
        self.inner
            .give_up(peer, exhausted.map_or(cause, Cause::PeerOutOfResource));
    }

    /// Reports that this process has run out of a resource that its connection with `peer` needs:
    /// in the log, to the launcher, and in the peer's error.
    #[cold]
    pub(super) fn on_exhausted(&mut self, peer: PeerId, shortage: &Shortage, what: String) {
        log::error!("{peer}: {what}");
        if let Some(launch) = &mut self.launch {
            launch.report_problem(&what);
        }
        if let Some(info) = self.inner.peers.get_mut(peer.0 as usize) {
            info.report = Some(what.into());
        }
        self.give_up_for_good(peer, Cause::OutOfResource(shortage.resource.summary()));
    }
}
