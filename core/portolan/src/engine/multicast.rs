// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcasts by multicast (P17) in the engine's turns. Control messages are sent as
//! messages of the library, and awaited peers are watched as in any other wait.

use super::Inner;
use super::collective::system_spec;
use super::wait::SLEEP_FULL;
use crate::buffer::Buffer;
use crate::collective::{Head, Members};
use crate::error::Error;
use crate::multicast::{Announcement, Call, Ended, Id, reaches};
use portolan_link::WakeSet;
use portolan_proto::{Cause, Instant, PeerId, PeerStatus, PortId};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// System port for control messages of multicasts and bursts: below the port for notices, above
/// those of groups.
pub(super) const CONTROL_PORT: PortId = PortId::system(u16::MAX - 1);

/// Name of the counter for malformed control messages.
const MALFORMED: &str = "multicast_malformed";

impl Inner {
    /// Tests whether this process, as the root, sends a broadcast of `len` bytes by multicast.
    pub(crate) fn may_multicast(&mut self, members: &Members, len: usize) -> bool {
        self.multicasts.is_chosen(len) && self.may_be_announced(members, len)
    }

    /// Tests whether a broadcast could use multicast, ignoring local settings. All members come to
    /// the same result.
    pub(crate) fn may_be_announced(&mut self, members: &Members, len: usize) -> bool {
        let Inner {
            multicasts, table, ..
        } = self;
        multicasts.may_carry(members, len, || {
            let address = |rank: &u32| table.of(PeerId(*rank));
            let addresses: Option<Vec<_>> = members.ranks().iter().map(address).collect();
            addresses.is_some_and(|addresses| reaches(table.own(), &addresses))
        })
    }

    fn own_v4(&self) -> Option<Ipv4Addr> {
        match self.table.own().network {
            Some((IpAddr::V4(own), _)) => Some(own),
            _ => None,
        }
    }

    fn multicast_call<'a>(&self, members: &'a Members, head: &Head) -> Option<Call<'a>> {
        Some(Call {
            id: multicast_id(members, head),
            members,
            me: self.rank(),
            root: *members.ranks().get(head.root as usize)?,
            own: self.own_v4()?,
        })
    }

    /// Begins a broadcast by multicast as its root.
    ///
    /// # Errors
    /// The buffer, if the data must be sent along the tree.
    pub(crate) fn begin_multicast(
        &mut self,
        members: &Members,
        head: &Head,
        buffer: Buffer,
    ) -> Result<Announcement, Buffer> {
        match self.multicast_call(members, head) {
            Some(call) => self.multicasts.begin_root(&call, buffer, self.now),
            None => Err(buffer),
        }
    }

    /// Begins to receive the broadcast that the root has announced.
    ///
    /// # Errors
    /// The buffer, if the data comes as a message from the root.
    pub(crate) fn begin_receiving(
        &mut self,
        members: &Members,
        head: &Head,
        announcement: &Announcement,
        buffer: Buffer,
    ) -> Result<(), Buffer> {
        match self.multicast_call(members, head) {
            Some(call) => self.multicasts.begin_receiving(&call, announcement, buffer),
            None => {
                let root = members.ranks().get(head.root as usize);
                if let Some(root) = root.copied() {
                    self.multicasts.refuse(root, multicast_id(members, head));
                }
                Err(buffer)
            }
        }
    }

    /// Tests whether the wait is over: the multicast has ended, or a process that it needs has
    /// failed.
    pub(crate) fn is_multicast_settled(&self, id: Id) -> bool {
        self.multicasts.is_settled(id)
    }

    /// Returns the peers that a broadcast by multicast waits for. Includes processes that had
    /// failed before it began.
    pub(crate) fn multicast_awaits(&mut self, id: Id) -> Vec<PeerId> {
        let awaited: Vec<PeerId> = self
            .multicasts
            .awaited(id)
            .into_iter()
            .map(PeerId)
            .collect();
        for peer in &awaited {
            if let PeerStatus::Failed(_) = self.core.peer_status(*peer) {
                self.multicasts.on_failed(peer.0);
            }
        }
        awaited
    }

    /// Returns an error if a process that the broadcast needs has failed.
    pub(crate) fn check_multicast(&mut self, id: Id) -> Result<(), Error> {
        let Some(rank) = self.multicasts.failed(id) else {
            return Ok(());
        };
        let cause = match self.core.peer_status(PeerId(rank)) {
            PeerStatus::Failed(cause) => cause,
            _ => Cause::ProcessExited,
        };
        Err(self.peer_error(PeerId(rank), cause))
    }

    /// Ends a broadcast by multicast, settled or not.
    pub(crate) fn end_multicast(&mut self, id: Id) -> Option<Ended> {
        self.multicasts.end(id)
    }

    /// Returns the number of multicast broadcasts that this process has begun as the root.
    pub(crate) fn multicast_count(&self) -> u64 {
        self.multicasts.root_count()
    }

    #[cold]
    pub(super) fn on_multicast_control(&mut self, source: PeerId, bytes: &[u8]) {
        if !self.multicasts.on_control(source.0, bytes, self.now) {
            *self.link_drops.entry(MALFORMED).or_default() += 1;
        }
    }

    /// Makes a turn of all multicast broadcasts. Returns the number of runs of datagrams moved.
    #[cold]
    pub(crate) fn work_on_multicasts(&mut self) -> usize {
        let moved = self.multicasts.turn(self.now);
        for (rank, control) in self.multicasts.take_controls() {
            let spec = system_spec(CONTROL_PORT);
            // The failure of a peer is reported by its own link.
            if let Err(error) = self.send_copy_spec(PeerId(rank), spec, &control) {
                log::debug!("sending a control message of a broadcast to rank {rank}: {error}");
            }
        }
        moved
    }

    /// Adds the descriptors of multicasts to `wake`. Returns the longest sleep without another
    /// event.
    pub(super) fn arm_multicasts(
        &self,
        wake: &mut WakeSet,
        now: Instant,
        most: Duration,
    ) -> Duration {
        if !self.multicasts.is_busy() {
            return most;
        }
        self.multicasts.arm(wake);
        let until = self.multicasts.timeout().map(|at| at.since(now));
        let full = self.multicasts.is_blocked().then_some(SLEEP_FULL);
        until.into_iter().chain(full).fold(most, Duration::min)
    }
}

/// Returns the identifier of a broadcast among those by multicast.
pub(crate) fn multicast_id(members: &Members, head: &Head) -> Id {
    Id {
        group: members.id(),
        seq: head.seq,
    }
}
