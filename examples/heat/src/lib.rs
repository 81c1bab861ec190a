// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two-dimensional heat equation on any number of processes.
//!
//! The field is a grey image. Every process owns one rectangle of it, and exchanges the cells along
//! its edges with at most four neighbours in every step. The explicit five-point scheme is used.
//! The cells on the rim of the image are the (Dirichlet) boundary and keep their values.
//!
//! This library does not depend on a network. It communicates through a [`Comm`], which the program
//! implements with Portolan, and the tests with channels between threads.
//!
//! Invariant: all processes compute a cell by [`field::diffuse`]. The result therefore does not
//! depend on the number of processes, not even in its last bit.

pub mod block;
pub mod comm;
pub mod decompose;
mod error;
pub mod field;
pub mod halo;
pub mod job;
pub mod march;
pub mod picture;
mod report;
pub mod sample;
pub mod spread;

#[cfg(test)]
mod fake;

pub use comm::Comm;
pub use error::HeatError;
pub use report::Report;
