// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the core: frame buffers, messages that wait, tables with keys that go stale.

pub(crate) mod copy;
pub(crate) mod held;
pub(crate) mod scratch;
pub(crate) mod slab;
pub(crate) mod slot;
