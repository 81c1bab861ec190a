// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts on which nothing could be started, collected so that all are reported together.
//!
//! Each may take as long as ssh waits for a connection; they wait concurrently.

use crate::error::UserError;
use std::fmt;
use std::time::Instant;

/// Hosts on which nothing could be started, each with an error message.
#[derive(Debug, Default)]
pub(crate) struct FailedHosts {
    hosts: Vec<(String, UserError)>,
    /// Deadline for the hello of other hosts.
    deadline: Option<Instant>,
}

impl FailedHosts {
    /// Adds a host; the first one sets the deadline for the other hosts.
    pub(super) fn add(&mut self, deadline: Instant, host: String, error: UserError) {
        self.deadline.get_or_insert(deadline);
        self.hosts.push((host, error));
    }

    /// Returns true if there are such hosts, and none `is_waiting` or the deadline has passed.
    pub(super) fn is_settled(&self, now: Instant, is_waiting: bool) -> bool {
        self.deadline
            .is_some_and(|deadline| !is_waiting || now >= deadline)
    }

    /// Returns names and error messages.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&str, String)> {
        let hosts = self.hosts.iter();
        hosts.map(|(host, error)| (host.as_str(), error.to_string()))
    }
}

impl fmt::Display for FailedHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentences: Vec<String> = self.hosts().map(|(_, sentence)| sentence).collect();
        f.write_str(&sentences.join("; "))
    }
}

impl std::error::Error for FailedHosts {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn settled_after_deadline_or_without_waiting_hosts() {
        let now = Instant::now();
        let mut failed = FailedHosts::default();
        assert!(!failed.is_settled(now, false));
        let wait = Duration::from_secs(15);
        failed.add(now + wait, "n1".into(), UserError::new("no route"));
        assert!(!failed.is_settled(now, true));
        failed.add(now + 2 * wait, "n2".into(), UserError::new("refused"));
        assert!(failed.is_settled(now, false));
        assert!(failed.is_settled(now + wait, true));
        assert_eq!(failed.to_string(), "no route; refused");
    }
}
