// SPDX-License-Identifier: MIT OR Apache-2.0
//! External influences on figures, as far as the system reports them: other guests of the machine,
//! clock rates, mitigations in the kernel, and offloads of the interface.

use crate::place::Site;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};

/// External influences on figures. Unreported values are empty or absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Words of the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Share of processor time that the hypervisor gave to other guests during the run, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_percent: Option<f64>,
    /// Frequency policy of the kernel (`scaling_governor`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub governor: String,
    /// Clock rate of the fastest core at the start, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_mhz: Option<f64>,
    /// Available idle states of a core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_states: Vec<String>,
    /// The kernel's mitigations by vulnerability, for those that affect this processor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mitigations: BTreeMap<String, String>,
    /// Enabled offloads of the interface (`ethtool -k`) and its interrupt coalescing (`ethtool
    /// -c`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offloads: Vec<String>,
}

impl Environment {
    /// Describes this machine now, and the interface of the first host of `site`.
    pub(crate) fn read(site: &Site) -> Environment {
        let cpu = "/sys/devices/system/cpu";
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Environment {
            command: shown(std::env::args()),
            steal_percent: None,
            governor: read(&format!("{cpu}/cpu0/cpufreq/scaling_governor")),
            frequency_mhz: frequency(&cpuinfo),
            idle_states: entries(&format!("{cpu}/cpu0/cpuidle"))
                .map(|state| read(&format!("{cpu}/cpu0/cpuidle/{state}/name")))
                .filter(|name| !name.is_empty())
                .collect(),
            mitigations: entries(&format!("{cpu}/vulnerabilities"))
                .map(|attack| {
                    let text = read(&format!("{cpu}/vulnerabilities/{attack}"));
                    (attack, text)
                })
                .filter(|(_, text)| !text.is_empty() && text != "Not affected")
                .collect(),
            offloads: offloads(site),
        }
    }
}

/// Returns a command line for reports, without the secret token of a server.
fn shown(words: impl Iterator<Item = String>) -> Vec<String> {
    const OPTION: &str = "--token";
    let mut hides_next = false;
    let word = |word: String| {
        if std::mem::take(&mut hides_next) {
            return "...".to_owned();
        }
        hides_next = word == OPTION;
        match word.split_once('=') {
            Some((OPTION, _)) => format!("{OPTION}=..."),
            _ => word,
        }
    };
    words.map(word).collect()
}

/// Total time of all processors, and the part that the hypervisor gave to other guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stolen {
    steal: u64,
    all: u64,
}

impl Stolen {
    /// Reads the current values.
    pub(crate) fn now() -> Option<Stolen> {
        Stolen::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses `cpu user nice system idle iowait irq softirq steal …` of proc(5).
    fn parse(stat: &str) -> Option<Stolen> {
        const STEAL: usize = 7;
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        Some(Stolen {
            steal: *ticks.get(STEAL)?,
            all: ticks[..=STEAL].iter().sum(),
        })
    }

    /// Returns the stolen share between the two readings, in percent.
    #[allow(clippy::cast_precision_loss, reason = "two digits are reported")]
    pub(crate) fn percent_until(self, later: Stolen) -> Option<f64> {
        let all = later.all.checked_sub(self.all).filter(|all| *all > 0)?;
        Some(later.steal.saturating_sub(self.steal) as f64 / all as f64 * 100.0)
    }
}

fn frequency(cpuinfo: &str) -> Option<f64> {
    let rates = cpuinfo
        .lines()
        .filter_map(|line| line.strip_prefix("cpu MHz")?.split_once(':'))
        .filter_map(|(_, rate)| rate.trim().parse::<f64>().ok());
    rates.max_by(f64::total_cmp)
}

/// Returns the sorted names of the entries of `directory`.
fn entries(directory: &str) -> impl Iterator<Item = String> {
    let names: BTreeSet<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.into_iter()
}

fn offloads(site: &Site) -> Vec<String> {
    let Some(host) = site.hosts.first() else {
        return Vec::new();
    };
    let ethtool = |option: &str| {
        let mut words: Vec<&str> = Vec::new();
        if let Some(netns) = &host.netns {
            words.extend(["ip", "netns", "exec", netns]);
        }
        words.extend(["ethtool", option, &host.interface]);
        let output = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .output();
        output.map_or_else(
            |_| String::new(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let mut features = switched_on(&ethtool("-k"));
    features.extend(coalescing(&ethtool("-c")));
    features
}

/// Returns the switchable features that are on, from the output of `ethtool -k`.
fn switched_on(features: &str) -> Vec<String> {
    features
        .lines()
        .filter(|line| !line.starts_with([' ', '\t']))
        .filter_map(|line| line.strip_suffix(": on"))
        .map(str::to_owned)
        .collect()
}

/// Returns the interrupt delays that are set, from the output of `ethtool -c`.
fn coalescing(settings: &str) -> Vec<String> {
    let is_set =
        |line: &&str| line.contains("usecs:") && !line.ends_with(": 0") && !line.ends_with("n/a");
    settings.lines().filter(is_set).map(str::to_owned).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_elapsed_time() {
        let at = |steal: u64, idle: u64| {
            let stat = format!("cpu  10 0 10 {idle} 0 0 0 {steal} 0 0\ncpu0 1 2 3\n");
            Stolen::parse(&stat).expect("a line")
        };
        let percent = at(5, 100).percent_until(at(15, 190)).expect("time passed");
        assert!((percent - 10.0).abs() < 1e-9, "{percent}");
        assert_eq!(at(5, 100).percent_until(at(5, 100)), None);
        assert_eq!(Stolen::parse("cpu  1 2 3\n"), None);
    }

    #[test]
    fn report_omits_the_token() {
        let of = |line: &str| shown(line.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(
            of("bench --token abc --client h"),
            "bench --token ... --client h"
        );
        assert_eq!(of("bench --token=abc rate"), "bench --token=... rate");
        assert_eq!(of("bench rate"), "bench rate");
    }

    #[test]
    fn environment_is_parsed_from_system_files() {
        assert_eq!(
            frequency("cpu MHz\t\t: 2000.5\ncpu MHz : 2500\n"),
            Some(2500.0)
        );
        assert_eq!(frequency(""), None);
        let features = "Features for eth0:\nrx-checksumming: on\n\ttx-ipv4: on\ntso: off\n";
        assert_eq!(switched_on(features), ["rx-checksumming"]);
        let delays = "rx-usecs: 50\nrx-frames: 0\ntx-usecs: 0\nrx-usecs-irq: n/a\n";
        assert_eq!(coalescing(delays), ["rx-usecs: 50"]);
    }
}
