// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process knows of its groups' operations, and what it tells other members of failures.
//!
//! News are taken in where they come (`P14.8`), in whatever call that is: a member that has done its part of an
//! operation and left it answers those that still wait in it. The one invariant: a group that is broken
//! here was told to be so to all its members, by this process or by the one that told it.

use super::Inner;
use super::multicast::WORD_PORT;
use crate::collective::{AT_ONCE, Fault, HEAD_LEN, Head, Members, News, Pair, State};
use crate::error::Error;
use portolan_proto::{Cause, LaneId, PeerId, PeerStatus, PortId, PortMode, SendSpec};
use std::collections::BTreeMap;

/// The system port that news of all groups come to. Groups have the lower ones.
const NEWS_PORT: PortId = PortId::system(u16::MAX);

/// A message of this library, which is for nobody in this version, is counted under this name.
const MALFORMED: &str = "collective_malformed";

/// What a process knows of its groups' operations, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Collectives {
    groups: BTreeMap<u16, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Once this process has called an operation of it.
    members: Option<Members>,
    state: State,
    /// The program has been told that it is broken.
    is_told: bool,
}

/// How messages of this library to its ports go.
pub(crate) fn system_spec(port: PortId) -> SendSpec {
    SendSpec {
        to: port.into(),
        lane: LaneId::High,
        best_effort: false,
    }
}

impl Inner {
    /// Takes in news of groups from now on.
    pub(crate) fn open_news(&mut self) {
        self.core.open_port(NEWS_PORT, PortMode::InPlace);
        self.core.open_port(WORD_PORT, PortMode::InPlace);
    }

    /// A message to a port of this library's that takes them where they lie has come.
    pub(super) fn on_system(&mut self, source: PeerId, port: PortId, bytes: &[u8]) {
        match port == WORD_PORT {
            true => self.on_multicast_word(source, bytes),
            false => self.on_news(source, bytes),
        }
    }

    fn group_entry(&mut self, group: u16) -> &mut Entry {
        self.collectives.groups.entry(group).or_default()
    }

    /// Begins an operation of `group`: `call` says which. It has its number when this returns.
    pub(crate) fn begin_collective(&mut self, group: &Members, call: &Head) -> Result<Head, Error> {
        self.check_whole(group.id())?;
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
        if let Err(error) = checked.and_then(|()| self.check_unread(group)) {
            self.end_collective(group, &head);
            return Err(error);
        }
        Ok(head)
    }

    /// The operation has ended, well or not.
    pub(crate) fn end_collective(&mut self, group: &Members, head: &Head) {
        self.group_entry(group.id()).state.end(head);
    }

    /// Whether the group is broken.
    #[inline]
    pub(crate) fn is_broken(&self, group: u16) -> bool {
        let entry = self.collectives.groups.get(&group);
        entry.is_some_and(|entry| entry.state.broken().is_some())
    }

    /// An error if the group is broken.
    #[inline]
    pub(crate) fn check_whole(&mut self, group: u16) -> Result<(), Error> {
        match self.is_broken(group) {
            true => Err(self.tell_program(group)),
            false => Ok(()),
        }
    }

    /// Why a broken group is broken, for the program.
    #[cold]
    fn tell_program(&mut self, group: u16) -> Error {
        let entry = self.group_entry(group);
        entry.is_told = true;
        match entry.state.broken().cloned() {
            Some(Fault::Mismatch(mismatch)) => Error::CollectiveMismatch(Box::new(mismatch)),
            Some(Fault::Gone { rank, by, why }) => self.lost_error(rank, by, why),
            None => Error::Cancelled,
        }
    }

    /// The error of a group that is broken since `rank` is lost, as `by` says. A process that is told of
    /// its own loss has lost the one that gave it up.
    fn lost_error(&self, rank: u32, by: Option<u32>, why: String) -> Error {
        if let (Some(by), true) = (by, rank == self.rank()) {
            let report = format!("it has given up this process: {why}");
            return self.lost(by, Cause::Closed, report);
        }
        match (self.core.peer_status(PeerId(rank)), by) {
            (PeerStatus::Failed(cause), _) => self.gone_error(PeerId(rank), cause),
            (_, Some(by)) => self.lost(rank, Cause::Reported, format!("rank {by} says: {why}")),
            (_, None) => self.lost(rank, Cause::Reported, why),
        }
    }

    /// Looks at what lies at the group's ports: data that this process has not asked for, though it was
    /// in their operation, are of another one. `P14.9`
    #[inline]
    pub(crate) fn check_unread(&mut self, group: &Members) -> Result<(), Error> {
        match self.find_unread(group) {
            Some(pair) => Err(self.differ(group.id(), &pair)),
            None => Ok(()),
        }
    }

    fn find_unread(&mut self, group: &Members) -> Option<Pair> {
        let me = self.rank();
        let Inner {
            core, collectives, ..
        } = self;
        let state = &collectives.groups.get(&group.id())?.state;
        (0..AT_ONCE).find_map(|slot| {
            let port = PortId::system(group.port(slot));
            // The sender whose long data come next, without a head of their own.
            let mut is_next_data_of = None;
            core.waiting_at(port).find_map(|(peer, bytes)| {
                if is_next_data_of.take() == Some(peer) {
                    return None;
                }
                let theirs = Head::parse(bytes)?;
                let is_whole = bytes.len() as u64 == HEAD_LEN as u64 + theirs.len;
                if !is_whole {
                    is_next_data_of = Some(peer);
                }
                state.on_unread(me, peer.0, &theirs).err()
            })
        })
    }

    /// The same of all groups.
    pub(crate) fn check_groups(&mut self) {
        let entries = self.collectives.groups.values();
        let whole = entries.filter(|entry| entry.state.broken().is_none());
        let groups: Vec<Members> = whole.filter_map(|entry| entry.members.clone()).collect();
        for group in groups {
            if let Some(pair) = self.find_unread(&group) {
                self.break_by(group.id(), pair.fault(group.id()), &pair.news(group.id()));
            }
        }
    }

    /// An error if members have called different operations and the program does not know yet.
    pub(crate) fn check_told(&mut self) -> Result<(), Error> {
        let entries = self.collectives.groups.iter();
        let mut untold = entries.filter(|(_, entry)| {
            !entry.is_told && matches!(entry.state.broken(), Some(Fault::Mismatch(_)))
        });
        match untold.next().map(|(id, _)| *id) {
            Some(group) => Err(self.tell_program(group)),
            None => Ok(()),
        }
    }

    /// Whether data with the head `theirs` from `peer` are those of `own`, which this process is in.
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

    /// Two members are in different operations.
    #[cold]
    fn differ(&mut self, group: u16, pair: &Pair) -> Error {
        self.break_by(group, pair.fault(group), &pair.news(group));
        self.tell_program(group)
    }

    /// An operation has failed because `rank` is gone.
    #[cold]
    pub(crate) fn break_group(&mut self, group: u16, rank: u32, why: String) {
        let fault = Fault::Gone {
            rank,
            by: None,
            why: why.clone(),
        };
        self.break_by(group, fault, &News::Gone { group, rank, why });
        self.group_entry(group).is_told = true;
    }

    /// Notes, the first time, why the group is broken, and tells all other members, and whoever takes
    /// itself for one.
    fn break_by(&mut self, group: u16, fault: Fault, news: &News) {
        let me = self.rank();
        let entry = self.group_entry(group);
        if !entry.state.break_by(fault) {
            return;
        }
        let members = entry.members.as_ref().map_or(&[][..], Members::ranks);
        let mut ranks = members.to_vec();
        if let News::Mismatch { first, second, .. } = news {
            ranks.extend([first.0, second.0]);
        }
        ranks.sort_unstable();
        ranks.dedup();
        for rank in ranks.into_iter().filter(|rank| *rank != me) {
            self.tell(PeerId(rank), news);
        }
    }

    /// Sends news. A member that cannot be reached hears of it from its own links.
    pub(crate) fn tell(&mut self, peer: PeerId, news: &News) {
        let spec = system_spec(NEWS_PORT);
        if let Err(error) = self.send_copy_spec(peer, spec, &news.to_bytes()) {
            log::debug!("telling {peer} of a collective operation: {error}");
        }
        self.flush_wanted = true;
    }

    /// News have come.
    #[cold]
    fn on_news(&mut self, source: PeerId, bytes: &[u8]) {
        let (me, size) = (self.rank(), self.size());
        let (group, fault) = match News::parse(bytes) {
            Some(News::Waiting { group, head }) => {
                let entry = self.group_entry(group);
                if entry.state.broken().is_none()
                    && let Err(pair) = entry.state.on_waiting(me, source.0, &head)
                {
                    self.break_by(group, pair.fault(group), &pair.news(group));
                }
                return;
            }
            Some(News::Mismatch {
                group,
                first,
                second,
            }) if first.0 < size && second.0 < size => (group, Pair(first, second).fault(group)),
            Some(News::Gone { group, rank, why }) if rank < size => {
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
        match (News::parse(bytes), has_same_members) {
            // Who told it may not know all whom this process takes for members.
            (Some(news), false) => self.break_by(group, fault, &news),
            _ => _ = self.group_entry(group).state.break_by(fault),
        }
    }
}
