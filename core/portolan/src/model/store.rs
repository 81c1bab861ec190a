// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storage of the model, with the checks on loading it.
//!
//! A failed load is never fatal: a job runs without a model, by defaults. A failed save is an
//! error, which `portolan tune` reports.

use super::{Host, Model, SCHEMA};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Longest file that is read, in bytes: a model takes a few kilobytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// State of the stored model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// In use: the model in this file.
    Used(PathBuf),
    /// No model is stored.
    Absent,
    /// Switched off by a setting.
    Off,
    /// Refused: the file, and the reason.
    Refused(PathBuf, String),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Used(file) => write!(f, "used, {}", file.display()),
            Status::Absent => f.write_str("none, defaults hold; `portolan tune` measures one"),
            Status::Off => f.write_str("switched off, defaults hold"),
            Status::Refused(file, why) => write!(
                f,
                "refused, defaults hold: {}: {why}; run `portolan tune` again",
                file.display()
            ),
        }
    }
}

/// Reason for which a model could not be stored.
#[derive(Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No directory for the user's settings is known.
    #[error("neither XDG_CONFIG_HOME nor HOME names a directory to keep the model in; set one")]
    NoDirectory,
    /// The system refused to write the file.
    #[error("the model cannot be written to {}: {errno}; make it writable, or name another \
             directory in XDG_CONFIG_HOME", file.display())]
    Write {
        /// File that could not be written.
        file: PathBuf,
        /// Error of the system.
        errno: io::Error,
    },
}

/// Formats the error as its sentence, because `main` prints a returned error in this form.
impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the user's model file: `portolan/model.json` under `XDG_CONFIG_HOME`, or under
/// `~/.config`.
#[must_use]
pub fn default_file() -> Option<PathBuf> {
    file_in(
        std::env::var_os("XDG_CONFIG_HOME"),
        std::env::var_os("HOME"),
    )
}

/// Ignores relative paths, as the XDG base directory specification requires.
fn file_in(config: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let config = config.and_then(absolute);
    let base = config.or_else(|| Some(home.and_then(absolute)?.join(".config")))?;
    Some(base.join("portolan/model.json"))
}

/// Loads the model that `setting` names (a file, or `off`), or the user's own.
#[must_use]
pub fn load(setting: Option<&str>) -> (Option<Model>, Status) {
    let file = match setting {
        Some("off") => return (None, Status::Off),
        Some(file) => Some(PathBuf::from(file)),
        None => default_file(),
    };
    let Some(file) = file else {
        return (None, Status::Absent);
    };
    match read(&file, &Host::current()) {
        Ok(Some(model)) => (Some(model), Status::Used(file)),
        // A file that a setting names must exist.
        Ok(None) if setting.is_some() => {
            (None, Status::Refused(file, "there is no such file".into()))
        }
        Ok(None) => (None, Status::Absent),
        Err(why) => (None, Status::Refused(file, why)),
    }
}

fn read(file: &Path, here: &Host) -> Result<Option<Model>, String> {
    let meta = match fs::metadata(file) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    // A device or a pipe of that name must not block the start of a job.
    if !meta.is_file() || meta.len() > FILE_LEN_MAX {
        return Err("it is not a file that `portolan tune` has written".into());
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("it is not JSON: {error}"))?;
    let schema = value.get("schema").and_then(serde_json::Value::as_u64);
    if schema != Some(u64::from(SCHEMA)) {
        return Err(format!("it is not of schema {SCHEMA}"));
    }
    let model: Model =
        serde_json::from_value(value).map_err(|error| format!("it is not a model: {error}"))?;
    match here.difference(&model.host) {
        Some(difference) => Err(difference),
        None => model.check().map(|()| Some(model)),
    }
}

impl Model {
    /// Checks that the costs from the file are usable numbers.
    fn check(&self) -> Result<(), String> {
        for path in &self.paths {
            if !path.is_sane() {
                return Err(format!("the costs of {} are not costs", path.path));
            }
        }
        Ok(())
    }
}

/// Stores `model` in `file` and creates its directories. A concurrent reader gets either the old
/// model or the new one, complete.
///
/// # Errors
/// [`StoreError::Write`].
pub fn save(model: &Model, file: &Path) -> Result<(), StoreError> {
    write(model, file).map_err(|errno| StoreError::Write {
        file: file.to_owned(),
        errno,
    })
}

/// Checks, before a long measurement, that a model could be stored in `file`. Creates its
/// directories.
///
/// # Errors
/// As [`save`].
pub fn check_writable(file: &Path) -> Result<(), StoreError> {
    let draft = draft_of(file);
    let tried = make_directories(file).and_then(|()| fs::File::create(&draft));
    let removed = tried.and_then(|_| fs::remove_file(&draft));
    removed.map_err(|errno| StoreError::Write {
        file: file.to_owned(),
        errno,
    })
}

fn make_directories(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)
}

fn draft_of(file: &Path) -> PathBuf {
    file.with_extension(format!("{}.tmp", std::process::id()))
}

fn write(model: &Model, file: &Path) -> io::Result<()> {
    make_directories(file)?;
    let mut json = serde_json::to_vec_pretty(model)?;
    json.push(b'\n');
    let draft = draft_of(file);
    let written = fs::File::create(&draft).and_then(|mut draft| draft.write_all(&json));
    let renamed = written.and_then(|()| fs::rename(&draft, file));
    if renamed.is_err() {
        // May never have been created; the first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    renamed
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn file_follows_the_base_directory_specification() {
        let of = |config: &str, home: &str| file_in(Some(config.into()), Some(home.into()));
        let at = |path: &str| Some(PathBuf::from(path));
        assert_eq!(of("/c", "/h"), at("/c/portolan/model.json"));
        assert_eq!(of("", "/h"), at("/h/.config/portolan/model.json"));
        assert_eq!(of("relative", "/h"), at("/h/.config/portolan/model.json"));
        assert_eq!(file_in(None, None), None);
    }

    #[test]
    fn disabled_model_is_not_read() {
        assert_eq!(load(Some("off")), (None, Status::Off));
    }

    #[test]
    fn missing_named_file_is_reported() {
        let (model, status) = load(Some("/nowhere/model.json"));
        assert_eq!(model, None);
        assert!(status.to_string().contains("no such file"), "{status}");
    }

    pub(crate) fn read_as(file: &Path, here: &Host) -> Result<Option<Model>, String> {
        read(file, here)
    }
}
