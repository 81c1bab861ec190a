// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of a lab's wires, as given to `--link`: a class of Ethernet, single values, or both.
//!
//! It creates no wire ([`super::shape`] does). Invariant: every parsed [`Link`] can be created,
//! except for limits that depend on the MTU or on this kernel.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A wire; values of a bare veth pair are zero or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Bits per second, including each frame's preamble, checksum and gap.
    pub(crate) rate_bits_per_sec: Option<u64>,
    /// Lost frames per million frames that reach a host's wire.
    pub(crate) loss_ppm: u32,
    /// Bytes that may wait at the beginning of the wire; further frames are lost.
    pub(crate) queue_len: Option<u64>,
    /// Time a frame travels from host to host, in addition to its transmission time.
    pub(crate) delay: Duration,
    /// Mechanism that delays frames; `None` for the best one of this kernel.
    pub(crate) delay_by: Option<DelayBy>,
}

/// Mechanism that delays frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DelayBy {
    /// The kernel's queue discipline (tc-netem(8)).
    Netem,
    /// A process of the lab ([`super::line`]).
    Line,
}

impl fmt::Display for DelayBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DelayBy::Netem => "netem",
            DelayBy::Line => "line",
        })
    }
}

/// A class of Ethernet with all its values.
struct Class {
    name: &'static str,
    rate_bits_per_sec: u64,
    queue_len: u64,
}

/// Rates are from the standard. A queue is that of one port of a switch of the class:
/// - 64 KiB in the chip;
/// - a share of the 1 MiB that a few ports use at once;
/// - a share of the 9 to 16 MiB, or of the 22 to 32 MiB, of a data centre switch with 32 to 64
///   ports.
///
/// No frame is lost, as on a sound cable.
const CLASSES: [Class; 4] = [
    Class {
        name: "fast-ethernet",
        rate_bits_per_sec: 100_000_000,
        queue_len: 64 << 10,
    },
    Class {
        name: "1g",
        rate_bits_per_sec: 1_000_000_000,
        queue_len: 256 << 10,
    },
    Class {
        name: "10g",
        rate_bits_per_sec: 10_000_000_000,
        queue_len: 1 << 20,
    },
    Class {
        name: "25g",
        rate_bits_per_sec: 25_000_000_000,
        queue_len: 2 << 20,
    },
];

/// Bounds of a rate: slower than any Ethernet, and faster than memory can forward frames.
const RATE_MIN: u64 = 1_000_000;
const RATE_MAX: u64 = 100_000_000_000;

/// Millionths per percent.
const PPM_IN_PERCENT: f64 = 1e4;

const QUEUE_LEN_MAX: u64 = 1 << 30;

/// Bytes in flight on a cable without a rate: 50 ms of 10 Gbit/s.
pub(super) const IN_FLIGHT_LEN: u64 = 64 << 20;

/// Longest delay: longer than a frame takes around the earth.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// Granularity of delays.
const TIME_STEP: Duration = Duration::from_micros(1);

impl Link {
    /// Returns true if the wire differs from a bare veth pair.
    pub(crate) fn is_shaped(&self) -> bool {
        *self != Link::default()
    }

    /// Returns the bytes in flight at the full rate; `None` without a rate.
    pub(super) fn in_flight_len(&self) -> Option<u64> {
        let delay_us = u64::try_from(self.delay.as_micros()).unwrap_or(u64::MAX);
        // This cannot overflow: the largest rate times the longest delay is 10^17.
        Some(self.rate_bits_per_sec? / 8_000 * delay_us / 1_000)
    }

    /// Returns an error if a value needs another one that is missing.
    fn check(self) -> Result<Link, String> {
        if self.rate_bits_per_sec.is_none() && self.queue_len.is_some() {
            return Err(format!(
                "--link: queue= needs a rate: add rate=1g, or a \
                 class ({})",
                class_names()
            ));
        }
        if let (Some(by), true) = (self.delay_by, self.delay.is_zero()) {
            return Err(format!("--link: by={by} needs a delay: add delay=1ms"));
        }
        Ok(self)
    }
}

/// Formats as the argument of `--link`; empty for the bare veth pair.
impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values = Vec::new();
        if let Some(rate) = self.rate_bits_per_sec {
            values.push(format!("rate={}", scaled(rate, &RATE_UNITS)));
        }
        if self.loss_ppm > 0 {
            values.push(format!(
                "loss={}%",
                f64::from(self.loss_ppm) / PPM_IN_PERCENT
            ));
        }
        if let Some(len) = self.queue_len {
            values.push(format!("queue={}", scaled(len, &LEN_UNITS)));
        }
        if !self.delay.is_zero() {
            values.push(format!("delay={}", time(self.delay)));
        }
        if let Some(by) = self.delay_by {
            values.push(format!("by={by}"));
        }
        f.write_str(&values.join(","))
    }
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Link, String> {
        let mut link = Link::default();
        let mut given = Vec::new();
        // Apply the class first, at any position: single values override it.
        for word in text.split(',').filter(|word| !word.contains('=')) {
            let class = CLASSES.iter().find(|class| class.name == word);
            let class = class.ok_or_else(|| unknown(word))?;
            once(&mut given, "a class")?;
            link.rate_bits_per_sec = Some(class.rate_bits_per_sec);
            link.queue_len = Some(class.queue_len);
        }
        for word in text.split(',') {
            let Some((key, value)) = word.split_once('=') else {
                continue;
            };
            match key {
                "rate" => link.rate_bits_per_sec = Some(rate(value)?),
                "delay" => link.delay = delay(value)?,
                "by" => link.delay_by = Some(delay_by(value)?),
                "loss" => link.loss_ppm = loss(value)?,
                "queue" => link.queue_len = Some(queue(value)?),
                _ => return Err(unknown(word)),
            }
            once(&mut given, key)?;
        }
        link.check()
    }
}

fn class_names() -> String {
    let names: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
    names.join(", ")
}

fn unknown(word: &str) -> String {
    format!(
        "--link: {word:?} is neither a class ({}) nor one of rate=, delay=, loss=, queue=, by=: write for \
         example --link 1g,loss=0.1%",
        class_names()
    )
}

fn once<'a>(given: &mut Vec<&'a str>, key: &'a str) -> Result<(), String> {
    if given.contains(&key) {
        return Err(format!("--link: {key} is given twice: leave one out"));
    }
    given.push(key);
    Ok(())
}

/// Units with their names, the largest first.
type Units = [(&'static str, u64)];

const RATE_UNITS: [(&str, u64); 4] = [
    ("g", 1_000_000_000),
    ("m", 1_000_000),
    ("k", 1_000),
    ("", 1),
];
const LEN_UNITS: [(&str, u64); 4] = [("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10), ("", 1)];

const TIME_UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Formats a value as a whole number of the largest unit that divides it.
fn scaled(value: u64, units: &Units) -> String {
    let fits = |(_, unit): &&(&str, u64)| value >= *unit && value.is_multiple_of(*unit);
    let (name, unit) = units.iter().find(fits).copied().unwrap_or(("", 1));
    format!("{}{name}", value / unit)
}

/// Parses a time with a unit, in nanoseconds.
pub(crate) fn time_ns(text: &str) -> Option<u64> {
    quantity(text, &TIME_UNITS)
}

/// Parses a number, optionally with a fraction, and one of `units`.
fn quantity(text: &str, units: &Units) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let name = &text[digits.len()..];
    let (_, unit) = units.iter().find(|(known, _)| *known == name)?;
    let plain = digits.starts_with(|c: char| c.is_ascii_digit());
    let number: f64 = plain.then(|| digits.parse().ok()).flatten()?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "not negative; larger values are outside of any range"
    )]
    Some((number * *unit as f64).round() as u64)
}

fn rate(text: &str) -> Result<u64, String> {
    let bits = text.strip_suffix("bit").unwrap_or(text);
    let bits = quantity(bits, &RATE_UNITS).filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate));
    bits.ok_or_else(|| {
        format!(
            "--link: rate={text} is not a valid rate: write bits per second from 1m to 100g, as in \
             rate=2.5g"
        )
    })
}

fn delay(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let ns = text.ends_with('s').then(|| quantity(text, &TIME_UNITS));
    let delay = ns.flatten().map(Duration::from_nanos);
    let delay = delay.filter(|delay| (TIME_STEP..=DELAY_MAX).contains(delay));
    match delay {
        Some(delay)
            if delay
                .subsec_nanos()
                .is_multiple_of(TIME_STEP.subsec_nanos()) =>
        {
            Ok(delay)
        }
        _ => Err(format!(
            "--link: delay={text} is not a valid delay: write whole microseconds, 1us to 1s, \
             as in delay=50us or delay=2.5ms"
        )),
    }
}

fn delay_by(text: &str) -> Result<DelayBy, String> {
    match text {
        "netem" => Ok(DelayBy::Netem),
        "line" => Ok(DelayBy::Line),
        _ => Err(format!(
            "--link: by={text} is not a method of delaying frames: write by=netem for the kernel, by=line for a process, or \
             leave it out for the best one of this kernel"
        )),
    }
}

/// Formats a time as in `--link`.
pub(super) fn time(time: Duration) -> String {
    scaled(
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        &TIME_UNITS,
    )
}

fn loss(text: &str) -> Result<u32, String> {
    let percent = text.strip_suffix('%').and_then(|digits| {
        let plain = digits.starts_with(|c: char| c.is_ascii_digit());
        plain.then(|| digits.parse::<f64>().ok()).flatten()
    });
    match percent {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to a million"
        )]
        Some(percent) if (0.0..=100.0).contains(&percent) => {
            Ok((percent * PPM_IN_PERCENT).round() as u32)
        }
        _ => Err(format!(
            "--link: loss={text} is not a share of frames: write 0% to 100%, as in loss=0.1%"
        )),
    }
}

fn queue(text: &str) -> Result<u64, String> {
    let len = quantity(text, &LEN_UNITS).filter(|len| (1..=QUEUE_LEN_MAX).contains(len));
    len.ok_or_else(|| {
        format!(
            "--link: queue={text} is not a number of bytes: write up to 1g, as in queue=256k (k, m and g \
             are powers of 1024)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(text: &str) -> Link {
        text.parse().unwrap()
    }

    #[test]
    fn each_value_is_parsed() {
        let all = link("rate=1g,delay=0,loss=0.1%,queue=128k");
        assert_eq!(
            all,
            Link {
                rate_bits_per_sec: Some(1_000_000_000),
                loss_ppm: 1000,
                queue_len: Some(128 << 10),
                ..Link::default()
            }
        );
        assert_eq!(link("delay=50us").delay, Duration::from_micros(50));
        assert_eq!(link("delay=2.5ms").delay, Duration::from_micros(2500));
        assert_eq!(link("delay=1s,by=netem").delay_by, Some(DelayBy::Netem));
        assert_eq!(link("rate=2.5gbit").rate_bits_per_sec, Some(2_500_000_000));
        assert_eq!(link("rate=100mbit").rate_bits_per_sec, Some(100_000_000));
        assert_eq!(link("loss=100%").loss_ppm, 1_000_000);
        assert_eq!(link("loss=0.0001%").loss_ppm, 1);
    }

    #[test]
    fn single_values_override_the_class() {
        for class in &CLASSES {
            let link = link(class.name);
            assert_eq!(link.rate_bits_per_sec, Some(class.rate_bits_per_sec));
            assert!(link.queue_len.is_some());
        }
        assert_eq!(link("1g,loss=0.1%").loss_ppm, 1000);
        assert_eq!(link("queue=2k,1g").queue_len, Some(2048));
        assert_eq!(link("1g,rate=500m").rate_bits_per_sec, Some(500_000_000));
    }

    #[test]
    fn display_round_trips() {
        for text in [
            "rate=1g,loss=0.1%,queue=128k",
            "rate=2500m,queue=1500",
            "loss=12.5%",
            "rate=1g",
            "delay=50us",
            "rate=1g,delay=2500us,by=line",
            "delay=10ms,by=netem",
        ] {
            assert_eq!(link(text).to_string(), text);
        }
        for class in &CLASSES {
            let made = link(class.name);
            assert_eq!(link(&made.to_string()), made);
        }
        assert_eq!(Link::default().to_string(), "");
        assert!(!Link::default().is_shaped());
        assert!(link("delay=1ms").is_shaped());
    }

    #[test]
    fn errors_name_key_and_remedy() {
        for (text, key, remedy) in [
            ("", "\"\"", "1g,loss=0.1%"),
            ("2g", "\"2g\"", "fast-ethernet"),
            ("jitter=1us", "jitter", "rate=, delay="),
            ("rate=0", "rate=0", "1m to 100g"),
            ("rate=1t", "rate=1t", "rate=2.5g"),
            ("rate=-1g", "rate=-1g", "rate=2.5g"),
            ("rate=infg", "rate=infg", "rate=2.5g"),
            ("delay=50", "delay=50", "delay=50us"),
            ("delay=0.5us", "delay=0.5us", "1us to 1s"),
            ("delay=1.0005ms", "delay=1.0005ms", "whole microseconds"),
            ("delay=2s", "delay=2s", "1us to 1s"),
            ("delay=-1ms", "delay=-1ms", "delay=2.5ms"),
            ("delay=1ms,by=hand", "by=hand", "by=line"),
            ("1g,by=line", "by=line", "delay=1ms"),
            ("loss=1", "loss=1", "loss=0.1%"),
            ("loss=101%", "loss=101%", "100%"),
            ("loss=-1%", "loss=-1%", "0%"),
            ("1g,queue=0", "queue=0", "queue=256k"),
            ("1g,queue=x", "queue=x", "queue=256k"),
            ("1g,10g", "a class", "leave one out"),
            ("loss=1%,loss=2%", "loss", "leave one out"),
            ("queue=5k", "queue=", "rate=1g"),
        ] {
            let error = text.parse::<Link>().unwrap_err();
            assert!(error.starts_with("--link: "), "{error}");
            assert!(
                error.contains(key) && error.contains(remedy),
                "{text}: {error}"
            );
        }
    }
}
