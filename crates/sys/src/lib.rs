// SPDX-License-Identifier: MIT OR Apache-2.0
//! The home of unsafe: shared mappings, rings, and system calls that the standard library lacks.

pub mod ethtool;
pub mod inherit;
pub mod membarrier;
