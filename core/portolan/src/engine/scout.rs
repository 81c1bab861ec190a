// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finding out which of a peer's addresses leads to it (`P9.11`).
//!
//! A session is opened at the most likely address at once. While that brings nothing, questions go to all
//! of them, and UDP turns to the first that the peer itself has answered from.
//!
//! The one invariant: an address is left only for one that has proven to lead to the peer.

use super::Engine;
use crate::liveness::{Outcome, is_same_place};
use portolan_link::LinkAddr;
use portolan_proto::{Cause, Instant, LinkId, PeerId, PeerStatus};
use std::net::SocketAddr;
use std::time::Duration;

/// Time that the most likely address has before all are asked: many round trips of a cluster's network,
/// so that an ordinary session costs no questions.
const ASK_AFTER: Duration = Duration::from_millis(10);

/// Longest pause between questions. They begin [`ASK_AFTER`] apart, and then take twice as long each time.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// A peer that is reached by another path is not asked any longer: nobody lets UDP pass.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3);

/// Every address of a peer has refused for so long: none will answer. Its process may have been about to
/// open its socket, on a loaded host.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// A peer whose address by UDP is being found out.
#[derive(Debug)]
pub(super) struct Scout {
    peer: PeerId,
    /// Address by which UDP reaches it now.
    at: SocketAddr,
    since: Instant,
    ask_at: Instant,
    pause: Duration,
}

impl Engine {
    /// The address that UDP and streams reach `peer` by: a proven one, or the most likely.
    pub(super) fn way_to(&self, peer: PeerId) -> Option<SocketAddr> {
        let other = self.inner.table.of(peer)?;
        let ways = self.inner.table.ways_to(&other);
        let proven = self.liveness.as_ref().and_then(|it| it.proven(peer));
        let found = proven.and_then(|proven| ways.iter().find(|way| is_same_place(**way, proven)));
        found.or(ways.first()).copied()
    }

    /// Tells where `peer` answers whether it lives, and which processes this host's own kernel answers for.
    pub(super) fn tell_ways(&self, peer: PeerId) {
        let table = &self.inner.table;
        let (Some(liveness), Some(other)) = (&self.liveness, table.of(peer)) else {
            return;
        };
        if liveness.knows_ways(peer) {
            return;
        }
        let ways = table.liveness_of(&other);
        liveness.set_ways(peer, ways.iter().copied());
        if other.host == table.own().host
            && let Some(own) = ways.first()
        {
            liveness.prove(peer, *own);
        }
    }

    /// UDP begins to reach `peer` at `at`.
    pub(super) fn begin_scout(&mut self, peer: PeerId, at: SocketAddr) {
        let inner = &mut self.inner;
        let now = inner.now;
        inner.scouts.retain(|scout| scout.peer != peer);
        inner.scouts.push(Scout {
            peer,
            at,
            since: now,
            ask_at: now + ASK_AFTER,
            pause: ASK_AFTER,
        });
    }

    /// Somebody says that nobody listens where UDP reaches `peer`, which has not answered there.
    pub(super) fn note_refused(&mut self, peer: PeerId) {
        let mut scouts = self.inner.scouts.iter();
        if let Some(scout) = scouts.find(|scout| scout.peer == peer)
            && let Some(liveness) = &self.liveness
        {
            liveness.note_refused(peer, scout.at);
        }
    }

    /// Asks at all addresses of the peers that UDP has not reached yet, and turns to those that answer.
    pub(super) fn scout(&mut self) {
        if self.inner.scouts.is_empty() || self.liveness.is_none() {
            return;
        }
        let mut scouts = std::mem::take(&mut self.inner.scouts);
        scouts.retain_mut(|scout| self.scout_one(scout));
        self.inner.scouts.append(&mut scouts);
    }

    /// Returns whether there is more to find out.
    fn scout_one(&mut self, scout: &mut Scout) -> bool {
        let (peer, now) = (scout.peer, self.inner.now);
        let Some(liveness) = &self.liveness else {
            return false;
        };
        let path = self.inner.core.path_status(peer, LinkId::UDP);
        if path.is_some_and(|path| path.up && path.answered) {
            liveness.prove(peer, scout.at);
            return false;
        }
        let is_up = match self.inner.core.peer_status(peer) {
            PeerStatus::Failed(_) | PeerStatus::Unknown => return false,
            status => status == PeerStatus::Up,
        };
        if is_up && now.since(scout.since) >= GIVE_UP_AFTER {
            return false;
        }
        if now >= scout.ask_at {
            liveness.ask(peer);
            scout.ask_at = now + scout.pause;
            scout.pause = (scout.pause * 2).min(PAUSE_MAX);
        }
        let way = self.way_to(peer);
        if let Some(way) = way.filter(|way| !is_same_place(*way, scout.at)) {
            log::debug!("{peer} answers at {way}, not at {}", scout.at);
            scout.at = way;
            let addr = LinkAddr::Udp { socket: way };
            if let Err(error) = self.links.connect(peer, LinkId::UDP, &addr) {
                log::debug!("udp to {peer}: {error}");
            }
        }
        true
    }

    /// Tests whether no address of `peer` will ever do: each has refused, or cannot be sent to, since
    /// `since`.
    pub(super) fn is_refused(&self, peer: PeerId, since: Instant) -> bool {
        let Some(liveness) = &self.liveness else {
            return false;
        };
        // Raw frames may still pass.
        let is_alone = self.inner.table.links_to(peer) == [LinkId::UDP];
        let is_late = is_alone && self.inner.now.since(since) >= REFUSED_FOR;
        let fails = |outcome: &Outcome| matches!(outcome, Outcome::Refused | Outcome::Unsent(_));
        let outcomes = liveness.outcomes(peer);
        is_late && !outcomes.is_empty() && outcomes.iter().all(|(_, outcome)| fails(outcome))
    }

    /// Gives up a peer whose session has not opened since `since`, and says what was tried.
    pub(super) fn give_up_unreached(&mut self, peer: PeerId, since: Instant) {
        let outcomes = self.liveness.as_ref().map(|it| it.outcomes(peer));
        let seconds = self.inner.now.since(since).as_secs();
        let why = self
            .inner
            .unreached_text(peer, seconds, &outcomes.unwrap_or_default());
        self.inner.peers[peer.0 as usize].report = Some(why.into());
        self.give_up(peer, Cause::NoPath);
    }
}

impl super::Inner {
    /// What was tried to reach `peer` in so many seconds, what came of it, and what to do.
    fn unreached_text(
        &self,
        peer: PeerId,
        seconds: u64,
        tried: &[(SocketAddr, Outcome)],
    ) -> String {
        let links = self.table.links_to(peer);
        let paths: Vec<_> = links.iter().map(LinkId::to_string).collect();
        let host = self.host_of(peer);
        let results: Vec<_> = tried.iter().map(result_text).collect();
        let results = match results.is_empty() {
            true => String::new(),
            false => format!(": {}", results.join(", ")),
        };
        format!(
            "no answer in {seconds} s by {}{results}; {}",
            paths.join(" and "),
            remedy(tried, &host)
        )
    }

    /// Why this host and that of `peer` have no way to one another, and what to do.
    pub(super) fn no_way_text(&self, peer: PeerId) -> String {
        let own = self.table.own();
        let Some(other) = self.table.of(peer) else {
            return "it is not in this job".to_owned();
        };
        let lacks = [own, &*other].into_iter().find_map(|end| {
            let why = end.unusable.as_ref()?;
            Some(format!(
                "host {} has no usable network address: {why}",
                end.host_name
            ))
        });
        if let Some(lacks) = lacks {
            return lacks;
        }
        let (ours, theirs) = (&own.addresses, self.table.published(&other));
        if ours.is_empty() || theirs.is_empty() {
            return "the two have no link in common; run `portolan doctor` on both hosts"
                .to_owned();
        }
        format!(
            "host {} has {}, host {} has {}; give both addresses of one family and subnet (`ip address \
             add`)",
            own.host_name,
            addresses_text(ours),
            other.host_name,
            addresses_text(theirs)
        )
    }
}

fn addresses_text(addresses: &[crate::address::HostAddress]) -> String {
    let has = |is_v4: bool| addresses.iter().any(|it| it.addr.is_ipv4() == is_v4);
    let families = match (has(true), has(false)) {
        (true, false) => "IPv4 only",
        (false, true) => "IPv6 only",
        _ => "both families",
    };
    let list: Vec<_> = addresses
        .iter()
        .map(|it| format!("{}/{} on {}", it.addr, it.prefix_len, it.interface))
        .collect();
    format!("{families} ({})", list.join(", "))
}

fn result_text((addr, outcome): &(SocketAddr, Outcome)) -> String {
    let ip = match addr {
        SocketAddr::V6(addr) if addr.scope_id() != 0 => {
            format!("{}%{}", addr.ip(), addr.scope_id())
        }
        addr => addr.ip().to_string(),
    };
    match outcome {
        Outcome::Silent => format!("{ip} is silent"),
        Outcome::Refused => format!("{ip} refuses UDP (port unreachable)"),
        Outcome::Answered => format!("{ip} answers questions and opens no session"),
        Outcome::Unsent(errno) => {
            format!(
                "sending to {ip} fails: {}",
                std::io::Error::from_raw_os_error(*errno)
            )
        }
    }
}

/// What to do about the first of the failures that says most.
fn remedy(tried: &[(SocketAddr, Outcome)], host: &str) -> String {
    let has = |wanted: Outcome| tried.iter().any(|(_, outcome)| *outcome == wanted);
    if has(Outcome::Unsent(libc::EPERM)) {
        return "a firewall on this host forbids UDP output: allow it (`nft list ruleset`)"
            .to_owned();
    }
    if has(Outcome::Refused) {
        return format!(
            "no process listens there, or a firewall on {host} rejects UDP: allow it there, or use raw \
             Ethernet, which passes it (--path auto or packet)"
        );
    }
    if tried
        .iter()
        .any(|(_, outcome)| matches!(outcome, Outcome::Unsent(_)))
    {
        return "this host has no route: add one (`ip route add`), or an address of the same subnet"
            .to_owned();
    }
    "a firewall drops UDP, or the address is on another network: `portolan doctor` on both hosts says \
     more, and --option interface=NAME names the interface"
        .to_owned()
}
