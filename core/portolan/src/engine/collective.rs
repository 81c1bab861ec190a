// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of collective operations, and the exchange of failures with other group members.
//!
//! A notice is handled when it arrives (`P14.8`), in any call. A member that has finished its part
//! of an operation therefore still answers members that wait in it. Invariant: a group that is
//! broken here was reported as broken to all its members, by this process or by the process that
//! reported it here.

use super::Inner;
use super::multicast::CONTROL_PORT;
use crate::admission::Record;
use crate::collective::{Fault, GroupNotice, Head, Members, PENDING_OPS_MAX, Pair, State};
use crate::error::Error;
use portolan_proto::{Cause, LaneId, OpId, PeerId, PeerStatus, PortId, PortMode, SendSpec};
use std::collections::{BTreeMap, VecDeque};
use std::iter;

/// System port for the notices of all groups. The groups' own ports have lower numbers.
const NOTICE_PORT: PortId = PortId::system(u16::MAX);

/// Number of unread messages at a port that a member compares when it begins or ends an operation. A
/// member that is far behind has many, and compares the rest as it reads them.
const COMPARED_MAX: usize = 16;

/// Name of the counter for messages of the library that this version cannot parse.
const MALFORMED: &str = "collective_malformed";

/// State of the groups' operations.
#[derive(Debug, Default)]
pub(crate) struct Collectives {
    /// The group of all processes, which most programs use: found without a search.
    job: Entry,
    /// The other groups, by number.
    others: BTreeMap<u16, Entry>,
}

impl Collectives {
    #[inline]
    fn get(&self, group: u16) -> Option<&Entry> {
        match group {
            Members::JOB_ID => Some(&self.job),
            other => self.others.get(&other),
        }
    }

    #[inline]
    fn entry(&mut self, group: u16) -> &mut Entry {
        match group {
            Members::JOB_ID => &mut self.job,
            other => self.others.entry(other).or_default(),
        }
    }

    fn all(&self) -> impl Iterator<Item = (u16, &Entry)> {
        let others = self.others.iter().map(|(id, entry)| (*id, entry));
        iter::once((Members::JOB_ID, &self.job)).chain(others)
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// Set once this process has called an operation of the group.
    members: Option<Members>,
    state: State,
    /// Set when the program has received the error.
    is_reported: bool,
    /// Operations that have not begun, in their order.
    queue: VecDeque<OpId>,
}

/// Returns the address and lane of the library's own messages.
pub(crate) fn system_spec(port: PortId) -> SendSpec {
    SendSpec {
        to: port.into(),
        lane: LaneId::High,
        best_effort: false,
    }
}

impl Inner {
    /// Opens the ports for notices of groups, and for records of multicasts and bursts.
    pub(crate) fn open_notice_ports(&mut self) {
        self.core.open_port(NOTICE_PORT, PortMode::InPlace);
        self.core.open_port(CONTROL_PORT, PortMode::InPlace);
    }

    /// Handles a message to one of the library's own ports that take messages in place.
    pub(super) fn on_system(&mut self, source: PeerId, port: PortId, bytes: &[u8]) {
        if port != CONTROL_PORT {
            return self.on_group_notice(source, bytes);
        }
        match Record::parse(bytes) {
            Some(record) => self.on_burst_record(source, record),
            None => self.on_multicast_control(source, bytes),
        }
    }

    #[inline]
    fn group_entry(&mut self, group: u16) -> &mut Entry {
        self.collectives.entry(group)
    }

    /// Queues an operation that cannot begin yet.
    pub(crate) fn enqueue(&mut self, group: u16, op: OpId) {
        self.group_entry(group).queue.push_back(op);
    }

    /// Removes an operation from the queue.
    pub(crate) fn dequeue(&mut self, group: u16, op: OpId) {
        self.group_entry(group).queue.retain(|queued| *queued != op);
    }

    /// Returns whether operations of the group are queued.
    pub(crate) fn has_queue(&self, group: u16) -> bool {
        let entry = self.collectives.get(group);
        entry.is_some_and(|entry| !entry.queue.is_empty())
    }

    /// Returns whether this is the first operation in the queue.
    pub(crate) fn is_next(&self, group: u16, op: OpId) -> bool {
        let entry = self.collectives.get(group);
        entry.is_some_and(|entry| entry.queue.front() == Some(&op))
    }

    /// Begins an operation of `group`, described by `call`. Returns the head with the operation's
    /// number.
    pub(crate) fn begin_collective(&mut self, group: &Members, call: &Head) -> Result<Head, Error> {
        self.check_intact(group.id())?;
        let (me, id) = (self.rank(), group.id());
        let entry = self.group_entry(id);
        entry.members.get_or_insert_with(|| group.clone());
        let call = Head {
            members: group.digest(),
            ..*call
        };
        let begun = entry.state.begin(&call);
        let head = begun.map_err(|_| Error::GroupBusy { group: id })?;
        let checked = entry.state.check_waiting(me, &head);
        let checked = checked.map_err(|pair| self.differ(id, &pair));
        if let Err(error) = checked.and_then(|()| self.check_next_unread(group)) {
            self.end_collective(group, &head);
            return Err(error);
        }
        Ok(head)
    }

    /// Ends the operation, successful or not.
    pub(crate) fn end_collective(&mut self, group: &Members, head: &Head) {
        self.group_entry(group.id()).state.end(head);
    }

    /// Tests whether the group is broken.
    #[inline]
    pub(crate) fn is_broken(&self, group: u16) -> bool {
        let entry = self.collectives.get(group);
        entry.is_some_and(|entry| entry.state.broken().is_some())
    }

    /// Returns an error if the group is broken.
    #[inline]
    pub(crate) fn check_intact(&mut self, group: u16) -> Result<(), Error> {
        match self.is_broken(group) {
            true => Err(self.report_broken(group)),
            false => Ok(()),
        }
    }

    /// Returns the reason for which a group is broken, and records that the program has received
    /// it.
    #[cold]
    fn report_broken(&mut self, group: u16) -> Error {
        let entry = self.group_entry(group);
        entry.is_reported = true;
        match entry.state.broken().cloned() {
            Some(Fault::Mismatch(mismatch)) => Error::CollectiveMismatch(Box::new(mismatch)),
            Some(Fault::Gone { rank, by, why }) => self.lost_error(rank, by, why),
            None => Error::Cancelled,
        }
    }

    /// Returns the error of a group that is broken by the loss of `rank`, as reported by `by`. If
    /// `rank` is this process, the lost member is the one that gave it up.
    fn lost_error(&self, rank: u32, by: Option<u32>, why: String) -> Error {
        if let (Some(by), true) = (by, rank == self.rank()) {
            let report = format!("it declared this process dead: {why}");
            return self.lost(by, Cause::Closed, report);
        }
        match (self.core.peer_status(PeerId(rank)), by) {
            (PeerStatus::Failed(cause), _) => self.peer_error(PeerId(rank), cause),
            (_, Some(by)) => self.lost(rank, Cause::Reported, format!("rank {by} reports: {why}")),
            (_, None) => self.lost(rank, Cause::Reported, why),
        }
    }

    /// Checks the unread messages at the group's ports. Data of an operation that this process did
    /// not request, although it took part, belongs to a different operation. `P14.9`
    #[inline]
    pub(crate) fn check_unread(&mut self, group: &Members) -> Result<(), Error> {
        self.check_first_unread(group, usize::MAX)
    }

    /// Checks like [`Inner::check_unread`] the next messages that will be read.
    #[inline]
    pub(crate) fn check_next_unread(&mut self, group: &Members) -> Result<(), Error> {
        self.check_first_unread(group, COMPARED_MAX)
    }

    fn check_first_unread(&mut self, group: &Members, count: usize) -> Result<(), Error> {
        match self.find_unread(group, count) {
            Some(pair) => Err(self.differ(group.id(), &pair)),
            None => Ok(()),
        }
    }

    /// Returns the first difference among the first `count` unread messages of each port.
    #[inline]
    fn find_unread(&mut self, group: &Members, count: usize) -> Option<Pair> {
        let mut ports = (0..PENDING_OPS_MAX).map(|slot| PortId::system(group.port(slot)));
        match ports.any(|port| self.core.may_wait_at(port)) {
            true => self.find_unread_at_ports(group, count),
            false => None,
        }
    }

    #[inline(never)]
    fn find_unread_at_ports(&mut self, group: &Members, count: usize) -> Option<Pair> {
        let me = self.rank();
        let Inner {
            core, collectives, ..
        } = self;
        let state = &collectives.get(group.id())?.state;
        (0..PENDING_OPS_MAX).find_map(|slot| {
            let port = PortId::system(group.port(slot));
            // Sender of the long data that come next, without a head of their own.
            let mut is_next_data_of = None;
            core.waiting_at(port).take(count).find_map(|(peer, bytes)| {
                if is_next_data_of.take() == Some(peer) {
                    return None;
                }
                let theirs = Head::parse(bytes)?;
                if !theirs.is_complete(bytes) {
                    is_next_data_of = Some(peer);
                }
                state.on_unread(me, peer.0, &theirs).err()
            })
        })
    }

    /// Checks the unread messages of all groups.
    pub(crate) fn check_groups(&mut self) {
        let entries = self.collectives.all().map(|(_, entry)| entry);
        let intact = entries.filter(|entry| entry.state.broken().is_none());
        let groups: Vec<Members> = intact.filter_map(|entry| entry.members.clone()).collect();
        for group in groups {
            if let Some(pair) = self.find_unread(&group, usize::MAX) {
                self.break_by(group.id(), pair.fault(group.id()), &pair.notice(group.id()));
            }
        }
    }

    /// Returns an error if members have called different operations and the program has not been
    /// notified.
    pub(crate) fn check_unreported(&mut self) -> Result<(), Error> {
        let is_unreported = |entry: &Entry| {
            !entry.is_reported && matches!(entry.state.broken(), Some(Fault::Mismatch(_)))
        };
        let mut all = self.collectives.all();
        let unreported = all.find_map(|(id, entry)| is_unreported(entry).then_some(id));
        drop(all);
        match unreported {
            Some(group) => Err(self.report_broken(group)),
            None => Ok(()),
        }
    }

    /// Checks that data with the head `theirs` from `peer` belongs to `own`, this process's
    /// operation.
    pub(crate) fn check_data(
        &mut self,
        group: u16,
        peer: PeerId,
        theirs: &Head,
        own: &Head,
    ) -> Result<(), Error> {
        let me = self.rank();
        let state = &self.group_entry(group).state;
        let checked = state.check_data(me, peer.0, theirs, own);
        checked.map_err(|pair| self.differ(group, &pair))
    }

    /// Checks the length of a part from `peer`: its own, and the one that this process expects.
    pub(crate) fn check_part(
        &mut self,
        group: u16,
        peer: PeerId,
        head: &Head,
        (theirs, own): (u64, u64),
    ) -> Result<(), Error> {
        if theirs == own {
            return Ok(());
        }
        let (theirs, own) = (
            Head {
                len: theirs,
                ..*head
            },
            Head { len: own, ..*head },
        );
        let me = self.rank();
        Err(self.differ(group, &Pair((peer.0, theirs), (me, own))))
    }

    /// Breaks the group because two members are in different operations.
    #[cold]
    fn differ(&mut self, group: u16, pair: &Pair) -> Error {
        self.break_by(group, pair.fault(group), &pair.notice(group));
        self.report_broken(group)
    }

    /// Breaks the group because `rank` has failed during an operation.
    #[cold]
    pub(crate) fn break_group(&mut self, group: u16, rank: u32, why: String) {
        let fault = Fault::Gone {
            rank,
            by: None,
            why: why.clone(),
        };
        self.break_by(group, fault, &GroupNotice::Gone { group, rank, why });
        self.group_entry(group).is_reported = true;
    }

    /// Records the first reason for which the group is broken, and notifies all other members.
    /// Processes that take themselves for members are notified, too.
    fn break_by(&mut self, group: u16, fault: Fault, notice: &GroupNotice) {
        let me = self.rank();
        let entry = self.group_entry(group);
        if !entry.state.break_by(fault) {
            return;
        }
        let members = entry.members.as_ref().map_or(&[][..], Members::ranks);
        let mut ranks = members.to_vec();
        if let GroupNotice::Mismatch { first, second, .. } = notice {
            ranks.extend([first.0, second.0]);
        }
        ranks.sort_unstable();
        ranks.dedup();
        for rank in ranks.into_iter().filter(|rank| *rank != me) {
            self.send_notice(PeerId(rank), notice);
        }
    }

    /// Sends a notice. A member that cannot be reached detects the failure by its own links.
    pub(crate) fn send_notice(&mut self, peer: PeerId, notice: &GroupNotice) {
        let spec = system_spec(NOTICE_PORT);
        if let Err(error) = self.send_copy_spec(peer, spec, &notice.to_bytes()) {
            log::debug!("sending a notice of a collective operation to {peer}: {error}");
        }
        self.flush_wanted = true;
    }

    /// Handles a notice from another member.
    #[cold]
    fn on_group_notice(&mut self, source: PeerId, bytes: &[u8]) {
        let (me, size) = (self.rank(), self.size());
        let (group, fault) = match GroupNotice::parse(bytes) {
            Some(GroupNotice::Waiting { group, head }) => {
                let entry = self.group_entry(group);
                if entry.state.broken().is_none()
                    && let Err(pair) = entry.state.on_waiting(me, source.0, &head)
                {
                    self.break_by(group, pair.fault(group), &pair.notice(group));
                }
                return;
            }
            Some(GroupNotice::Mismatch {
                group,
                first,
                second,
            }) if first.0 < size && second.0 < size => (group, Pair(first, second).fault(group)),
            Some(GroupNotice::Gone { group, rank, why }) if rank < size => {
                let by = Some(source.0);
                (group, Fault::Gone { rank, by, why })
            }
            _ => {
                *self.link_drops.entry(MALFORMED).or_default() += 1;
                return;
            }
        };
        let has_same_members = match &fault {
            Fault::Mismatch(mismatch) => mismatch.has_same_members,
            Fault::Gone { .. } => true,
        };
        match (GroupNotice::parse(bytes), has_same_members) {
            // The sender may have a shorter list of members than this process.
            (Some(notice), false) => self.break_by(group, fault, &notice),
            _ => _ = self.group_entry(group).state.break_by(fault),
        }
    }
}
