// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identity of a measured host: the machine, its kernel, and the version of Portolan.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;

/// A machine and its measured software.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Processor model, or the architecture if the kernel does not report one.
    pub cpu: String,
    /// Number of processors of the machine.
    pub core_count: usize,
    /// Kernel release.
    pub kernel: String,
    /// Version of Portolan.
    pub portolan: String,
}

impl Host {
    /// Returns the description of this host.
    #[must_use]
    pub fn current() -> Host {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Host {
            cpu: cpu_model(&cpuinfo).unwrap_or(std::env::consts::ARCH).into(),
            // All cores of the machine, not only those that this process may use: a rank that is
            // pinned to one core runs on the same machine.
            core_count: core_count(&cpuinfo),
            kernel: kernel.trim().into(),
            portolan: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// Describes the first difference between `measured` and this host, if there is one.
    pub(crate) fn difference(&self, measured: &Host) -> Option<String> {
        let differs = |what: &str, there: &dyn fmt::Display, here: &dyn fmt::Display| {
            let (there, here) = (there.to_string(), here.to_string());
            (there != here).then(|| format!("measured with {what} {there}, this is {here}"))
        };
        differs("processor", &measured.cpu, &self.cpu)
            .or_else(|| differs("core count", &measured.core_count, &self.core_count))
            .or_else(|| differs("kernel", &measured.kernel, &self.kernel))
            .or_else(|| differs("Portolan", &measured.portolan, &self.portolan))
    }
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let mut lines = cpuinfo.lines();
    let line = lines.find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

fn core_count(cpuinfo: &str) -> usize {
    let lines = cpuinfo.lines();
    lines
        .filter(|line| line.starts_with("processor") && line.contains(':'))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_and_count_are_read() {
        let text =
            "processor\t: 0\nmodel name\t: A CPU @ 2.5GHz\n\nprocessor\t: 1\nmodel name\t: x\n";
        assert_eq!(cpu_model(text), Some("A CPU @ 2.5GHz"));
        assert_eq!(core_count(text), 2);
        assert_eq!(cpu_model(""), None);
    }
}
