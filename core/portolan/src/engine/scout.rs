// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the address that leads to a peer (`P9.11`).
//!
//! A session is opened at the most likely address at once. If there is no answer, probes go to all
//! addresses, and UDP switches to the first one that the peer has answered from.
//!
//! Invariant: UDP switches only to an address that is proven to lead to the peer.

use super::Engine;
use crate::liveness::{Outcome, is_same_place};
use portolan_link::LinkAddr;
use portolan_proto::{Cause, Instant, LinkId, PeerId, PeerStatus};
use std::net::SocketAddr;
use std::time::Duration;

/// Time to wait for the most likely address before all are probed: many round trips of a cluster's
/// network, so that an ordinary session needs no probes.
const PROBE_AFTER: Duration = Duration::from_millis(10);

/// Longest pause between probes. The first pause is [`PROBE_AFTER`], and each is twice the one
/// before.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Time after which a peer that another path reaches is no longer probed: UDP is filtered.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3);

/// Time after which a peer is given up if every address refuses UDP. On a loaded host its process
/// may still be about to open the socket.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// Search for the address of one peer.
#[derive(Debug)]
pub(super) struct Scout {
    peer: PeerId,
    /// Address that UDP uses now.
    at: SocketAddr,
    since: Instant,
    probe_at: Instant,
    pause: Duration,
}

impl Engine {
    /// Returns the address of `peer` for UDP and streams: a proven one, or the most likely one.
    pub(super) fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        let other = self.inner.table.of(peer)?;
        let addrs = self.inner.table.addresses_of(&other);
        let proven = self.liveness.as_ref().and_then(|it| it.proven(peer));
        let found =
            proven.and_then(|proven| addrs.iter().find(|addr| is_same_place(**addr, proven)));
        found.or(addrs.first()).copied()
    }

    /// Passes the addresses for liveness probes of `peer` to
    /// [`Liveness`](crate::liveness::Liveness). The address of a peer on this host is proven at
    /// once, since the kernel that answers is this host's own.
    pub(super) fn pass_addresses(&self, peer: PeerId) {
        let table = &self.inner.table;
        let liveness = (self.liveness.as_ref()).filter(|liveness| !liveness.has_addresses(peer));
        let (Some(liveness), Some(other)) = (liveness, table.of(peer)) else {
            return;
        };
        let addrs = table.liveness_of(&other);
        liveness.set_addresses(peer, addrs.iter().copied());
        if other.host == table.own().host
            && let Some(own) = addrs.first()
        {
            liveness.prove(peer, *own);
        }
    }

    /// Starts the search for `peer`, which UDP tries at `at`.
    pub(super) fn begin_scout(&mut self, peer: PeerId, at: SocketAddr) {
        let inner = &mut self.inner;
        let now = inner.now;
        inner.scouts.retain(|scout| scout.peer != peer);
        inner.scouts.push(Scout {
            peer,
            at,
            since: now,
            probe_at: now + PROBE_AFTER,
            pause: PROBE_AFTER,
        });
    }

    /// Records that a frame by UDP to `peer` came back as not deliverable.
    pub(super) fn note_refused(&mut self, peer: PeerId) {
        let mut scouts = self.inner.scouts.iter();
        if let Some(scout) = scouts.find(|scout| scout.peer == peer)
            && let Some(liveness) = &self.liveness
        {
            liveness.note_refused(peer, scout.at);
        }
    }

    /// Probes all addresses of the peers that UDP has not reached, and switches to those that
    /// answer.
    pub(super) fn scout(&mut self) {
        if self.inner.scouts.is_empty() || self.liveness.is_none() {
            return;
        }
        let mut scouts = std::mem::take(&mut self.inner.scouts);
        scouts.retain_mut(|scout| self.scout_one(scout));
        self.inner.scouts.append(&mut scouts);
    }

    /// Continues one search; returns `false` when it has ended.
    fn scout_one(&mut self, scout: &mut Scout) -> bool {
        let (peer, now) = (scout.peer, self.inner.now);
        let Some(liveness) = &self.liveness else {
            return false;
        };
        let path = self.inner.core.path_status(peer, LinkId::UDP);
        if path.is_some_and(|path| path.up && path.validated) {
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
        if now >= scout.probe_at {
            liveness.probe(peer);
            scout.probe_at = now + scout.pause;
            scout.pause = (scout.pause * 2).min(PAUSE_MAX);
        }
        let addr = self.address_of(peer);
        if let Some(addr) = addr.filter(|addr| !is_same_place(*addr, scout.at)) {
            log::debug!("{peer} answers at {addr}, not at {}", scout.at);
            scout.at = addr;
            let addr = LinkAddr::Udp { socket: addr };
            if let Err(error) = self.links.connect(peer, LinkId::UDP, &addr) {
                log::debug!("udp to {peer}: {error}");
            }
        }
        true
    }

    /// Tests whether every address of `peer` refuses UDP, or cannot be sent to, after `waited` of
    /// at least [`REFUSED_FOR`] without a session.
    pub(super) fn is_refused(&self, peer: PeerId, waited: Duration) -> bool {
        // Raw frames may still pass.
        if waited < REFUSED_FOR || self.inner.table.links_to(peer) != [LinkId::UDP] {
            return false;
        }
        let fails = |outcome: &Outcome| matches!(outcome, Outcome::Refused | Outcome::Unsent(_));
        let outcomes = self.liveness.as_ref().map(|it| it.outcomes(peer));
        outcomes.is_some_and(|tried| !tried.is_empty() && tried.iter().all(|(_, it)| fails(it)))
    }

    /// Gives up a peer if its session has not opened for `waited`. The error lists what was tried.
    pub(super) fn give_up_unreached(&mut self, peer: PeerId, waited: Duration) {
        let outcomes = self.liveness.as_ref().map(|it| it.outcomes(peer));
        let tried = outcomes.unwrap_or_default();
        let why = self.inner.unreached_text(peer, waited.as_secs(), &tried);
        self.inner.peers[peer.0 as usize].report = Some(why.into());
        self.give_up(peer, Cause::NoPath);
    }
}

impl super::Inner {
    /// Describes the addresses of `peer` that were tried for `seconds`, the result of each, and the
    /// remedy.
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

    /// Describes why no address of `peer` can be tried, and the remedy.
    pub(super) fn no_address_text(&self, peer: PeerId) -> String {
        let own = self.table.own();
        let Some(other) = self.table.of(peer) else {
            return "it is not in this job".to_owned();
        };
        let text = [own, &*other].into_iter().find_map(|end| {
            let why = end.unusable.as_ref()?;
            Some(format!(
                "host {} has no usable network address: {why}",
                end.host_name
            ))
        });
        if let Some(text) = text {
            return text;
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
        Outcome::Answered => format!("{ip} answers probes but opens no session"),
        Outcome::Unsent(errno) => {
            format!(
                "sending to {ip} fails: {}",
                std::io::Error::from_raw_os_error(*errno)
            )
        }
    }
}

/// Returns the remedy for the most informative failure.
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
