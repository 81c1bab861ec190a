// SPDX-License-Identifier: MIT OR Apache-2.0
//! A counter of completed operations.

use std::num::Wrapping;

/// A counter of successes and errors.
#[derive(Default)]
pub(crate) struct Cntr {
    value: Wrapping<u64>,
    errors: Wrapping<u64>,
    /// Endpoints that use this counter, without duplicates.
    eps: Vec<usize>,
}

impl Cntr {
    #[inline]
    pub(super) fn succeeded(&mut self) {
        self.value += 1;
    }

    #[cold]
    pub(super) fn failed(&mut self) {
        self.errors += 1;
    }

    pub(crate) fn value(&self) -> u64 {
        self.value.0
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.0
    }

    pub(crate) fn add(&mut self, count: u64) {
        self.value += count;
    }

    pub(crate) fn set(&mut self, value: u64) {
        self.value = Wrapping(value);
    }

    pub(crate) fn add_errors(&mut self, count: u64) {
        self.errors += count;
    }

    pub(crate) fn set_errors(&mut self, errors: u64) {
        self.errors = Wrapping(errors);
    }

    /// Returns the endpoints that use this counter.
    #[inline]
    pub(super) fn eps(&self) -> &[usize] {
        &self.eps
    }

    pub(super) fn attach(&mut self, ep: usize) {
        if !self.eps.contains(&ep) {
            self.eps.push(ep);
        }
    }

    pub(super) fn detach(&mut self, ep: usize) {
        self.eps.retain(|&other| other != ep);
    }
}
