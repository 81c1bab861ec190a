// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of two cores, with a wire between them and virtual time.

extern crate std;

mod best_effort;
mod calls;
mod checksums;
mod closing;
mod delivery;
mod division;
mod dormant;
mod eager_streams;
mod faults;
mod held;
mod hostile;
mod losses;
mod one_shot;
mod pair;
mod paths;
mod placement;
mod plain_order;
mod pushes;
mod remote;
mod sessions;
mod shared_frames;
mod single;
mod streams;
mod tagged;
mod transfers;
mod unexpected;
