// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which queue and which counter an endpoint's completions go to.

use crate::abi::{RECV, SEND};

/// Where an endpoint's completions go.
#[derive(Default)]
pub(super) struct Routes {
    tx_cq: Option<usize>,
    rx_cq: Option<usize>,
    counters: Vec<Bound>,
}

/// A counter of the operations with any of these flags.
struct Bound {
    of: u64,
    cntr: usize,
}

impl Routes {
    /// Report to a queue in the directions that the flags name.
    pub(super) fn add_cq(&mut self, cq: usize, directions: u64) {
        if directions & SEND != 0 {
            self.tx_cq = Some(cq);
        }
        if directions & RECV != 0 {
            self.rx_cq = Some(cq);
        }
    }

    /// Count operations with any of these flags.
    pub(super) fn add_cntr(&mut self, cntr: usize, of: u64) {
        self.counters.push(Bound { of, cntr });
    }

    /// The queue of operations with these flags.
    #[inline]
    pub(super) fn cq(&self, flags: u64) -> Option<usize> {
        match flags & RECV {
            0 => self.tx_cq,
            _ => self.rx_cq,
        }
    }

    /// The counter of operations with these flags.
    #[inline]
    pub(super) fn cntr(&self, flags: u64) -> Option<usize> {
        if self.counters.is_empty() {
            return None;
        }
        let bound = self.counters.iter().find(|bound| bound.of & flags != 0);
        bound.map(|bound| bound.cntr)
    }

    pub(super) fn cqs(&self) -> impl Iterator<Item = usize> {
        [self.tx_cq, self.rx_cq].into_iter().flatten()
    }

    pub(super) fn cntrs(&self) -> impl Iterator<Item = usize> + '_ {
        self.counters.iter().map(|bound| bound.cntr)
    }
}
