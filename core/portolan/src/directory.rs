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
use std::collections::HashMap;
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
    /// Peers by number. Numbers are not reused.
    entries: Vec<Entry>,
    fresh: Vec<PeerId>,
    unsolicited_count: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    address: EndpointAddress,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unsolicited,
    Inserted,
    /// Removed by the program, with operations still in flight.
    Removed,
    Forgotten,
}

/// Peer that the engine has not registered yet.
pub(crate) struct Fresh {
    pub(crate) peer: PeerId,
    pub(crate) address: EndpointAddress,
    /// Set for a peer that has sent a hello and waits for an answer.
    pub(crate) is_unsolicited: bool,
}

impl Directory {
    pub(crate) fn new(token: &[u8; 16]) -> Directory {
        Directory {
            key: endpoint_key(token),
            has_fresh: AtomicBool::new(false),
            table: Mutex::default(),
        }
    }

    pub(crate) fn set_own(&self, address: EndpointAddress) {
        self.lock().own = Some(address);
        here().push(address);
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
        if table.unsolicited_count >= UNSOLICITED_MAX {
            return None;
        }
        table.unsolicited_count += 1;
        self.add(&mut table, *address, State::Unsolicited)
    }

    fn add(&self, table: &mut PeerTable, address: EndpointAddress, state: State) -> Option<PeerId> {
        let index = table.entries.len();
        if index >= PEERS_MAX {
            return None;
        }
        let peer = PeerId(u32::try_from(index).ok()?);
        table.entries.push(Entry { address, state });
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
            State::Removed | State::Forgotten => return false,
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
    fn only_unsolicited_peers_are_limited() {
        let directory = Directory::new(&[1; 16]);
        directory.lock().unsolicited_count = UNSOLICITED_MAX;
        assert_eq!(directory.accept_hello(&address(1)), None);
        let peer = directory.insert(&address(1)).unwrap();
        assert_eq!(directory.accept_hello(&address(1)), Some(peer));
    }
}
