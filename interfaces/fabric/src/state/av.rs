// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses of an address vector, by their places.

use portolan::EndpointAddress;
use slab::Slab;

/// An address vector. Places are numbered in the order of insertion as long as none is freed.
#[derive(Default)]
pub(crate) struct Av {
    places: Slab<EndpointAddress>,
}

impl Av {
    /// Every address, with its place.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (usize, EndpointAddress)> + '_ {
        self.places.iter().map(|(at, address)| (at, *address))
    }

    pub(super) fn address(&self, addr: u64) -> Option<EndpointAddress> {
        self.places.get(usize::try_from(addr).ok()?).copied()
    }

    /// Give an address a place, and tell which.
    pub(super) fn insert(&mut self, address: EndpointAddress) -> usize {
        self.places.insert(address)
    }

    /// Free a place, and tell which.
    pub(super) fn take(&mut self, addr: u64) -> Option<usize> {
        let at = usize::try_from(addr).ok()?;
        self.places.try_remove(at).map(|_| at)
    }
}
