// SPDX-License-Identifier: MIT OR Apache-2.0
//! Portolan as a libfabric provider. Open MPI, MPICH and other users of libfabric run on Portolan
//! without a rebuild.
//!
//! libfabric loads `libportolan-fi.so` and calls [`fi_prov_ini`]. The provider offers reliable
//! endpoints, connected or connectionless. Each one is a `portolan::binding::Endpoint`. All objects of a
//! domain live in one `state::State` behind one lock. The lock is not taken if the application
//! promised to call from one thread at a time. The modules that implement the C calls use `state`;
//! `state` does not depend on them. Progress happens in the calls that read queues and counters.
//!
//! The provider is offered only if it is requested by name (`getinfo.rs`). Installing it never
//! changes the network that a program uses.
//!
//! Only this crate's C interface is unsafe, and each module with such code opts in. They share one
//! invariant, which is libfabric's contract: a pointer passed to a call is valid as its manual page
//! states, and no object is used after its `close`.

#![warn(missing_docs)]

mod abi;
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
mod idle;
mod mr;
mod object;
mod offer;
mod pep;
mod provider;
mod provider_info;
mod sockaddr;
mod state;
#[cfg(test)]
mod tests;
mod unsupported;
mod wake;

pub use provider::fi_prov_ini;
