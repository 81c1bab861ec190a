// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unfinished copy beside the target: its name, its lock, and its removal.

use crate::fault::Fault;
use rustix::fs::FlockOperation;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest file name (`NAME_MAX`, limits.h).
const NAME_LEN_MAX: usize = 255;

const SUFFIX: &[u8] = b".portolan-part";

/// Returns the path of the unfinished copy of `target`. It is always the same, so that the next
/// cast finds it.
pub(super) fn path(target: &Path) -> Result<PathBuf, Fault> {
    let Some(name) = target.file_name() else {
        return Err(Fault::refused(
            target,
            "does not name a file: give the full path of the copy",
        ));
    };
    let mut part = OsString::from(".");
    let len_max = NAME_LEN_MAX - SUFFIX.len() - 1;
    let name = name.as_bytes();
    part.push(OsStr::from_bytes(&name[..name.len().min(len_max)]));
    part.push(OsStr::from_bytes(SUFFIX));
    Ok(target.with_file_name(part))
}

/// Locks the unfinished copy against other casts until the file is closed.
pub(super) fn lock(path: &Path, file: &File) -> Result<(), Fault> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Fault::refused(
            path,
            "another cast is writing to it: wait until it ends, or cast to another path",
        )),
        // The file system has no locks.
        Err(_) => Ok(()),
    }
}

/// Removes a file, or a directory with its contents. A missing path is not an error.
pub(super) fn remove(path: &Path) -> Result<(), Fault> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(errno) if errno.kind() != ErrorKind::NotFound => {
            Err(Fault::file(path, "removed", errno))
        }
        _ => Ok(()),
    }
}

/// Path to remove if the cast does not complete here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cleanup(Arc<Mutex<Option<PathBuf>>>);

impl Cleanup {
    /// Sets the path of the unfinished copy.
    pub(super) fn set(&self, path: Option<PathBuf>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = path;
    }

    /// Removes the unfinished copy.
    pub(crate) fn run(&self) {
        let path = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(path) = path else {
            return;
        };
        if let Err(fault) = remove(&path) {
            log::error!("{fault}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_copy_is_beside_the_target() {
        let part = |target: &str| path(Path::new(target)).unwrap();
        assert_eq!(part("/a/b.img"), Path::new("/a/.b.img.portolan-part"));
        let long = "x".repeat(255);
        assert_eq!(part(&format!("/a/{long}")).file_name().unwrap().len(), 255);
        assert!(path(Path::new("/")).is_err());
    }

    #[test]
    fn part_is_locked_by_one_cast() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("part");
        let first = File::create(&path).unwrap();
        lock(&path, &first).unwrap();
        let second = File::open(&path).unwrap();
        assert!(
            lock(&path, &second)
                .unwrap_err()
                .to_string()
                .contains("another cast")
        );
        drop(first);
        lock(&path, &second).unwrap();
    }
}
