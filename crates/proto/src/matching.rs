// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which message goes to which receive: by port, and by match bits.

mod arrivals;
pub(crate) mod labels;
pub(crate) mod port;
mod tag_queue;
