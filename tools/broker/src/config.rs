// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration file of the broker (TOML, docs/guide/broker.md). User and group names are resolved
//! when it is read.

use nix::unistd::{Group, User};
use portolan_link::packet::lease;
use serde::Deserialize;
use std::collections::HashSet;

/// Entry among the groups that allows all users.
const EVERYONE: &str = "*";

/// Maximum number of endpoints of a NIC. The kernel's table has 64 bytes for each.
const ENDPOINTS_MAX: u16 = 4096;

/// Contents of the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address of the listening socket: a path, or `@NAME` in the abstract namespace.
    #[serde(default = "socket_default")]
    pub socket: String,
    /// User that the broker switches to.
    #[serde(default = "account_default")]
    pub user: Account,
    /// Limits per user.
    #[serde(default)]
    pub quota: Quota,
    /// NICs that the broker serves.
    #[serde(default)]
    pub nic: Vec<NicConfig>,
}

/// Limits per user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Maximum number of sockets, and therefore endpoints, on all NICs together.
    pub sockets: u32,
    /// Maximum bytes of all receive rings together.
    pub ring_memory: u64,
}

impl Default for Quota {
    /// Returns limits for a host of 64 cores with one process on each and the default ring size (4
    /// MiB).
    fn default() -> Self {
        Quota {
            sockets: 64,
            ring_memory: 256 << 20,
        }
    }
}

/// Entry of a NIC in the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicConfig {
    /// Name of the interface: a NIC, a bond or a VLAN.
    pub interface: String,
    /// Groups that may use it.
    pub groups: Groups,
    /// Number of endpoints for all users together.
    #[serde(default = "endpoints_default")]
    pub endpoints: u16,
}

/// A user other than root, given by name.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl TryFrom<String> for Account {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        match User::from_name(&name).ok().flatten() {
            None => Err("this host has no such user"),
            Some(user) if user.uid.is_root() => {
                Err("root keeps all privileges; use another user, such as `nobody`")
            }
            Some(user) => Ok(Account {
                uid: user.uid.as_raw(),
                gid: user.gid.as_raw(),
            }),
        }
    }
}

/// Groups given by name; `None` (written `*`) allows all users.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Groups(pub Option<HashSet<u32>>);

impl TryFrom<Vec<String>> for Groups {
    type Error = &'static str;

    fn try_from(names: Vec<String>) -> Result<Self, Self::Error> {
        if names.is_empty() {
            return Err("no user could use it; list groups, or \"*\" for all users");
        }
        if names.iter().any(|name| name == EVERYONE) {
            return Ok(Groups(None));
        }
        let number = |name: &String| Some(Group::from_name(name).ok()??.gid.as_raw());
        let numbers: Option<HashSet<u32>> = names.iter().map(number).collect();
        let numbers = numbers.ok_or("this host has no such group")?;
        Ok(Groups(Some(numbers)))
    }
}

fn socket_default() -> String {
    lease::SOCKET_DEFAULT.to_owned()
}

/// Returns the user `nobody` with Linux's ids, `overflowuid` and `overflowgid`.
fn account_default() -> Account {
    let (uid, gid) = (65534, 65534);
    Account { uid, gid }
}

fn endpoints_default() -> u16 {
    1024
}

/// Error in a configuration file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Invalid TOML, unknown fields, or names that do not exist on this host.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// Invalid value.
    #[error("{field}: {why}")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// Reason and remedy.
        why: &'static str,
    },
}

impl Config {
    /// Parses a configuration, resolves its names and checks its values.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text)?;
        let wrong = |field, why| Err(ConfigError::Value { field, why });
        if config.nic.is_empty() {
            return wrong("[[nic]]", "add a section with `interface` and `groups`");
        }
        if !config.socket.starts_with(['/', '@']) || config.socket.len() < 2 {
            return wrong("socket", "specify an absolute path, or @NAME");
        }
        if config.quota.sockets == 0 {
            return wrong("sockets", "must be at least 1");
        }
        let mut names = HashSet::new();
        for nic in &config.nic {
            if !lease::is_name(nic.interface.as_bytes()) {
                return wrong("interface", "specify a name that `ip link` lists");
            }
            if !names.insert(&nic.interface) {
                return wrong("interface", "an interface is listed twice");
            }
            if !(1..=ENDPOINTS_MAX).contains(&nic.endpoints) {
                return wrong("endpoints", "must be from 1 to 4096");
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        Config::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn names_are_resolved_and_missing_fields_have_defaults() {
        let text = "[[nic]]\ninterface = 'eth0'\ngroups = ['root']\n\
                    [[nic]]\ninterface = 'eth1'\ngroups = ['*']\nendpoints = 8\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.socket, lease::SOCKET_DEFAULT);
        assert_eq!(config.quota, Quota::default());
        assert_ne!(config.user.uid, 0);
        assert_eq!(config.nic[0].groups.0, Some(HashSet::from([0])));
        assert_eq!(config.nic[0].endpoints, 1024);
        let last = &config.nic[1];
        assert_eq!((&last.groups.0, last.endpoints), (&None, 8));
    }

    #[test]
    fn invalid_config_is_rejected_by_name() {
        let nic = "[[nic]]\ninterface = 'eth0'\ngroups = ['*']\n";
        assert!(error_of("").contains("[[nic]]"));
        assert!(error_of("sockets = 3").contains("sockets"));
        assert!(error_of(&format!("user = 'root'\n{nic}")).contains("root"));
        assert!(error_of(&format!("user = 'no-such-user'\n{nic}")).contains("no such user"));
        assert!(error_of(&format!("socket = 'here'\n{nic}")).contains("socket"));
        assert!(error_of(&format!("{nic}{nic}")).contains("twice"));
        assert!(error_of(&format!("{nic}endpoints = 0")).contains("4096"));
        assert!(error_of("[[nic]]\ninterface = 'eth0'\ngroups = []").contains("no user could"));
        let unknown = "[[nic]]\ninterface = 'eth0'\ngroups = ['no-such-group']";
        assert!(error_of(unknown).contains("no such group"));
        let named = "[[nic]]\ninterface = 'a/b'\ngroups = ['*']";
        assert!(error_of(named).contains("ip link"));
    }
}
