// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and directories, created beside the target and moved into place at the end.
//!
//! Invariant: nothing at the target changes before [`Sink::finish`], except that small unchanged
//! files get a second name.

use super::Sink;
use super::names::Names;
use super::part::{self, Cleanup};
use crate::entry::{Entry, Meta, What, below};
use crate::fault::Fault;
use crate::spec::Spec;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Timespec,
    Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Mode of an incomplete directory, which its creator must be able to write.
const UNFINISHED_DIRECTORY: u32 = 0o700;

/// Mode of an incomplete file, which no other user may read.
const UNFINISHED_FILE: u32 = 0o600;

/// Maximum number of warnings about attributes. One per file could be a million.
const WARNINGS_MAX: usize = 8;

/// An entry that has begun and is not complete.
enum Level {
    Directory {
        path: PathBuf,
        meta: Meta,
        /// Names in the directory, if leftovers of an earlier cast must be removed.
        names: Option<Names>,
    },
    File(Open),
    Same(Same),
}

/// A small file that is, so far, identical to that of the older copy. If it stays so, it becomes a
/// hard link to the old file. Creating a hundred thousand new files and removing the old ones takes
/// a file system many times as long.
struct Same {
    path: PathBuf,
    old: OldName,
    meta: Meta,
    len: u64,
    /// Contents received so far.
    bytes: Vec<u8>,
}

/// A name in a directory of the older copy. The directory is held open, because its path may later
/// lead elsewhere.
struct OldName {
    directory: Arc<OwnedFd>,
    name: OsString,
}

/// Maximum bytes of such a file. Its contents are buffered, to be written if the file differs after
/// all.
const SAME_LEN_MAX: u64 = crate::spec::BLOCK_LEN as u64;

struct Open {
    path: PathBuf,
    file: File,
    meta: Meta,
    /// Length; `None` for a stream, as its length is known only at its end.
    len: Option<u64>,
    /// One past the last written byte.
    at: u64,
    /// Set if the file may already have contents.
    is_reused: bool,
}

/// Writer of a file or a directory.
pub(super) struct Tree {
    target: PathBuf,
    part: PathBuf,
    /// Lock on the unfinished copy while it is written.
    lock: Option<File>,
    levels: Vec<Level>,
    cleanup: Cleanup,
    /// Set to reuse matching data of the unfinished copy and of the target.
    resume: bool,
    is_prepared: bool,
    /// Last files that were read: of the unfinished copy, and of the older copy.
    opened: [Option<(PathBuf, Option<File>)>; 2],
    /// Last directory of the older copy used for hard links, by its path below the target.
    old_directory: Option<(PathBuf, Option<Arc<OwnedFd>>)>,
    may_replace: bool,
    keep_partial: bool,
    sync: bool,
    is_root: bool,
    is_directory: bool,
    warnings: Vec<String>,
}

impl Tree {
    pub(super) fn new(target: PathBuf, spec: &Spec, cleanup: Cleanup) -> Tree {
        Tree {
            target,
            part: PathBuf::new(),
            lock: None,
            levels: Vec::new(),
            cleanup,
            resume: spec.resume,
            is_prepared: false,
            opened: [None, None],
            old_directory: None,
            may_replace: spec.replace || spec.resume,
            keep_partial: spec.keep_partial,
            sync: spec.sync,
            is_root: rustix::process::geteuid().is_root(),
            is_directory: false,
            warnings: Vec::new(),
        }
    }

    /// Checks the target. Retains an unfinished copy of an earlier cast if it can be resumed,
    /// otherwise removes it.
    fn prepare_target(&mut self, is_directory: bool) -> Result<(), Fault> {
        if std::mem::replace(&mut self.is_prepared, true) {
            return Ok(());
        }
        self.is_directory = is_directory;
        self.part = part::path(&self.target)?;
        let is_there = fs::symlink_metadata(&self.target);
        match (is_there.map(|there| there.is_dir()), is_directory) {
            (Ok(true), true) if !self.may_replace => {
                let why = "exists: --resume updates it, --replace replaces it by the copy";
                return Err(Fault::refused(&self.target, why));
            }
            (Ok(true), false) => {
                let why = "is a directory, but the source is not: give the full path of the copy";
                return Err(Fault::refused(&self.target, why));
            }
            (Ok(false), true) => {
                let why = "is a file, but the source is a directory: remove the file, or cast to \
                           another path";
                return Err(Fault::refused(&self.target, why));
            }
            _ => {}
        }
        // The flag `NONBLOCK` avoids a wait if the name is that of a FIFO.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(left) = rustix::fs::open(&self.part, flags, Mode::empty()) {
            part::lock(&self.part, &File::from(left))?;
        }
        let left = fs::symlink_metadata(&self.part);
        match left {
            Ok(left) if self.resume && left.is_dir() == is_directory && is_private(&left) => Ok(()),
            _ => part::remove(&self.part),
        }
    }

    /// Opens a file of the unfinished copy if it can be continued. A file with several names is
    /// refused, because it would change under its other names. A file behind a symbolic link, which
    /// may be anywhere, is refused too.
    fn open_part(&self, path: &Path) -> Option<File> {
        let below = path.strip_prefix(&self.part).ok().filter(|_| self.resume)?;
        let left = open_beneath(&self.part, below, OFlags::empty()).ok()?;
        let stat = rustix::fs::fstat(&left).ok()?;
        let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        if !is_file || stat.st_nlink != 1 {
            return None;
        }
        // The file may have its final mode, by which its owner cannot write it.
        let reached = PathBuf::from(format!("/proc/self/fd/{}", left.as_raw_fd()));
        rustix::fs::chmod(&reached, Mode::from_raw_mode(UNFINISHED_FILE)).ok()?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open(&reached, flags, Mode::empty())
            .ok()
            .map(File::from)
    }

    /// Reads from the file that `open` opens. The file stays open for its next piece.
    fn read_opened(
        &mut self,
        which: usize,
        path: PathBuf,
        open: impl Fn(&Tree, &Path) -> Option<File>,
        (offset, len, bytes): (u64, u64, &mut Vec<u8>),
    ) -> bool {
        if self.opened[which]
            .as_ref()
            .is_none_or(|(last, _)| *last != path)
        {
            let file = open(self, &path);
            self.opened[which] = Some((path, file));
        }
        let file = self.opened[which]
            .as_ref()
            .and_then(|(_, file)| file.as_ref());
        file.is_some_and(|file| super::append(file, offset, len, bytes))
    }

    /// Records a name of the new copy. Returns true if an entry with that name exists and may stay.
    /// Otherwise removes such an entry.
    fn reserve_name(
        &mut self,
        path: &Path,
        is_reusable: impl Fn(&fs::Metadata) -> bool,
    ) -> Result<bool, Fault> {
        if let Some(Level::Directory {
            names: Some(names), ..
        }) = self.levels.last_mut()
        {
            path.file_name()
                .into_iter()
                .for_each(|name| names.insert(name));
        }
        if !self.resume {
            return Ok(false);
        }
        match fs::symlink_metadata(path) {
            Ok(left) if is_reusable(&left) => Ok(true),
            Ok(_) => part::remove(path).map(|()| false),
            Err(_) => Ok(false),
        }
    }

    /// Removes entries that an earlier cast left in a directory and that are not in the source.
    fn remove_extra_entries(path: &Path, names: &Names) -> Result<(), Fault> {
        let unreadable = |errno| Fault::file(path, "listed", errno);
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if !names.has(&entry.file_name()) {
                part::remove(&entry.path())?;
            }
        }
        Ok(())
    }

    fn lock(&mut self, file: &File) -> Result<(), Fault> {
        part::lock(&self.part, file)?;
        // A resumed cast must not remove what it found here.
        if !self.keep_partial && !self.resume {
            self.cleanup.set(Some(self.part.clone()));
        }
        let lock = file.try_clone();
        self.lock = Some(lock.map_err(|errno| Fault::file(&self.part, "locked", errno))?);
        Ok(())
    }

    fn begin_directory(&mut self, path: PathBuf, meta: Meta, is_first: bool) -> Result<(), Fault> {
        let made = match self.reserve_name(&path, fs::Metadata::is_dir)? {
            true => fs::set_permissions(&path, fs::Permissions::from_mode(UNFINISHED_DIRECTORY)),
            false => fs::DirBuilder::new()
                .mode(UNFINISHED_DIRECTORY)
                .create(&path),
        };
        made.map_err(|errno| Fault::file(&path, "created", errno))?;
        if is_first {
            let file = File::open(&path).map_err(|errno| Fault::file(&path, "opened", errno))?;
            self.lock(&file)?;
        }
        let names = self.resume.then(Names::default);
        self.levels.push(Level::Directory { path, meta, names });
        Ok(())
    }

    fn begin_file(
        &mut self,
        path: PathBuf,
        meta: Meta,
        len: Option<u64>,
        is_first: bool,
    ) -> Result<(), Fault> {
        let left = self.open_part(&path);
        self.reserve_name(&path, |_| left.is_some())?;
        if let (Some(len), None, false) = (len, &left, is_first)
            && let Some(old) = self.find_same(&path, &meta, len)
        {
            let bytes = Vec::new();
            let same = Same {
                path,
                old,
                meta,
                len,
                bytes,
            };
            self.levels.push(Level::Same(same));
            return Ok(());
        }
        let is_reused = left.is_some();
        let file = match left {
            Some(file) => file,
            None => create(&path)?,
        };
        if is_first {
            self.lock(&file)?;
        }
        self.levels.push(Level::File(Open {
            path,
            file,
            meta,
            len,
            at: 0,
            is_reused,
        }));
        Ok(())
    }

    /// Returns the file of the older copy if it has no other name and only its contents can differ.
    fn find_same(&mut self, path: &Path, meta: &Meta, len: u64) -> Option<OldName> {
        let is_eligible = self.resume && len <= SAME_LEN_MAX && meta.attributes.is_empty();
        let below = path.strip_prefix(&self.part).ok().filter(|_| is_eligible)?;
        let name = below.file_name()?.to_owned();
        let directory = self.old_directory(below.parent()?)?;
        let there = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = rustix::fs::FileType::from_raw_mode(there.st_mode).is_file();
        let size = u64::try_from(there.st_size).ok()?;
        if !is_file || there.st_nlink != 1 || size != len {
            return None;
        }
        let theirs = Meta::new(&there, Vec::new());
        let is_owned = !self.is_root || (theirs.uid, theirs.gid) == (meta.uid, meta.gid);
        let is_alike = (theirs.mode, theirs.modified) == (meta.mode, meta.modified);
        if !is_owned || !is_alike {
            return None;
        }
        // Extended attributes would be more than the source has. The flag `NONBLOCK` avoids a wait
        // if the file has been replaced by a FIFO.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &name, flags, Mode::empty()).ok()?;
        let has_none = rustix::fs::flistxattr(file, &mut [0_u8; 0]).is_ok_and(|len| len == 0);
        has_none.then_some(OldName { directory, name })
    }

    /// Returns a directory of the older copy. A directory behind a symbolic link may be anywhere,
    /// so its files are not shared.
    fn old_directory(&mut self, below: &Path) -> Option<Arc<OwnedFd>> {
        let is_last = |(last, _): &(PathBuf, _)| last == below;
        if !self.old_directory.as_ref().is_some_and(is_last) {
            let directory = open_beneath(&self.target, below, OFlags::DIRECTORY);
            let directory = directory.ok().map(Arc::new);
            self.old_directory = Some((below.to_owned(), directory));
        }
        self.old_directory.as_ref()?.1.clone()
    }

    /// Creates the current file from its buffered contents, because it differs from the old one.
    fn create_from_buffer(&mut self) -> Result<(), Fault> {
        let same = match self.levels.pop() {
            Some(Level::Same(same)) => same,
            other => {
                self.levels.extend(other);
                return Ok(());
            }
        };
        let file = create(&same.path)?;
        let written = file.write_all_at(&same.bytes, 0);
        written.map_err(|errno| Fault::file(&same.path, "written", errno))?;
        self.levels.push(Level::File(Open {
            path: same.path,
            file,
            meta: same.meta,
            len: Some(same.len),
            at: same.bytes.len() as u64,
            is_reused: false,
        }));
        Ok(())
    }

    /// Links the old file into the new copy if all contents match and linking works. Otherwise
    /// creates the file.
    fn link_same(&mut self) -> Result<(), Fault> {
        if let Some(Level::Same(same)) = self.levels.last()
            && same.bytes.len() as u64 == same.len
            && same.old.link_to(&same.path).is_ok()
        {
            self.levels.pop();
            return Ok(());
        }
        self.create_from_buffer()?;
        self.end()
    }

    fn make_link(&self, path: &Path, to: &[u8]) -> Result<(), Fault> {
        let to = below(&self.part, to)?;
        rustix::fs::linkat(CWD, &to, CWD, path, AtFlags::empty())
            .map_err(|errno| Fault::file(path, "created (a hard link)", errno))
    }

    fn make_special(&self, path: &Path, file_type: u32, device: u64) -> Result<(), Fault> {
        let file_type = rustix::fs::FileType::from_raw_mode(file_type);
        let mode = Mode::from_raw_mode(UNFINISHED_FILE);
        rustix::fs::mknodat(CWD, path, file_type, mode, device)
            .map_err(|errno| Fault::file(path, "created (a device or FIFO)", errno))
    }

    /// Sets owner, attributes, permissions and time of a path, in an order in which none undoes
    /// another.
    fn set_meta(&mut self, path: &Path, meta: &Meta, is_symlink: bool) -> Result<(), Fault> {
        if self.is_root {
            let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
            rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| Fault::file(path, "assigned to its owner", errno))?;
        }
        for (name, value) in &meta.attributes {
            match rustix::fs::lsetxattr(path, name.as_slice(), value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(errno @ (Errno::NOTSUP | Errno::PERM | Errno::ACCESS)) => {
                    self.warn_about_attribute(path, name, errno);
                }
                Err(errno) => {
                    return Err(Fault::file(path, "given its extended attributes", errno));
                }
            }
        }
        if !is_symlink {
            rustix::fs::chmod(path, Mode::from_raw_mode(meta.mode))
                .map_err(|errno| Fault::file(path, "given its permissions", errno))?;
        }
        let modified = Timespec {
            tv_sec: meta.modified.0,
            tv_nsec: meta.modified.1.into(),
        };
        let times = Timestamps {
            last_access: modified,
            last_modification: modified,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| Fault::file(path, "given its modification time", errno))
    }

    fn warn_about_attribute(&mut self, path: &Path, name: &[u8], errno: Errno) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(format!(
                "{} did not get extended attribute {}: {errno}",
                crate::fault::shown(path),
                String::from_utf8_lossy(name)
            ));
        }
    }

    fn end_file(&mut self, open: Open) -> Result<(), Fault> {
        let len = open.len.unwrap_or(open.at);
        let failed = |errno| Fault::file(&open.path, "given its length", errno);
        if open.is_reused {
            punch(&open, len)?;
        }
        if open.at != len || open.is_reused {
            open.file.set_len(len).map_err(failed)?;
        }
        if self.sync && !self.is_directory {
            let synced = open.file.sync_all();
            synced.map_err(|errno| Fault::file(&open.path, "written to the disk", errno))?;
        }
        // Standard input has no metadata, so the copy gets that of a new file.
        match open.len {
            Some(_) => self.set_meta(&open.path, &open.meta, false),
            None => rustix::fs::fchmod(&open.file, Mode::from_raw_mode(0o666 & !umask()))
                .map_err(|errno| Fault::file(&open.path, "given its permissions", errno)),
        }
    }

    /// Exchanges the new directory with the existing one, which is then removed.
    fn exchange(&self) -> Result<(), Fault> {
        let failed = |errno| Fault::file(&self.target, "replaced", errno);
        rustix::fs::renameat_with(CWD, &self.part, CWD, &self.target, RenameFlags::EXCHANGE)
            .map_err(failed)?;
        part::remove(&self.part)
    }
}

impl OldName {
    fn link_to(&self, path: &Path) -> Result<(), Errno> {
        rustix::fs::linkat(&self.directory, &self.name, CWD, path, AtFlags::empty())
    }
}

/// Returns true if only this user, and root, can have written an unfinished copy.
fn is_private(left: &fs::Metadata) -> bool {
    left.uid() == rustix::process::geteuid().as_raw() && left.mode() & 0o022 == 0
}

/// Opens the path `below` of `root` as a place, without following symbolic links (openat2(2)). It
/// fails on kernels before Linux 5.6.
fn open_beneath(root: &Path, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty())?;
    if below.as_os_str().is_empty() {
        return Ok(root);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(&root, below, flags, Mode::empty(), resolve)
}

fn create(path: &Path) -> Result<File, Fault> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::open(path, flags, Mode::from_raw_mode(UNFINISHED_FILE));
    let made = made.map_err(|errno| Fault::file(path, "created", errno))?;
    Ok(File::from(made))
}

/// Punches a hole in a reused file between the last write and `end`.
fn punch(open: &Open, end: u64) -> Result<(), Fault> {
    if end <= open.at {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&open.file, flags, open.at, end - open.at)
        .map_err(|errno| Fault::file(&open.path, "given its holes", errno))
}

/// Returns the process's umask. It can only be read by setting it.
fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}

impl Sink for Tree {
    fn begin(&mut self, entry: Entry) -> Result<(), Fault> {
        let is_first = entry.path.is_empty();
        if is_first {
            self.prepare_target(entry.what == What::Directory)?;
        }
        let path = below(&self.part, &entry.path)?;
        match entry.what {
            What::Directory => self.begin_directory(path, entry.meta, is_first),
            What::File { len } => self.begin_file(path, entry.meta, Some(len), is_first),
            What::Stream => self.begin_file(path, entry.meta, None, is_first),
            What::HardLink { to } => {
                self.reserve_name(&path, |_| false)?;
                self.make_link(&path, &to)
            }
            What::Symlink { target } => {
                self.reserve_name(&path, |_| false)?;
                rustix::fs::symlink(&target[..], &path)
                    .map_err(|errno| Fault::file(&path, "created (a symbolic link)", errno))?;
                self.set_meta(&path, &entry.meta, true)
            }
            What::Special { file_type, device } => {
                self.reserve_name(&path, |_| false)?;
                self.make_special(&path, file_type, device)?;
                self.set_meta(&path, &entry.meta, false)
            }
        }
    }

    fn retain(&mut self, offset: u64, len: u64) -> Result<(), Fault> {
        self.create_from_buffer()?;
        let Some(Level::File(open)) = self.levels.last_mut() else {
            return Err(Fault::Protocol("data without a file"));
        };
        if !open.is_reused {
            let why = "was replaced while the cast was resumed: run the cast again";
            return Err(Fault::refused(&open.path, why));
        }
        punch(open, offset)?;
        open.at = offset + len;
        Ok(())
    }

    fn prepare(&mut self, root: &Entry) -> Result<(), Fault> {
        self.prepare_target(root.what == What::Directory)
    }

    fn read_part(&mut self, path: &[u8], offset: u64, len: u64, bytes: &mut Vec<u8>) -> bool {
        match below(&self.part, path) {
            Ok(path) => self.read_opened(0, path, Tree::open_part, (offset, len, bytes)),
            Err(_) => false,
        }
    }

    fn read_old(&mut self, path: &[u8], offset: u64, len: u64, bytes: &mut Vec<u8>) -> bool {
        let open = |_: &Tree, path: &Path| {
            // Opening a FIFO would wait for a writer.
            let is_file = fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
            is_file.then(|| File::open(path).ok()).flatten()
        };
        match below(&self.target, path) {
            Ok(path) => self.read_opened(1, path, open, (offset, len, bytes)),
            Err(_) => false,
        }
    }

    fn write_old(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        match self.levels.last_mut() {
            // The file has no hole so far.
            Some(Level::Same(same)) if same.bytes.len() as u64 == offset => {
                same.bytes.extend_from_slice(bytes);
                Ok(())
            }
            _ => self.write_at(offset, bytes),
        }
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.create_from_buffer()?;
        let Some(Level::File(open)) = self.levels.last_mut() else {
            return Err(Fault::Protocol("data without a file"));
        };
        if open.is_reused {
            punch(open, offset)?;
        }
        open.file
            .write_all_at(bytes, offset)
            .map_err(|errno| Fault::file(&open.path, "written", errno))?;
        open.at = offset + bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        if let Some(Level::Same(_)) = self.levels.last() {
            return self.link_same();
        }
        match self.levels.pop() {
            Some(Level::File(open)) => self.end_file(open),
            Some(Level::Directory { path, meta, names }) => {
                if let Some(names) = names {
                    Tree::remove_extra_entries(&path, &names)?;
                }
                self.set_meta(&path, &meta, false)
            }
            Some(Level::Same(_)) | None => Err(Fault::Protocol("an end without an open entry")),
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if self.sync
            && self.is_directory
            && let Some(lock) = &self.lock
        {
            rustix::fs::syncfs(lock)
                .map_err(|errno| Fault::file(&self.part, "written to the disk", errno))?;
        }
        let is_there = self.is_directory && fs::symlink_metadata(&self.target).is_ok();
        match is_there {
            true => self.exchange()?,
            false => fs::rename(&self.part, &self.target)
                .map_err(|errno| Fault::file(&self.target, "moved into place", errno))?,
        }
        self.cleanup.set(None);
        Ok(())
    }

    fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}
