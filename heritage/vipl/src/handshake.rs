// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection setup: requests, the processes that wait for them, and the results.
//!
//! - A client's request matches a waiting server, or is refused at once.
//! - Two peers each send a request. The first to arrive waits for the other, and the other contains
//!   its number.
//! - A request is withdrawn when its timeout expires. If its reply has crossed the withdrawal, the
//!   connection ends.
//! - When a connection of peers ends, this side's request is withdrawn, too. It may still wait at
//!   the other side without a match, and must not match a later request.

use crate::body::{Address, Body, Traits};
use crate::code::*;
use crate::vi::Vi;
use crate::wait::Deadline;
use crate::wire::{Header, Kind};
use crate::world::World;

/// Maximum number of peers' requests that wait for a match: one for each VI that could match.
const OFFERS_MAX: usize = crate::world::VIS_MAX;

/// A request of a VI of this process.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: u32,
    /// Rank of the process to which the request was sent.
    pub(crate) rank: u32,
    pub(crate) is_peer: bool,
    pub(crate) local: Address,
    pub(crate) remote: Address,
    pub(crate) deadline: Deadline,
    /// Number of the peer's request that it matched.
    matched: Option<u32>,
    /// Result, and the attributes of the other VI.
    pub(crate) outcome: Option<(VIP_RETURN, Option<Traits>)>,
}

/// A request of another process.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) nic: u32,
    pub(crate) rank: u32,
    pub(crate) body: Body,
    pub(crate) is_withdrawn: bool,
}

/// A function that waits for requests to an address.
struct Waiter {
    id: u32,
    nic: u32,
    discriminator: Vec<u8>,
    /// Index of the request that has arrived.
    found: Option<u32>,
}

/// Waiting servers and requests.
pub(crate) struct Handshakes {
    last_id: u32,
    last_token: u16,
    waiters: Vec<Waiter>,
    /// Requests of peers.
    offers: Vec<Offer>,
}

impl Handshakes {
    pub(crate) const fn new() -> Self {
        Handshakes {
            last_id: 0,
            last_token: 0,
            waiters: Vec::new(),
            offers: Vec::new(),
        }
    }

    fn new_id(&mut self) -> u32 {
        self.last_id = self.last_id.wrapping_add(1).max(1);
        self.last_id
    }
}

/// Compares the attributes of two VIs. Returns the error if they cannot be connected.
pub(crate) fn compare(own: &Traits, other: &Traits) -> VIP_RETURN {
    if own.level != other.level {
        VIP_INVALID_RELIABILITY_LEVEL
    } else if own.transfer_max != other.transfer_max {
        VIP_INVALID_MTU
    } else if own.qos != other.qos {
        VIP_INVALID_QOS
    } else {
        VIP_SUCCESS
    }
}

impl World {
    /// Assigns a VI a token by which the other side addresses it.
    pub(crate) fn new_token(&mut self, index: u32) -> u32 {
        self.handshakes.last_token = self.handshakes.last_token.wrapping_add(1);
        let token = u32::from(self.handshakes.last_token) << 16 | index;
        if let Some(vi) = self.vis.get_mut(index) {
            vi.token = token;
        }
        token
    }

    /// Requests a connection.
    pub(crate) fn request(
        &mut self,
        index: u32,
        rank: u32,
        is_peer: bool,
        (local, remote): (Address, Address),
        deadline: Deadline,
    ) {
        let id = self.handshakes.new_id();
        let token = self.new_token(index);
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        vi.state = VIP_STATE_CONNECT_PENDING;
        let mut body = Body {
            id,
            token,
            result: 0,
            traits: vi.traits(),
            from: local.clone(),
            to: remote.clone(),
        };
        vi.pending = Some(Box::new(Pending {
            id,
            rank,
            is_peer,
            local,
            remote,
            deadline,
            matched: None,
            outcome: None,
        }));
        if !is_peer {
            self.send_body(rank, Kind::Request, &body);
            return;
        }
        let offer = self.take_matching_offer(index);
        body.result = offer.as_ref().map_or(0, |offer| offer.body.id);
        self.send_body(rank, Kind::PeerRequest, &body);
        if let Some(offer) = offer {
            self.match_requests(index, &offer.body);
        }
    }

    fn send_body(&mut self, rank: u32, kind: Kind, body: &Body) {
        let mut bytes = Vec::new();
        body.append(&mut bytes);
        self.queue_message(rank, &Header::new(kind, 0, 0), &bytes);
    }

    /// Sends the result of a request.
    pub(crate) fn reply(&mut self, rank: u32, id: u32, result: VIP_RETURN, vi: Option<u32>) {
        let vi = vi.and_then(|index| self.vis.get(index));
        let body = Body {
            id,
            token: vi.map_or(0, |vi| vi.token),
            result: u32::try_from(result).unwrap_or(0),
            traits: vi.map_or(Traits::default(), Vi::traits),
            ..Body::default()
        };
        self.send_body(rank, Kind::Reply, &body);
    }

    /// Records the result of a VI's request.
    pub(crate) fn conclude(&mut self, index: u32, result: VIP_RETURN, traits: Option<Traits>) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        if let Some(pending) = &mut vi.pending {
            pending.outcome = Some((result, traits));
        }
        if result != VIP_SUCCESS {
            vi.state = VIP_STATE_IDLE;
            vi.token = 0;
        }
    }

    /// Withdraws the request of a VI.
    pub(crate) fn withdraw(&mut self, index: u32) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        vi.state = VIP_STATE_IDLE;
        vi.token = 0;
        let Some(pending) = vi.pending.take() else {
            return;
        };
        let body = Body {
            id: pending.id,
            ..Body::default()
        };
        self.send_body(pending.rank, Kind::Cancel, &body);
    }

    /// Withdraws the request with which a connection of peers was set up.
    pub(crate) fn withdraw_matched(&mut self, index: u32) {
        let pending = self.vis.get(index).and_then(|vi| vi.pending.as_ref());
        let Some(pending) = pending.filter(|pending| pending.is_peer) else {
            return;
        };
        let (rank, id) = (pending.rank, pending.id);
        let body = Body {
            id,
            ..Body::default()
        };
        self.send_body(rank, Kind::Cancel, &body);
    }

    /// Processes a connection message.
    #[cold]
    pub(crate) fn on_handshake(&mut self, rank: u32, kind: Kind, body: Body) {
        match kind {
            Kind::Request => self.on_request(rank, body),
            Kind::PeerRequest => self.on_peer_request(rank, body),
            Kind::Reply => self.on_reply(rank, &body),
            _ => self.on_cancel(rank, body.id),
        }
    }

    fn on_request(&mut self, rank: u32, body: Body) {
        let matches = |waiter: &Waiter| {
            waiter.found.is_none() && waiter.discriminator == body.to.discriminator
        };
        let Some(at) = self.handshakes.waiters.iter().position(matches) else {
            self.reply(rank, body.id, VIP_NO_MATCH, None);
            return;
        };
        let (id, nic) = (body.id, self.handshakes.waiters[at].nic);
        let offer = Offer {
            nic,
            rank,
            body,
            is_withdrawn: false,
        };
        match self.conns.insert(offer) {
            Some(conn) => self.handshakes.waiters[at].found = Some(conn),
            None => self.reply(rank, id, VIP_NO_MATCH, None),
        }
    }

    fn on_reply(&mut self, rank: u32, body: &Body) {
        let has_sent = |vi: &Vi| {
            let pending = vi.pending.as_ref();
            pending.is_some_and(|pending| {
                pending.id == body.id && pending.rank == rank && pending.outcome.is_none()
            })
        };
        let found = self.vis.iter().find(|(_, vi)| has_sent(vi));
        let found = found.map(|(index, _)| index);
        let result = VIP_RETURN::try_from(body.result).unwrap_or(VIP_REJECT);
        match found {
            Some(index) => {
                if result == VIP_SUCCESS
                    && let Some(vi) = self.vis.get_mut(index)
                {
                    vi.connect(rank, body.token);
                }
                let traits = (result == VIP_SUCCESS).then_some(body.traits);
                self.conclude(index, result, traits);
            }
            // The request was withdrawn in the meantime.
            None if result == VIP_SUCCESS => {
                let header = Header::new(Kind::Disconnect, body.token, 0);
                self.queue_message(rank, &header, &[]);
            }
            None => {}
        }
    }

    fn on_peer_request(&mut self, rank: u32, body: Body) {
        let matches = |vi: &Vi| {
            vi.state == VIP_STATE_CONNECT_PENDING
                && vi.pending.as_ref().is_some_and(|pending| {
                    pending.is_peer
                        && pending.rank == rank
                        && pending.outcome.is_none()
                        && (body.result == 0 || body.result == pending.id)
                        && pending.local.discriminator == body.to.discriminator
                        && pending.remote.discriminator == body.from.discriminator
                })
        };
        let found = self.vis.iter().find(|(_, vi)| matches(vi));
        match found.map(|(index, _)| index) {
            Some(index) => self.match_requests(index, &body),
            // It matched a request that was withdrawn; its sender is about to receive the
            // withdrawal.
            None if body.result != 0 => {}
            None if self.handshakes.offers.len() < OFFERS_MAX => {
                self.handshakes.offers.push(Offer {
                    nic: 0,
                    rank,
                    body,
                    is_withdrawn: false,
                })
            }
            None => self.reply(rank, body.id, VIP_NO_MATCH, None),
        }
    }

    /// Removes and returns a peer's request that has arrived before and matches this one.
    fn take_matching_offer(&mut self, index: u32) -> Option<Offer> {
        let pending = self.vis.get(index)?.pending.as_ref()?;
        let matches = |offer: &Offer| {
            offer.rank == pending.rank
                && pending.local.discriminator == offer.body.to.discriminator
                && pending.remote.discriminator == offer.body.from.discriminator
        };
        let at = self.handshakes.offers.iter().position(matches)?;
        Some(self.handshakes.offers.remove(at))
    }

    /// Matches two requests of peers. The other side gets the same result.
    fn match_requests(&mut self, index: u32, body: &Body) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        let result = compare(&vi.traits(), &body.traits);
        let Some(pending) = &mut vi.pending else {
            return;
        };
        pending.matched = Some(body.id);
        let rank = pending.rank;
        if result == VIP_SUCCESS {
            vi.connect(rank, body.token);
        }
        self.conclude(index, result, Some(body.traits));
    }

    /// Processes the withdrawal of a request.
    fn on_cancel(&mut self, rank: u32, id: u32) {
        for (_, offer) in self.conns.iter_mut() {
            offer.is_withdrawn |= offer.rank == rank && offer.body.id == id;
        }
        let is_it = |offer: &Offer| offer.rank == rank && offer.body.id == id;
        self.handshakes.offers.retain(|offer| !is_it(offer));
        // The withdrawn request matched this VI's, which now waits at the other side without a match.
        let is_matched = |vi: &Vi| {
            let pending = vi.pending.as_ref();
            vi.is_connected()
                && pending
                    .is_some_and(|pending| pending.rank == rank && pending.matched == Some(id))
        };
        let found = self.vis.iter().find(|(_, vi)| is_matched(vi));
        if let Some((index, _)) = found {
            self.withdraw_matched(index);
            self.vi_fault(index, VIP_ERROR_CONN_LOST, 0);
            self.cut(index, VIP_STATE_ERROR, VIP_STATUS_DESC_FLUSHED_ERROR);
        }
    }

    /// Drops the requests of a process that has failed or exited.
    pub(crate) fn forget_offers(&mut self, rank: u32) {
        self.handshakes.offers.retain(|offer| offer.rank != rank);
        for (_, offer) in self.conns.iter_mut() {
            offer.is_withdrawn |= offer.rank == rank;
        }
    }

    /// Rejects the requests that were reported to a NIC.
    pub(crate) fn reject_all(&mut self, nic: u32) {
        let of_nic = |(index, offer): (u32, &Offer)| (offer.nic == nic).then_some(index);
        let conns: Vec<u32> = self.conns.iter().filter_map(of_nic).collect();
        for conn in conns {
            if let Some(offer) = self.conns.remove(conn) {
                self.reply(offer.rank, offer.body.id, VIP_REJECT, None);
            }
        }
        self.handshakes.waiters.retain(|waiter| waiter.nic != nic);
    }

    /// Starts to wait for requests to an address.
    pub(crate) fn add_waiter(&mut self, nic: u32, discriminator: Vec<u8>) -> u32 {
        let id = self.handshakes.new_id();
        self.handshakes.waiters.push(Waiter {
            id,
            nic,
            discriminator,
            found: None,
        });
        id
    }

    /// Returns the request that has arrived for a waiter, and removes the waiter.
    pub(crate) fn found_request(&mut self, id: u32) -> Option<u32> {
        let waiters = &mut self.handshakes.waiters;
        let at = waiters.iter().position(|waiter| waiter.id == id)?;
        let conn = waiters[at].found?;
        waiters.remove(at);
        Some(conn)
    }

    /// Returns true if the waiter with this number exists.
    pub(crate) fn has_waiter(&self, id: u32) -> bool {
        self.handshakes.waiters.iter().any(|waiter| waiter.id == id)
    }

    pub(crate) fn remove_waiter(&mut self, id: u32) {
        self.handshakes.waiters.retain(|waiter| waiter.id != id);
    }
}

#[cfg(test)]
mod tests;
