// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long transfers: the data of a long send, RDMA write or RDMA read moves from user memory to user
//! memory, as a tagged message beside the unit that announces or requests it.
//!
//! While a long transfer of a VI is in flight, its sender starts only further long ones on this VI.
//! The receiver therefore never holds back other units. It accepts the unit when all bytes have
//! arrived, which completes the send.
//!
//! Invariant: a descriptor completes only when the node no longer uses its memory. When a connection
//! ends, such descriptors complete later.
//!
//! Each transfer ends: the receiver discards bytes that nothing expects, and a process that does not
//! send the data of a long read sends an empty message in its place.

use crate::code::*;
use crate::descriptor::Memory;
use crate::error::{Failure, is_about_peer, is_temporary};
use crate::machine::Machine;
use crate::memory::Access;
use crate::queue::{Entry, Op};
use crate::vi::{Level, Vi};
use crate::wire::{COUNTED, Header, IMMEDIATE, Kind, TAGGED};
use crate::world::World;
use portolan::{Buffer, Request, TagMatch, TagTarget};
use std::collections::VecDeque;
use std::ptr;

/// Length of the shortest long transfer in bytes: the copies of four pieces cost more than a
/// tagged message.
pub(crate) const LONG_MIN: u32 = 16 << 10;

/// Maximum number of long transfers of a VI in flight. With two, the next one is announced before the
/// first has ended; two more cover the delay of the acknowledgement.
const LONGS_MAX: u32 = 4;

/// Tags of the bytes of long transfers, before their numbers are added.
const LONG_TAG: u64 = 0x5649 << 48 | 1 << 32;

/// Tags of the data of RDMA reads, before the numbers of the reads are added.
const READ_TAG: u64 = 0x5649 << 48 | 2 << 32;

/// Returns the tag of the bytes that a unit announces or requests.
fn tag_of(header: &Header) -> u64 {
    match header.kind {
        Kind::Read => READ_TAG | u64::from(header.imm),
        _ => LONG_TAG | u64::from(header.tag),
    }
}

/// Stands for no descriptor, in a transfer that another process requested.
const REQUESTED: u64 = u64::MAX;

/// Bytes of a unit that follow as a tagged message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Long {
    pub(crate) at: *const u8,
    pub(crate) len: usize,
    pub(crate) tag: u16,
}

/// A transfer from memory of a descriptor on the send queue of a VI, or to another process's read.
struct Outgoing {
    request: Request,
    vi: u32,
    /// Number of the descriptor, or [`REQUESTED`].
    number: u64,
    at: usize,
    len: usize,
}

/// Destination of incoming bytes.
#[derive(Clone, Copy)]
enum Place {
    Memory(*mut u8),
    /// Memory of the library, because the descriptor has several segments.
    Scattered,
}

/// A transfer to this process.
struct Incoming {
    request: Option<Request>,
    rank: u32,
    vi: u32,
    /// Header of the unit, with the token of the connection.
    header: Header,
    place: Place,
    /// Number of the receive or the read that owns the memory; a write has none.
    number: Option<u64>,
}

/// A read of another process: rank, VI, header, and the memory.
struct Requested {
    rank: u32,
    vi: u32,
    header: Header,
    at: usize,
}

impl Incoming {
    fn len(&self) -> usize {
        self.header.total as usize
    }

    /// Returns true if it is the data of a read.
    fn is_read(&self) -> bool {
        self.header.kind == Kind::Read
    }

    /// Returns true if it must complete after an earlier one. Data of reads has an order of its own.
    fn follows(&self, other: &Incoming) -> bool {
        other.vi == self.vi && other.is_read() == self.is_read()
    }

    /// Returns true if both write to the same memory.
    fn overlaps_with(&self, other: &Incoming) -> bool {
        match self.place {
            Place::Memory(at) => other.uses(at.addr(), self.len()),
            Place::Scattered => false,
        }
    }

    /// Returns true if the node may write to these bytes.
    fn uses(&self, at: usize, len: usize) -> bool {
        match self.place {
            Place::Memory(own) => overlaps((own.addr(), self.len()), (at, len)),
            Place::Scattered => false,
        }
    }
}

fn overlaps((at, len): (usize, usize), (other, other_len): (usize, usize)) -> bool {
    at < other + other_len && other < at + len
}

/// The long transfers of this process.
pub(crate) struct Longs {
    outgoing: Vec<Outgoing>,
    incoming: VecDeque<Incoming>,
    /// Reads of other processes whose data was not sent yet.
    requested: Vec<Requested>,
    /// Long reads of other processes that get an empty message in place of the data: requester and
    /// tag.
    refused: Vec<(u32, u64)>,
    /// Transfers to be discarded: source and tag.
    discards: Vec<(u32, u64)>,
    /// Receives that discard bytes.
    discarding: Vec<Request>,
    count: u16,
    reads_count: u32,
}

impl Longs {
    pub(crate) const fn new() -> Longs {
        Longs {
            outgoing: Vec::new(),
            incoming: VecDeque::new(),
            requested: Vec::new(),
            refused: Vec::new(),
            discards: Vec::new(),
            discarding: Vec::new(),
            count: 0,
            reads_count: 0,
        }
    }

    /// Returns true if there is work for the node.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.outgoing.is_empty()
            && self.incoming.is_empty()
            && self.requested.is_empty()
            && self.refused.is_empty()
            && self.discards.is_empty()
            && self.discarding.is_empty()
    }

    /// Returns the number of a new transfer.
    pub(crate) fn next_tag(&mut self) -> u16 {
        self.count = self.count.wrapping_add(1);
        self.count
    }

    /// Returns the number of a new RDMA read.
    pub(crate) fn next_read(&mut self) -> u32 {
        self.reads_count = self.reads_count.wrapping_add(1);
        self.reads_count
    }

    /// Returns true if a transfer uses these bytes.
    pub(crate) fn uses(&self, at: usize, len: usize) -> bool {
        let sent = |one: &Outgoing| overlaps((one.at, one.len), (at, len));
        self.outgoing.iter().any(sent) || self.incoming.iter().any(|one| one.uses(at, len))
    }

    /// Returns true if a transfer uses memory of descriptors of a VI.
    pub(crate) fn uses_vi(&self, vi: u32) -> bool {
        self.outgoing.iter().any(|one| one.vi == vi) || self.incoming.iter().any(|one| one.vi == vi)
    }

    /// Returns the posted receives, for the exit of the process.
    pub(crate) fn posted(&self) -> Vec<Request> {
        let incoming = self.incoming.iter().filter_map(|one| one.request);
        incoming.chain(self.discarding.iter().copied()).collect()
    }

    /// Ends the transfer of a long read of another process that gets no data.
    #[cold]
    pub(crate) fn refuse_read(&mut self, rank: u32, header: &Header) {
        if header.has(TAGGED) {
            self.refused.push((rank, tag_of(header)));
        }
    }
}

impl Entry {
    /// Returns true if the descriptor's data may move as a long transfer.
    fn may_be_long(&self, level: Level) -> bool {
        level != Level::Unreliable && self.fault == 0 && self.total >= LONG_MIN
    }
}

impl Vi {
    /// Returns true if the next descriptor must wait for long transfers.
    #[inline]
    pub(crate) fn waits_for_longs(&mut self) -> bool {
        if self.longs_in_flight == 0 {
            return false;
        }
        let (level, number) = (self.level, self.send.next);
        let is_long = |entry: &mut Entry| {
            let is_read = matches!(entry.op, Op::Read(_));
            !is_read && entry.may_be_long(level) && entry.descriptor.is_contiguous(entry.total)
        };
        self.longs_in_flight >= LONGS_MAX || !self.send.get(number).is_some_and(is_long)
    }

    /// Records that a long transfer of a descriptor begins.
    pub(crate) fn begin_long(&mut self, number: u64) {
        if let Some(entry) = self.send.get(number) {
            (entry.is_long, entry.is_busy) = (true, true);
            self.longs_in_flight += 1;
        }
    }

    /// Records that a long transfer has been accepted, or was not sent.
    pub(crate) fn end_long(&mut self, number: u64) -> bool {
        let Some(entry) = self.send.get(number).filter(|entry| entry.is_long) else {
            return false;
        };
        entry.is_long = false;
        self.longs_in_flight = self.longs_in_flight.saturating_sub(1);
        true
    }
}

impl World {
    /// Returns the memory of a descriptor on a send queue, if its data moves as a long transfer. An
    /// error is the status of a descriptor outside registered memory.
    #[inline]
    pub(crate) fn long_source(
        &self,
        level: Level,
        entry: &Entry,
        ptag: u32,
    ) -> Result<Option<*const u8>, u32> {
        if !entry.may_be_long(level) {
            return Ok(None);
        }
        let memory = Memory {
            regions: &self.regions,
            ptag,
        };
        let whole = entry.descriptor.whole(memory, entry.total)?;
        Ok(whole.map(<*mut u8>::cast_const))
    }

    /// Processes the announcement of a long transfer.
    #[cold]
    pub(crate) fn on_long(&mut self, rank: u32, index: u32, header: &Header) {
        let prepared = match header.kind {
            Kind::LongData => self.prepare_data(index, header),
            _ => self.prepare_write(index, header),
        };
        match prepared {
            Ok((place, number)) => self.longs.incoming.push_back(Incoming {
                request: None,
                rank,
                vi: index,
                header: *header,
                place,
                number,
            }),
            Err(status) => {
                self.discard_long(rank, header);
                self.refuse(index, header.has(COUNTED), status);
            }
        }
    }

    /// Discards the bytes of a transfer that nothing expects.
    #[cold]
    pub(crate) fn discard_long(&mut self, rank: u32, header: &Header) {
        let is_expected = match header.kind {
            Kind::LongData | Kind::LongWrite => true,
            Kind::Read => header.has(TAGGED),
            _ => false,
        };
        if is_expected {
            self.longs.discards.push((rank, tag_of(header)));
        }
    }

    /// Prepares for the data of a long read of this process. `header` is that of the request.
    pub(crate) fn expect_read(&mut self, index: u32, number: u64, (at, header): (*mut u8, Header)) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        if let Some(entry) = vi.send.get(number) {
            entry.is_busy = true;
        }
        let incoming = Incoming {
            request: None,
            rank: vi.peer_rank,
            vi: index,
            header: Header {
                token: vi.token,
                ..header
            },
            place: Place::Memory(at),
            number: Some(number),
        };
        self.longs.incoming.push_back(incoming);
    }

    /// Removes a read after its request could not be sent.
    pub(crate) fn forget_read(&mut self, index: u32, number: u64) {
        self.longs
            .incoming
            .retain(|one| !(one.is_read() && one.vi == index && one.number == Some(number)));
        self.release(index, false, number);
    }

    /// Queues the data that a long read of another process requests.
    pub(crate) fn on_long_read(&mut self, rank: u32, index: u32, header: &Header, at: usize) {
        self.longs.requested.push(Requested {
            rank,
            vi: index,
            header: *header,
            at,
        });
    }

    /// Reserves the next receive for a long message. An error is the status for its sender.
    fn prepare_data(&mut self, index: u32, header: &Header) -> Result<(Place, Option<u64>), u32> {
        let World { vis, regions, .. } = self;
        let vi = vis.get_mut(index).ok_or(VIP_STATUS_REMOTE_DESC_ERROR)?;
        let (number, ptag) = (vi.recv.next, vi.ptag);
        let Some(entry) = vi.recv.get(number) else {
            self.vi_fault(index, VIP_ERROR_RECVQ_EMPTY, VIP_STATUS_OP_RECEIVE);
            return Err(VIP_STATUS_REMOTE_DESC_ERROR);
        };
        let whole = match entry.fault {
            0 if header.total > entry.total => Err(VIP_STATUS_LENGTH_ERROR),
            0 => {
                let memory = Memory { regions, ptag };
                entry.descriptor.whole(memory, header.total)
            }
            fault => Err(fault),
        };
        entry.is_busy = whole.is_ok();
        vi.recv.next = number + 1;
        match whole {
            Ok(Some(at)) => Ok((Place::Memory(at), Some(number))),
            Ok(None) => Ok((Place::Scattered, Some(number))),
            Err(status) => {
                self.finish(index, true, number, status | VIP_STATUS_OP_RECEIVE, Some(0));
                Err(VIP_STATUS_REMOTE_DESC_ERROR)
            }
        }
    }

    /// Checks the memory of a long RDMA write. An error is the status for its sender.
    fn prepare_write(&mut self, index: u32, header: &Header) -> Result<(Place, Option<u64>), u32> {
        let at = usize::try_from(header.addr).unwrap_or(usize::MAX);
        if !self.allows_write(index, header.handle, (at, header.total as usize)) {
            self.vi_fault(index, VIP_ERROR_RDMAW_PROT, VIP_STATUS_OP_REMOTE_RDMA_WRITE);
            return Err(VIP_STATUS_RDMA_PROT_ERROR);
        }
        Ok((Place::Memory(ptr::with_exposed_provenance_mut(at)), None))
    }

    /// Returns true if the other side of a VI may write to these bytes.
    pub(crate) fn allows_write(&mut self, index: u32, handle: u32, place: (usize, usize)) -> bool {
        let World { vis, regions, .. } = self;
        vis.get(index).is_some_and(|vi| {
            vi.attributes.EnableRdmaWrite != VIP_FALSE
                && (place.1 == 0 || regions.opens(handle, place, vi.ptag, Access::Write))
        })
    }

    /// Returns true if the other side of a VI may read the bytes that it requests.
    pub(crate) fn allows_read(&self, index: u32, header: &Header) -> bool {
        let at = usize::try_from(header.addr).unwrap_or(usize::MAX);
        let place = (at, header.total as usize);
        self.vis.get(index).is_some_and(|vi| {
            vi.token == header.token
                && vi.is_connected()
                && vi.level != Level::Unreliable
                && vi.attributes.EnableRdmaRead != VIP_FALSE
                && self
                    .regions
                    .opens(header.handle, place, vi.ptag, Access::Read)
        })
    }

    /// Returns true if a queued read is still allowed. If only its memory was deregistered, fails
    /// the connection, because the other side waits for the data.
    fn may_read(&mut self, index: u32, header: &Header) -> bool {
        let is_allowed = self.allows_read(index, header);
        let vi = self.vis.get(index);
        let has_ended = vi.is_none_or(|vi| vi.token != header.token || !vi.is_connected());
        if !is_allowed && !has_ended {
            self.refuse_read(index, header.imm);
        }
        is_allowed
    }

    /// Returns true if the connection of a transfer has not ended.
    fn is_current(&self, incoming: &Incoming) -> bool {
        let vi = self.vis.get(incoming.vi);
        vi.is_some_and(|vi| vi.token == incoming.header.token && vi.is_connected())
    }

    /// Completes a descriptor after the node has stopped using its memory.
    fn release(&mut self, index: u32, is_recv: bool, number: u64) {
        let queue = self.vis.get_mut(index).map(|vi| match is_recv {
            true => &mut vi.recv,
            false => &mut vi.send,
        });
        if let Some((status, len)) = queue.and_then(|queue| queue.release(number)) {
            self.finish(index, is_recv, number, status, len);
        }
    }

    /// Completes a transfer after all its bytes have arrived.
    fn complete_long(&mut self, incoming: &Incoming, bytes: &[u8]) {
        let (index, header) = (incoming.vi, &incoming.header);
        if let Some(number) = incoming.number {
            self.release(index, !incoming.is_read(), number);
        }
        if !self.is_current(incoming) {
            return;
        }
        if let (true, Some(number)) = (incoming.is_read(), incoming.number) {
            self.end_read(index, number);
            return;
        }
        let refused = match incoming.number {
            Some(number) => self.end_data(incoming, number, bytes),
            None if header.has(IMMEDIATE) => self.notify_write(index, header),
            None => Ok(()),
        };
        match refused {
            Ok(()) => {
                self.accept(index, header.has(COUNTED));
                // The sender waits with other descriptors.
                self.acks_due.push(index);
            }
            Err(status) => self.refuse(index, header.has(COUNTED), status),
        }
    }

    /// Completes the receive of a long message. An error is the status for its sender.
    fn end_data(&mut self, incoming: &Incoming, number: u64, bytes: &[u8]) -> Result<(), u32> {
        let (index, header) = (incoming.vi, &incoming.header);
        let World { vis, regions, .. } = self;
        let entry = vis
            .get_mut(index)
            .and_then(|vi| Some((vi.ptag, *vi.recv.get(number)?)));
        let Some((ptag, entry)) = entry.filter(|(_, entry)| !entry.has_ended) else {
            return Ok(());
        };
        if let Place::Scattered = incoming.place {
            let memory = Memory { regions, ptag };
            if let Err(status) = entry.descriptor.scatter(memory, 0, bytes) {
                self.finish(index, true, number, status | VIP_STATUS_OP_RECEIVE, Some(0));
                return Err(VIP_STATUS_REMOTE_DESC_ERROR);
            }
        }
        let mut status = VIP_STATUS_OP_RECEIVE;
        if header.has(IMMEDIATE) {
            entry.descriptor.set_immediate(header.imm);
            status |= VIP_STATUS_IMMEDIATE;
        }
        self.finish(index, true, number, status, Some(header.total));
        Ok(())
    }
}

impl Machine {
    /// Sends the bytes of a long transfer, after its unit.
    ///
    /// # Errors
    /// A failure that the library cannot continue after.
    #[cold]
    pub(crate) fn send_long(
        &mut self,
        (rank, vi): (u32, u32),
        number: u64,
        long: Long,
    ) -> Result<(), Failure> {
        let Long { at, len, tag } = long;
        // SAFETY: registered memory of a posted descriptor, which the program leaves unchanged until
        // the descriptor completes. It does so after the transfer.
        let buffer = unsafe { Buffer::from_raw(at, len) };
        let target = TagTarget::new(rank, LONG_TAG | u64::from(tag));
        match self.node()?.isend_tagged(target, buffer) {
            Ok(request) => self.world().longs.outgoing.push(Outgoing {
                request,
                vi,
                number,
                at: at.addr(),
                len,
            }),
            Err(error) => {
                let mut world = self.world();
                world.release(vi, false, number);
                match is_about_peer(&error) {
                    true => world.fail_peer(rank),
                    // The receiver waits for the bytes.
                    false => world.fail_connection(vi, 0, None),
                }
            }
        }
        Ok(())
    }

    /// Advances all long transfers.
    pub(crate) fn advance_longs(&mut self) -> Result<(), Failure> {
        if self.world().longs.is_empty() {
            return Ok(());
        }
        self.advance_incoming()?;
        self.advance_outgoing()?;
        self.send_requested()?;
        self.send_refusals()?;
        let discards = std::mem::take(&mut self.world().longs.discards);
        for (rank, tag) in discards {
            let which = TagMatch::new(tag).source(rank);
            // Without memory: the request ends when the bytes were discarded.
            let request = self.node()?.post_recv_tagged(which, Vec::new())?;
            self.world().longs.discarding.push(request);
        }
        let mut discarding = std::mem::take(&mut self.world().longs.discarding);
        let node = self.node()?;
        discarding.retain(|request| matches!(node.test(*request), Ok(None)));
        self.world().longs.discarding.extend(discarding);
        Ok(())
    }

    fn advance_outgoing(&mut self) -> Result<(), Failure> {
        let mut index = 0;
        loop {
            let request = self
                .world()
                .longs
                .outgoing
                .get(index)
                .map(|one| one.request);
            let Some(request) = request else {
                return Ok(());
            };
            if let Ok(None) = self.node()?.test(request) {
                index += 1;
                continue;
            }
            // The failure of a peer is reported by its connection.
            let mut world = self.world();
            let one = world.longs.outgoing.remove(index);
            world.release(one.vi, false, one.number);
        }
    }

    /// Sends the data that reads of other processes request.
    fn send_requested(&mut self) -> Result<(), Failure> {
        let requested = std::mem::take(&mut self.world().longs.requested);
        for one in requested {
            let Requested {
                rank,
                vi,
                header,
                at,
            } = one;
            let len = header.total as usize;
            if !self.world().may_read(vi, &header) {
                self.world().longs.refuse_read(rank, &header);
                continue;
            }
            let from = ptr::with_exposed_provenance::<u8>(at);
            // SAFETY: registered memory open for reading; deregistration waits for the transfer.
            let buffer = unsafe { Buffer::from_raw(from, len) };
            let target = TagTarget::new(rank, tag_of(&header));
            match self.node()?.isend_tagged(target, buffer) {
                Ok(request) => self.world().longs.outgoing.push(Outgoing {
                    request,
                    vi,
                    number: REQUESTED,
                    at,
                    len,
                }),
                Err(error) if is_about_peer(&error) => self.world().fail_peer(rank),
                Err(_) => {
                    let mut world = self.world();
                    world.longs.refuse_read(rank, &header);
                    world.fail_connection(vi, 0, None);
                }
            }
        }
        Ok(())
    }

    /// Sends empty messages in place of the data of refused reads.
    fn send_refusals(&mut self) -> Result<(), Failure> {
        let refused = std::mem::take(&mut self.world().longs.refused);
        for (rank, tag) in refused {
            match self
                .node()?
                .isend_tagged_copy(TagTarget::new(rank, tag), &[])
            {
                Ok(()) => {}
                Err(error) if is_about_peer(&error) => self.world().fail_peer(rank),
                // Retried in the next pass.
                Err(error) if is_temporary(&error) => self.world().longs.refused.push((rank, tag)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn advance_incoming(&mut self) -> Result<(), Failure> {
        let mut index = 0;
        loop {
            let found = self.world().state_of_incoming(index);
            let Some(state) = found else {
                return Ok(());
            };
            let request = match state {
                State::Unposted => {
                    self.post_incoming(index)?;
                    index += 1;
                    continue;
                }
                State::Ended(None) => {
                    self.world().drop_incoming(index, true);
                    continue;
                }
                // An earlier transfer of the VI must end first.
                State::Waits => {
                    index += 1;
                    continue;
                }
                State::Ended(Some(request)) => {
                    let is_cancelled = self.node()?.cancel(request);
                    if is_cancelled {
                        let _cancelled = self.node()?.test(request);
                        self.world().drop_incoming(index, true);
                        continue;
                    }
                    request
                }
                State::Posted(request) => request,
            };
            match self.node()?.test(request) {
                Ok(None) => index += 1,
                Ok(Some(completion)) => {
                    let bytes = completion.buffer.as_deref().unwrap_or(&[]);
                    self.world().end_incoming(index, completion.len, bytes);
                }
                Err(_) => {
                    let mut world = self.world();
                    if let Some(rank) = world.drop_incoming(index, false) {
                        world.fail_peer(rank);
                    }
                }
            }
        }
    }

    fn post_incoming(&mut self, index: usize) -> Result<(), Failure> {
        let found = {
            let world = self.world();
            let one = world.longs.incoming.get(index);
            one.map(|one| (one.rank, tag_of(&one.header), one.place, one.len()))
        };
        let Some((rank, tag, place, len)) = found else {
            return Ok(());
        };
        let which = TagMatch::new(tag).source(rank);
        let buffer = match place {
            // SAFETY: memory of a posted descriptor, which does not complete before the transfer
            // ends, or registered memory open for writing, whose deregistration waits for the
            // transfer.
            Place::Memory(at) => unsafe { Buffer::from_raw_mut(at, len) },
            Place::Scattered => vec![0; len].into(),
        };
        let request = self.node()?.post_recv_tagged(which, buffer)?;
        if let Some(one) = self.world().longs.incoming.get_mut(index) {
            one.request = Some(request);
        }
        Ok(())
    }

    /// Makes progress until no long transfer is in use, as `is_used` reports.
    pub(crate) fn wait_for_longs(
        &mut self,
        is_used: impl Fn(&World) -> bool,
    ) -> Result<(), Failure> {
        while is_used(&self.world()) {
            self.progress()?;
        }
        Ok(())
    }
}

/// State of an incoming transfer.
enum State {
    Unposted,
    Posted(Request),
    /// Waits for an earlier transfer of its VI.
    Waits,
    /// Its connection has ended.
    Ended(Option<Request>),
}

impl World {
    fn state_of_incoming(&self, index: usize) -> Option<State> {
        let one = self.longs.incoming.get(index)?;
        let mut before = self.longs.incoming.iter().take(index);
        Some(match (self.is_current(one), one.request) {
            (false, request) => State::Ended(request),
            // An earlier transfer writes to the same memory.
            (true, None) if before.any(|other| one.overlaps_with(other)) => State::Waits,
            (true, None) => State::Unposted,
            (true, Some(_)) if before.any(|other| one.follows(other)) => State::Waits,
            (true, Some(request)) => State::Posted(request),
        })
    }

    /// Removes a transfer that has ended with a message of `len` bytes.
    fn end_incoming(&mut self, index: usize, len: usize, bytes: &[u8]) {
        // A refused read. The other side has also ended the connection, which completes the
        // descriptor.
        let is_refused = |one: &Incoming| one.is_read() && len < one.len();
        if self.longs.incoming.get(index).is_some_and(is_refused) {
            self.drop_incoming(index, false);
        } else if let Some(one) = self.longs.incoming.remove(index) {
            self.complete_long(&one, bytes);
        }
    }

    /// Removes a transfer that does not complete. Its bytes are discarded if they may still arrive.
    /// Returns the rank of its source.
    fn drop_incoming(&mut self, index: usize, may_arrive: bool) -> Option<u32> {
        let one = self.longs.incoming.remove(index)?;
        if may_arrive {
            self.discard_long(one.rank, &one.header);
        }
        if let Some(number) = one.number {
            self.release(one.vi, !one.is_read(), number);
        }
        Some(one.rank)
    }
}

#[cfg(test)]
mod tests;
