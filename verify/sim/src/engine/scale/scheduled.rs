// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program of crowds that sends a traffic pattern.
#![allow(
    unsafe_code,
    reason = "an endpoint sends the program's memory by address"
)]

use super::crowd::{Crowd, CrowdConfig, Member};
use super::overflowed;
use super::reference::Outcome;
use super::traffic::{Message, Traffic};
use portolan::binding::simulated::{SimulatedConfig, SimulatedEndpoint, virtual_ns};
use portolan::binding::{ActiveMessage, Cookie, PeerIndex, RawPiece, Sent, SubmitError};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Tag of the messages.
const TAG: u8 = 1;

/// Time of the first message. Before it each pair that will communicate has opened its session.
const BEGIN_NS: u64 = 20_000_000;

/// Number in front of a message that only opens a session.
const OPENING: u32 = u32::MAX;

/// Bytes of such a message, and the least of any.
const LEN_LEAST: usize = 8;

/// Times at which messages were complete; 0 before.
type Ends = Arc<Mutex<Vec<u64>>>;

/// Sends `traffic` between endpoints. The times are from the first message on.
pub(super) fn run(traffic: &Traffic) -> Outcome {
    let ends: Ends = Arc::new(Mutex::new(vec![0; traffic.messages.len()]));
    let mut addresses = Vec::new();
    let mut expected = vec![0; traffic.hosts as usize];
    for message in &traffic.messages {
        expected[message.to as usize] += 1;
    }
    let crowd_config = CrowdConfig::default();
    let mut crowd = Crowd::new(traffic.hosts, &crowd_config, |node, config| {
        let member = Scheduled::new(config, expected[node as usize], &ends);
        addresses.push(member.endpoint.address());
        member
    });
    let mut plans: Vec<Vec<(u32, Message)>> = vec![Vec::new(); traffic.hosts as usize];
    for (number, message) in (0..).zip(&traffic.messages) {
        plans[message.from as usize].push((number, *message));
    }
    for (plan, member) in plans.into_iter().zip(crowd.members()) {
        for (number, message) in plan {
            member.plan(number, &message, &addresses);
        }
    }
    crowd.run_until_done();
    let sent_all = crowd.stats();
    let ends_ns = ends.lock().unwrap_or_else(PoisonError::into_inner);
    Outcome {
        ends_ns: (ends_ns.iter())
            .map(|end_ns| end_ns.saturating_sub(BEGIN_NS))
            .collect(),
        frames: sent_all.sent,
        overflowed: overflowed(&sent_all),
    }
}

/// Message to send.
struct Due {
    at_ns: u64,
    peer: PeerIndex,
    number: u32,
    len: usize,
}

/// See the module documentation.
struct Scheduled {
    endpoint: SimulatedEndpoint,
    peers: BTreeMap<u32, PeerIndex>,
    /// Messages in the order of their times, and the number of those sent.
    due: Vec<Due>,
    sent: usize,
    /// Memory of sends that have not ended, by context. Dropped after the endpoint.
    open: BTreeMap<u64, Box<[u8]>>,
    next_context: u64,
    /// Messages that have not arrived yet.
    left: Arc<AtomicU64>,
}

impl Scheduled {
    fn new(config: SimulatedConfig, expected: u64, ends: &Ends) -> Scheduled {
        let mut endpoint = SimulatedEndpoint::new(config).unwrap_or_else(|error| panic!("{error}"));
        let left = Arc::new(AtomicU64::new(expected));
        let (still, ends) = (Arc::clone(&left), Arc::clone(ends));
        let hook = move |message: ActiveMessage<'_>| {
            let number = message.bytes.first_chunk();
            let number = number.map_or(OPENING, |bytes| u32::from_le_bytes(*bytes));
            let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(end_ns) = ends.get_mut(number as usize) {
                *end_ns = virtual_ns();
                still.fetch_sub(1, Ordering::Relaxed);
            }
        };
        if let Err(error) = endpoint.on_active(hook) {
            panic!("{error}");
        }
        Scheduled {
            endpoint,
            peers: BTreeMap::new(),
            due: Vec::new(),
            sent: 0,
            open: BTreeMap::new(),
            next_context: 1,
            left,
        }
    }

    /// Adds a message, and one that opens the session before the first to a peer.
    fn plan(
        &mut self,
        number: u32,
        message: &Message,
        addresses: &[portolan::binding::EndpointAddress],
    ) {
        let to = message.to;
        let peer = match self.peers.get(&to) {
            Some(peer) => *peer,
            None => {
                let peer = self.endpoint.insert(&addresses[to as usize]);
                let peer = peer.unwrap_or_else(|error| panic!("{error}"));
                self.peers.insert(to, peer);
                let opening = Due {
                    // A thousand senders to one receiver open their sessions one after the other.
                    at_ns: u64::from(message.from) * 2_000,
                    peer,
                    number: OPENING,
                    len: LEN_LEAST,
                };
                self.due.insert(self.peers.len() - 1, opening);
                peer
            }
        };
        self.due.push(Due {
            at_ns: BEGIN_NS + message.at_ns,
            peer,
            number,
            len: message.len.max(LEN_LEAST),
        });
    }

    /// Sends what is due. Returns the number of messages.
    fn send(&mut self) -> usize {
        let before = self.sent;
        while let Some(due) = self.due.get(self.sent)
            && due.at_ns <= virtual_ns()
        {
            let (peer, number, len) = (due.peer, due.number, due.len);
            match self.submit(peer, number, len) {
                Err(SubmitError::Again) => break,
                Err(error) => panic!("{error}"),
                Ok(()) => self.sent += 1,
            }
        }
        self.sent - before
    }

    fn submit(&mut self, peer: PeerIndex, number: u32, len: usize) -> Result<(), SubmitError> {
        let mut bytes = vec![0x5a; len].into_boxed_slice();
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        let context = self.next_context;
        let piece = RawPiece {
            ptr: bytes.as_mut_ptr(),
            len,
        };
        // SAFETY: `open` keeps the memory until the completion, and is dropped after the endpoint.
        let sent = unsafe {
            self.endpoint
                .send_active(peer, TAG, piece, Cookie::new(context))
        }?;
        if sent == Sent::Pending {
            self.next_context += 1;
            self.open.insert(context, bytes);
        }
        Ok(())
    }
}

impl Member for Scheduled {
    fn turn(&mut self) -> usize {
        let open = &mut self.open;
        let (moved, _) = self.endpoint.poll_unyielding(&mut |done| {
            open.remove(&done.cookie.context);
        });
        moved + self.send()
    }

    fn acts_at(&self) -> u64 {
        self.due.get(self.sent).map_or(u64::MAX, |due| due.at_ns)
    }

    fn is_done(&self) -> bool {
        let is_sent = self.sent == self.due.len() && self.open.is_empty();
        is_sent && self.left.load(Ordering::Relaxed) == 0
    }

    fn fall_asleep(&mut self) -> Option<Duration> {
        self.endpoint.fall_asleep()
    }

    /// The next poll ends the sleep.
    fn wake_up(&mut self) {}

    fn receive_probe(&self, bytes: &[u8], from: SocketAddr) {
        self.endpoint.receive_probe(bytes, from);
    }

    fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        self.endpoint.receive_refusal(quoted, destination);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_messages_arrive_and_a_run_repeats_itself() {
        for traffic in [
            Traffic::incast(3, 5, 1000),
            Traffic::permutation(4, 300_000),
            Traffic::web_search(4, 50, 500_000, 1),
        ] {
            let outcome = run(&traffic);
            assert!(!traffic.messages.is_empty());
            assert!(outcome.ends_ns.iter().all(|end_ns| *end_ns > 0));
            assert_eq!(outcome, run(&traffic), "{}", traffic.name);
        }
    }
}
