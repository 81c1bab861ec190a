// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files, directories and disks from one host to many, at the speed of one link: `portolan cast`.
//!
//! The processes of a job form a chain or a tree, from rank 0, which reads, to all others. Each takes
//! blocks from its parent, checks their hashes, stores them and passes them on at once, in memory that
//! is bounded ([`Spec::window`]). One that dies is bypassed. On one Ethernet rank 0 may send to all by
//! multicast instead. It starts no processes and draws no
//! progress: that is the command's.
//!
//! The one invariant: a process says [`Event::Done`] only when what stands at its target has the hash
//! of what the source read, or says in what it differs.

mod block;
mod coding;
mod control;
mod entry;
mod event;
mod fault;
mod member;
mod model;
mod multicast;
mod nap;
mod pays;
mod relay;
mod shape;
mod source;
mod spec;
mod stages;
mod survey;
mod target;

pub use entry::Totals;
pub use event::{Bound, Checked, Done, Event};
pub use fault::Fault;
pub use member::work;
pub use model::{Cost, Model, Prediction, Rates, Resource};
pub use shape::{Form, Shape};
pub use source::{Size, measure};
pub use spec::{BLOCK_LEN, Compression, Source, Spec, Target, expand};
pub use survey::survey;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The file of that name.
fn path_of(name: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(name))
}
