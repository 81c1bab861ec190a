// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lab for one test, some of whose hosts may lose frames.

use super::{portolan, run};

/// Takes the lab down when a test ends, however it ends.
pub(crate) struct Lab(pub(crate) String);

impl Lab {
    pub(crate) fn up(test: &str, hosts: &str) -> Lab {
        Lab::up_with(test, &["--hosts", hosts])
    }

    /// With these arguments of `lab up`.
    pub(crate) fn up_with(test: &str, args: &[&str]) -> Lab {
        let lab = Lab(format!("t{}-{test}", std::process::id()));
        let ended = run(&[&["lab", "up", "--name", &lab.0], args].concat());
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        lab
    }

    /// Drops what comes to a host and fits `rule` of nftables; `false`, said aloud, where that is not.
    pub(crate) fn filter(&self, host: &str, rule: &str) -> bool {
        let rules = format!(
            "table inet loss {{ chain into {{ type filter hook input priority 0; {rule} drop; }}; }}"
        );
        let words = ["lab", "exec", "--name", &self.0, host, "--", "nft", &rules];
        let ended = run(&words);
        if ended.status != 0 {
            eprintln!("SKIPPED: losing frames needs nftables: {}", ended.err);
        }
        ended.status == 0
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = portolan(&["lab", "down", "--name", &self.0]).output();
    }
}
