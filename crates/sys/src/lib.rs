// SPDX-License-Identifier: MIT OR Apache-2.0
//! The home of unsafe code: shared mappings, rings, and socket calls that std lacks.

pub mod net;
