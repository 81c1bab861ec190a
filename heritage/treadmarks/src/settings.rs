// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of the environment. Those of process 0 apply to the sizes of all processes.

use crate::error::{Failure, failure};

/// Environment variable: MiB of shared memory that each process can allocate. Only used pages
/// occupy memory.
const HEAP_VARIABLE: &str = "TMK_HEAP";
const HEAP_MIB: u64 = 1024;
/// Highest value: 32 processes with as much need 46 bits of addresses.
const HEAP_MIB_MAX: u64 = 1 << 20;

/// Environment variable: KiB of intervals and diffs in a process after which a barrier discards
/// them. More memory saves messages.
const COLLECT_VARIABLE: &str = "TMK_COLLECT";
const COLLECT_KIB: u64 = 16 << 10;

/// Environment variable: 1 prints the counters of each process at its end.
const STATISTICS_VARIABLE: &str = "TMK_STATISTICS";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) heap_len: usize,
    pub(crate) collect_at: usize,
    pub(crate) prints_statistics: bool,
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    /// An invalid value.
    pub(crate) fn read() -> Result<Settings, Failure> {
        Settings::of(|name| std::env::var(name).ok())
    }

    fn of(read: impl Fn(&str) -> Option<String>) -> Result<Settings, Failure> {
        let number = |name: &str, default: u64, unit: u64, max: u64| {
            let Some(text) = read(name).filter(|text| !text.is_empty()) else {
                return Ok(default * unit);
            };
            let number = text.parse::<u64>().ok().filter(|number| *number <= max);
            number
                .map(|number| number * unit)
                .ok_or_else(|| failure(format!("{name} is {text:?}; set a number up to {max}")))
        };
        let len = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Settings {
            heap_len: len(number(HEAP_VARIABLE, HEAP_MIB, 1 << 20, HEAP_MIB_MAX)?.max(1 << 20)),
            collect_at: len(number(COLLECT_VARIABLE, COLLECT_KIB, 1 << 10, 1 << 40)?),
            prints_statistics: number(STATISTICS_VARIABLE, 0, 1, 1)? == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_defaults_and_limits() {
        let default = Settings::of(|_| None).unwrap();
        assert_eq!(default.heap_len, 1 << 30);
        assert_eq!(default.collect_at, 16 << 20);
        assert!(!default.prints_statistics);
        let set = |name: &'static str, value: &'static str| {
            Settings::of(move |read| (read == name).then(|| value.to_owned()))
        };
        assert_eq!(set(HEAP_VARIABLE, "3").unwrap().heap_len, 3 << 20);
        assert_eq!(set(COLLECT_VARIABLE, "0").unwrap().collect_at, 0);
        assert!(set(STATISTICS_VARIABLE, "1").unwrap().prints_statistics);
        for (name, value) in [
            (HEAP_VARIABLE, "much"),
            (HEAP_VARIABLE, "1048577"),
            (COLLECT_VARIABLE, "-1"),
            (STATISTICS_VARIABLE, "2"),
        ] {
            assert!(
                set(name, value).unwrap_err().text().contains(name),
                "{name}"
            );
        }
    }
}
