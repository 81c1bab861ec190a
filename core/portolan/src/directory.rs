// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address book of an endpoint: numbers for the addresses of peers. Peers are inserted by the
//! program or are unsolicited, after they have sent a hello.
//!
//! It is shared with the link of shared memory, which accepts unsolicited peers by itself. Only the
//! control path takes the lock.

mod address;

pub use address::EndpointAddress;
pub(crate) use address::{endpoint_key, shm_name};

use portolan_link::shm;
use portolan_proto::{ENDPOINT_ID_LEN, PeerId};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of peers: the range of session tokens.
const PEERS_MAX: usize = 1 << 20;

/// Maximum number of unsolicited peers. All of them have this endpoint's address. The limit keeps
/// one of them from filling the table with invented addresses.
const UNSOLICITED_MAX: usize = 1 << 16;

/// Addresses of the endpoints that are open in this process.
static HERE: Mutex<Vec<EndpointAddress>> = Mutex::new(Vec::new());

fn here() -> MutexGuard<'static, Vec<EndpointAddress>> {
    HERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Address book of one endpoint; see the module documentation.
pub(crate) struct Directory {
    key: [u8; 32],
    /// Set when peers were added since [`Directory::take_fresh`].
    has_fresh: AtomicBool,
    table: Mutex<PeerTable>,
}

#[derive(Default)]
struct PeerTable {
    /// Own address. Set once, when all links are open.
    own: Option<EndpointAddress>,
    by_address: HashMap<EndpointAddress, PeerId>,
    /// Peers by number.
    entries: Vec<Entry>,
    /// Numbers that may be used again, the one that has been free for longest first. Those of an
    /// endpoint are never free.
    free: VecDeque<PeerId>,
    relations: HashMap<PeerId, Relation>,
    fresh: Vec<PeerId>,
    unsolicited_count: usize,
    /// Set if only processes that have proved a secret become peers.
    is_closed: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    address: EndpointAddress,
    state: State,
    /// Number of peers that had this number before.
    generation: u32,
}

/// Relation with a peer of a standalone process.
#[derive(Clone, Copy)]
struct Relation {
    /// Number of the relation, equal on both sides.
    number: u64,
    /// Secret that only the two processes have.
    pair_secret: [u8; 32],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unsolicited,
    Inserted,
    /// Removed by the program, with operations still in flight.
    Removed,
    Forgotten,
    /// Process with which a standalone process is beginning a relation. It may send already.
    Expected,
    /// Peer of a standalone process.
    Connected,
    /// Former peer of a standalone process. Its last messages may still arrive.
    Closed,
    /// The same, after everything has arrived. Its address is kept for errors.
    Parted,
}

/// Peer that the engine has not registered yet.
pub(crate) struct Fresh {
    pub(crate) peer: PeerId,
    pub(crate) address: EndpointAddress,
    /// Set for a peer that has sent a hello and waits for an answer.
    pub(crate) is_unsolicited: bool,
    /// Set if another peer had the number before.
    pub(crate) is_reused: bool,
    /// Secret of the pair: that of the relation, or of two endpoints.
    pub(crate) pair_secret: Option<[u8; 32]>,
}

impl Directory {
    pub(crate) fn new(token: &[u8; 16]) -> Directory {
        Directory {
            key: endpoint_key(token),
            has_fresh: AtomicBool::new(false),
            table: Mutex::default(),
        }
    }

    /// Accepts only peers that have proved a secret, from now on.
    pub(crate) fn close_to_strangers(&self) {
        self.lock().is_closed = true;
    }

    pub(crate) fn set_own(&self, address: EndpointAddress) {
        self.lock().own = Some(address);
        here().push(address);
    }

    /// Sets the own address of a simulated process. Other simulated processes in this one are
    /// elsewhere.
    pub(crate) fn set_own_simulated(&self, address: EndpointAddress) {
        self.lock().own = Some(address);
    }

    /// Tests whether `peer` is an endpoint of this process.
    pub(crate) fn is_here(&self, peer: PeerId) -> bool {
        let Some(address) = self.address_of(peer) else {
            return false;
        };
        here().iter().any(|own| own.is_of_process_of(&address))
    }

    /// Returns the number of `address`, which the program inserts. Returns `None` if the table is
    /// full.
    pub(crate) fn insert(&self, address: &EndpointAddress) -> Option<PeerId> {
        let mut table = self.lock();
        if let Some(&peer) = table.by_address.get(address) {
            let state = &mut table.entries[peer.0 as usize].state;
            if std::mem::replace(state, State::Inserted) == State::Unsolicited {
                table.unsolicited_count -= 1;
            }
            return Some(peer);
        }
        self.add(&mut table, *address, State::Inserted)
    }

    /// Returns the number of a process that has sent a hello with `address`.
    pub(crate) fn accept_hello(&self, address: &EndpointAddress) -> Option<PeerId> {
        let mut table = self.lock();
        if let Some(&peer) = table.by_address.get(address) {
            return Some(peer);
        }
        if table.is_closed || table.unsolicited_count >= UNSOLICITED_MAX {
            return None;
        }
        table.unsolicited_count += 1;
        self.add(&mut table, *address, State::Unsolicited)
    }

    fn add(&self, table: &mut PeerTable, address: EndpointAddress, state: State) -> Option<PeerId> {
        let mut entry = Entry {
            address,
            state,
            generation: 0,
        };
        let index = table.entries.len();
        let peer = match table.free.pop_front() {
            Some(peer) => {
                let place = &mut table.entries[peer.0 as usize];
                entry.generation = place.generation + 1;
                *place = entry;
                peer
            }
            None if index >= PEERS_MAX => return None,
            None => {
                table.entries.push(entry);
                PeerId(u32::try_from(index).ok()?)
            }
        };
        table.by_address.insert(address, peer);
        table.fresh.push(peer);
        self.has_fresh.store(true, Ordering::Relaxed);
        Some(peer)
    }

    /// Records that the program has removed a peer. Returns `false` if there is no such peer.
    pub(crate) fn remove(&self, peer: PeerId) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.entries.get_mut(peer.0 as usize) else {
            return false;
        };
        match entry.state {
            State::Removed
            | State::Forgotten
            | State::Expected
            | State::Connected
            | State::Closed
            | State::Parted => return false,
            State::Inserted => entry.state = State::Removed,
            State::Unsolicited => {
                entry.state = State::Removed;
                table.unsolicited_count -= 1;
            }
        }
        true
    }

    /// Forgets a removed peer. Its address may be inserted again, with a new number.
    pub(crate) fn forget(&self, peer: PeerId) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.get_mut(peer.0 as usize)
            && entry.state == State::Removed
        {
            entry.state = State::Forgotten;
            let address = entry.address;
            table.by_address.remove(&address);
        }
    }

    /// Returns the peer's address; `None` for an unused number or a forgotten peer.
    pub(crate) fn address_of(&self, peer: PeerId) -> Option<EndpointAddress> {
        let table = self.lock();
        let entry = table.entries.get(peer.0 as usize)?;
        (entry.state != State::Forgotten).then_some(entry.address)
    }

    pub(crate) fn is_inserted(&self, peer: PeerId) -> bool {
        let table = self.lock();
        let entry = table.entries.get(peer.0 as usize);
        entry.is_some_and(|entry| entry.state == State::Inserted)
    }

    #[inline]
    pub(crate) fn has_fresh(&self) -> bool {
        self.has_fresh.load(Ordering::Relaxed)
    }

    /// Returns the peers that the engine has not registered yet.
    pub(crate) fn take_fresh(&self) -> Vec<Fresh> {
        let mut table = self.lock();
        self.has_fresh.store(false, Ordering::Relaxed);
        let fresh = std::mem::take(&mut table.fresh);
        let registered = fresh.into_iter().map(|peer| {
            let entry = table.entries[peer.0 as usize];
            Fresh {
                peer,
                address: entry.address,
                is_unsolicited: entry.state == State::Unsolicited,
                is_reused: entry.generation > 0,
                pair_secret: match table.relations.get(&peer) {
                    Some(relation) => Some(relation.pair_secret),
                    None => table.own.map(|own| own.pair_secret(&entry.address)),
                },
            }
        });
        registered.collect()
    }

    /// Locks the table. Every update is complete before the lock is released, so poisoning is
    /// ignored.
    fn lock(&self) -> MutexGuard<'_, PeerTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Peers of a standalone process.
impl Directory {
    /// Returns the address of this process.
    pub(crate) fn own(&self) -> EndpointAddress {
        let own = self.lock().own;
        own.unwrap_or_else(EndpointAddress::nowhere)
    }

    /// Returns the peer with `address` and the number of the relation, if the two are peers now.
    pub(crate) fn relation_with(&self, address: &EndpointAddress) -> Option<(PeerId, u64)> {
        let table = self.lock();
        let peer = *table.by_address.get(address)?;
        let is_connected = table.entries[peer.0 as usize].state == State::Connected;
        let relation = table.relations.get(&peer).filter(|_| is_connected)?;
        Some((peer, relation.number))
    }

    /// Enters the owner of `address`, which is no peer, as one that may become a peer. Returns
    /// `None` if the table is full.
    pub(crate) fn expect(
        &self,
        address: &EndpointAddress,
        number: u64,
        pair_secret: [u8; 32],
    ) -> Option<PeerId> {
        let mut table = self.lock();
        let peer = self.add(&mut table, *address, State::Expected)?;
        let relation = Relation {
            number,
            pair_secret,
        };
        table.relations.insert(peer, relation);
        Some(peer)
    }

    /// Makes an expected process a peer.
    pub(crate) fn meet(&self, peer: PeerId) {
        let table = &mut *self.lock();
        let entry = &mut table.entries[peer.0 as usize];
        if entry.state == State::Expected {
            entry.state = State::Connected;
        }
    }

    /// Ends the relation with `peer`. Its address may become that of another peer.
    pub(crate) fn close(&self, peer: PeerId) {
        let table = &mut *self.lock();
        if let Some(entry) = table.entries.get_mut(peer.0 as usize)
            && matches!(entry.state, State::Expected | State::Connected)
        {
            entry.state = State::Closed;
        }
    }

    /// Refuses what `peer` sends, after the end of the relation.
    pub(crate) fn part(&self, peer: PeerId) {
        self.close(peer);
        let table = &mut *self.lock();
        if let Some(entry) = table.entries.get_mut(peer.0 as usize)
            && entry.state == State::Closed
        {
            entry.state = State::Parted;
            table.relations.remove(&peer);
            if table.by_address.get(&entry.address) == Some(&peer) {
                table.by_address.remove(&entry.address);
            }
        }
    }

    /// Makes the number of a peer available that has parted and of which nothing is left.
    pub(crate) fn release(&self, peer: PeerId) {
        let table = &mut *self.lock();
        if let Some(entry) = table.entries.get_mut(peer.0 as usize)
            && entry.state == State::Parted
        {
            // From now on the number stands for no process.
            entry.state = State::Forgotten;
            table.free.push_back(peer);
        }
    }

    /// Returns the number of peers that had the number of `peer` before it.
    pub(crate) fn generation_of(&self, peer: PeerId) -> u32 {
        let table = self.lock();
        let entry = table.entries.get(peer.0 as usize);
        entry.map_or(0, |entry| entry.generation)
    }

    /// Tests whether `peer` is a peer now.
    pub(crate) fn is_connected(&self, peer: PeerId) -> bool {
        let table = self.lock();
        let entry = table.entries.get(peer.0 as usize);
        entry.is_some_and(|entry| entry.state == State::Connected)
    }

    /// Returns all peers, with the generations of their numbers.
    pub(crate) fn connected(&self) -> Vec<(PeerId, u32)> {
        let table = self.lock();
        let numbered = (0..).map(PeerId).zip(&table.entries);
        let connected = numbered.filter(|(_, entry)| entry.state == State::Connected);
        connected
            .map(|(peer, entry)| (peer, entry.generation))
            .collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let own = self.lock().own;
        here().retain(|address| Some(*address) != own);
    }
}

impl shm::Directory for Directory {
    fn own_endpoint_id(&self) -> [u8; ENDPOINT_ID_LEN] {
        self.lock()
            .own
            .map_or([0; ENDPOINT_ID_LEN], |own| *own.as_bytes())
    }

    fn own_key(&self) -> [u8; 32] {
        self.key
    }

    fn number_of(&self, endpoint_id: &[u8; ENDPOINT_ID_LEN]) -> Option<u32> {
        let address = EndpointAddress::from_bytes(endpoint_id).ok()?;
        self.accept_hello(&address).map(|peer| peer.0)
    }

    fn key_of(&self, peer: u32) -> Option<[u8; 32]> {
        self.address_of(PeerId(peer)).map(|address| address.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> EndpointAddress {
        let mut bytes = [0; ENDPOINT_ID_LEN];
        bytes[0] = 3;
        bytes[2..4].copy_from_slice(&port.to_le_bytes());
        bytes[47] = 1;
        EndpointAddress::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn inserted_unsolicited_peer_retains_its_number() {
        let directory = Directory::new(&[1; 16]);
        let unsolicited = directory.accept_hello(&address(1)).unwrap();
        assert!(!directory.is_inserted(unsolicited));
        assert!(directory.has_fresh());
        assert!(directory.take_fresh()[0].is_unsolicited);
        assert!(!directory.has_fresh());
        assert_eq!(directory.insert(&address(1)), Some(unsolicited));
        assert!(directory.is_inserted(unsolicited));
        assert!(!directory.has_fresh(), "the engine knows it");
    }

    #[test]
    fn numbers_are_unique() {
        let directory = Directory::new(&[1; 16]);
        let first = directory.insert(&address(1)).unwrap();
        assert!(directory.remove(first));
        assert!(!directory.remove(first));
        assert_eq!(directory.insert(&address(1)), Some(first), "still known");
        assert!(directory.remove(first));
        directory.forget(first);
        assert_eq!(directory.address_of(first), None);
        assert_ne!(directory.insert(&address(1)), Some(first));
    }

    #[test]
    fn released_number_is_used_again_with_another_generation() {
        let directory = Directory::new(&[1; 16]);
        directory.close_to_strangers();
        assert_eq!(directory.accept_hello(&address(1)), None);
        let first = directory.expect(&address(1), 7, [1; 32]).unwrap();
        assert_eq!(directory.relation_with(&address(1)), None, "not yet");
        directory.meet(first);
        assert_eq!(directory.accept_hello(&address(1)), Some(first));
        assert_eq!(directory.relation_with(&address(1)), Some((first, 7)));
        directory.release(first);
        directory.close(first);
        assert_eq!(
            directory.accept_hello(&address(1)),
            Some(first),
            "sent before"
        );
        directory.part(first);
        assert_eq!(directory.accept_hello(&address(1)), None);
        assert_eq!(directory.relation_with(&address(1)), None);
        assert_eq!(directory.address_of(first), Some(address(1)), "for errors");
        // The same process returns at once, and is another peer.
        let second = directory.expect(&address(1), 8, [2; 32]).unwrap();
        directory.meet(second);
        assert_ne!(second, first);
        directory.release(first);
        directory.take_fresh();
        let third = directory.expect(&address(2), 9, [3; 32]).unwrap();
        directory.meet(third);
        assert_eq!((third, directory.generation_of(third)), (first, 1));
        let fresh = directory.take_fresh();
        assert!(fresh[0].is_reused && fresh[0].pair_secret == Some([3; 32]));
        assert_eq!(directory.connected(), [(first, 1), (second, 0)]);
    }

    #[test]
    fn only_unsolicited_peers_are_limited() {
        let directory = Directory::new(&[1; 16]);
        directory.lock().unsolicited_count = UNSOLICITED_MAX;
        assert_eq!(directory.accept_hello(&address(1)), None);
        let peer = directory.insert(&address(1)).unwrap();
        assert_eq!(directory.accept_hello(&address(1)), Some(peer));
    }
}
