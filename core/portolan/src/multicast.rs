// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcasts by multicast (P17): the sockets of groups, and the pending broadcasts.
//!
//! `portolan_multicast` sends the datagrams that reach all hosts of an Ethernet at once. This
//! module decides which members get them and when. It does not use the engine: outgoing
//! control messages are queued for it, and received ones are passed in.
//!
//! The one invariant: a broadcast that has begun here ends in one of two ways. Every member has all
//! bytes from its root, by multicast or by messages; or the broadcast reports a process that has
//! failed.

mod control;
mod crossover;
mod receiver;
mod root;

pub(crate) use control::Announcement;
pub(crate) use crossover::check;

use crate::address::Address;
use crate::buffer::Buffer;
use crate::collective::Members;
use crate::error::Error;
use crate::launch::Job;
use crate::links;
use control::Control;
use crossover::Crossover;
use portolan_link::{HostId, PortRange, WakeSet};
use portolan_multicast::{Codec, Keys, OVERHEAD_LEN, PIECE_LEN_MIN, Run, Socket, Terms};
use portolan_proto::Instant;
use rand::TryRngCore;
use receiver::Receiver;
use root::Root;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Range, RangeInclusive};
use std::os::fd::AsRawFd;
use std::sync::Weak;
use std::time::Duration;

/// Shortest broadcast that the root may announce (P17.1), in bytes. From this length on, a member
/// posts the buffer for the data only after it has read the head, because an announcement may
/// follow instead of data. All members must therefore use the same value.
const ANNOUNCED_LEN_MIN: usize = 1 << 10;

/// Sizes of groups that use multicast. In a group of two, a message costs the same. In larger
/// groups the reports are too many: each member sends four per window, and a window has 90
/// datagrams with Linux defaults.
const MEMBERS: RangeInclusive<usize> = 3..=64;

/// Minimum number of hosts of such a group. With fewer, the root sends the data only once by the
/// tree, too.
const HOSTS_MIN: usize = 3;

/// Number of groups for which one process has sockets at a time, for sending and for receiving: 32
/// of the 1000 descriptors of a process. Members of further groups receive the data in messages.
const GROUPS_MAX: usize = 16;

/// Time for which sockets of a group stay open after the program has dropped its last handle. A
/// program that creates its group again for each broadcast then joins only once. Switches take tens
/// of milliseconds to notice a new member.
const LINGER: Duration = Duration::from_secs(1);

/// Length of a block in bytes, as in `portolan cast`.
const BLOCK_LEN: usize = 1 << 20;

/// Blocks that a member buffers while earlier ones are incomplete. Repair waits for three
/// (`REPAIR_LAG` of `portolan_multicast`).
const BLOCKS_AHEAD: u64 = 8;

/// Runs that are sent or received in a turn of the engine: half a window.
const RUNS_IN_TURN: usize = 4;

/// Number of one operation of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) group: u16,
    pub(crate) seq: u64,
}

/// Multicast state of a group.
#[derive(Default)]
struct GroupState {
    /// The program's handles of the group.
    handles: Option<Weak<[u32]>>,
    /// Time at which the last handle was found dropped.
    unused_since: Option<Instant>,
    /// Set if the members are on enough hosts, all in one network; with the digest of the members
    /// for which this holds.
    reach: Option<(u64, bool)>,
    send_socket: Option<Socket>,
    receive_socket: Option<Socket>,
    /// Windows in datagrams that members reported to this process as the root.
    windows: BTreeMap<u32, u32>,
    /// Set when this process, as the root, broadcasts by the tree.
    is_off: bool,
}

impl GroupState {
    /// Returns whether the program has dropped its last handle of the group.
    fn is_unused(&self) -> bool {
        let handles = self.handles.as_ref();
        handles.is_some_and(|handles| handles.strong_count() == 0)
    }
}

/// Result of a broadcast by multicast.
pub(crate) struct Ended {
    pub(crate) buffer: Buffer,
    /// At the root: members to which the data must be sent in a message.
    pub(crate) direct: Vec<u32>,
    /// At a member: set if the data arrive in a message from the root.
    pub(crate) is_direct: bool,
}

/// Description of a broadcast that begins.
pub(crate) struct Call<'a> {
    pub(crate) id: Id,
    pub(crate) members: &'a Members,
    /// Rank of this process.
    pub(crate) me: u32,
    pub(crate) root: u32,
    /// Address of this host's interface.
    pub(crate) own: Ipv4Addr,
}

/// Multicast state of this process: groups and pending broadcasts.
pub(crate) struct Multicasts {
    job_id: [u8; 16],
    secret: [u8; 32],
    crossover: Crossover,
    ports: PortRange,
    groups: BTreeMap<u16, GroupState>,
    roots: BTreeMap<Id, Root>,
    receivers: BTreeMap<Id, Receiver>,
    /// Longest piece that the interface carries, in bytes, once it is known.
    piece_len: Option<usize>,
    /// Time of the next check for groups without handles.
    close_at: Instant,
    /// Control messages to send, with the receivers' ranks.
    controls: Vec<(u32, Vec<u8>)>,
    /// Multicasts that this process has begun as the root.
    root_count: u64,
    /// Datagrams that belong to no pending broadcast.
    unknown_count: u64,
}

impl Multicasts {
    /// Creates the state of `job`.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(crate) fn new(job: &Job) -> Result<Multicasts, Error> {
        Ok(Multicasts {
            job_id: job.job_id,
            secret: job.secret,
            crossover: Crossover::new(job)?,
            ports: links::ports(job)?,
            groups: BTreeMap::new(),
            roots: BTreeMap::new(),
            receivers: BTreeMap::new(),
            piece_len: None,
            close_at: Instant::default(),
            controls: Vec::new(),
            root_count: 0,
            unknown_count: 0,
        })
    }

    /// Returns whether this process, as the root, chooses multicast for a broadcast of `len` bytes.
    pub(crate) fn is_chosen(&self, len: usize) -> bool {
        self.crossover.is_passed(len)
    }

    /// Returns whether a broadcast of `len` bytes may use multicast. All members come to the same
    /// result. `reaches` returns whether the members are on enough hosts, all in one network.
    pub(crate) fn may_carry(
        &mut self,
        members: &Members,
        len: usize,
        reaches: impl FnOnce() -> bool,
    ) -> bool {
        let is_fit = len >= ANNOUNCED_LEN_MIN && MEMBERS.contains(&members.ranks().len());
        if !is_fit {
            return false;
        }
        let state = self.groups.entry(members.id()).or_default();
        (state.handles, state.unused_since) = (Some(members.handles()), None);
        match state.reach {
            Some((digest, reaches)) if digest == members.digest() => reaches,
            _ => {
                let reaches = reaches();
                state.reach = Some((members.digest(), reaches));
                reaches
            }
        }
    }

    /// Begins a broadcast as its root.
    ///
    /// # Errors
    /// The buffer, if the data must use the tree.
    pub(crate) fn begin_root(
        &mut self,
        call: &Call<'_>,
        buffer: Buffer,
        now: Instant,
    ) -> Result<Announcement, Buffer> {
        if self
            .groups
            .get(&call.id.group)
            .is_none_or(|state| state.is_off)
        {
            return Err(buffer);
        }
        let (announcement, codec) = match self.announce(call) {
            Ok(announced) => announced,
            Err(why) => {
                self.disable(call.id.group, &why);
                return Err(buffer);
            }
        };
        let state = self.groups.entry(call.id.group).or_default();
        let others = || {
            call.members
                .ranks()
                .iter()
                .copied()
                .filter(|rank| *rank != call.me)
        };
        let unready: BTreeSet<u32> = others()
            .filter(|rank| !state.windows.contains_key(rank))
            .collect();
        let root = Root::new((codec, &announcement), buffer, others(), unready, now);
        self.roots.insert(call.id, root);
        self.root_count += 1;
        Ok(announcement)
    }

    fn announce(&mut self, call: &Call<'_>) -> Result<(Announcement, Codec), String> {
        let group = portolan_multicast::group_of(self.job_id, call.id.group, self.ports);
        let mut salt = [0; 16];
        rand::rngs::OsRng
            .try_fill_bytes(&mut salt)
            .map_err(|error| error.to_string())?;
        let codec = self.codec(call, salt)?;
        let ports = self.ports;
        let state = self.group_state(call, |state| state.send_socket.is_some())?;
        if state.send_socket.is_none() {
            state.send_socket =
                Some(Socket::casting(call.own, group, ports).map_err(|error| error.to_string())?);
        }
        let piece_len = self.longest_piece(call.own)?;
        let state = self.groups.entry(call.id.group).or_default();
        let least = state.windows.values().min();
        let announcement = Announcement {
            piece_len: u16::try_from(piece_len).unwrap_or(u16::MAX),
            window: least.copied().unwrap_or(u32::MAX),
            salt,
        };
        Ok((announcement, codec))
    }

    /// Begins to receive the broadcast that the root has announced.
    ///
    /// # Errors
    /// Returns the buffer if this member cannot receive the multicast. The root then sends the data
    /// in a message.
    pub(crate) fn begin_receiving(
        &mut self,
        call: &Call<'_>,
        announcement: &Announcement,
        buffer: Buffer,
    ) -> Result<(), Buffer> {
        let (control, codec) = match self.listen(call, announcement) {
            Ok((window, codec)) => (Control::Ready { window }, Some((window, codec))),
            Err(why) => (Control::Refused { why }, None),
        };
        self.queue_control(call.root, call.id, &control);
        let Some((window, codec)) = codec else {
            return Err(buffer);
        };
        let terms = Terms {
            piece_len: usize::from(announcement.piece_len),
            window: u64::from(window.min(announcement.window)),
            serial: 0,
        };
        let receiver = Receiver::new(call.root, codec, terms, buffer);
        self.receivers.insert(call.id, receiver);
        Ok(())
    }

    /// Refuses the multicast, so that the root sends the data in a message.
    pub(crate) fn refuse(&mut self, root: u32, id: Id) {
        let why = "it has no IPv4 address".to_owned();
        self.queue_control(root, id, &Control::Refused { why });
    }

    /// Opens the socket of the group. Returns its window in datagrams, and the codec of the
    /// broadcast.
    fn listen(
        &mut self,
        call: &Call<'_>,
        announcement: &Announcement,
    ) -> Result<(u32, Codec), String> {
        if !self.crossover.is_on() {
            return Err("multicast is switched off there".to_owned());
        }
        let piece_len = usize::from(announcement.piece_len);
        let longest = self.longest_piece(call.own)?;
        if !(PIECE_LEN_MIN..=longest).contains(&piece_len) {
            return Err(format!(
                "its longest piece has {longest} bytes, not {piece_len}"
            ));
        }
        let codec = self.codec(call, announcement.salt)?;
        let (job_id, ports) = (self.job_id, self.ports);
        let state = self.group_state(call, |state| state.receive_socket.is_some())?;
        if state.receive_socket.is_none() {
            let group = portolan_multicast::group_of(job_id, call.id.group, ports);
            state.receive_socket =
                Some(Socket::listening(call.own, group).map_err(|error| error.to_string())?);
        }
        let buffer_len = state.receive_socket.as_ref().map_or(0, Socket::buffer_len);
        let window = portolan_multicast::window_of(buffer_len, piece_len);
        Ok((u32::try_from(window).unwrap_or(u32::MAX), codec))
    }

    /// Returns the state of the group of `call` if it may have another socket. `has` tests whether
    /// a group already has one of that kind.
    fn group_state(
        &mut self,
        call: &Call<'_>,
        has: impl Fn(&GroupState) -> bool,
    ) -> Result<&mut GroupState, String> {
        let group = call.id.group;
        let is_new = !self.groups.get(&group).is_some_and(&has);
        let count =
            |groups: &BTreeMap<u16, GroupState>| groups.values().filter(|state| has(state)).count();
        if is_new && count(&self.groups) >= GROUPS_MAX {
            self.close_groups(|_| true);
            if count(&self.groups) >= GROUPS_MAX {
                return Err(format!("{GROUPS_MAX} groups have sockets"));
            }
        }
        let state = self.groups.entry(group).or_default();
        (state.handles, state.unused_since) = (Some(call.members.handles()), None);
        Ok(state)
    }

    /// Drops idle groups without handles, if `wanted` returns true for the time at which the last
    /// handle was found dropped.
    fn close_groups(&mut self, wanted: impl Fn(Option<Instant>) -> bool) {
        let Multicasts {
            groups,
            roots,
            receivers,
            ..
        } = self;
        groups.retain(|group, state| {
            let is_busy = roots
                .keys()
                .chain(receivers.keys())
                .any(|id| id.group == *group);
            is_busy || !state.is_unused() || !wanted(state.unused_since)
        });
    }

    /// Closes the sockets of groups that have had no handle for [`LINGER`]. The engine calls it
    /// from time to time.
    pub(crate) fn close_unused(&mut self, now: Instant) {
        self.close_at = now + LINGER / 4;
        for state in self.groups.values_mut().filter(|state| state.is_unused()) {
            state.unused_since.get_or_insert(now);
        }
        self.close_groups(|since| since.is_some_and(|since| now.since(since) >= LINGER));
    }

    /// Returns whether [`Multicasts::close_unused`] is due.
    pub(crate) fn is_close_due(&self, now: Instant) -> bool {
        !self.groups.is_empty() && now >= self.close_at
    }

    /// Returns the length of the longest piece that the interface with this address carries, in
    /// bytes.
    fn longest_piece(&mut self, own: Ipv4Addr) -> Result<usize, String> {
        if let Some(len) = self.piece_len {
            return Ok(len);
        }
        let mtu = portolan_multicast::mtu_of(own).map_err(|error| error.to_string())?;
        let len = portolan_multicast::datagram_len(mtu).saturating_sub(OVERHEAD_LEN);
        if len < PIECE_LEN_MIN {
            return Err(format!(
                "the interface with {own} carries packets of {mtu} bytes"
            ));
        }
        self.piece_len = Some(len);
        Ok(len)
    }

    /// Derives the codec of a broadcast. `P17.3`
    fn codec(&self, call: &Call<'_>, salt: [u8; 16]) -> Result<Codec, String> {
        let mut hasher = blake3::Hasher::new_derive_key("portolan 2026 broadcast by multicast");
        hasher.update(&self.secret);
        hasher.update(&self.job_id);
        hasher.update(&call.id.group.to_le_bytes());
        hasher.update(&call.id.seq.to_le_bytes());
        hasher.update(&call.root.to_le_bytes());
        hasher.update(&salt);
        let mut bytes = [0; Keys::LEN];
        hasher.finalize_xof().fill(&mut bytes);
        Codec::new(&Keys::from_bytes(&bytes)).ok_or_else(|| "no cipher".to_owned())
    }

    fn disable(&mut self, group: u16, why: &str) {
        let state = self.groups.entry(group).or_default();
        if !std::mem::replace(&mut state.is_off, true) {
            log::info!("group {group} broadcasts without multicast: {why}");
        }
    }

    fn queue_control(&mut self, rank: u32, id: Id, control: &Control) {
        self.controls.push((rank, control.to_bytes(id)));
    }

    /// Takes the control messages to send, with the receivers' ranks.
    pub(crate) fn take_controls(&mut self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut self.controls)
    }

    /// Handles a member's message. Returns whether it is a valid control message.
    pub(crate) fn on_control(&mut self, rank: u32, bytes: &[u8], now: Instant) -> bool {
        let Some((id, control)) = Control::parse(bytes) else {
            return false;
        };
        if let Some(receiver) = self.receivers.get_mut(&id) {
            let is_refusing = match control {
                _ if receiver.root() != rank => false,
                Control::Sent(sent) => {
                    receiver.on_sent(sent);
                    false
                }
                Control::Direct => receiver.on_direct(),
                Control::Window { window } => {
                    receiver.on_window(window);
                    false
                }
                _ => false,
            };
            if is_refusing {
                let why = "it receives no datagrams".to_owned();
                self.queue_control(rank, id, &Control::Refused { why });
            }
            return true;
        }
        // The window of an earlier broadcast is equally valid.
        if let (Control::Ready { window }, Some(state)) = (&control, self.groups.get_mut(&id.group))
        {
            state.windows.insert(rank, (*window).max(1));
        }
        let Some(root) = self.roots.get_mut(&id) else {
            return true;
        };
        let (is_excluded, why) = match control {
            Control::Ready { .. } => (root.on_ready(rank, now), None),
            Control::Refused { why } => {
                root.on_refused(rank);
                (false, Some(why))
            }
            Control::Report { report, got } => {
                let is_deaf = root.on_report(rank, (&report, got), now);
                (
                    is_deaf,
                    is_deaf.then(|| "it receives no datagrams".to_owned()),
                )
            }
            Control::Sent(_) | Control::Direct | Control::Window { .. } => (false, None),
        };
        if is_excluded {
            self.queue_control(rank, id, &Control::Direct);
        }
        if let Some(why) = why {
            self.disable(id.group, &format!("rank {rank}: {why}"));
        }
        true
    }

    /// Returns whether a turn has work to do.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        !(self.roots.is_empty() && self.receivers.is_empty() && self.controls.is_empty())
    }

    /// Sends and receives what is ready. Returns the number of runs.
    pub(crate) fn turn(&mut self, now: Instant) -> usize {
        let ids: Vec<Id> = self.roots.keys().copied().collect();
        let sent: usize = ids.into_iter().map(|id| self.cast(id, now)).sum();
        sent + self.receive()
    }

    fn cast(&mut self, id: Id, now: Instant) -> usize {
        let state = self.groups.get_mut(&id.group);
        let Some(mut socket) = state.and_then(|state| state.send_socket.take()) else {
            return 0;
        };
        let moved = self.cast_by(id, now, |run| socket.send(run));
        if let Some(state) = self.groups.get_mut(&id.group) {
            state.send_socket = Some(socket);
        }
        moved
    }

    /// Sends all that the root may send now. `send` returns `false` if the socket would block.
    fn cast_by(
        &mut self,
        id: Id,
        now: Instant,
        mut send: impl FnMut(&mut Run) -> io::Result<bool>,
    ) -> usize {
        let (Some(root), Some(state)) = (self.roots.get_mut(&id), self.groups.get(&id.group))
        else {
            return 0;
        };
        let mut controls = root.begin(|rank| state.windows.get(&rank).map_or(1, |it| *it), now);
        let mut moved = 0;
        let mut failure = None;
        while let Some(run) = root.run(now).filter(|_| moved < RUNS_IN_TURN) {
            match send(run) {
                Ok(is_sent) => root.on_sent(!is_sent, now),
                Err(error) => failure = Some(error),
            }
            if root.is_blocked() || failure.is_some() {
                break;
            }
            moved += 1;
        }
        match failure {
            None => controls.extend(root.on_time(now)),
            Some(error) => {
                let ranks = root.fail();
                self.disable(id.group, &format!("sending: {error}"));
                controls.extend(ranks.into_iter().map(|rank| (rank, Control::Direct)));
            }
        }
        controls
            .iter()
            .for_each(|(rank, control)| self.queue_control(*rank, id, control));
        moved
    }

    fn receive(&mut self) -> usize {
        let mut moved = 0;
        let waiting = self
            .receivers
            .iter()
            .filter(|(_, receiver)| !receiver.is_settled());
        let mut groups: Vec<u16> = waiting.map(|(id, _)| id.group).collect();
        groups.dedup();
        for group in groups {
            moved += self.receive_group(group);
        }
        moved
    }

    fn receive_group(&mut self, group: u16) -> usize {
        let state = self.groups.get_mut(&group);
        let Some(mut socket) = state.and_then(|state| state.receive_socket.take()) else {
            return 0;
        };
        let moved = self.receive_runs(group, |sink| socket.receive_any(sink));
        if let Some(state) = self.groups.get_mut(&group) {
            state.receive_socket = Some(socket);
        }
        moved
    }

    /// Handles the datagrams from `receive`, run by run. `receive` returns whether there was a run.
    fn receive_runs(
        &mut self,
        group: u16,
        mut receive: impl FnMut(&mut dyn FnMut(&mut [u8])) -> io::Result<bool>,
    ) -> usize {
        let Multicasts {
            receivers,
            unknown_count,
            controls,
            ..
        } = self;
        let (mut moved, mut is_drained) = (0, false);
        let ids = Id { group, seq: 0 }..=Id {
            group,
            seq: u64::MAX,
        };
        while !is_drained && moved < RUNS_IN_TURN {
            let received = receive(&mut |datagram| {
                let mut known = receivers.range_mut(ids.clone());
                let known = known.find(|(_, receiver)| receiver.matches(datagram));
                if !known.is_some_and(|(_, receiver)| receiver.on_datagram(datagram)) {
                    *unknown_count += 1;
                }
            });
            match received {
                Ok(true) => moved += 1,
                Ok(false) => is_drained = true,
                Err(error) => {
                    // The root sends the data in a message to a member that receives nothing.
                    log::debug!("receiving by multicast: {error}");
                    is_drained = true;
                }
            }
        }
        for (id, receiver) in receivers.range_mut(ids).filter(|(_, it)| !it.is_settled()) {
            if let Some(control) = receiver.report(is_drained) {
                controls.push((receiver.root(), control.to_bytes(*id)));
            }
        }
        moved
    }

    /// Returns whether the broadcast no longer waits for multicast data.
    pub(crate) fn is_settled(&self, id: Id) -> bool {
        match (self.roots.get(&id), self.receivers.get(&id)) {
            (Some(root), _) => root.is_settled() || root.failed().is_some(),
            (_, Some(receiver)) => receiver.is_settled() || receiver.failed().is_some(),
            (None, None) => true,
        }
    }

    /// Returns the ranks that a broadcast waits for.
    pub(crate) fn awaited(&self, id: Id) -> Vec<u32> {
        match (self.roots.get(&id), self.receivers.get(&id)) {
            (Some(root), _) => root.awaited().collect(),
            (_, Some(receiver)) => vec![receiver.root()],
            (None, None) => Vec::new(),
        }
    }

    /// Returns an awaited process that has failed.
    pub(crate) fn failed(&self, id: Id) -> Option<u32> {
        let root = self.roots.get(&id).and_then(Root::failed);
        root.or_else(|| self.receivers.get(&id).and_then(Receiver::failed))
    }

    /// Records that a process has failed.
    pub(crate) fn on_failed(&mut self, rank: u32) {
        self.roots
            .values_mut()
            .for_each(|root| root.on_failed(rank));
        self.receivers
            .values_mut()
            .for_each(|receiver| receiver.on_failed(rank));
    }

    /// Ends a broadcast in any state.
    pub(crate) fn end(&mut self, id: Id) -> Option<Ended> {
        if let Some(root) = self.roots.remove(&id) {
            let (buffer, direct) = root.into_parts();
            return Some(Ended {
                buffer,
                direct,
                is_direct: false,
            });
        }
        let (buffer, is_direct) = self.receivers.remove(&id)?.into_parts();
        Some(Ended {
            buffer,
            direct: Vec::new(),
            is_direct,
        })
    }

    /// Adds the sockets of pending broadcasts to `wake`.
    pub(crate) fn arm(&self, wake: &mut WakeSet) {
        let waiting = self
            .receivers
            .iter()
            .filter(|(_, receiver)| !receiver.is_settled());
        let sockets =
            waiting.filter_map(|(id, _)| self.groups.get(&id.group)?.receive_socket.as_ref());
        wake.fds
            .extend(sockets.map(|socket| socket.fd().as_raw_fd()));
    }

    /// Returns the next time at which a turn has work without a received datagram.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.roots.values().filter_map(Root::timeout).min()
    }

    /// Returns whether a run waits for room in a socket's send buffer.
    pub(crate) fn is_blocked(&self) -> bool {
        self.roots.values().any(Root::is_blocked)
    }

    /// Returns the number of multicasts that this process has begun as the root.
    pub(crate) fn root_count(&self) -> u64 {
        self.root_count
    }

    /// Returns the number of datagrams that belong to no pending broadcast.
    pub(crate) fn unknown_count(&self) -> u64 {
        self.unknown_count
    }
}

/// Returns whether processes with `addresses` are on enough hosts, all in the IPv4 network of
/// `own`.
pub(crate) fn reaches(own: &Address, addresses: &[Cow<'_, Address>]) -> bool {
    let is_v4 = matches!(own.network, Some((IpAddr::V4(_), _)));
    let hosts: HashSet<&HostId> = addresses.iter().map(|address| &address.host).collect();
    let is_near = |address: &Cow<'_, Address>| own.same_network(address);
    is_v4 && hosts.len() >= HOSTS_MIN && addresses.iter().all(is_near)
}

/// Returns the number of blocks in `len` bytes.
fn block_count(len: usize) -> u64 {
    len.div_ceil(BLOCK_LEN) as u64
}

/// Returns the byte range of `block` in `len` bytes; empty beyond the end.
fn block_range(block: u64, len: usize) -> Range<usize> {
    let begin = usize::try_from(block)
        .unwrap_or(usize::MAX)
        .saturating_mul(BLOCK_LEN)
        .min(len);
    begin..(begin + BLOCK_LEN).min(len)
}

#[cfg(test)]
mod tests;
