// SPDX-License-Identifier: MIT OR Apache-2.0
//! An exhausted resource of a process, derived from the errno of the failed call, with the limit in
//! force and its remedy.
//!
//! It is a value, not an error: it travels to peers, which report it as the reason for the end of a
//! process.

use rustix::io::Errno;
use rustix::process::{self, Resource as Limit};
use std::fmt;
use std::io;

/// A limited resource of a process or the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// Descriptors of the process.
    Descriptors,
    /// Open files of the whole system.
    SystemFiles,
    /// Address space or data of the process.
    AddressSpace,
    /// Memory of the system or of the process's control group.
    Memory,
    /// Memory in files shared by processes.
    SharedMemory,
    /// Threads and processes of the user.
    Threads,
}

impl Resource {
    /// Returns the exhausted resource and its limit, in a few words.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Resource::Descriptors => "descriptors (limit of open files, ulimit -n)",
            Resource::SystemFiles => "open files of its system (sysctl fs.file-max)",
            Resource::AddressSpace => "memory (limit of address space, ulimit -v)",
            Resource::Memory => "memory",
            Resource::SharedMemory => "shared memory (limit of file sizes, ulimit -f)",
            Resource::Threads => "threads (limit of processes, ulimit -u)",
        }
    }
}

/// A shortage of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The resource.
    pub resource: Resource,
    /// Limit of the process that was reached, if any: in files, threads or bytes.
    pub limit: Option<u64>,
}

/// Encodes the absence of a limit; no real limit is that high.
const NO_LIMIT: u64 = u64::MAX;

impl Shortage {
    /// Bytes of an encoded shortage.
    pub const LEN: usize = 9;

    /// Returns the shortage that `error` indicates, if any.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Shortage> {
        let resource = match error.raw_os_error().map(Errno::from_raw_os_error) {
            // Descriptors in flight between processes count, too (too_many_unix_fds of
            // net/core/scm.c).
            Some(Errno::MFILE | Errno::TOOMANYREFS) => Resource::Descriptors,
            Some(Errno::NFILE) => Resource::SystemFiles,
            Some(Errno::FBIG | Errno::NOSPC) => Resource::SharedMemory,
            Some(Errno::NOMEM) => return Some(Shortage::memory()),
            None if error.kind() == io::ErrorKind::OutOfMemory => return Some(Shortage::memory()),
            _ => return None,
        };
        Some(Shortage::new(resource))
    }

    /// Like [`Shortage::of`], for a thread that could not be started. The C library also returns
    /// "try again" if it cannot allocate the stack (`allocate_stack` of glibc's nptl).
    #[must_use]
    pub fn of_thread(error: &io::Error) -> Option<Shortage> {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::AGAIN) => {
                let memory = Shortage::new(Resource::AddressSpace);
                match memory.limit {
                    Some(_) => Some(memory),
                    None => Some(Shortage::new(Resource::Threads)),
                }
            }
            _ => Shortage::of(error),
        }
    }

    /// Returns a shortage of memory.
    #[must_use]
    pub fn memory() -> Shortage {
        let bounded = Shortage::new(Resource::AddressSpace);
        match bounded.limit {
            Some(_) => bounded,
            None => Shortage::new(Resource::Memory),
        }
    }

    fn new(resource: Resource) -> Shortage {
        let bounds: &[Limit] = match resource {
            Resource::Descriptors => &[Limit::Nofile],
            Resource::AddressSpace => &[Limit::As, Limit::Data],
            Resource::SharedMemory => &[Limit::Fsize],
            Resource::Threads => &[Limit::Nproc],
            Resource::SystemFiles | Resource::Memory => &[],
        };
        let limits = bounds
            .iter()
            .filter_map(|limit| process::getrlimit(*limit).current);
        Shortage {
            resource,
            limit: limits.min(),
        }
    }

    /// Encodes the shortage for a peer: a byte for the resource, and the limit, little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; Shortage::LEN] {
        let mut bytes = [0; Shortage::LEN];
        bytes[0] = match self.resource {
            Resource::Descriptors => 1,
            Resource::SystemFiles => 2,
            Resource::AddressSpace => 3,
            Resource::Memory => 4,
            Resource::SharedMemory => 5,
            Resource::Threads => 6,
        };
        bytes[1..].copy_from_slice(&self.limit.unwrap_or(NO_LIMIT).to_le_bytes());
        bytes
    }

    /// Decodes the output of [`Shortage::encode`]; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Shortage> {
        let (&code, limit) = bytes.split_first()?;
        let limit = u64::from_le_bytes(limit.try_into().ok()?);
        let resource = match code {
            1 => Resource::Descriptors,
            2 => Resource::SystemFiles,
            3 => Resource::AddressSpace,
            4 => Resource::Memory,
            5 => Resource::SharedMemory,
            6 => Resource::Threads,
            _ => return None,
        };
        Some(Shortage {
            resource,
            limit: Some(limit).filter(|limit| *limit != NO_LIMIT),
        })
    }
}

/// Prints the exhausted resource, the limit, and the remedy.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (missing, name, option, unit) = match self.resource {
            Resource::Descriptors => ("no file descriptor is left", "open files", "n", ""),
            Resource::AddressSpace => ("no memory is left", "address space", "v", " bytes"),
            Resource::SharedMemory => ("no shared memory is left", "file sizes", "f", " bytes"),
            Resource::Threads => ("no thread can be started", "processes", "u", ""),
            Resource::SystemFiles => {
                return f.write_str(
                    "the system-wide limit of open files is reached; raise it (sysctl fs.file-max)",
                );
            }
            Resource::Memory => {
                return f.write_str(
                    "no memory is left; free some, or raise the limits of this process (memory.max \
                     of its control group, sysctl vm.max_map_count)",
                );
            }
        };
        match self.limit {
            Some(limit) => write!(
                f,
                "{missing}: the limit of {name} is {limit}{unit}; raise it (ulimit -{option})"
            ),
            None => write!(f, "{missing}; free some, or raise the limit of {name}"),
        }
    }
}

/// An errno with an explanation: the system's text and, for an exhausted resource, the limit and
/// its remedy. The given remedy is used for all other errors.
pub struct Explained<'a>(pub &'a io::Error, pub Option<&'a str>);

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explained(error, remedy) = self;
        match (Shortage::of(error), remedy) {
            (Some(shortage), _) => write!(f, "{error}; {shortage}"),
            (None, Some(remedy)) => write!(f, "{error}; {remedy}"),
            (None, None) => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Resource; 6] = [
        Resource::Descriptors,
        Resource::SystemFiles,
        Resource::AddressSpace,
        Resource::Memory,
        Resource::SharedMemory,
        Resource::Threads,
    ];

    #[test]
    fn encoding_survives_a_round_trip_and_garbage_is_rejected() {
        for resource in ALL {
            for limit in [None, Some(0), Some(16), Some(u64::MAX - 1)] {
                let shortage = Shortage { resource, limit };
                assert_eq!(Shortage::decode(&shortage.encode()), Some(shortage));
            }
        }
        assert_eq!(Shortage::decode(&[]), None);
        assert_eq!(Shortage::decode(&[1; 8]), None);
        assert_eq!(Shortage::decode(&[1; 10]), None);
        assert_eq!(Shortage::decode(&[7; 9]), None);
        assert_eq!(Shortage::decode(&[0; 9]), None);
    }

    #[test]
    fn only_exhaustion_errors_are_shortages() {
        let of = |errno: Errno| Shortage::of(&errno.into()).map(|shortage| shortage.resource);
        assert_eq!(of(Errno::MFILE), Some(Resource::Descriptors));
        assert_eq!(of(Errno::NFILE), Some(Resource::SystemFiles));
        assert_eq!(of(Errno::FBIG), Some(Resource::SharedMemory));
        assert!(of(Errno::NOMEM).is_some());
        assert!(Shortage::of(&io::ErrorKind::OutOfMemory.into()).is_some());
        for other in [Errno::CONNREFUSED, Errno::AGAIN, Errno::PERM] {
            assert_eq!(of(other), None);
        }
        let threads = Shortage::of_thread(&Errno::AGAIN.into()).unwrap();
        assert_eq!(threads.resource, Resource::Threads);
    }

    #[test]
    fn each_message_names_the_limit_and_a_remedy() {
        for resource in ALL {
            for limit in [None, Some(16)] {
                let text = Shortage { resource, limit }.to_string();
                assert!(text.contains("raise"), "{text}");
                let bounded = !matches!(resource, Resource::SystemFiles | Resource::Memory);
                assert_eq!(text.contains("16"), bounded && limit.is_some(), "{text}");
            }
        }
        let errno = Errno::MFILE.into();
        let text = Explained(&errno, Some("retry")).to_string();
        assert!(
            text.contains("os error 24") && text.contains("ulimit -n"),
            "{text}"
        );
        let text = Explained(&Errno::PERM.into(), Some("retry")).to_string();
        assert!(text.ends_with("; retry"), "{text}");
    }
}
