// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registered buffers: memory that suits bulk data best.

use crate::error::Error;
use portolan_sys::pages::{Backing, Pages};
use portolan_sys::shortage::Shortage;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Memory for bulk messages in whole pages, all of them present, large pages if the system has
/// them. It causes fewer page faults and address translations than a fresh `Vec<u8>`. Allocate it
/// once and reuse it.
///
/// Pass a region to [`crate::Node::send`] and [`crate::Node::recv`] like any slice, or to
/// non-blocking operations as a [`crate::Buffer`], and get it back with [`Buffer::into_region`].
/// This library sends bulk messages from it without a copy. It receives them with one copy from the
/// network's receive buffer, or with none if they are placed directly.
///
/// Large pages are used from 2 MiB on: reserved ones (`vm.nr_hugepages`), or else those that the
/// system makes of small ones (`transparent_hugepage`).
///
/// [`Buffer::into_region`]: crate::Buffer::into_region
pub struct Region(Pages);

impl Region {
    /// Allocates `len` bytes, all of them zero.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when the system or a limit of the process leaves no memory.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let region = Region::new(2 << 20)?;
    /// println!("large pages: {}", region.has_large_pages());
    /// # Ok(()) }
    /// ```
    pub fn new(len: usize) -> Result<Region, Error> {
        let pages = Pages::new(len).map_err(|errno| match Shortage::of(&errno) {
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

    /// Returns whether the memory consists of large pages, as far as the system reports. The system
    /// may still fail to combine small pages as promised.
    ///
    /// # Examples
    /// See [`Region::new`].
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
