// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice between multicast and the tree for a broadcast, by the setting `multicast`.
//!
//! Invariant: the root's length decides for all members. A member with `off` refuses the multicast
//! and receives the data in a message.

use super::ANNOUNCED_LEN_MIN;
use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use crate::unexpected::parse_len;

/// Shortest broadcast that uses multicast by default, in bytes. From here on, the data never fits
/// one frame of ordinary Ethernet (1,500 bytes).
///
/// With barriers between them, three hosts of a lab need 47 µs by the tree and 62 µs by multicast
/// for 1 KiB, 164 and 67 µs for 4 KiB, and 288 and 146 µs for 16 KiB (packet and udp, 1 Gbit/s, two
/// cores). With udp alone both ways take the same time at 2 KiB, and four hosts gain 7 %. Measured
/// by `portolan run -n 3 --lab NAME -- collectives bcast LEN ROUNDS` (`examples/collectives.rs`),
/// with `PORTOLAN_MULTICAST` at `off` and `1K`.
const DEFAULT_LEN_MIN: usize = 2 << 10;

/// Choice of this process as the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crossover {
    /// No multicast, neither as the root nor as a member.
    Off,
    /// From this length on, in bytes.
    From(usize),
}

impl Crossover {
    /// Returns the choice by the settings of `job`. Faults and recordings apply to links only, so
    /// either excludes multicast.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(super) fn new(job: &Job) -> Result<Crossover, Error> {
        let choice = parse(settings::MULTICAST.of(job).as_deref())?;
        let is_excluded = [settings::FAULT, settings::PCAP]
            .iter()
            .any(|it| it.of(job).is_some());
        Ok(if is_excluded { Crossover::Off } else { choice })
    }

    pub(super) fn is_on(self) -> bool {
        self != Crossover::Off
    }

    /// Returns whether a broadcast of `len` bytes uses multicast.
    pub(super) fn is_passed(self, len: usize) -> bool {
        match self {
            Crossover::Off => false,
            Crossover::From(len_min) => len >= len_min,
        }
    }
}

/// Checks the setting of `job`.
///
/// # Errors
/// [`Error::Setting`].
pub(crate) fn check(job: &Job) -> Result<(), Error> {
    Crossover::new(job).map(|_| ())
}

fn parse(value: Option<&str>) -> Result<Crossover, Error> {
    let value = match value {
        None | Some("auto") => return Ok(Crossover::From(DEFAULT_LEN_MIN)),
        Some("off") => return Ok(Crossover::Off),
        Some(value) => value,
    };
    let len = parse_len(value).and_then(|len| usize::try_from(len).ok());
    let len = len.filter(|len| *len >= ANNOUNCED_LEN_MIN);
    len.map(Crossover::From).ok_or_else(|| Error::Setting {
        name: "multicast",
        value: value.to_owned(),
        why: "write auto, off, or the shortest broadcast that uses it in bytes, 1K or more"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_is_a_mode_or_a_length() {
        for (value, choice) in [
            (None, Crossover::From(DEFAULT_LEN_MIN)),
            (Some("auto"), Crossover::From(DEFAULT_LEN_MIN)),
            (Some("off"), Crossover::Off),
            (Some("4K"), Crossover::From(4096)),
            (Some("1024"), Crossover::From(1024)),
        ] {
            assert_eq!(parse(value).unwrap(), choice, "{value:?}");
        }
        for value in ["1000", "on", "-1", "K"] {
            let refused = parse(Some(value));
            assert!(matches!(refused, Err(Error::Setting { .. })), "{value}");
        }
    }

    #[test]
    fn length_decides_unless_multicast_is_off() {
        assert!(!Crossover::Off.is_passed(usize::MAX));
        assert!(Crossover::From(4096).is_passed(4096));
        assert!(!Crossover::From(4096).is_passed(4095));
    }
}
