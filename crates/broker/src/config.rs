// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration: as it is written (TOML, docs/broker.md), and with its names looked up.

use nix::unistd::{Group, User};
use portolan_link::packet::lease;
use serde::Deserialize;
use std::collections::HashSet;

/// Stands for everyone among the groups.
const EVERYONE: &str = "*";

/// Endpoints of a NIC: the kernel's table of them has 64 bytes for each.
const ENDPOINTS_MAX: u16 = 4096;

/// The configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where it listens: a path, or `@NAME` in the abstract namespace.
    #[serde(default = "socket_default")]
    pub socket: String,
    /// User that it becomes.
    #[serde(default = "user_default")]
    pub user: String,
    /// What each user may have.
    #[serde(default)]
    pub quota: Quota,
    /// The NICs that it serves.
    #[serde(default)]
    pub nic: Vec<NicConfig>,
}

/// What each user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Sockets, and so endpoints, on all NICs together.
    pub sockets: u32,
    /// Bytes of receive rings together.
    pub ring_memory: u64,
}

impl Default for Quota {
    /// A host of 64 cores, a process on each, with the rings that processes ask for (4 MiB).
    fn default() -> Self {
        Quota {
            sockets: 64,
            ring_memory: 256 << 20,
        }
    }
}

/// A NIC in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicConfig {
    /// Its name: a NIC, a bond or a VLAN.
    pub interface: String,
    /// Names of the groups that may use it; `*` is everyone.
    pub groups: Vec<String>,
    /// Endpoints, of all users together.
    #[serde(default = "endpoints_default")]
    pub endpoints: u16,
}

fn socket_default() -> String {
    lease::SOCKET_DEFAULT.to_owned()
}

fn user_default() -> String {
    "nobody".to_owned()
}

fn endpoints_default() -> u16 {
    1024
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It is no TOML, or has fields that mean nothing.
    #[error("{0}")]
    Syntax(String),
    /// A value that cannot be.
    #[error("{field} = {value:?}: {why}")]
    Value {
        /// The field.
        field: &'static str,
        /// What it is.
        value: String,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// Nothing to serve.
    #[error("no NIC is named: add a [[nic]] with `interface` and `groups`")]
    NoNic,
}

/// A configuration with its names looked up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// See [`Config::socket`].
    pub socket: String,
    /// User that it becomes.
    pub uid: u32,
    /// And group.
    pub gid: u32,
    /// See [`Config::quota`].
    pub quota: Quota,
    /// See [`Config::nic`].
    pub nics: Vec<NicSettings>,
}

/// A NIC with its names looked up.
#[derive(Clone, Debug)]
pub struct NicSettings {
    /// See [`NicConfig::interface`].
    pub interface: String,
    /// Groups that may use it; `None` is everyone.
    pub groups: Option<HashSet<u32>>,
    /// See [`NicConfig::endpoints`].
    pub endpoints: u16,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`], with line and field.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))
    }

    /// Looks up its names, and refuses what cannot be.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn resolve(&self) -> Result<Settings, ConfigError> {
        let wrong = |field, value: &str, why| {
            let value = value.to_owned();
            ConfigError::Value { field, value, why }
        };
        if self.nic.is_empty() {
            return Err(ConfigError::NoNic);
        }
        if !self.socket.starts_with(['/', '@']) || self.socket.len() < 2 {
            return Err(wrong("socket", &self.socket, "a whole path, or @NAME"));
        }
        if self.quota.sockets == 0 {
            return Err(wrong("sockets", "0", "at least 1"));
        }
        let user = User::from_name(&self.user).ok().flatten();
        let user = user.ok_or_else(|| wrong("user", &self.user, "this host has no such user"))?;
        if user.uid.is_root() {
            return Err(wrong(
                "user",
                &self.user,
                "root gives nothing up; `nobody` will do",
            ));
        }
        let mut names = HashSet::new();
        if let Some(twice) = self.nic.iter().find(|nic| !names.insert(&nic.interface)) {
            return Err(wrong("interface", &twice.interface, "named twice"));
        }
        let nics: Result<_, _> = self.nic.iter().map(NicConfig::resolve).collect();
        Ok(Settings {
            socket: self.socket.clone(),
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            quota: self.quota,
            nics: nics?,
        })
    }
}

impl NicConfig {
    fn resolve(&self) -> Result<NicSettings, ConfigError> {
        let wrong = |field, value: &str, why| {
            let value = value.to_owned();
            ConfigError::Value { field, value, why }
        };
        if !lease::is_name(self.interface.as_bytes()) {
            let why = "no interface can have this name; see `ip link`";
            return Err(wrong("interface", &self.interface, why));
        }
        if !(1..=ENDPOINTS_MAX).contains(&self.endpoints) {
            let value = self.endpoints.to_string();
            return Err(wrong("endpoints", &value, "from 1 to 4096"));
        }
        if self.groups.is_empty() {
            let why = "nobody could use it; name groups, or \"*\" for everyone";
            return Err(wrong("groups", "", why));
        }
        let is_everyone = self.groups.iter().any(|name| name == EVERYONE);
        let number = |name: &String| {
            let group = Group::from_name(name).ok().flatten();
            let gid = group.map(|group| group.gid.as_raw());
            gid.ok_or_else(|| wrong("groups", name, "this host has no such group"))
        };
        let groups = (!is_everyone).then(|| self.groups.iter().map(number).collect());
        Ok(NicSettings {
            interface: self.interface.clone(),
            groups: groups.transpose()?,
            endpoints: self.endpoints,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        let settings = Config::parse(text).and_then(|config| config.resolve());
        settings.unwrap_err().to_string()
    }

    #[test]
    fn names_are_looked_up_and_the_rest_has_defaults() {
        let text = "[[nic]]\ninterface = 'eth0'\ngroups = ['root']\n\
                    [[nic]]\ninterface = 'eth1'\ngroups = ['*']\nendpoints = 8\n";
        let settings = Config::parse(text).unwrap().resolve().unwrap();
        assert_eq!(settings.socket, lease::SOCKET_DEFAULT);
        assert_eq!(settings.quota, Quota::default());
        assert_ne!(settings.uid, 0);
        assert_eq!(settings.nics[0].groups, Some(HashSet::from([0])));
        assert_eq!(settings.nics[0].endpoints, 1024);
        let last = &settings.nics[1];
        assert_eq!((&last.groups, last.endpoints), (&None, 8));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let nic = "[[nic]]\ninterface = 'eth0'\ngroups = ['*']\n";
        assert!(error_of("").contains("[[nic]]"));
        assert!(error_of("sockets = 3").contains("sockets"));
        assert!(error_of(&format!("user = 'root'\n{nic}")).contains("root"));
        assert!(error_of(&format!("user = 'no-such-user'\n{nic}")).contains("no such user"));
        assert!(error_of(&format!("socket = 'here'\n{nic}")).contains("socket"));
        assert!(error_of(&format!("{nic}{nic}")).contains("twice"));
        assert!(error_of(&format!("{nic}endpoints = 0")).contains("4096"));
        assert!(error_of("[[nic]]\ninterface = 'eth0'\ngroups = []").contains("nobody could"));
        let unknown = "[[nic]]\ninterface = 'eth0'\ngroups = ['no-such-group']";
        assert!(error_of(unknown).contains("no such group"));
        let named = "[[nic]]\ninterface = 'a/b'\ngroups = ['*']";
        assert!(error_of(named).contains("ip link"));
    }
}
