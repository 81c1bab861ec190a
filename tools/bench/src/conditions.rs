// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditions of a row: settings of Portolan's job, and network properties that affect all systems.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Parts per million in a percent.
pub(crate) const PPM_PER_PERCENT: f64 = 10_000.0;

/// Address of a job's brokers, in the abstract socket namespace of each host.
pub const BROKER: &str = "@portolan-bench";

/// Destination of received bulk payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Placement {
    /// A buffer of the library, copied afterwards.
    Bounce,
    /// The predicted positions of the next fragments, copied if the prediction was wrong.
    Speculative,
    /// The cheaper of the two on this machine.
    Auto,
}

/// Placements as the user requests them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlacementChoice {
    /// A buffer of the library, copied afterwards.
    Bounce,
    /// The predicted positions of the next fragments, copied if the prediction was wrong.
    Speculative,
    /// The cheaper of the two on this machine.
    Auto,
    /// All of these, one row each.
    All,
}

impl PlacementChoice {
    /// Returns the placements that the choice expands to.
    pub(crate) fn placements(self) -> &'static [Placement] {
        match self {
            PlacementChoice::Bounce => &[Placement::Bounce],
            PlacementChoice::Speculative => &[Placement::Speculative],
            PlacementChoice::Auto => &[Placement::Auto],
            PlacementChoice::All => &[Placement::Bounce, Placement::Speculative, Placement::Auto],
        }
    }
}

/// Order in which a receiver serves competing transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Schedule {
    /// Transfer with the least remaining data first.
    Shortest,
    /// All transfers equally.
    Fair,
    /// One transfer until it ends.
    Exclusive,
}

/// Authentication of network frames; see `docs/reference/security.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Auth {
    /// No authentication, as a baseline for the other modes.
    None,
    /// A secret token in each frame.
    Token,
    /// Frames encrypted and authenticated with AES-128-GCM.
    Aead,
    /// Frames encrypted and authenticated with AES-256-GCM.
    #[value(name = "aead-aes256")]
    #[serde(rename = "aead-aes256")]
    AeadAes256,
    /// Frames encrypted and authenticated with ChaCha20-Poly1305.
    #[value(name = "aead-chacha20")]
    #[serde(rename = "aead-chacha20")]
    AeadChaCha20,
}

/// Conditions of a row. The default is an undisturbed network and Portolan's default settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Job option `placement`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) placement: Option<Placement>,
    /// Job option `schedule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<Schedule>,
    /// Job option `auth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auth: Option<Auth>,
    /// Job option `frame_len_max`: bytes of the longest frames; 0 uses the longest that the MTU
    /// allows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frame_len_max: u32,
    /// Set if the ranks run without privileges and a broker opens their raw Ethernet sockets.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) broker: bool,
    /// Packets that the network drops at random in each direction, in parts per million.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub loss_ppm: u32,
    /// Datagrams of the stream per foreign datagram; 0 sends no foreign datagrams.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interfere: u32,
}

impl Conditions {
    /// Returns the options of Portolan's job.
    pub(crate) fn options(&self) -> BTreeMap<String, String> {
        let mut options: BTreeMap<String, String> = self.choices().into_iter().collect();
        if self.frame_len_max > 0 {
            options.insert("frame_len_max".into(), self.frame_len_max.to_string());
        }
        if self.broker {
            options.insert("broker".into(), BROKER.into());
        }
        if self.loss_ppm > 0 {
            // Each round needs a new seed. With a constant seed, all rounds would repeat one
            // sample.
            let seed: u64 = rand::random();
            options.insert("fault".into(), format!("drop={},seed={seed}", self.loss()));
        }
        options
    }

    /// Returns the conditions without the settings that only Portolan has.
    pub(crate) fn of_network(self) -> Conditions {
        Conditions {
            loss_ppm: self.loss_ppm,
            interfere: self.interfere,
            ..Conditions::default()
        }
    }

    /// Returns the probability that a packet is dropped.
    pub(crate) fn loss(&self) -> f64 {
        f64::from(self.loss_ppm) / 1e6
    }

    /// Returns the description of the conditions for the table; empty for the default.
    pub fn describe(&self) -> String {
        let mut words: Vec<String> = self
            .choices()
            .into_iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if self.frame_len_max > 0 {
            words.push(format!("frames of {} B", self.frame_len_max));
        }
        if self.broker {
            words.push("by a broker".into());
        }
        if self.loss_ppm > 0 {
            words.push(format!(
                "{} % lost",
                f64::from(self.loss_ppm) / PPM_PER_PERCENT
            ));
        }
        if self.interfere > 0 {
            words.push(format!("1 foreign datagram in {}", self.interfere));
        }
        words.join(", ")
    }

    fn choices(&self) -> Vec<(String, String)> {
        let name = |value: &dyn ValueName| value.value_name();
        let choices = [
            (
                "placement",
                self.placement.as_ref().map(|value| name(value)),
            ),
            ("schedule", self.schedule.as_ref().map(|value| name(value))),
            ("auth", self.auth.as_ref().map(|value| name(value))),
        ];
        let given = choices
            .into_iter()
            .filter_map(|(name, value)| Some((name.into(), value?)));
        given.collect()
    }
}

/// Name of a value on the command line, which is also the value of the job's option.
trait ValueName {
    fn value_name(&self) -> String;
}

impl<T: ValueEnum> ValueName for T {
    fn value_name(&self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde requires"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde requires"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_job_options() {
        let conditions = Conditions {
            placement: Some(Placement::Speculative),
            schedule: Some(Schedule::Fair),
            auth: Some(Auth::AeadChaCha20),
            frame_len_max: 600,
            broker: true,
            loss_ppm: 12_500,
            interfere: 0,
        };
        let options = conditions.options();
        assert_eq!(options["placement"], "speculative");
        assert_eq!(options["schedule"], "fair");
        assert_eq!(options["auth"], "aead-chacha20");
        assert_eq!(options["frame_len_max"], "600");
        assert_eq!(options["broker"], BROKER);
        assert!(
            options["fault"].starts_with("drop=0.0125,seed="),
            "{options:?}"
        );
        assert!(Conditions::default().options().is_empty());
        assert_eq!(
            conditions.describe(),
            "placement speculative, schedule fair, auth aead-chacha20, frames of 600 B, by a broker, \
             1.25 % lost"
        );
    }

    #[test]
    fn network_conditions_apply_to_all_systems() {
        let conditions = Conditions {
            placement: Some(Placement::Auto),
            loss_ppm: 1,
            interfere: 100,
            ..Conditions::default()
        };
        let network = conditions.of_network();
        assert_eq!(
            (network.placement, network.loss_ppm, network.interfere),
            (None, 1, 100)
        );
    }

    #[test]
    fn conditions_round_trip_through_json_without_defaults() {
        let conditions = Conditions {
            placement: Some(Placement::Bounce),
            ..Conditions::default()
        };
        let json = serde_json::to_string(&conditions).expect("serializes");
        assert_eq!(json, r#"{"placement":"bounce"}"#);
        assert_eq!(
            serde_json::from_str::<Conditions>("{}").expect("parses"),
            Conditions::default()
        );
    }
}
