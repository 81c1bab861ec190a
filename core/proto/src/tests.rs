// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two cores, a wire between them, and time that passes when the test says so.

extern crate std;

mod best_effort;
mod calls;
mod checksums;
mod closing;
mod delivery;
mod held;
mod hostile;
mod lone;
mod losses;
mod one_shot;
mod pair;
mod paths;
mod placement;
mod plain_order;
mod remote;
mod resting;
mod sessions;
mod streams;
mod tagged;
mod transfers;
mod unexpected;
