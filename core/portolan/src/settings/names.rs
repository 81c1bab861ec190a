// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of settings. An unknown name is an error, because its author believes that it takes
//! effect.

use super::{ALL, Setting};
use std::collections::BTreeMap;
use thiserror::Error;

/// Prefix of a program's own options in `portolan run --option app.NAME=VALUE`.
pub const APP_PREFIX: &str = "app.";

/// Prefix of the variables of all settings except `RUST_LOG`.
pub const VARIABLE_PREFIX: &str = "PORTOLAN_";

/// Prefix of the variables of the project's own tests; no setting uses it.
const TEST_PREFIX: &str = "PORTOLAN_TEST_";

/// Prefix of the variables that `portolan sockets` sets for its library. The program may use Portolan
/// too.
const SOCKETS_PREFIX: &str = "PORTOLAN_SOCKETS_";

/// Variables of the project's tools and tests that are not settings of the library.
const TOOL_VARIABLES: [&str; 4] = [
    "PORTOLAN_BENCH_TOKEN",
    "PORTOLAN_UPDATE_HEADER",
    "PORTOLAN_MAY_SET_CLOCK",
    "PORTOLAN_PROFILE",
];

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnknownSetting {
    /// An option of the job.
    #[error(
        "option {name}: Portolan has no such setting; the closest is {closest}, and `portolan info` \
         lists all; write {APP_PREFIX}{name} for an option of the program"
    )]
    Option {
        /// The name.
        name: String,
        /// The most similar option.
        closest: &'static str,
    },
    /// An option of the program's own, without a name.
    #[error("option {APP_PREFIX} has no name: write {APP_PREFIX}NAME for an option of the program")]
    Nameless,
    /// A variable in the environment.
    #[error(
        "{name} in the environment: Portolan has no such setting; the closest is {closest}, and \
         `portolan info` lists all; unset it, or rename it if it belongs to the program"
    )]
    Variable {
        /// The name.
        name: String,
        /// The most similar variable.
        closest: &'static str,
    },
}

/// Refuses the name of an option that is neither a setting nor an option of the program's own.
///
/// # Errors
/// [`UnknownSetting`].
pub fn check_option(name: &str) -> Result<(), UnknownSetting> {
    let known = || ALL.iter().filter_map(|setting| setting.option);
    if name == APP_PREFIX {
        return Err(UnknownSetting::Nameless);
    }
    let is_own = name.starts_with(APP_PREFIX);
    if is_own || known().any(|option| option == name) {
        return Ok(());
    }
    Err(UnknownSetting::Option {
        name: name.to_owned(),
        closest: closest(known(), name),
    })
}

/// Refuses a variable that has Portolan's prefix and is not a setting.
///
/// # Errors
/// [`UnknownSetting`].
pub fn check_variable(name: &str) -> Result<(), UnknownSetting> {
    let known = || ALL.iter().map(|setting: &Setting| setting.variable);
    let is_foreign = !name.starts_with(VARIABLE_PREFIX);
    if is_foreign || is_tool_variable(name) || known().any(|variable| variable == name) {
        return Ok(());
    }
    Err(UnknownSetting::Variable {
        name: name.to_owned(),
        closest: closest(known(), name),
    })
}

/// Checks all variables of this process.
///
/// # Errors
/// [`UnknownSetting`].
pub fn check_variables() -> Result<(), UnknownSetting> {
    let mut names: Vec<String> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    // Sorted, so that every run reports the same name.
    names.sort();
    names.iter().try_for_each(|name| check_variable(name))
}

/// Checks all options of a job.
pub(crate) fn check_options(options: &BTreeMap<String, String>) -> Result<(), UnknownSetting> {
    options.keys().try_for_each(|name| check_option(name))
}

/// Returns whether a variable belongs to the project's tools and tests.
pub(super) fn is_tool_variable(variable: &str) -> bool {
    [TEST_PREFIX, SOCKETS_PREFIX]
        .iter()
        .any(|prefix| variable.starts_with(prefix))
        || TOOL_VARIABLES.contains(&variable)
}

/// Returns the name in `known` with the smallest edit distance: wrong, missing, extra or exchanged
/// letters.
fn closest(known: impl Iterator<Item = &'static str>, name: &str) -> &'static str {
    let asked = name.to_lowercase();
    known
        .min_by_key(|known| strsim::osa_distance(&known.to_lowercase(), &asked))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typo_is_refused_with_a_suggestion() {
        for (name, meant) in [("atuh", "auth"), ("Auth", "auth"), ("schedle", "schedule")] {
            let text = check_option(name).unwrap_err().to_string();
            assert!(text.contains(&format!("the closest is {meant},")), "{text}");
        }
        for (name, meant) in [
            ("PORTOLAN_SCHEDLE", "PORTOLAN_SCHEDULE"),
            ("PORTOLAN_PEER_TIMOEUT", "PORTOLAN_PEER_TIMEOUT"),
            ("PORTOLAN_ATUH", "PORTOLAN_AUTH"),
        ] {
            let text = check_variable(name).unwrap_err().to_string();
            assert!(text.contains(&format!("the closest is {meant},")), "{text}");
        }
    }

    #[test]
    fn unknown_setting_is_refused() {
        assert!(
            check_option("colour")
                .unwrap_err()
                .to_string()
                .contains("app.colour")
        );
        assert!(check_variable("PORTOLAN_HOME").is_err());
        assert!(check_option("app.").is_err());
        assert!(check_option("").is_err());
    }

    #[test]
    fn known_settings_and_program_options_pass() {
        for setting in ALL {
            assert_eq!(check_variable(setting.variable), Ok(()));
            if let Some(option) = setting.option {
                assert_eq!(check_option(option), Ok(()));
            }
        }
        for foreign in ["PATH", "PORTOLANO", "PORTOLAN_TEST_ROLE", "GAMMA_QOS"] {
            assert_eq!(check_variable(foreign), Ok(()));
        }
        assert_eq!(check_option("app.auth"), Ok(()));
    }
}
