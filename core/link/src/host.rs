// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identification of the host that this process runs on.

use crate::HostId;
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const NETNS: &str = "/proc/self/ns/net";

impl HostId {
    /// Returns the host of this process in its current network namespace.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted.
    pub fn current() -> io::Result<Self> {
        let boot_id = fs::read_to_string(BOOT_ID)?.trim().to_owned();
        let netns = fs::metadata(NETNS)?.ino();
        Ok(HostId { boot_id, netns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_the_same_each_time_and_not_empty() {
        let host = HostId::current().unwrap();
        assert_eq!(host, HostId::current().unwrap());
        assert!(!host.boot_id.is_empty() && host.netns != 0);
    }
}
