// SPDX-License-Identifier: MIT OR Apache-2.0
//! The broker: lends raw Ethernet sockets to processes of users without privilege.
//!
//! For each NIC it makes a network namespace of its own with a macvlan of the NIC, and rules of the
//! kernel's packet filter on the macvlan's way out that let through nothing but our frames, from the
//! macvlan's address and from the endpoint that the sending socket was made for. Sockets are opened
//! there and passed on. What their owners can do to them, the rules and the sockets' locked filters do
//! not depend on: docs/security.md names each case and its test.
//!
//! A namespace has no name: it lives as long as the broker or a socket in it. So a broker that dies
//! leaves running jobs as they are, leaves nothing behind when they have ended, and the next one begins
//! with namespaces and addresses of its own.
//!
//! `config` reads what the administrator wants, `nic` prepares a NIC and opens sockets, `rules` has the
//! packet filter's, `confine` gives privileges up, `serve` answers. Requests are in
//! `portolan_link::packet::lease`.
//!
//! The one invariant: an endpoint is given to one socket, and to no other before the kernel has freed
//! that one.

mod config;
mod confine;
mod netlink;
mod nic;
mod rules;
mod serve;

pub use config::{Account, Config, ConfigError, Groups, NicConfig, Quota};
pub use serve::{Broker, BrokerError};

/// Where the command looks for its configuration.
pub const CONFIG_DEFAULT: &str = "/etc/portolan/broker.toml";
