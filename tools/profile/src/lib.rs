// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles of MPI programs: what `portolan profile` counts, and how it tells it.
//!
//! A shared library in C (`shim/`) stands between a program and its MPI, by MPI's profiling
//! interface (PMPI). Each process leaves a [`Record`]; [`Profile::new`] puts them together;
//! [`render`] tells a person. Programs are neither rebuilt nor started here: that is the command's.

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
