// SPDX-License-Identifier: MIT OR Apache-2.0
//! The broker: opens raw Ethernet sockets for processes of users without privileges.
//!
//! For each NIC it creates a network namespace with a macvlan of the NIC. Rules of the kernel's
//! packet filter at the macvlan's egress accept only Portolan's frames. Their source must be the
//! macvlan's address and the endpoint that the sending socket was opened for. Sockets are opened in
//! the namespace and passed to clients. The rules and the sockets' locked filters do not depend on
//! anything that a socket's owner can change: docs/reference/security.md lists each case with its
//! test.
//!
//! A namespace has no name and exists as long as the broker or a socket in it. If the broker fails,
//! running jobs therefore continue, and nothing remains after they have ended. The next broker
//! starts with its own namespaces and addresses.
//!
//! `config` reads the configuration, `nic` prepares a NIC and opens sockets, `rules` contains the
//! packet filter's rules, `confine` drops privileges, and `serve` handles clients.
//! `portolan_link::packet::lease` defines the requests.
//!
//! Invariant: an endpoint belongs to one socket. It is not assigned to another before the kernel
//! has freed that socket.

mod config;
mod confine;
mod netlink;
mod nic;
mod rules;
mod serve;

pub use config::{Account, Config, ConfigError, Groups, NicConfig, Quota};
pub use serve::{Broker, BrokerError};

/// Default path of the configuration file.
pub const CONFIG_DEFAULT: &str = "/etc/portolan/broker.toml";
