// SPDX-License-Identifier: MIT OR Apache-2.0
//! Basics that all other modules may use and that use none of them: names, settings, time,
//! counters, events.

pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod coverage;
pub(crate) mod credit;
pub(crate) mod event;
pub mod group;
pub(crate) mod narrow;
pub(crate) mod poll_gap;
pub(crate) mod remote;
pub(crate) mod request;
pub(crate) mod time;
