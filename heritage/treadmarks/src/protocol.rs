// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lazy release consistency with several writers per page, as a state machine without I/O.
//!
//! The caller passes the program's operations and the messages of other processes to [`Dsm`], and
//! then sends what [`Dsm::poll_transmit`] returns. An operation that needs other processes is
//! complete when [`Dsm::is_waiting`] returns `false`. Messages of one process must arrive in order.
//!
//! - The execution of a process is divided into *intervals*. Each has a vector timestamp
//!   ([`clock::Clock`]) and a list of the pages that were written in it, the *write notices*.
//! - The first write to a page saves a copy, the *twin*. A *diff* is the difference between the page
//!   and its twin. It is made when another process requests it, or when the page becomes invalid.
//! - A grant of a lock and the end of a barrier carry the intervals that the receiver does not
//!   know. It makes their pages inaccessible, and fetches the diffs when the program accesses one.
//! - A barrier also carries diffs to processes that fetched earlier ones of the same page.
//! - At a barrier, intervals and diffs are discarded if a process has too many of them.
//!
//! All pages begin as zeros in all processes, so there is no first copy to fetch. Keleher, Cox,
//! Dwarkadas, Zwaenepoel: "TreadMarks: Distributed Shared Memory on Standard Workstations and
//! Operating Systems", USENIX Winter 1994.
//!
//! Invariant: a process that has acquired what the writer of a value has released reads that value
//! or a later one.

mod barrier;
pub(crate) mod clock;
pub(crate) mod diff;
mod dsm;
mod fetch;
mod interval;
mod lock;
mod page;
#[cfg(test)]
mod tests;
mod update;
pub(crate) mod wire;

pub(crate) use dsm::{Dsm, DsmError, Limits};
pub(crate) use page::{Access, Memory};
