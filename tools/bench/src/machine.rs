// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of the machine that figures belong to.

use crate::environment::Environment;
use crate::measure::CLOCK_NAME;
use crate::place::{Site, pick_cores};
use crate::remote::ServerHost;
use crate::schema::Machine;
use std::fs;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Short description of a host.
pub(crate) struct Facts {
    /// Kernel release.
    pub(crate) kernel: String,
    /// Processor model.
    pub(crate) cpu: String,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// Name of the hypervisor, or `none`.
    pub(crate) hypervisor: String,
}

/// Returns the description of this host.
pub(crate) fn facts() -> Facts {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Facts {
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        cpu: cpu_model(&cpuinfo).unwrap_or_else(|| std::env::consts::ARCH.into()),
        cores: available_parallelism().map_or(1, NonZeroUsize::get),
        hypervisor: hypervisor(&cpuinfo),
    }
}

/// Describes this machine for figures taken at `site` in `rounds` rounds, including the server's
/// host if there is one.
pub(crate) fn describe(site: &Site, rounds: u32, server: Option<&ServerHost>) -> Machine {
    let Facts {
        kernel,
        cpu,
        cores,
        hypervisor,
    } = facts();
    let own = pick_cores();
    let pinned = match server {
        Some(server) => own.zip(server.pinned).map(|([own, _], other)| [own, other]),
        None => own,
    };
    #[allow(clippy::disallowed_methods, reason = "the date of the report")]
    Machine {
        kernel,
        cpu,
        cores,
        pinned,
        hypervisor,
        date: date(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        ),
        portolan: env!("CARGO_PKG_VERSION").into(),
        mtu: site.mtu,
        link: site.link.clone(),
        socket_buffer_len: read_trimmed("/proc/sys/net/core/rmem_max")
            .parse()
            .unwrap_or(0),
        site: site.kind,
        rounds,
        clock: CLOCK_NAME.into(),
        server: server.cloned(),
        environment: Environment::read(site),
    }
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().into())
}

/// Returns the firmware's name of the machine if the processor reports a hypervisor, otherwise
/// `none`.
fn hypervisor(cpuinfo: &str) -> String {
    let flags = cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .unwrap_or_default();
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return "none".into();
    }
    match read_trimmed("/sys/class/dmi/id/sys_vendor") {
        vendor if vendor.is_empty() => "virtual machine".into(),
        vendor => vendor,
    }
}

fn read_trimmed(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().into()
}

/// Formats a time as RFC 3339 in UTC. The calendar is Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>), for days since 1970.
fn date(since_1970: Duration) -> String {
    const SECONDS_PER_DAY: u64 = 86_400;
    let (days, seconds) = (
        since_1970.as_secs() / SECONDS_PER_DAY,
        since_1970.as_secs() % SECONDS_PER_DAY,
    );
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_handle_leap_days() {
        assert_eq!(date(Duration::ZERO), "1970-01-01T00:00:00Z");
        assert_eq!(
            date(Duration::from_secs(951_782_399)),
            "2000-02-28T23:59:59Z"
        );
        assert_eq!(
            date(Duration::from_secs(951_782_400)),
            "2000-02-29T00:00:00Z"
        );
        assert_eq!(
            date(Duration::from_secs(1_709_251_200)),
            "2024-03-01T00:00:00Z"
        );
        assert_eq!(
            date(Duration::from_secs(4_107_542_400)),
            "2100-03-01T00:00:00Z"
        );
    }

    #[test]
    fn processor_and_hypervisor_are_parsed() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.5GHz\nflags\t\t: fpu vme\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("Some CPU @ 2.5GHz"));
        assert_eq!(hypervisor(cpuinfo), "none");
        assert_ne!(hypervisor("flags : fpu hypervisor"), "none");
    }
}
