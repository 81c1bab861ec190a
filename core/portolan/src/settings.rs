// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of every setting that the library and the command read from options or the environment.
//! `portolan info` lists it.

mod names;

pub(crate) use names::check_options;
pub use names::{
    APP_PREFIX, UnknownSetting, VARIABLE_PREFIX, check_option, check_variable, check_variables,
};
use std::collections::BTreeMap;
use thiserror::Error;

/// A setting: its names, default and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name for `portolan run --option NAME=VALUE`, if it can be set for a job.
    pub option: Option<&'static str>,
    /// Its environment variable.
    pub variable: &'static str,
    /// Behaviour without the setting.
    pub default: &'static str,
    /// Effect, unit and limits.
    pub meaning: &'static str,
}

/// Network interface of a job.
pub const INTERFACE: Setting = Setting {
    option: Some("interface"),
    variable: "PORTOLAN_INTERFACE",
    default: "hardware and bonds first, then veth, VLANs and bridges, tunnels",
    meaning: "network interface for udp, packet and xdp, the same name on all hosts",
};

/// Addresses that a job may use.
pub const NETWORK: Setting = Setting {
    option: Some("network"),
    variable: "PORTOLAN_NETWORK",
    default: "every address except loopback and bridges of containers and virtual machines",
    meaning: "addresses that the job may use: subnets, addresses, interfaces and patterns, ! excludes, such \
              as 10.1.0.0/16,eth*,!docker0; a=eth0;b*=eth1 by host; two networks share long messages",
};

/// Ports that sockets may be bound to.
pub const PORTS: Setting = Setting {
    option: Some("ports"),
    variable: "PORTOLAN_PORTS",
    default: "any that the system gives",
    meaning: "ports of UDP and TCP that sockets are bound to, such as 20000-20100, for firewalls; the same on \
              all hosts",
};

/// Longest frame over UDP.
pub const FRAME_LEN_MAX: Setting = Setting {
    option: Some("frame_len_max"),
    variable: "PORTOLAN_FRAME_LEN_MAX",
    default: "what the MTU allows",
    meaning: "longest frame on udp in bytes, from 512 to 65507; for comparing",
};

/// Service that opens raw Ethernet sockets.
pub const BROKER: Setting = Setting {
    option: Some("broker"),
    variable: "PORTOLAN_BROKER",
    default: "/run/portolan/broker.sock, if a broker answers there",
    meaning: "broker that opens raw Ethernet sockets without CAP_NET_RAW: a path, @NAME, or off",
};

/// Mode of AF_XDP.
pub const XDP: Setting = Setting {
    option: Some("xdp"),
    variable: "PORTOLAN_XDP",
    default: "generic",
    meaning: "mode of AF_XDP with path xdp: generic, or native (in the driver; see portolan doctor)",
};

/// Injected faults.
pub const FAULT: Setting = Setting {
    option: Some("fault"),
    variable: "PORTOLAN_FAULT",
    default: "none",
    meaning: "faults on network links, such as drop=0.01,delay=0.01:200us,seed=7",
};

/// Injected death of a process.
pub const DIE: Setting = Setting {
    option: Some("die"),
    variable: "PORTOLAN_DIE",
    default: "none",
    meaning: "kill a rank at a frame, for testing: RANK:sent:N or RANK:received:N",
};

/// Time after which a silent peer is declared dead.
pub const PEER_TIMEOUT: Setting = Setting {
    option: Some("peer_timeout"),
    variable: "PORTOLAN_PEER_TIMEOUT",
    default: "60s; 15s to 60s where the agent of its host does not answer either",
    meaning: "silence after which an awaited peer on another host is declared dead, from 100ms to 1000s",
};

/// Directory for recordings of network frames.
pub const PCAP: Setting = Setting {
    option: Some("pcap"),
    variable: "PORTOLAN_PCAP",
    default: "none",
    meaning: "existing directory for recordings of network frames, one file per rank and link",
};

/// Model of this machine's paths.
pub const MODEL: Setting = Setting {
    option: Some("model"),
    variable: "PORTOLAN_MODEL",
    default: "the model that portolan tune stored for this user, if it is for this machine",
    meaning: "model of the paths: a file, or off",
};

/// Frames of lone messages.
pub const FRAGMENTS: Setting = Setting {
    option: Some("fragments"),
    variable: "PORTOLAN_FRAGMENTS",
    default: "auto: as the stored model decides, whole without one",
    meaning: "frames of lone messages that need several: whole, auto, or message lengths with the \
              message bytes in a frame, such as 1664:256,5148:384; streams have whole frames",
};

/// Order of bulk transfers.
pub const SCHEDULE: Setting = Setting {
    option: Some("schedule"),
    variable: "PORTOLAN_SCHEDULE",
    default: "shortest",
    meaning: "order of bulk transfers: shortest (least left first), fair (each in turn) or exclusive (one \
              until it ends)",
};

/// Memory for unexpected messages.
pub const UNEXPECTED_MEMORY: Setting = Setting {
    option: Some("unexpected_memory"),
    variable: "PORTOLAN_UNEXPECTED_MEMORY",
    default: "25% of the host's memory, divided among the job's processes on it",
    meaning: "memory of a process for unexpected messages: bytes (64K to 32G), or a percentage of the \
              host's memory, which its processes share",
};

/// Placement of received bulk data.
pub const PLACEMENT: Setting = Setting {
    option: Some("placement"),
    variable: "PORTOLAN_PLACEMENT",
    default: "auto: the cheaper one, by measurement",
    meaning: "bulk data on udp: speculative (received in place), bounce (copied there) or auto",
};

/// Use of TCP streams for bulk data.
pub const STREAM: Setting = Setting {
    option: Some("stream"),
    variable: "PORTOLAN_STREAM",
    default: "auto",
    meaning: "bulk data between hosts over kernel TCP: on, off, or auto (if a trial with the first \
              transfers to a peer shows that it is faster); never with auth=aead, fault or pcap",
};

/// Tests whether frames are encrypted with this value of [`AUTH`].
#[must_use]
pub fn is_encrypting(auth: &str) -> bool {
    auth.starts_with("aead")
}

/// Returns the setting that excludes streams, if `value` has one. Streams are not used when frames
/// are encrypted, recorded, or altered by injected faults, or when `stream` is off.
#[must_use]
pub fn stream_excluder(value: impl Fn(&Setting) -> Option<String>) -> Option<Setting> {
    let is_off = |value: String| value == "off";
    if value(&AUTH).is_some_and(|auth| is_encrypting(&auth)) {
        return Some(AUTH);
    }
    if value(&STREAM).is_some_and(is_off) {
        return Some(STREAM);
    }
    [FAULT, PCAP]
        .into_iter()
        .find(|setting| value(setting).is_some())
}

/// Use of multicast for broadcasts.
pub const MULTICAST: Setting = Setting {
    option: Some("multicast"),
    variable: "PORTOLAN_MULTICAST",
    default: "auto",
    meaning: "broadcasts to three or more hosts of one network by UDP multicast: auto (from 2 KiB on, if \
              it reaches all hosts), a length of at least 1K (1024) from which it is used, or off; \
              never with fault or pcap",
};

/// Checksums in frames.
pub const CHECKSUM: Setting = Setting {
    option: Some("checksum"),
    variable: "PORTOLAN_CHECKSUM",
    default: "auto: on for raw Ethernet",
    meaning: "checksum (XXH3) in each frame on networks: on, off, or auto (on for raw Ethernet; the \
              system or the NIC checks UDP and TCP); on at both ends if one of them has it on",
};

/// Authentication of frames.
pub const AUTH: Setting = Setting {
    option: Some("auth"),
    variable: "PORTOLAN_AUTH",
    default: "token",
    meaning: "protection of frames on networks: token (against attackers that do not see them), aead \
              (encrypted with AES-128-GCM; also aead-aes256, aead-chacha20), none (for comparing)",
};

/// Progress while the program computes.
pub const PROGRESS: Setting = Setting {
    option: Some("progress"),
    variable: "PORTOLAN_PROGRESS",
    default: "calls",
    meaning: "progress by calls of the program, or by a thread that sleeps on the links while the program \
              makes no call for some milliseconds",
};

/// Connection to the launcher.
pub const LAUNCH_FD: Setting = Setting {
    option: None,
    variable: "PORTOLAN_LAUNCH_FD",
    default: "none: a program is a job of one",
    meaning: "set by portolan run, not by people: descriptor of the connection to the launcher",
};

/// Choice of the launcher.
pub const LAUNCHER: Setting = Setting {
    option: None,
    variable: "PORTOLAN_LAUNCHER",
    default: "auto: detected from the environment",
    meaning: "auto, or none for a job of one, regardless of the launcher",
};

/// Links of a job that another launcher has started.
pub const PATH: Setting = Setting {
    option: None,
    variable: "PORTOLAN_PATH",
    default: "auto",
    meaning: "under other launchers, as `portolan run --path`: auto, shm, udp, packet or xdp",
};

/// Report of the launcher that was found.
pub const VERBOSE: Setting = Setting {
    option: None,
    variable: "PORTOLAN_VERBOSE",
    default: "0",
    meaning: "1: each process prints on standard error which launcher and which job it found",
};

/// Offer to libfabric programs that did not request Portolan.
pub const FABRIC: Setting = Setting {
    option: None,
    variable: "PORTOLAN_FABRIC",
    default: "0: only if FI_PROVIDER or the program names it",
    meaning: "1: libportolan-fi.so offers itself to every program that uses libfabric",
};

/// Log filter.
pub const RUST_LOG: Setting = Setting {
    option: None,
    variable: "RUST_LOG",
    default: "error",
    meaning: "log filter of portolan and of programs with a logger, such as debug or portolan=trace",
};

/// All settings.
pub const ALL: &[Setting] = &[
    INTERFACE,
    NETWORK,
    PORTS,
    BROKER,
    XDP,
    FRAME_LEN_MAX,
    FAULT,
    DIE,
    PEER_TIMEOUT,
    PCAP,
    MODEL,
    FRAGMENTS,
    SCHEDULE,
    UNEXPECTED_MEMORY,
    PLACEMENT,
    AUTH,
    CHECKSUM,
    STREAM,
    MULTICAST,
    PROGRESS,
    LAUNCH_FD,
    LAUNCHER,
    PATH,
    VERBOSE,
    FABRIC,
    RUST_LOG,
];

/// Returns the settings in this process's environment, by the names of their options.
pub(crate) fn options_from_env() -> Options {
    let named = ALL.iter().filter_map(|setting| {
        let option = setting.option?;
        Some((option.to_owned(), setting.from_env()?))
    });
    named.collect()
}

/// Returns the program's own option `name` from the options of its job.
pub(crate) fn app_option<'a>(options: &'a Options, name: &str) -> Option<&'a str> {
    options
        .get(&format!("{APP_PREFIX}{name}"))
        .map(String::as_str)
}

/// Options of a job, by name.
pub type Options = BTreeMap<String, String>;

/// A variable with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{variable} is {value:?}, not {expected}")]
pub struct BadVariable {
    /// Name of the variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// Valid values.
    pub expected: &'static str,
}

impl Setting {
    /// Returns the value in the environment, if there is one. An empty value counts as unset, so
    /// that a script can cancel a variable.
    #[must_use]
    pub fn from_env(&self) -> Option<String> {
        let value = std::env::var_os(self.variable).filter(|value| !value.is_empty())?;
        Some(value.to_string_lossy().into_owned())
    }

    /// Returns whether a variable with the value 0 or 1 is 1.
    ///
    /// # Errors
    /// [`BadVariable`] for any other value.
    pub fn is_on(&self) -> Result<bool, BadVariable> {
        match self.from_env().as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(BadVariable {
                variable: self.variable,
                value: other.to_owned(),
                expected: "0 or 1",
            }),
        }
    }

    /// Returns the value for a job with `options`: its option wins over the environment.
    pub(crate) fn among(&self, options: &Options) -> Option<String> {
        let option = self.option.and_then(|name| options.get(name));
        option.cloned().or_else(|| self.from_env())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn workspace() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Collects all Rust files below `dir`, without test files.
    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("tests.rs")
            {
                found.push(path);
            }
        }
    }

    /// Returns the text after each `PORTOLAN_` in `text`: the rest of a variable's name.
    fn names(text: &str) -> Vec<String> {
        let rests = text.split("PORTOLAN_").skip(1);
        let in_name = |c: &char| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_';
        rests
            .map(|rest| rest.chars().take_while(in_name).collect::<String>())
            .collect()
    }

    #[test]
    fn every_setting_read_is_in_the_table() {
        let mut files = Vec::new();
        for group in ["core", "interfaces", "heritage", "tools", "verify"] {
            for entry in fs::read_dir(workspace().join(group)).unwrap().flatten() {
                // In these crates PORTOLAN_ begins the constants of C headers.
                let is_c = ["capi", "fuzz", "openmpi"]
                    .iter()
                    .any(|name| entry.file_name() == *name);
                let directory = entry.path().join("src");
                if !is_c && directory.is_dir() {
                    sources(&directory, &mut files);
                }
            }
        }
        assert!(files.len() > 100, "these are not the sources: {files:?}");
        let mut read = 0;
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for name in names(code) {
                // `portolan mpirun` passes on all variables with this prefix.
                let hands_on = file.ends_with("mpi/plan.rs");
                let is_table_of_names = file.ends_with("settings/names.rs");
                if name.is_empty() && hands_on || is_table_of_names {
                    continue;
                }
                let variable = format!("PORTOLAN_{name}");
                if names::is_tool_variable(&variable) {
                    continue;
                }
                read += 1;
                let listed = ALL.iter().any(|setting| setting.variable == variable);
                assert!(listed, "{}: {variable:?} is not in `ALL`", file.display());
            }
            let is_read = code.contains(".options.get(");
            assert!(!is_read, "{}: read by `Setting::of`", file.display());
        }
        assert!(read >= ALL.len() - 1, "{read}");
    }

    #[test]
    fn every_setting_is_documented() {
        let text = fs::read_to_string(workspace().join("docs/reference/settings.md")).unwrap();
        for setting in ALL {
            assert!(text.contains(setting.variable), "{}", setting.variable);
        }
    }

    #[test]
    fn option_overrides_environment() {
        let mut options = Options::new();
        assert_eq!(PCAP.among(&options), PCAP.from_env());
        options.insert("pcap".to_owned(), "here".to_owned());
        assert_eq!(PCAP.among(&options).as_deref(), Some("here"));
        options.insert("PORTOLAN_LAUNCH_FD".to_owned(), "3".to_owned());
        assert_eq!(LAUNCH_FD.among(&options), LAUNCH_FD.from_env());
    }
}
