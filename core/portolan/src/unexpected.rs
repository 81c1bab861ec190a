// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a process for unexpected messages.
//!
//! Nothing is allocated before it is needed. This is where back-pressure becomes an error
//! (`P4.15`).

use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use portolan_sys::shortage::Shortage;
use std::fs;
use std::path::Path;

/// Default share of the host's memory for all processes of the job on it. The program keeps most of
/// the memory, and ten million messages of eight bytes fit into 1 GB.
const PERCENT_DEFAULT: u64 = 25;
/// Minimum for a process: a thousand peers that each send all that their credit allows.
const LEN_MIN: u64 = 16 << 20;
/// Maximum for a process: what the numbers of held messages can address, minus what credit allows
/// in addition.
const LEN_MAX: u64 = 32 << 30;
/// Minimum that the setting accepts in bytes: one eager message of maximum length.
const SETTING_LEN_MIN: u64 = 64 << 10;
/// Assumed memory of a host if its memory size cannot be read.
const HOST_LEN_UNKNOWN: u64 = 1 << 30;

/// Environment variables with the number of a job's processes on this host. For endpoints, which
/// belong to no job: Open MPI, Hydra (MPICH, Intel MPI), MVAPICH, `srun`.
const LOCAL_SIZES: [&str; 4] = [
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "SLURM_TASKS_PER_NODE",
];

/// Memory of a process for unexpected messages, with the values that it was calculated from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnexpectedMemory {
    /// Limit for each process, in bytes.
    pub len: u64,
    /// Memory of this host, or of its control group if that is less, in bytes.
    pub host_len: u64,
    /// Number of processes that share the host's part; 1 if unknown, or if the setting is in bytes.
    pub local_size: u32,
}

/// Returns the memory for unexpected messages of each process, by the setting in the environment.
/// `local_size` is the number of the job's processes on this host; without it the environment is
/// read.
///
/// # Errors
/// [`Error::Setting`].
pub fn unexpected_memory(local_size: Option<u32>) -> Result<UnexpectedMemory, Error> {
    let value = settings::UNEXPECTED_MEMORY.from_env();
    let local_size = local_size.or_else(local_size_from_env);
    resolve(
        value.as_deref(),
        host_len(),
        own_len(),
        local_size.unwrap_or(1),
    )
}

/// Returns the memory of a process of `job`. An endpoint belongs to no job and takes its
/// `local_size` from the environment.
pub(crate) fn of_job(job: &Job, is_endpoint: bool) -> Result<usize, Error> {
    let local_size = match is_endpoint {
        true => local_size_from_env().unwrap_or(1),
        false => job.local_size,
    };
    let value = settings::UNEXPECTED_MEMORY.of(job);
    let found = resolve(value.as_deref(), host_len(), own_len(), local_size)?;
    Ok(usize::try_from(found.len).unwrap_or(usize::MAX))
}

/// Resolves the setting. `own_len` is the limit of this process alone, which it does not share.
fn resolve(
    value: Option<&str>,
    host_len: u64,
    own_len: Option<u64>,
    local_size: u32,
) -> Result<UnexpectedMemory, Error> {
    let local_size = local_size.max(1);
    let part = |percent: u64| {
        let of_host = host_len / 100 * percent / u64::from(local_size);
        own_len.map_or(of_host, |own_len| of_host.min(own_len / 100 * percent))
    };
    let share = |percent: u64| UnexpectedMemory {
        len: part(percent).clamp(LEN_MIN, LEN_MAX),
        host_len,
        local_size,
    };
    let Some(value) = value else {
        return Ok(share(PERCENT_DEFAULT));
    };
    let refuse = |why: &str| Error::Setting {
        name: "unexpected_memory",
        value: value.to_owned(),
        why: why.to_owned(),
    };
    if let Some(percent) = value.strip_suffix('%') {
        let percent = percent.parse().ok().filter(|part| (1..=90).contains(part));
        return percent
            .map(share)
            .ok_or_else(|| refuse("write a percentage of the host's memory from 1% to 90%"));
    }
    let len = parse_len(value).filter(|len| (SETTING_LEN_MIN..=LEN_MAX).contains(len));
    let len = len.ok_or_else(|| {
        refuse("write bytes for each process, from 64K to 32G, or a percentage, such as 25%")
    })?;
    Ok(UnexpectedMemory {
        len,
        host_len,
        local_size: 1,
    })
}

/// Parses a number of bytes, with K, M or G for 2^10, 2^20 or 2^30.
pub(crate) fn parse_len(text: &str) -> Option<u64> {
    let shift = match text.as_bytes().last()? {
        b'K' | b'k' => 10,
        b'M' | b'm' => 20,
        b'G' | b'g' => 30,
        _ => 0,
    };
    let digits = if shift > 0 {
        &text[..text.len() - 1]
    } else {
        text
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Returns the memory of this host, or of its control group if that is less, in bytes.
fn host_len() -> u64 {
    let physical = fs::read_to_string("/proc/meminfo").ok();
    let physical = physical.as_deref().and_then(mem_total);
    let group = Path::new("/sys/fs/cgroup/memory.max");
    let group = fs::read_to_string(group).ok();
    let group = group.and_then(|text| text.trim().parse().ok());
    let known = [physical, group].into_iter().flatten().min();
    known.unwrap_or(HOST_LEN_UNKNOWN)
}

/// Returns the limit of this process's address space or data, if it has one (ulimit -v, -d).
fn own_len() -> Option<u64> {
    Shortage::memory().limit
}

/// Returns `MemTotal` of proc(5), which is in units of 1024 bytes.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

fn local_size_from_env() -> Option<u32> {
    let values = LOCAL_SIZES
        .iter()
        .filter_map(|name| std::env::var(name).ok());
    values.filter_map(|value| first_number(&value)).next()
}

/// Returns the first number: `srun` writes `4(x2),3` for two hosts with four processes and one with
/// three.
fn first_number(value: &str) -> Option<u32> {
    let end = value.find(|c: char| !c.is_ascii_digit());
    value[..end.unwrap_or(value.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: u64 = 32 << 30;

    fn len(value: Option<&str>, local_size: u32) -> u64 {
        resolve(value, HOST, None, local_size).unwrap().len
    }

    #[test]
    fn processes_share_a_quarter_of_host_memory() {
        let near = |len: u64, part: u64| assert_eq!(len >> 10, (HOST / 100 * 25 / part) >> 10);
        near(len(None, 1), 1);
        near(len(None, 4), 4);
        assert_eq!(len(None, 0), len(None, 1));
        assert_eq!(len(None, 100_000), LEN_MIN);
        assert_eq!(len(Some("50%"), 2), len(None, 1));
    }

    #[test]
    fn process_limit_caps_its_share() {
        let of = |own_len, size| resolve(None, HOST, own_len, size).unwrap().len;
        assert_eq!(of(Some(400 << 20), 2), (400 << 20) / 100 * 25);
        assert_eq!(of(Some(HOST), 4), of(None, 4));
        assert_eq!(of(Some(1 << 20), 1), LEN_MIN);
    }

    #[test]
    fn absolute_bytes_are_used_unchanged() {
        assert_eq!(len(Some("123456"), 4), 123_456);
        assert_eq!(len(Some("64K"), 4), 65_536);
        assert_eq!(len(Some("3G"), 4), 3 << 30);
    }

    #[test]
    fn invalid_amount_is_refused_by_name() {
        for value in ["", "%", "0%", "91%", "-1", "1000", "33G", "1T", "lots", "K"] {
            let said = resolve(Some(value), HOST, None, 1).unwrap_err().to_string();
            assert!(
                said.contains("unexpected_memory") && said.contains('%'),
                "{said}"
            );
        }
    }

    #[test]
    fn host_memory_is_read() {
        assert_eq!(
            mem_total("MemTotal:       16 kB\nMemFree: 3 kB\n"),
            Some(16_384)
        );
        assert!(host_len() > LEN_MIN);
        assert_eq!(first_number("4(x2),3"), Some(4));
        assert_eq!(first_number("x"), None);
    }
}
