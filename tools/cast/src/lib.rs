// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distribution of files, directories and disks from one host to many, at the speed of one link:
//! `portolan cast`.
//!
//! The processes of a job form a chain or a tree. Rank 0, the root, reads the source. Each other
//! process receives blocks from its parent, verifies their hashes, stores them and forwards them at
//! once, in bounded memory ([`Spec::window`]). A process that has failed is bypassed. On one
//! Ethernet rank 0 may send to all by multicast instead. This crate starts no processes and shows
//! no progress; the command does both.
//!
//! Invariant: a process emits [`Event::Done`] only if the data at its target has the hash of the
//! source's data, or the event reports the differences.

mod block;
mod coding;
mod compression;
mod control;
mod entry;
mod event;
mod fault;
mod member;
mod model;
mod multicast;
mod relay;
mod shape;
mod source;
mod spec;
mod stages;
mod survey;
mod target;
mod wait;

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

fn path_of(name: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(name))
}
