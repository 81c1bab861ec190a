// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text form of fault probabilities.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Probabilities of each fault, each for one datagram, between 0 and 1.
///
/// As text: `drop=0.01,dup=0.005,reorder=0.02,corrupt=0.001,delay=0.01:200us,seed=7`. Omitted
/// settings are 0. Times have one of the units ns, us, ms, s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultSpec {
    /// Probability of a loss.
    pub drop: f64,
    /// Probability of a duplicate.
    pub duplicate: f64,
    /// Probability of being overtaken by the next datagram.
    pub reorder: f64,
    /// Probability of one flipped bit.
    pub corrupt: f64,
    /// Probability of a delay by `delay_by`.
    pub delay: f64,
    /// Length of a delay.
    pub delay_by: Duration,
    /// Seed of the random numbers. The same seed and the same frames give the same faults.
    pub seed: u64,
}

/// Syntax error in the text of a [`FaultSpec`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FaultSpecError {
    /// Unknown setting, or no `=`.
    #[error("fault setting `{0}`: write drop=, dup=, reorder=, corrupt=, delay= or seed=")]
    Unknown(String),
    /// Repeated setting.
    #[error("fault setting `{0}` is given twice; remove one")]
    Twice(String),
    /// Invalid probability.
    #[error("fault setting `{0}`: `{1}` is not a probability; write a number from 0 to 1")]
    Probability(String, String),
    /// Invalid delay.
    #[error("fault setting `delay`: `{0}` is not a delay; write it like 0.01:200us")]
    Delay(String),
    /// Invalid seed.
    #[error("fault setting `seed`: `{0}` is not a seed; write an integer from 0 to 2^64 - 1")]
    Seed(String),
}

impl FromStr for FaultSpec {
    type Err = FaultSpecError;

    fn from_str(text: &str) -> Result<Self, FaultSpecError> {
        let mut spec = FaultSpec::default();
        let mut seen = Vec::new();
        for setting in text
            .split(',')
            .map(str::trim)
            .filter(|setting| !setting.is_empty())
        {
            let unknown = || FaultSpecError::Unknown(setting.to_owned());
            let (name, value) = setting.split_once('=').ok_or_else(unknown)?;
            if seen.contains(&name) {
                return Err(FaultSpecError::Twice(name.to_owned()));
            }
            seen.push(name);
            match name {
                "drop" => spec.drop = probability(name, value)?,
                "dup" => spec.duplicate = probability(name, value)?,
                "reorder" => spec.reorder = probability(name, value)?,
                "corrupt" => spec.corrupt = probability(name, value)?,
                "delay" => (spec.delay, spec.delay_by) = delay(value)?,
                "seed" => {
                    let wrong = |_| FaultSpecError::Seed(value.to_owned());
                    spec.seed = value.parse().map_err(wrong)?;
                }
                _ => return Err(unknown()),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultSpec {
            drop,
            duplicate,
            reorder,
            corrupt,
            delay,
            delay_by,
            seed,
        } = self;
        let by = delay_by.as_nanos();
        write!(
            f,
            "drop={drop},dup={duplicate},reorder={reorder},corrupt={corrupt},\
             delay={delay}:{by}ns,seed={seed}"
        )
    }
}

fn probability(name: &str, text: &str) -> Result<f64, FaultSpecError> {
    match text.parse() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(FaultSpecError::Probability(
            name.to_owned(),
            text.to_owned(),
        )),
    }
}

fn delay(text: &str) -> Result<(f64, Duration), FaultSpecError> {
    let wrong = || FaultSpecError::Delay(text.to_owned());
    let (chance, time) = text.split_once(':').ok_or_else(wrong)?;
    let time = parse_time(time).ok_or_else(wrong)?;
    Ok((probability("delay", chance)?, time))
}

/// Parses a whole number with one of the units ns, us, ms, s.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit_ns = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    Some(Duration::from_nanos(number.checked_mul(unit_ns)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_settings_are_parsed() {
        let text = "drop=0.01,dup=0.005, reorder=0.02,corrupt=1,delay=0.5:200us,seed=7";
        let spec: FaultSpec = text.parse().unwrap();
        let delay_by = Duration::from_micros(200);
        let expected = FaultSpec {
            drop: 0.01,
            duplicate: 0.005,
            reorder: 0.02,
            corrupt: 1.0,
            delay: 0.5,
            delay_by,
            seed: 7,
        };
        assert_eq!(spec, expected);
        assert_eq!(spec.to_string().parse(), Ok(spec));
        assert_eq!("".parse(), Ok(FaultSpec::default()));
    }

    #[test]
    fn errors_name_the_setting() {
        let message = |text: &str| text.parse::<FaultSpec>().unwrap_err().to_string();
        assert!(message("loss=0.1").contains("`loss=0.1`"));
        assert!(message("drop").contains("write drop="));
        assert!(message("drop=1.5").contains("from 0 to 1"));
        assert!(message("drop=NaN").contains("from 0 to 1"));
        assert!(message("drop=0.1,drop=0.2").contains("twice"));
        for text in ["0.1", "0.1:200", "0.1:us", "0.1:2h", "0.1:99999999999999s"] {
            assert!(message(&format!("delay={text}")).contains(text), "{text}");
        }
        assert!(message("delay=2:1us").contains("from 0 to 1"));
        assert!(message("seed=-1").contains("`-1`"));
    }
}
