// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unsafe building blocks: shared mappings, rings, and the system calls that the standard library
//! lacks.
//!
//! Modules here do not depend on links or the protocol. Their exports are safe to call, and each
//! module that needs `unsafe` opts in.
//!
//! Invariant: memory that another process may write is never behind a `&` or `&mut` to plain data.
//! It is accessed through atomics or copied through raw pointers.

pub mod barrier;
pub mod bpf;
pub mod clock;
pub mod descriptors;
pub mod doorbell;
pub mod epoll;
pub mod ethtool;
pub mod foreign;
pub mod fork;
pub mod gate;
pub mod inherit;
pub mod libfabric;
pub mod mapping;
pub mod memfd;
pub mod memory;
pub mod net;
pub mod pages;
pub mod pmi_library;
pub mod pmix;
pub mod probe;
pub mod process;
pub mod ring;
pub mod seqpacket;
pub mod shortage;
pub mod status_page;
pub mod usage;
pub mod vm_read;
pub mod wait;
