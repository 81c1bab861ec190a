// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the peers of this process are: all of a job, as the launcher says, or those that an
//! endpoint has met.

use crate::address::Address;
use crate::directory::Directory;
use portolan_proto::{LinkId, PeerId};
use std::borrow::Cow;
use std::sync::Arc;

/// See the module documentation.
pub(crate) struct Table {
    own: Address,
    others: Others,
}

enum Others {
    /// By rank.
    Job(Vec<Address>),
    /// Short as they travel; written out when a peer is connected.
    Met(Arc<Directory>),
}

impl Table {
    /// The addresses of a job, by rank.
    pub(crate) fn of_job(addresses: Vec<Address>, rank: u32) -> Table {
        Table {
            own: addresses[rank as usize].clone(),
            others: Others::Job(addresses),
        }
    }

    /// The addresses that an endpoint meets.
    pub(crate) fn of_endpoint(own: Address, directory: Arc<Directory>) -> Table {
        Table {
            own,
            others: Others::Met(directory),
        }
    }

    pub(crate) fn own(&self) -> &Address {
        &self.own
    }

    pub(crate) fn of(&self, peer: PeerId) -> Option<Cow<'_, Address>> {
        match &self.others {
            Others::Job(all) => all.get(peer.0 as usize).map(Cow::Borrowed),
            Others::Met(directory) => {
                let short = directory.address_of(peer)?;
                Some(Cow::Owned(short.write_out(&self.own)))
            }
        }
    }

    /// Whether `peer` is another endpoint of this very process.
    pub(crate) fn is_in_this_process(&self, peer: PeerId) -> bool {
        match &self.others {
            Others::Job(_) => false,
            Others::Met(directory) => directory.is_here(peer),
        }
    }

    /// The links that lead to `peer`.
    pub(crate) fn links_to(&self, peer: PeerId) -> Vec<LinkId> {
        self.of(peer)
            .map_or_else(Vec::new, |other| self.own.common_links(&other))
    }
}
