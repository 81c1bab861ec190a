// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every setting that the library and the command read from options or the environment: one table,
//! from which they are read and `portolan info` lists them.

mod names;

pub(crate) use names::check_options;
pub use names::{
    APP_PREFIX, UnknownSetting, VARIABLE_PREFIX, check_option, check_variable, check_variables,
};
use std::collections::BTreeMap;
use thiserror::Error;

/// A setting: what it is called, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name for `portolan run --option NAME=VALUE`, if it can be set for a job.
    pub option: Option<&'static str>,
    /// The environment variable.
    pub variable: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
    /// Effect, unit and limits.
    pub meaning: &'static str,
}

/// The network interface of a job.
pub const INTERFACE: Setting = Setting {
    option: Some("interface"),
    variable: "PORTOLAN_INTERFACE",
    default: "hardware and bonds first, then veth, VLANs and bridges, tunnels",
    meaning: "network interface for udp, packet and xdp, the same name on all hosts",
};

/// The addresses that a job may use.
pub const NETWORK: Setting = Setting {
    option: Some("network"),
    variable: "PORTOLAN_NETWORK",
    default: "every address but those of loopback and of bridges for containers and virtual machines",
    meaning: "addresses that may be used: subnets, addresses, interfaces and patterns, ! excludes, such as \
              10.1.0.0/16,eth*,!docker0; a=eth0;b*=eth1 by host",
};

/// The longest frame over UDP.
pub const FRAME_LEN_MAX: Setting = Setting {
    option: Some("frame_len_max"),
    variable: "PORTOLAN_FRAME_LEN_MAX",
    default: "what the MTU allows",
    meaning: "longest frame on udp in bytes, from 512 to 65507; for comparing",
};

/// Who lends raw Ethernet sockets.
pub const BROKER: Setting = Setting {
    option: Some("broker"),
    variable: "PORTOLAN_BROKER",
    default: "/run/portolan/broker.sock, if a broker answers there",
    meaning: "who is asked for a raw Ethernet socket without CAP_NET_RAW: a path, @NAME, or off",
};

/// Where AF_XDP takes frames out.
pub const XDP: Setting = Setting {
    option: Some("xdp"),
    variable: "PORTOLAN_XDP",
    default: "generic",
    meaning: "with path xdp, how frames are taken out: generic, or native: in the driver, see doctor",
};

/// Faults on purpose.
pub const FAULT: Setting = Setting {
    option: Some("fault"),
    variable: "PORTOLAN_FAULT",
    default: "none",
    meaning: "faults on network links, such as drop=0.01,delay=0.01:200us,seed=7",
};

/// A death on purpose.
pub const DIE: Setting = Setting {
    option: Some("die"),
    variable: "PORTOLAN_DIE",
    default: "none",
    meaning: "kill a rank at a frame, for testing: RANK:sent:N or RANK:received:N",
};

/// The patience with silent peers.
pub const PEER_TIMEOUT: Setting = Setting {
    option: Some("peer_timeout"),
    variable: "PORTOLAN_PEER_TIMEOUT",
    default: "900ms; 60s between endpoints, as of MPI",
    meaning: "silence after which a peer that is waited for is given up, from 100ms to 1000s",
};

/// Recordings of network frames.
pub const PCAP: Setting = Setting {
    option: Some("pcap"),
    variable: "PORTOLAN_PCAP",
    default: "none",
    meaning: "directory, which must exist, to record network frames in, a file a rank and link",
};

/// The model of this machine's paths.
pub const MODEL: Setting = Setting {
    option: Some("model"),
    variable: "PORTOLAN_MODEL",
    default: "the one that portolan tune has stored for this user, if it is for this machine",
    meaning: "model of the paths to choose by: a file, or off",
};

/// The order of bulk transfers.
pub const SCHEDULE: Setting = Setting {
    option: Some("schedule"),
    variable: "PORTOLAN_SCHEDULE",
    default: "shortest",
    meaning: "whose bulk data comes first: shortest (the least left) or fair (each in turn)",
};

/// Memory for messages that nobody has received yet.
pub const UNEXPECTED_MEMORY: Setting = Setting {
    option: Some("unexpected_memory"),
    variable: "PORTOLAN_UNEXPECTED_MEMORY",
    default: "25% of the host's memory, divided among the job's processes on it",
    meaning: "memory a process gives to messages that no receive was posted for: bytes (64K to 32G), \
              or a percentage of the host's memory, which its processes share",
};

/// Where bulk data is received.
pub const PLACEMENT: Setting = Setting {
    option: Some("placement"),
    variable: "PORTOLAN_PLACEMENT",
    default: "auto: what costs less here, by measurement",
    meaning: "bulk data on udp: speculative (received at its place), bounce (copied there) or auto",
};

/// Whether bulk data goes by TCP.
pub const STREAM: Setting = Setting {
    option: Some("stream"),
    variable: "PORTOLAN_STREAM",
    default: "auto",
    meaning: "bulk data between hosts by kernel TCP connections that pages are lent to: on, off, or auto \
              (where a trial at the first transfers to a peer shows that it is faster); never with \
              auth=aead, fault or pcap",
};

/// The setting that leaves no streams, if there is one by `value`: frames that are sealed, spoilt on
/// purpose or recorded go by paths alone; and `stream` itself may be off.
#[must_use]
pub fn stream_excluder(value: impl Fn(&Setting) -> Option<String>) -> Option<Setting> {
    let is_sealed = |value: String| value.starts_with("aead");
    let is_off = |value: String| value == "off";
    if value(&AUTH).is_some_and(is_sealed) {
        return Some(AUTH);
    }
    if value(&STREAM).is_some_and(is_off) {
        return Some(STREAM);
    }
    [FAULT, PCAP]
        .into_iter()
        .find(|setting| value(setting).is_some())
}

/// Whether broadcasts go by multicast.
pub const MULTICAST: Setting = Setting {
    option: Some("multicast"),
    variable: "PORTOLAN_MULTICAST",
    default: "auto",
    meaning: "long broadcasts to three hosts and more of one network by UDP multicast: auto (where all hosts hear it) \
              or off; never with fault or pcap",
};

/// Checksums in frames.
pub const CHECKSUM: Setting = Setting {
    option: Some("checksum"),
    variable: "PORTOLAN_CHECKSUM",
    default: "auto: on where nobody else checks",
    meaning: "a checksum (XXH3) in each frame on networks: on, off or auto (raw Ethernet, and UDP over what is no \
              hardware); on for both ends where one of them has it on",
};

/// What frames must prove.
pub const AUTH: Setting = Setting {
    option: Some("auth"),
    variable: "PORTOLAN_AUTH",
    default: "token",
    meaning: "frames on networks: token (guarded against who does not see them), aead (sealed with \
              AES-128-GCM; also aead-aes256, aead-chacha20), none (for comparing)",
};

/// Who makes progress.
pub const PROGRESS: Setting = Setting {
    option: Some("progress"),
    variable: "PORTOLAN_PROGRESS",
    default: "calls",
    meaning: "who serves what comes: calls of the program, or, while it makes none for some milliseconds, a thread \
              that sleeps on the links",
};

/// The connection to the launcher.
pub const LAUNCH_FD: Setting = Setting {
    option: None,
    variable: "PORTOLAN_LAUNCH_FD",
    default: "none: a program is a job of one",
    meaning: "set by portolan run, not by people: descriptor of the connection to the launcher",
};

/// Which launcher is believed.
pub const LAUNCHER: Setting = Setting {
    option: None,
    variable: "PORTOLAN_LAUNCHER",
    default: "auto: what the environment shows",
    meaning: "auto, or none: be a job of one, whatever has started the program",
};

/// The links of a job that another launcher has started.
pub const PATH: Setting = Setting {
    option: None,
    variable: "PORTOLAN_PATH",
    default: "auto",
    meaning: "under other launchers, as `portolan run --path`: auto, shm, udp, packet or xdp",
};

/// Whether a program says what has started it.
pub const VERBOSE: Setting = Setting {
    option: None,
    variable: "PORTOLAN_VERBOSE",
    default: "0",
    meaning: "1: each process says on standard error which launcher and which job it found",
};

/// Whether libfabric is offered Portolan unasked.
pub const FABRIC: Setting = Setting {
    option: None,
    variable: "PORTOLAN_FABRIC",
    default: "0: only when FI_PROVIDER or the program names it",
    meaning: "1: libportolan-fi.so offers itself to every program that uses libfabric",
};

/// What is logged.
pub const RUST_LOG: Setting = Setting {
    option: None,
    variable: "RUST_LOG",
    default: "error",
    meaning: "what portolan logs, such as debug or portolan=trace, and a program with a logger",
};

/// All of them.
pub const ALL: &[Setting] = &[
    INTERFACE,
    NETWORK,
    BROKER,
    XDP,
    FRAME_LEN_MAX,
    FAULT,
    DIE,
    PEER_TIMEOUT,
    PCAP,
    MODEL,
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

/// The settings that this process's environment has for its job, by the names of their options.
pub(crate) fn options_from_env() -> Options {
    let named = ALL.iter().filter_map(|setting| {
        let option = setting.option?;
        Some((option.to_owned(), setting.from_env()?))
    });
    named.collect()
}

/// The program's own option `name` among the options of its job.
pub(crate) fn app_option<'a>(options: &'a Options, name: &str) -> Option<&'a str> {
    options
        .get(&format!("{APP_PREFIX}{name}"))
        .map(String::as_str)
}

/// What a job was started with, by name.
pub type Options = BTreeMap<String, String>;

/// A variable does not hold what it must.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{variable} is {value:?}, not {wanted}")]
pub struct BadVariable {
    /// Which.
    pub variable: &'static str,
    /// What it holds.
    pub value: String,
    /// What it may hold.
    pub wanted: &'static str,
}

impl Setting {
    /// The value in the environment, if there is one. An empty one is none, so that a script can
    /// take a variable back.
    #[must_use]
    pub fn from_env(&self) -> Option<String> {
        let value = std::env::var_os(self.variable).filter(|value| !value.is_empty())?;
        Some(value.to_string_lossy().into_owned())
    }

    /// Whether a variable that is 0 or 1 is 1.
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
                wanted: "0 or 1",
            }),
        }
    }

    /// The value for a job with `options`: its option wins over the environment.
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

    /// All Rust files below `dir`, tests of their own left out.
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

    /// What stands behind each `PORTOLAN_` in `text`: the rest of a variable's name.
    fn names(text: &str) -> Vec<String> {
        let rests = text.split("PORTOLAN_").skip(1);
        let in_name = |c: &char| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_';
        rests
            .map(|rest| rest.chars().take_while(in_name).collect::<String>())
            .collect()
    }

    #[test]
    fn every_setting_that_is_read_is_in_the_table() {
        let mut files = Vec::new();
        for group in ["core", "interfaces", "heritage", "tools", "verify"] {
            for entry in fs::read_dir(workspace().join(group)).unwrap().flatten() {
                // There, PORTOLAN_ begins the constants of the C interface.
                let is_c = ["capi", "fuzz"]
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
                // `portolan mpirun` hands on all that begin so.
                let hands_on = file.ends_with("mpi/plan.rs");
                let is_table_of_names = file.ends_with("settings/names.rs");
                if name.is_empty() && hands_on || is_table_of_names {
                    continue;
                }
                let variable = format!("PORTOLAN_{name}");
                if names::is_of_tools(&variable) {
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
        let told = fs::read_to_string(workspace().join("docs/settings.md")).unwrap();
        for setting in ALL {
            assert!(told.contains(setting.variable), "{}", setting.variable);
        }
    }

    #[test]
    fn an_option_wins_over_the_environment() {
        let mut options = Options::new();
        assert_eq!(PCAP.among(&options), PCAP.from_env());
        options.insert("pcap".to_owned(), "here".to_owned());
        assert_eq!(PCAP.among(&options).as_deref(), Some("here"));
        options.insert("PORTOLAN_LAUNCH_FD".to_owned(), "3".to_owned());
        assert_eq!(LAUNCH_FD.among(&options), LAUNCH_FD.from_env());
    }
}
