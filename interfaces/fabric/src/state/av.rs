// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses of an address vector, by index.

use portolan::binding::EndpointAddress;
use slab::Slab;

/// An address vector. Indices are assigned in the order of insertion as long as none is freed.
#[derive(Default)]
pub(crate) struct Av {
    places: Slab<EndpointAddress>,
}

impl Av {
    /// Returns all addresses with their indices.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (usize, EndpointAddress)> + '_ {
        self.places.iter().map(|(at, address)| (at, *address))
    }

    pub(super) fn address(&self, addr: u64) -> Option<EndpointAddress> {
        self.places.get(usize::try_from(addr).ok()?).copied()
    }

    /// Adds an address and returns its index.
    pub(super) fn insert(&mut self, address: EndpointAddress) -> usize {
        self.places.insert(address)
    }

    /// Removes an address and returns its index.
    pub(super) fn take(&mut self, addr: u64) -> Option<usize> {
        let at = usize::try_from(addr).ok()?;
        self.places.try_remove(at).map(|_| at)
    }
}
