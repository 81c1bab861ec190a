// SPDX-License-Identifier: MIT OR Apache-2.0
//! Portolan as a libfabric provider: Open MPI, MPICH and whatever else speaks libfabric runs on
//! Portolan without being rebuilt.
//!
//! libfabric loads `libportolan-fi.so` and calls [`fi_prov_ini`]. What it gets offers reliable
//! endpoints, connected or not; each is a `portolan::Endpoint`. All objects of a domain live in one
//! `state::State` behind one lock, which is not taken where the application promised to call
//! from one thread at a time; the calls from C lie above it, and it knows none of them. Progress
//! happens inside the calls that read queues and counters.
//!
//! The provider stays silent unless it is asked for by name (`getinfo.rs`): being installed never
//! changes which network a program uses. Only this crate's interface to C is unsafe; each module
//! that has such code opts in, and the invariant they share is libfabric's contract: a pointer
//! given to a call is valid as its manual page says, and no object is used after its `close`.

#![warn(missing_docs)]

mod abi;
mod absent;
mod answer;
mod av;
mod cm;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod errno;
mod fabric;
mod getinfo;
mod mr;
mod nap;
mod object;
mod offer;
mod pep;
mod provider;
mod sockaddr;
mod state;
#[cfg(test)]
mod tests;
mod wake;

pub use provider::fi_prov_ini;
