// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depth-first traversal of a directory. A directory begins before its entries and ends after them.

use super::Composer;
use crate::entry::{Attributes, Entry, Meta, Record, What};
use crate::fault::Fault;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A directory on the current path.
struct Level {
    path: PathBuf,
    names: std::vec::IntoIter<Vec<u8>>,
}

impl Composer<'_> {
    pub(super) fn read_tree(&mut self, root: &Path) -> Result<(), Fault> {
        let stat = rustix::fs::stat(root).map_err(|errno| Fault::file(root, "read", errno))?;
        let mut levels = vec![self.enter(root, Vec::new(), &stat)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                self.records.push(Record::End);
                continue;
            };
            let path = level.path.join(crate::path_of(&name));
            match self.visit(root, &path) {
                Ok(next) => levels.extend(next),
                Err(Fault::File { errno, .. })
                    if Errno::from_io_error(&errno) == Some(Errno::NOENT) =>
                {
                    self.totals.vanished += 1;
                    let shown = crate::fault::shown(&path);
                    self.out
                        .warn(format!("{shown} was removed while the directory was read"));
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Adds the entry `path`. Returns the level to enter if it is a directory.
    fn visit(&mut self, root: &Path, path: &Path) -> Result<Option<Level>, Fault> {
        let stat = rustix::fs::lstat(path).map_err(|errno| Fault::file(path, "read", errno))?;
        let name = path
            .strip_prefix(root)
            .unwrap_or(path)
            .as_os_str()
            .as_bytes()
            .to_vec();
        let file_type = FileType::from_raw_mode(stat.st_mode);
        let has_names = file_type != FileType::Directory && stat.st_nlink > 1;
        let inode = (stat.st_dev, stat.st_ino);
        if let Some(first) = self.links.get(&inode).filter(|_| has_names) {
            let what = What::HardLink { to: first.clone() };
            let meta = Meta::default();
            self.push_entry(Entry {
                path: name,
                what,
                meta,
            })?;
            return Ok(None);
        }
        let linked_name = has_names.then(|| name.clone());
        match file_type {
            FileType::Directory => return self.enter(path, name, &stat).map(Some),
            FileType::RegularFile => self.add_regular(path, name)?,
            FileType::Symlink => {
                let target = rustix::fs::readlink(path, Vec::new())
                    .map_err(|errno| Fault::file(path, "read", errno))?;
                self.add_other(
                    path,
                    name,
                    &stat,
                    What::Symlink {
                        target: target.into_bytes(),
                    },
                )?;
            }
            FileType::Socket => {
                let shown = crate::fault::shown(path);
                self.out.warn(format!("{shown} is a socket and is omitted"));
                return Ok(None);
            }
            _ => {
                let what = What::Special {
                    file_type: stat.st_mode & !0o7777,
                    device: stat.st_rdev,
                };
                self.add_other(path, name, &stat, what)?;
            }
        }
        // Only now: an entry that was omitted has no copy to link to.
        if let Some(name) = linked_name {
            self.links.insert(inode, name);
        }
        Ok(None)
    }

    fn enter(&mut self, path: &Path, name: Vec<u8>, stat: &Stat) -> Result<Level, Fault> {
        let unreadable = |errno| Fault::file(path, "listed", errno);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            names.push(entry.map_err(unreadable)?.file_name().into_vec());
        }
        let meta = Meta::new(stat, path_attributes(path)?);
        self.push_entry(Entry {
            path: name,
            what: What::Directory,
            meta,
        })?;
        Ok(Level {
            path: path.to_owned(),
            names: names.into_iter(),
        })
    }

    fn add_regular(&mut self, path: &Path, name: Vec<u8>) -> Result<(), Fault> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
        let file = File::from(opened.map_err(|errno| Fault::file(path, "opened", errno))?);
        let stat = rustix::fs::fstat(&file).map_err(|errno| Fault::file(path, "read", errno))?;
        let meta = Meta::new(&stat, attributes(path, &file)?);
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        // Blocks of 512 bytes (stat(2)).
        let has_holes = u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512)
            < len;
        self.add_file(name, meta, file, path, (len, has_holes))
    }

    fn add_other(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        stat: &Stat,
        what: What,
    ) -> Result<(), Fault> {
        let meta = Meta::new(stat, path_attributes(path)?);
        self.push_entry(Entry {
            path: name,
            what,
            meta,
        })
    }
}

/// Maximum length of the list of names and of the value of an extended attribute (xattr(7)).
const ATTRIBUTE_LEN_MAX: usize = 64 << 10;

/// Reads the extended attributes of an open file.
pub(super) fn attributes(path: &Path, file: &File) -> Result<Attributes, Fault> {
    list(
        path,
        |buffer| rustix::fs::flistxattr(file, buffer),
        |name, buffer| rustix::fs::fgetxattr(file, name, buffer),
    )
}

/// Reads the extended attributes of a path, without following a symbolic link.
fn path_attributes(path: &Path) -> Result<Attributes, Fault> {
    list(
        path,
        |buffer| rustix::fs::llistxattr(path, buffer),
        |name, buffer| rustix::fs::lgetxattr(path, name, buffer),
    )
}

fn list(
    path: &Path,
    names: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    value: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Attributes, Fault> {
    let unreadable = |errno| Fault::file(path, "read (its extended attributes)", errno);
    let mut buffer = vec![0; ATTRIBUTE_LEN_MAX];
    let len = match names(&mut buffer) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(len) => len,
        Err(errno) => return Err(unreadable(errno)),
    };
    let mut found = Vec::new();
    for name in buffer[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut bytes = vec![0; ATTRIBUTE_LEN_MAX];
        match value(name, &mut bytes) {
            Ok(len) => {
                bytes.truncate(len);
                found.push((name.to_vec(), bytes));
            }
            // Removed in the meantime, or not accessible to this user.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(unreadable(errno)),
        }
    }
    Ok(found)
}
