// SPDX-License-Identifier: MIT OR Apache-2.0
//! Setting `fragments`: the frames of lone messages that need several.
//!
//! The one invariant: without the setting and without a model, all frames are whole.

use crate::error::Error;
use crate::launch::Job;
use crate::model::{Choices, LoneFrames};
use crate::settings;
use crate::unexpected::parse_len;
use portolan_proto::{Choice, FRAME_PAYLOAD_LEN_MIN, FRAME_STEPS, LinkId};

/// Value of the setting.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fragments {
    /// As the stored model decides.
    Auto,
    /// Whole frames.
    Whole,
    /// Frames by ascending message length.
    Table(Vec<LoneFrames>),
}

/// Returns the choice of `stored` with the frames by the setting of `job`. The frames of a model
/// are those of raw Ethernet, to which alone they apply.
///
/// # Errors
/// [`Error::Setting`].
pub(crate) fn choice(job: &Job, stored: &Choices) -> Result<Choice, Error> {
    let mut choices = stored.clone();
    let mut frames_on = Some(LinkId::PACKET);
    match parse(settings::FRAGMENTS.of(job).as_deref())? {
        Fragments::Auto => {}
        Fragments::Whole => choices.frames.clear(),
        Fragments::Table(frames) => {
            // Messages of the table take the path on which a frame is sent at once.
            let longest = frames.last().map_or(0, |step| step.message_len_max);
            let longest = usize::try_from(longest).unwrap_or(usize::MAX);
            choices.packet_len_max = choices.packet_len_max.max(longest);
            choices.frames = frames;
            frames_on = None;
        }
    }
    Ok(Choice {
        frames_on,
        ..choices.to_core()
    })
}

/// Checks the setting of `job`.
///
/// # Errors
/// [`Error::Setting`].
pub(crate) fn check(job: &Job) -> Result<(), Error> {
    parse(settings::FRAGMENTS.of(job).as_deref()).map(|_| ())
}

fn parse(value: Option<&str>) -> Result<Fragments, Error> {
    match value {
        None | Some("auto") => Ok(Fragments::Auto),
        Some("whole") => Ok(Fragments::Whole),
        Some(table) => {
            let steps: Option<Vec<LoneFrames>> = table.split(',').map(step).collect();
            let steps = steps.filter(|steps| steps.len() <= FRAME_STEPS && is_ascending(steps));
            steps.map(Fragments::Table).ok_or_else(|| Error::Setting {
                name: "fragments",
                value: table.to_owned(),
                why: format!(
                    "write auto, whole, or at most {FRAME_STEPS} ascending message lengths with the \
                     message bytes in a frame, from {FRAME_PAYLOAD_LEN_MIN} on, such as \
                     1664:256,5148:384"
                ),
            })
        }
    }
}

fn step(text: &str) -> Option<LoneFrames> {
    let (message_len_max, frame_len) = text.split_once(':')?;
    let frame_len = usize::try_from(parse_len(frame_len)?).ok()?;
    Some(LoneFrames {
        message_len_max: parse_len(message_len_max)?,
        frame_len: Some(frame_len).filter(|len| *len >= FRAME_PAYLOAD_LEN_MIN)?,
    })
}

fn is_ascending(steps: &[LoneFrames]) -> bool {
    let mut pairs = steps.iter().zip(steps.iter().skip(1));
    pairs.all(|(one, next)| one.message_len_max < next.message_len_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> Result<Choice, Error> {
        let mut job = Job::alone([0; 16], [0; 32]);
        job.options.insert("fragments".into(), value.into());
        let stored = Choices {
            packet_len_max: 3000,
            frames: vec![LoneFrames {
                message_len_max: 3000,
                frame_len: 700,
            }],
            ..Choices::default()
        };
        choice(&job, &stored)
    }

    fn steps(value: &str) -> Vec<(u64, usize)> {
        let choice = of(value).unwrap();
        let used = choice.frames.iter().filter(|step| step.message_len_max > 0);
        used.map(|step| (step.message_len_max, step.payload_len))
            .collect()
    }

    #[test]
    fn model_applies_to_raw_ethernet_unless_the_setting_excludes_it() {
        assert_eq!(steps("auto"), [(3000, 700)]);
        assert_eq!(of("auto").unwrap().frames_on, Some(LinkId::PACKET));
        assert_eq!(steps("whole"), []);
        assert_eq!(of("whole").unwrap().small_run_len_max, 3000);
    }

    #[test]
    fn table_replaces_the_model() {
        let table = "1664:256,5K:384,12000:896";
        assert_eq!(steps(table), [(1664, 256), (5120, 384), (12_000, 896)]);
        assert_eq!(of(table).unwrap().frames_on, None);
        assert_eq!(of(table).unwrap().small_run_len_max, 12_000);
        assert_eq!(of("1664:256").unwrap().small_run_len_max, 3000);
    }

    #[test]
    fn invalid_tables_are_refused() {
        let nine = (1..=9).map(|step| format!("{step}000:256"));
        let nine = nine.collect::<Vec<_>>().join(",");
        for value in [
            "",
            "adaptive",
            "256",
            "1000:127",
            "1000:",
            ":256",
            "2000:256,1000:384",
            "2000:256,2000:384",
            "2000:256,",
            &nine,
        ] {
            let error = of(value).unwrap_err();
            let is_named = matches!(
                &error,
                Error::Setting {
                    name: "fragments",
                    ..
                }
            );
            assert!(is_named, "{value}: {error}");
        }
    }
}
