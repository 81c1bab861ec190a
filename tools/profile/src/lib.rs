// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles of MPI programs: the data of `portolan profile` and its presentation.
//!
//! A shared library in C (`shim/`) is loaded between a program and its MPI, using MPI's profiling
//! interface (PMPI). Each process leaves a [`Record`]. [`Profile::new`] combines them, and
//! [`render`] formats the result as text. This crate neither rebuilds nor starts programs; the
//! command starts them.

mod profile;
mod record;
mod request;
mod run;
mod shim;
mod text;

pub use profile::{
    CallTime, End, FORMAT, KindTime, PeerCounts, Process, Profile, SizeClass, Sizes, Tally, World,
};
pub use record::{Record, RecordError, read_directory};
pub use request::{BadRequest, Request, VARIABLE};
pub use run::{Run, read_runs};
pub use shim::{Compiler, ShimError, library};
pub use text::render;
