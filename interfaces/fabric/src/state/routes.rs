// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects the queue and the counter of an endpoint's completions.

use crate::abi::{RECV, SEND};

/// Destinations of an endpoint's completions.
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
    /// Reports to a queue in the directions that the flags name.
    pub(super) fn add_cq(&mut self, cq: usize, directions: u64) {
        if directions & SEND != 0 {
            self.tx_cq = Some(cq);
        }
        if directions & RECV != 0 {
            self.rx_cq = Some(cq);
        }
    }

    /// Counts operations with any of these flags.
    pub(super) fn add_cntr(&mut self, cntr: usize, of: u64) {
        self.counters.push(Bound { of, cntr });
    }

    /// Returns the queue of operations with these flags.
    #[inline]
    pub(super) fn cq(&self, flags: u64) -> Option<usize> {
        match flags & RECV {
            0 => self.tx_cq,
            _ => self.rx_cq,
        }
    }

    /// Returns the counter of operations with these flags.
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
