// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a peer's memory without its help.

use super::Shm;
use super::peer::Life;
use crate::{PeerId, PullError};
use portolan_sys::{doorbell, vm_read};
use std::io;

impl Shm {
    pub(super) fn pull_from(
        &mut self,
        peer: PeerId,
        remote_addr: u64,
        dst: &mut [u8],
    ) -> Result<(), PullError> {
        if !self.can_pull {
            return Err(PullError::Unsupported);
        }
        let Some(state) = self.peers.get_mut(&peer) else {
            return Err(PullError::Unsupported);
        };
        if state.life != Life::Live {
            return Err(gone(peer));
        }
        let pid = state.pid.ok_or(PullError::Unsupported)?;
        match vm_read::read_process(pid, remote_addr, dst) {
            // A process closes its sockets before its id can be given to another, so the bytes are
            // the peer's if it has not hung up by now.
            Ok(()) if self.is_hung_up(peer) => Err(gone(peer)),
            Ok(()) => Ok(()),
            Err(err) => Err(self.pull_failed(peer, err)),
        }
    }

    fn pull_failed(&mut self, peer: PeerId, err: io::Error) -> PullError {
        match err.raw_os_error() {
            Some(libc::ENOSYS) => {
                self.can_pull = false;
                PullError::Unsupported
            }
            // The kernel's answer does not change, so the next message need not ask again.
            Some(libc::EPERM | libc::EACCES) => {
                if let Some(state) = self.peers.get_mut(&peer) {
                    state.pid = None;
                }
                PullError::Unsupported
            }
            _ => PullError::Failed(peer, err),
        }
    }

    fn is_hung_up(&self, peer: PeerId) -> bool {
        let outbound = self.outbound.get(peer as usize).and_then(Option::as_ref);
        let inbound = self.inbound.iter().find(|inbound| inbound.peer == peer);
        let ours = outbound.and_then(|outbound| outbound.socket());
        ours.or(inbound.map(|inbound| &inbound.socket))
            .is_none_or(doorbell::is_hung_up)
    }
}

fn gone(peer: PeerId) -> PullError {
    PullError::Failed(peer, io::ErrorKind::NotConnected.into())
}
