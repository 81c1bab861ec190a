// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of the target with the source, without writing.
//!
//! Files that cannot be read count as different. Modification times are not compared, nor
//! attributes that only the copy has.

use super::Store;
use super::names::Names;
use crate::block::{Block, Kind};
use crate::entry::{Batch, Entry, Meta, Record, Totals, What, below};
use crate::event::{Checked, Event};
use crate::fault::{Fault, shown};
use crate::spec::{BLOCK_LEN, Spec};
use rustix::fs::{Advice, FileType, SeekFrom, Stat};
use std::fs::File;
use std::io::Seek;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum number of reported entries, because an unrelated directory would have very many.
const NAMED_MAX: u64 = 100;

/// An entry that has begun and is not complete.
enum Level {
    Directory {
        path: PathBuf,
        /// Names in the source; `None` if the directory does not exist here.
        names: Option<Names>,
    },
    File(Open),
}

struct Open {
    path: PathBuf,
    /// The opened file; `None` if it does not exist or cannot be read.
    file: Option<File>,
    /// Length in the source; `None` for a stream, as its length is known only at its end.
    len: Option<u64>,
    /// Set for devices, which may be longer than the source.
    may_be_longer: bool,
    /// One past the last compared byte.
    at: u64,
    blocks: u64,
    differing: u64,
    /// Offset of the first block that differs.
    first: u64,
    unreadable: Option<std::io::Error>,
    /// Differences outside the contents.
    notes: Vec<String>,
}

/// Comparison of received hashes with the target.
pub(super) struct Checker {
    target: PathBuf,
    levels: Vec<Level>,
    is_root: bool,
    hasher: blake3::Hasher,
    totals: Totals,
    checked: Checked,
    events: Vec<Event>,
    bytes: Vec<u8>,
}

impl Checker {
    pub(super) fn new(spec: &Spec, rank: u32) -> Checker {
        Checker {
            target: spec.target_path(rank).unwrap_or_default(),
            levels: Vec::new(),
            is_root: rustix::process::geteuid().is_root(),
            hasher: blake3::Hasher::new(),
            totals: Totals::default(),
            checked: Checked::default(),
            events: Vec::new(),
            bytes: Vec::new(),
        }
    }

    fn take_batch(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let batch = Batch::parse(payload)?;
        let mut hashes = batch.hashes.iter();
        for record in batch.records {
            match record {
                Record::Entry(entry) => self.begin(entry)?,
                Record::Extent { offset, len } => self.compare(offset, len, &mut hashes)?,
                Record::End => self.end()?,
            }
        }
        Ok(())
    }

    fn begin(&mut self, entry: Entry) -> Result<(), Fault> {
        self.totals.entries += 1;
        let path = below(&self.target, &entry.path)?;
        let is_known_missing = match self.levels.last_mut() {
            Some(Level::Directory { names, .. }) => {
                if let (Some(names), Some(name)) = (names.as_mut(), path.file_name()) {
                    names.insert(name);
                }
                names.is_none()
            }
            _ => false,
        };
        // As in a cast, a target name that is a symbolic link to a device stands for the device.
        let stat = match entry.path.is_empty() {
            true => rustix::fs::stat(&path),
            false => rustix::fs::lstat(&path),
        };
        let mut notes = Vec::new();
        let stat = match stat {
            Ok(stat) => Some(stat),
            Err(_) if is_known_missing => None,
            Err(errno) => {
                notes.push(unreadable_note(errno.into()));
                None
            }
        };
        if is_known_missing {
            // Its directory was already reported as missing.
            self.checked.differing += 1;
        }
        match entry.what {
            What::Directory => self.begin_directory(path, &entry.meta, stat.as_ref(), notes),
            What::File { len } => self.begin_file(path, &entry.meta, stat, Some(len), notes),
            What::Stream => self.begin_file(path, &entry.meta, stat, None, notes),
            other => {
                if let Some(stat) = &stat {
                    self.compare_other(&path, &other, &entry.meta, stat, &mut notes)?;
                }
                self.report(&path, &notes);
            }
        }
        Ok(())
    }

    fn begin_directory(
        &mut self,
        path: PathBuf,
        meta: &Meta,
        stat: Option<&Stat>,
        mut notes: Vec<String>,
    ) {
        let is_there = stat.is_some_and(|stat| kind(stat) == FileType::Directory);
        if let Some(stat) = stat {
            match is_there {
                true => self.compare_meta(&path, meta, stat, false, &mut notes),
                false => notes.push("is not a directory".into()),
            }
        }
        self.report(&path, &notes);
        let names = is_there.then(Names::default);
        self.levels.push(Level::Directory { path, names });
    }

    fn begin_file(
        &mut self,
        path: PathBuf,
        meta: &Meta,
        stat: Option<Stat>,
        len: Option<u64>,
        mut notes: Vec<String>,
    ) {
        let is_device = stat.is_some_and(|stat| kind(&stat) == FileType::BlockDevice);
        let is_file = stat.is_some_and(|stat| kind(&stat) == FileType::RegularFile);
        let mut file = None;
        if is_device || is_file {
            match File::open(&path) {
                Ok(opened) => {
                    // Only a hint. Without it reading may be slower.
                    let _ = rustix::fs::fadvise(&opened, 0, None, Advice::Sequential);
                    file = Some(opened);
                }
                Err(errno) => notes.push(unreadable_note(errno)),
            }
        } else if stat.is_some() {
            notes.push("is not a regular file".into());
        }
        if let Some(stat) = stat.filter(|_| is_file && len.is_some()) {
            self.compare_meta(&path, meta, &stat, false, &mut notes);
        }
        self.levels.push(Level::File(Open {
            path,
            file,
            len,
            may_be_longer: is_device,
            at: 0,
            blocks: 0,
            differing: 0,
            first: 0,
            unreadable: None,
            notes,
        }));
    }

    /// Compares an entry without contents.
    fn compare_other(
        &self,
        path: &Path,
        what: &What,
        meta: &Meta,
        stat: &Stat,
        notes: &mut Vec<String>,
    ) -> Result<(), Fault> {
        match what {
            What::Symlink { target } => {
                let target_here = rustix::fs::readlink(path, Vec::new());
                if target_here.is_ok_and(|target_here| target_here.as_bytes() == target.as_slice())
                {
                    self.compare_meta(path, meta, stat, true, notes);
                } else {
                    let target = shown(&crate::path_of(target));
                    notes.push(format!("is not a symbolic link to {target}"));
                }
            }
            What::HardLink { to } => {
                let first = below(&self.target, to)?;
                let is_same = rustix::fs::lstat(&first)
                    .is_ok_and(|first| (first.st_dev, first.st_ino) == (stat.st_dev, stat.st_ino));
                if !is_same {
                    notes.push(format!("is not a hard link to {}", shown(&first)));
                }
            }
            What::Special { file_type, device } => {
                if stat.st_mode & !0o7777 == *file_type && stat.st_rdev == *device {
                    self.compare_meta(path, meta, stat, false, notes);
                } else {
                    notes.push("is a file of another type".into());
                }
            }
            // Entries with contents are compared elsewhere.
            What::File { .. } | What::Stream | What::Directory => {}
        }
        Ok(())
    }

    fn compare_meta(
        &self,
        path: &Path,
        meta: &Meta,
        stat: &Stat,
        is_symlink: bool,
        notes: &mut Vec<String>,
    ) {
        let mode = stat.st_mode & 0o7777;
        if !is_symlink && mode != meta.mode {
            let source = meta.mode;
            notes.push(format!("has permissions {mode:o} instead of {source:o}"));
        }
        // Without root, copies belong to the user, so owners are not compared.
        if self.is_root && (stat.st_uid, stat.st_gid) != (meta.uid, meta.gid) {
            notes.push(format!(
                "belongs to {}:{} instead of {}:{}",
                stat.st_uid, stat.st_gid, meta.uid, meta.gid
            ));
        }
        for (name, value) in &meta.attributes {
            let mut there = vec![0; value.len() + 1];
            let len = rustix::fs::lgetxattr(path, name.as_slice(), &mut there);
            if !len.is_ok_and(|len| there.get(..len) == Some(value)) {
                let name = String::from_utf8_lossy(name);
                notes.push(format!("has another value of extended attribute {name}"));
            }
        }
    }

    /// Compares an extent with its hashes, one per [`BLOCK_LEN`].
    fn compare<'a>(
        &mut self,
        offset: u64,
        len: u64,
        hashes: &mut impl Iterator<Item = &'a [u8; 32]>,
    ) -> Result<(), Fault> {
        let Some(Level::File(open)) = self.levels.last_mut() else {
            return Err(Fault::Protocol("data without a file"));
        };
        open.compare_hole(offset, &mut self.bytes);
        let mut at = offset;
        while at < offset + len {
            let step = (offset + len - at).min(u64::from(BLOCK_LEN));
            let hash = hashes
                .next()
                .ok_or(Fault::Protocol("data without a hash"))?;
            let is_same = open.read(at, step, &mut self.bytes)
                && blake3::hash(&self.bytes).as_bytes() == hash;
            open.count(at, is_same);
            at += step;
        }
        open.at = at;
        self.totals.bytes += len;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        match self.levels.pop() {
            Some(Level::File(mut open)) => {
                let len = open.len.unwrap_or(open.at);
                open.compare_hole(len, &mut self.bytes);
                open.conclude(len);
                self.checked.blocks += open.blocks;
                self.checked.differing_blocks += open.differing;
                self.report(&open.path, &open.notes);
            }
            Some(Level::Directory {
                path,
                names: Some(names),
            }) => self.report_extra_entries(&path, &names),
            Some(Level::Directory { names: None, .. }) => {}
            None => return Err(Fault::Protocol("an end without an open entry")),
        }
        Ok(())
    }

    /// Reports entries that the source does not have.
    fn report_extra_entries(&mut self, path: &Path, names: &Names) {
        match std::fs::read_dir(path) {
            Ok(entries) => {
                for entry in entries.flatten() {
                    if !names.has(&entry.file_name()) {
                        self.report(&entry.path(), &["is not in the source".into()]);
                    }
                }
            }
            Err(errno) => self.report(path, &[unreadable_note(errno)]),
        }
    }

    /// Counts and reports an entry that has differences.
    fn report(&mut self, path: &Path, notes: &[String]) {
        if notes.is_empty() {
            return;
        }
        self.checked.differing += 1;
        if self.checked.differing <= NAMED_MAX {
            self.events.push(Event::Differs {
                path: shown(path),
                why: notes.join("; "),
            });
        }
    }
}

impl Open {
    /// Reads `len` bytes; returns `false` if they are not all present.
    fn read(&mut self, offset: u64, len: u64, bytes: &mut Vec<u8>) -> bool {
        let Some(file) = &self.file else {
            return false;
        };
        bytes.resize(usize::try_from(len).unwrap_or(0), 0);
        match file.read_exact_at(bytes, offset) {
            Ok(()) => true,
            Err(errno) => {
                if errno.kind() != std::io::ErrorKind::UnexpectedEof {
                    self.unreadable.get_or_insert(errno);
                }
                false
            }
        }
    }

    fn count(&mut self, at: u64, is_same: bool) {
        self.blocks += 1;
        if !is_same {
            if self.differing == 0 {
                self.first = at;
            }
            self.differing += 1;
        }
    }

    /// Checks that the copy has a hole or zeros where the source has a hole. Holes in both are
    /// skipped.
    fn compare_hole(&mut self, end: u64, bytes: &mut Vec<u8>) {
        while self.at < end {
            let Some(file) = &self.file else {
                break;
            };
            let data = match rustix::fs::seek(file, SeekFrom::Data(self.at)) {
                Ok(data) => data.max(self.at),
                // No more data.
                Err(rustix::io::Errno::NXIO) => end,
                Err(_) => self.at,
            };
            if data >= end {
                break;
            }
            // The file length already reports missing data at the end.
            let there = file.metadata().map_or(end, |metadata| metadata.len());
            let there = if self.may_be_longer {
                end
            } else {
                there.min(end)
            };
            let len = there.saturating_sub(data).min(u64::from(BLOCK_LEN));
            if len == 0 {
                break;
            }
            let is_zero = self.read(data, len, bytes) && bytes.iter().all(|byte| *byte == 0);
            self.count(data, is_zero);
            self.at = data + len;
        }
        self.at = end;
    }

    /// Adds the remaining differences after all contents were compared. `len` is the length of the
    /// source.
    fn conclude(&mut self, len: u64) {
        if let Some(mut file) = self.file.as_ref() {
            let there = file.seek(std::io::SeekFrom::End(0)).unwrap_or(0);
            if there < len || (there > len && !self.may_be_longer) {
                self.notes
                    .push(format!("has {there} bytes instead of {len}"));
            }
        }
        if self.differing > 0 && self.file.is_some() {
            self.notes.push(format!(
                "{} of {} block{} differ{}, the first at byte {}",
                self.differing,
                self.blocks,
                if self.blocks == 1 { "" } else { "s" },
                if self.differing == 1 { "s" } else { "" },
                self.first
            ));
        }
        if let Some(errno) = self.unreadable.take() {
            self.notes.push(unreadable_note(errno));
        }
    }
}

impl Store for Checker {
    fn store(&mut self, block: &Block, payload: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        match block.head.kind {
            Kind::Entries => {
                self.hasher.update(&block.head.hash);
                self.take_batch(payload)?;
            }
            Kind::End => {
                let hash = *self.hasher.finalize().as_bytes();
                super::conclude(payload, &mut self.totals, hash)?;
            }
            Kind::Data | Kind::Stream => {
                return Err(Fault::Protocol("file contents in a verification"));
            }
        }
        Ok(None)
    }

    fn totals(&self) -> &Totals {
        &self.totals
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn checked(&self) -> Option<Checked> {
        Some(self.checked)
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the reason why an entry cannot be compared.
fn unreadable_note(errno: std::io::Error) -> String {
    match errno.kind() {
        std::io::ErrorKind::NotFound => "does not exist".into(),
        _ => format!("cannot be read: {errno}"),
    }
}
