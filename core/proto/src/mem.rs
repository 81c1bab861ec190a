// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the core: frame buffers, held messages, tables with generational keys.

pub(crate) mod copy;
pub(crate) mod held;
pub(crate) mod scratch;
pub(crate) mod slab;
pub(crate) mod slot;
