// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine, the privileges of this process, and its limits.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Numbers of capabilities in include/uapi/linux/capability.h.
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;

#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(super) host: String,
    pub(super) kernel: String,
    pub(super) architecture: &'static str,
    pub(super) cpu: Option<String>,
    /// Cores that this process may run on.
    pub(super) core_count: usize,
    /// Set if two hardware threads share a core.
    pub(super) smt: Option<bool>,
    /// Frequency governor of core 0; absent without one, as on most virtual machines.
    pub(super) governor: Option<String>,
    /// Set if the processor reports a hypervisor.
    pub(super) hypervisor: bool,
    pub(super) clock_source: Option<String>,
}

/// Privileges of this process.
#[derive(Debug, Serialize)]
pub(crate) struct Privileges {
    pub(super) uid: u32,
    pub(super) net_raw: bool,
    pub(super) net_admin: bool,
    pub(super) bpf: bool,
    pub(super) sys_admin: bool,
    pub(super) sys_ptrace: bool,
    /// `kernel.yama.ptrace_scope`; absent without Yama.
    pub(super) ptrace_scope: Option<u64>,
}

/// Limits; absent means unlimited or unknown.
#[derive(Debug, Serialize)]
pub(crate) struct Limits {
    /// Bytes of memory that may be locked.
    pub(super) memlock_len: Option<u64>,
    /// Open descriptors, soft and hard.
    pub(super) descriptors: Option<u64>,
    pub(super) descriptors_max: Option<u64>,
    /// Bytes of the largest socket buffers, `net.core.rmem_max` and `wmem_max`.
    pub(super) receive_buffer_len_max: Option<u64>,
    pub(super) send_buffer_len_max: Option<u64>,
    /// Bytes of memory for unexpected messages of a process that is alone on this host; absent if
    /// the setting is invalid.
    pub(super) unexpected_memory_len: Option<u64>,
}

/// Examines the machine.
pub(super) fn machine() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let host = nix::unistd::gethostname().unwrap_or_default();
    Machine {
        host: host.to_string_lossy().into_owned(),
        kernel: first_word("/proc/sys/kernel/osrelease").unwrap_or_default(),
        architecture: std::env::consts::ARCH,
        cpu: cpu_field(&cpuinfo, "model name").map(str::to_owned),
        core_count: std::thread::available_parallelism().map_or(1, usize::from),
        smt: number("/sys/devices/system/cpu/smt/active").map(|active| active == 1),
        governor: first_word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        hypervisor: cpu_field(&cpuinfo, "flags")
            .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        clock_source: first_word(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
    }
}

/// Examines the privileges of this process.
pub(super) fn privileges() -> Privileges {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = effective_capabilities(&status);
    let has = |capability: u32| effective >> capability & 1 == 1;
    Privileges {
        uid: nix::unistd::geteuid().as_raw(),
        net_raw: has(CAP_NET_RAW),
        net_admin: has(CAP_NET_ADMIN),
        bpf: has(CAP_BPF),
        sys_admin: has(CAP_SYS_ADMIN),
        sys_ptrace: has(CAP_SYS_PTRACE),
        ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
    }
}

/// Reads the limits of this process.
pub(super) fn limits() -> Limits {
    let limit = |resource| getrlimit(resource).ok();
    let finite = |value: u64| (value != RLIM_INFINITY).then_some(value);
    let descriptors = limit(Resource::RLIMIT_NOFILE);
    Limits {
        memlock_len: limit(Resource::RLIMIT_MEMLOCK).and_then(|(soft, _)| finite(soft)),
        descriptors: descriptors.and_then(|(soft, _)| finite(soft)),
        descriptors_max: descriptors.and_then(|(_, hard)| finite(hard)),
        receive_buffer_len_max: number("/proc/sys/net/core/rmem_max"),
        send_buffer_len_max: number("/proc/sys/net/core/wmem_max"),
        unexpected_memory_len: portolan::binding::unexpected_memory(Some(1))
            .ok()
            .map(|memory| memory.len),
    }
}

/// Returns the first word of a file.
pub(super) fn first_word(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

fn number(path: &str) -> Option<u64> {
    first_word(path)?.parse().ok()
}

/// Returns the value of a field of the first processor in `/proc/cpuinfo`.
fn cpu_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(key, value)| (key.trim(), value.trim()))
        .find(|(key, _)| *key == name)
        .map(|it| it.1)
}

fn effective_capabilities(status: &str) -> u64 {
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_parsed_from_proc_files() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nflags\t\t: fpu hypervisor\n";
        assert_eq!(cpu_field(cpuinfo, "model name"), Some("Some CPU @ 2.50GHz"));
        assert_eq!(cpu_field(cpuinfo, "model"), None);
        let status = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000002000\n";
        assert_eq!(effective_capabilities(status), 1 << CAP_NET_RAW);
        assert_eq!(effective_capabilities(""), 0);
    }
}
