// SPDX-License-Identifier: MIT OR Apache-2.0
//! The range of ports that a process may bind, for hosts with a firewall that passes only some
//! ports.
//!
//! The kernel has a range per socket (`IP_LOCAL_PORT_RANGE`) only since Linux 6.3, so ports are
//! tried one by one here. Invariant: no port outside the range is ever bound.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports that sockets may be bound to. The default leaves the choice to the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    /// Zero, like `first`, if the system chooses.
    last: u16,
}

/// Error for a text that is not a range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPortRange;

impl fmt::Display for BadPortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write two ports from 1 to 65535, the lower one first, such as 20000-20100")
    }
}

impl std::error::Error for BadPortRange {}

/// Error for a range with all ports taken; the inner error of an `io::Error` of kind `AddrInUse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortsUsedUp(
    /// The range.
    pub PortRange,
);

impl fmt::Display for PortsUsedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "all ports of {} are in use on this host; set PORTOLAN_PORTS (setting ports) to a wider \
             range, or end processes that use them",
            self.0
        )
    }
}

impl std::error::Error for PortsUsedUp {}

/// Number of searches so far. Each starts at another port, so that few try a taken one.
static STARTS: AtomicU32 = AtomicU32::new(0);

impl PortRange {
    /// Returns `true` if the system chooses.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.last == 0
    }

    /// Returns the ports, or none if the system chooses.
    #[must_use]
    pub fn ports(self) -> Option<RangeInclusive<u16>> {
        (!self.is_any()).then_some(self.first..=self.last)
    }

    /// Returns how many ports there are; 0 if the system chooses.
    #[must_use]
    pub fn count(self) -> usize {
        self.ports().map_or(0, |ports| ports.len())
    }

    /// Returns the port that all processes with this range derive from `number`.
    #[must_use]
    pub fn nth(self, number: u16) -> Option<u16> {
        let count = u32::try_from(self.count()).unwrap_or(u32::MAX);
        let step = u32::from(number).checked_rem(count)?;
        u16::try_from(u32::from(self.first) + step).ok()
    }

    /// Calls `open` with ports of the range until it returns anything but an error of kind
    /// `AddrInUse`. If the system chooses, calls it once with port 0.
    ///
    /// # Errors
    /// The error of `open`; [`PortsUsedUp`] in an error of kind `AddrInUse` if all ports are taken.
    pub fn open<T>(self, mut open: impl FnMut(u16) -> io::Result<T>) -> io::Result<T> {
        if self.is_any() {
            return open(0);
        }
        // Processes of a host start at different ports because their pids differ. The factor, 2^32
        // divided by the golden ratio, spreads adjacent pids.
        let spread = std::process::id().wrapping_mul(0x9e37_79b9);
        let start = spread.wrapping_add(STARTS.fetch_add(1, Ordering::Relaxed));
        let count = u32::try_from(self.count()).unwrap_or(u32::MAX);
        for step in 0..count {
            let place = (start % count + step) % count;
            let port = u32::from(self.first) + place;
            match open(u16::try_from(port).unwrap_or(self.last)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                opened => return opened,
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, PortsUsedUp(self)))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ports() {
            Some(_) => write!(f, "{}-{}", self.first, self.last),
            None => f.write_str("any"),
        }
    }
}

impl FromStr for PortRange {
    type Err = BadPortRange;

    fn from_str(text: &str) -> Result<PortRange, BadPortRange> {
        let (first, last) = text.split_once('-').ok_or(BadPortRange)?;
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| BadPortRange);
        let (first, last) = (port(first)?, port(last)?);
        if first == 0 || last < first {
            return Err(BadPortRange);
        }
        Ok(PortRange { first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn range_is_two_ports_in_order() {
        let range: PortRange = "20000-20100".parse().unwrap();
        assert_eq!((range.ports(), range.count()), (Some(20000..=20100), 101));
        assert_eq!(range.to_string(), "20000-20100");
        assert_eq!("7-7".parse::<PortRange>().map(PortRange::count), Ok(1));
        assert_eq!(
            "1-65535".parse::<PortRange>().map(PortRange::count),
            Ok(65535)
        );
        for text in [
            "", "20000", "0-5", "5-4", "1-65536", "a-b", "-", "1-2-3", "-5",
        ] {
            assert_eq!(text.parse::<PortRange>(), Err(BadPortRange), "{text:?}");
        }
    }

    #[test]
    fn every_port_is_tried_once_before_exhaustion() {
        let range: PortRange = "65520-65535".parse().unwrap();
        let mut tried = BTreeSet::new();
        let error = range
            .open(|port| {
                assert!(tried.insert(port), "{port} twice");
                Err::<(), _>(io::ErrorKind::AddrInUse.into())
            })
            .unwrap_err();
        assert_eq!(tried, (65520..=65535).collect());
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let inner = error.get_ref().unwrap().downcast_ref();
        assert_eq!(inner, Some(&PortsUsedUp(range)));
    }

    #[test]
    fn other_errors_end_the_search() {
        let range: PortRange = "20000-20100".parse().unwrap();
        let mut calls = 0;
        let refused = range.open(|_| {
            calls += 1;
            Err::<(), _>(io::ErrorKind::PermissionDenied.into())
        });
        let kind = refused.map_err(|error| error.kind());
        assert_eq!((kind, calls), (Err(io::ErrorKind::PermissionDenied), 1));
    }

    #[test]
    fn without_a_range_the_system_chooses() {
        let bind = |port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
        let socket = PortRange::default().open(bind).unwrap();
        assert_ne!(socket.local_addr().unwrap().port(), 0);
        assert_eq!(PortRange::default().nth(7), None);
    }

    #[test]
    fn number_maps_to_the_same_port_in_all_processes() {
        let range: PortRange = "20000-20100".parse().unwrap();
        assert_eq!(range.nth(0), Some(20000));
        assert_eq!(range.nth(101), Some(20000));
        assert_eq!(range.nth(u16::MAX), Some(20087));
    }
}
