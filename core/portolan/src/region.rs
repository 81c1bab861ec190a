// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registered buffers: memory that suits bulk data best.

use crate::error::Error;
use portolan_sys::lack::Lack;
use portolan_sys::pages::{Backing, Pages};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Memory for bulk messages: in whole pages, all of them present, large ones where the system has
/// them. It takes fewer faults and address translations than a fresh `Vec<u8>`, and is meant to be
/// allocated once and used again and again.
///
/// A region is lent to [`crate::Node::send`] and [`crate::Node::recv`] like any slice, or given to
/// non-blocking operations as a [`crate::Buffer`], which gives it back with [`Buffer::into_region`].
/// Bulk messages leave from it without a copy in this library, and arrive in it with one from the
/// network's receive buffer, or none where they are received at their place.
///
/// Large pages are used from 2 MiB on: those that were set aside (`vm.nr_hugepages`), else those
/// that the system makes of small ones (`transparent_hugepage`).
///
/// [`Buffer::into_region`]: crate::Buffer::into_region
pub struct Region(Pages);

impl Region {
    /// Allocates `len` bytes, all of them zero.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when the system, or a limit of the process, has no memory left.
    pub fn new(len: usize) -> Result<Region, Error> {
        let pages = Pages::new(len).map_err(|errno| match Lack::of(&errno) {
            Some(lack) => Error::NoMemory {
                what: "a region",
                len,
                lack,
            },
            None => Error::System {
                what: "allocating a region",
                errno,
            },
        })?;
        Ok(Region(pages))
    }

    /// Whether it lies in large pages, as far as the system tells: it may still leave its promise
    /// to make them of small ones unfulfilled.
    #[must_use]
    pub fn has_large_pages(&self) -> bool {
        self.0.backing() != Backing::Small
    }
}

impl Deref for Region {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Region {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len())
            .field("backing", &self.0.backing())
            .finish()
    }
}
