// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients and servers on loopback, and what either says to one that is not as it should be.
