// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fast messages between the processes of parallel programs.

pub mod launch;
