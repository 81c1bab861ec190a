// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading of the source, which becomes batches of records and blocks of file contents.
//!
//! A batch names the next entries. Its files stay open while it is in flight, so the named files
//! exist. The contents follow in the order of the extents, cut into blocks across file boundaries:
//! many small files share a block.

mod size;
mod walk;

pub use size::{Size, measure};

use crate::block::Kind;
use crate::entry::{Batch, Entry, Meta, Record, Totals, What};
use crate::fault::Fault;
use crate::spec::{self, Hashes};
use rustix::fs::{Advice, FileType, SeekFrom};
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum files of a batch. They are open at the same time, and shells allow 1024 descriptors by
/// default.
const BATCH_FILES_MAX: usize = 256;

/// Maximum records of a batch, so that their block is not longer than others. Each takes at most 45
/// bytes without its names, and 32 for a hash.
const BATCH_RECORDS_MAX: usize = 4096;

/// Maximum bytes of names and attributes of a batch, without those of its last entry, for the same
/// reason.
const BATCH_NAMES_LEN_MAX: usize = 384 << 10;

/// Maximum bytes of the attributes of one entry, for the same reason. Most file systems support
/// less.
const ATTRIBUTES_LEN_MAX: usize = 256 << 10;

/// Maximum content bytes of a batch. Receivers with an older copy hash as much before they reply.
const BATCH_LEN_MAX: u64 = 64 << 20;

/// Consumer of blocks.
pub(crate) trait Out {
    /// Returns an empty buffer for a block's payload, possibly with capacity.
    fn memory(&mut self) -> Vec<u8>;
    /// Returns a buffer that was not emitted.
    fn give_back(&mut self, memory: Vec<u8>);
    /// Emits a block.
    ///
    /// # Errors
    /// The cast has ended and accepts no more blocks.
    fn emit(&mut self, kind: Kind, batch: u32, index: u32, payload: Vec<u8>) -> Result<(), Fault>;
    /// Counts a block that no receiver lacks.
    fn skip(&mut self, hash: &[u8; 32]);
    /// Waits until all receivers have reported, and returns the blocks of a batch that any of them
    /// lacks.
    fn needs(&mut self, batch: u32) -> Result<Vec<u8>, Fault>;
    /// Reports a problem that does not end the cast.
    fn warn(&mut self, text: String);
}

/// Reads `source` to its end.
///
/// # Errors
/// [`Fault::File`], [`Fault::Shrunk`], [`Fault::Refused`], and the errors of `out`.
pub(crate) fn read(
    source: &spec::Source,
    hashes: Hashes,
    out: &mut dyn Out,
) -> Result<Totals, Fault> {
    let mut composer = Composer::new(hashes, out);
    match source {
        spec::Source::StandardInput { pid } => composer.read_standard_input(*pid)?,
        spec::Source::Path(name) => {
            let path = crate::path_of(name);
            composer.read_path(&path)?;
        }
    }
    composer.flush()?;
    Ok(composer.totals)
}

/// A file with contents that belong to the batch.
struct Open {
    file: File,
    path: PathBuf,
    extents: Vec<(u64, u64)>,
}

struct Composer<'a> {
    hashes: Hashes,
    out: &'a mut dyn Out,
    batch: u32,
    records: Vec<Record>,
    names_len: usize,
    files: Vec<Open>,
    data_len: u64,
    /// Hashes of a stream's contents, which cannot be read again.
    pieces: Vec<[u8; 32]>,
    /// First name of each file with several names, by device and inode.
    links: HashMap<(u64, u64), Vec<u8>>,
    totals: Totals,
}

impl Composer<'_> {
    fn new(hashes: Hashes, out: &mut dyn Out) -> Composer<'_> {
        Composer {
            hashes,
            out,
            batch: 0,
            records: Vec::new(),
            names_len: 0,
            files: Vec::new(),
            data_len: 0,
            pieces: Vec::new(),
            links: HashMap::new(),
            totals: Totals::default(),
        }
    }

    fn read_path(&mut self, path: &Path) -> Result<(), Fault> {
        let file = File::open(path).map_err(|errno| Fault::file(path, "opened", errno))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| Fault::file(path, "read", errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.read_tree(path),
            FileType::RegularFile => {
                let meta = Meta::new(&stat, walk::attributes(path, &file)?);
                let len = u64::try_from(stat.st_size).unwrap_or(0);
                self.add_file(Vec::new(), meta, file, path, (len, true))
            }
            FileType::BlockDevice => {
                let len = (&file)
                    .seek(std::io::SeekFrom::End(0))
                    .map_err(|errno| Fault::file(path, "measured", errno))?;
                let meta = Meta {
                    mode: 0o600,
                    ..Meta::new(&stat, Vec::new())
                };
                self.add_file(Vec::new(), meta, file, path, (len, false))
            }
            _ => {
                let meta = Meta {
                    mode: 0o600,
                    ..Meta::new(&stat, Vec::new())
                };
                self.read_stream(file, path, meta)
            }
        }
    }

    /// Reads standard input of another process on this machine. It seeks to the position of that
    /// process's descriptor.
    fn read_standard_input(&mut self, pid: u32) -> Result<(), Fault> {
        let name = Path::new("standard input");
        let mut file = File::open(format!("/proc/{pid}/fd/0")).map_err(|errno| {
            match errno.raw_os_error() {
                Some(libc_enxio) if libc_enxio == rustix::io::Errno::NXIO.raw_os_error() => {
                    Fault::refused(name, "it is a socket: put `cat |` before the command")
                }
                _ => Fault::file(name, "opened", errno),
            }
        })?;
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/0")).unwrap_or_default();
        let position = info.lines().find_map(|line| line.strip_prefix("pos:"));
        let position = position.and_then(|text| text.trim().parse().ok());
        if let Some(position) = position.filter(|position| *position > 0) {
            file.seek(std::io::SeekFrom::Start(position))
                .map_err(|errno| Fault::file(name, "continued", errno))?;
        }
        self.read_stream(file, name, Meta::default())
    }

    fn read_stream(&mut self, mut file: File, path: &Path, meta: Meta) -> Result<(), Fault> {
        if self.hashes == Hashes::Blocks {
            let why = "it can be read only once, but --resume reads it twice: cast from a file";
            return Err(Fault::refused(path, why));
        }
        let entry = Entry {
            path: Vec::new(),
            what: What::Stream,
            meta,
        };
        self.push_entry(entry)?;
        self.flush()?;
        let mut index = 0;
        loop {
            let mut payload = self.out.memory();
            let len = (&mut file)
                .take(u64::from(spec::BLOCK_LEN))
                .read_to_end(&mut payload)
                .map_err(|errno| Fault::file(path, "read", errno))?;
            if len == 0 {
                break;
            }
            if self.hashes == Hashes::Pieces {
                self.add_streamed(&payload)?;
                self.out.give_back(payload);
                continue;
            }
            self.totals.bytes += len as u64;
            self.out.emit(Kind::Stream, self.batch, index, payload)?;
            index += 1;
        }
        self.records.push(Record::End);
        Ok(())
    }

    /// Adds the hash of the next part of a stream.
    fn add_streamed(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let (offset, len) = (self.totals.bytes + self.data_len, payload.len() as u64);
        self.records.push(Record::Extent { offset, len });
        self.pieces.push(*blake3::hash(payload).as_bytes());
        self.data_len += len;
        match self.data_len >= BATCH_LEN_MAX {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn push_entry(&mut self, mut entry: Entry) -> Result<(), Fault> {
        let mut len = 0;
        entry.meta.attributes.retain(|(name, value)| {
            let whole = len + name.len() + value.len();
            let fits = whole <= ATTRIBUTES_LEN_MAX;
            if fits {
                len = whole;
            } else {
                let (shown, name) = (
                    crate::fault::shown(&crate::path_of(&entry.path)),
                    String::from_utf8_lossy(name),
                );
                self.out.warn(format!(
                    "{shown} has more extended attributes than a cast supports: {name} is omitted"
                ));
            }
            fits
        });
        if self.files.len() >= BATCH_FILES_MAX
            || self.records.len() >= BATCH_RECORDS_MAX
            || self.names_len >= BATCH_NAMES_LEN_MAX
        {
            self.flush()?;
        }
        self.totals.entries += 1;
        let target_len = match &entry.what {
            What::Symlink { target } => target.len(),
            What::HardLink { to } => to.len(),
            _ => 0,
        };
        self.names_len += entry.path.len() + target_len + len;
        self.records.push(Record::Entry(entry));
        Ok(())
    }

    /// Adds a file of `len` bytes, which may have holes.
    fn add_file(
        &mut self,
        name: Vec<u8>,
        meta: Meta,
        file: File,
        path: &Path,
        (len, may_have_holes): (u64, bool),
    ) -> Result<(), Fault> {
        let entry = Entry {
            path: name,
            what: What::File { len },
            meta,
        };
        self.push_entry(entry)?;
        if len > BATCH_LEN_MAX {
            // Only a hint. Without it reading may be slower.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        }
        let mut at = 0;
        while at < len {
            let (offset, end) = match may_have_holes {
                true => next_extent(&file, at, len),
                false => (at, len),
            };
            at = end;
            self.add_extent(&file, path, offset, end)?;
        }
        self.records.push(Record::End);
        Ok(())
    }

    fn add_extent(
        &mut self,
        file: &File,
        path: &Path,
        mut from: u64,
        to: u64,
    ) -> Result<(), Fault> {
        while from < to {
            if self.data_len >= BATCH_LEN_MAX || self.records.len() >= BATCH_RECORDS_MAX {
                self.flush()?;
            }
            let len = (to - from).min(BATCH_LEN_MAX - self.data_len);
            self.records.push(Record::Extent { offset: from, len });
            match self.files.last_mut() {
                Some(open) if open.path == path => open.extents.push((from, len)),
                _ => self.files.push(Open {
                    file: file
                        .try_clone()
                        .map_err(|errno| Fault::file(path, "opened twice", errno))?,
                    path: path.to_owned(),
                    extents: vec![(from, len)],
                }),
            }
            self.data_len += len;
            from += len;
        }
        Ok(())
    }

    /// Sends the batch and the contents of its files.
    fn flush(&mut self) -> Result<(), Fault> {
        if self.records.is_empty() {
            return Ok(());
        }
        let files = std::mem::take(&mut self.files);
        let hashes = match self.hashes {
            Hashes::None => Vec::new(),
            Hashes::Blocks => hash_blocks(&files, self.out)?,
            Hashes::Pieces if !self.pieces.is_empty() => std::mem::take(&mut self.pieces),
            Hashes::Pieces => hash_pieces(&files, self.out)?,
        };
        let batch = Batch {
            records: std::mem::take(&mut self.records),
            block_len: spec::BLOCK_LEN,
            hashes,
        };
        let number = self.batch;
        self.batch += 1;
        self.names_len = 0;
        self.totals.bytes += std::mem::take(&mut self.data_len);
        let payload = postcard::to_allocvec(&batch)
            .map_err(|_| Fault::Protocol("records that cannot be serialized"))?;
        let count = match self.hashes {
            Hashes::Pieces => return self.out.emit(Kind::Entries, number, 0, payload),
            // A batch has more bytes than blocks, so the count fits.
            _ => u32::try_from(batch.hashes.len()).unwrap_or(u32::MAX),
        };
        self.out.emit(Kind::Entries, number, count, payload)?;
        let needs = match self.hashes {
            Hashes::Blocks if count == 0 => return Ok(()),
            Hashes::Blocks => Some(self.out.needs(number)?),
            _ => None,
        };
        let is_needed = |index| match &needs {
            Some(bits) => crate::relay::has_bit(bits, index),
            None => true,
        };
        for_each_block(&files, self.out, is_needed, |out, index, payload| {
            match payload {
                Some(payload) => out.emit(Kind::Data, number, index, payload)?,
                None => out.skip(&batch.hashes[index as usize]),
            }
            Ok(())
        })
    }
}

/// Returns the hash of each block of `files`, as cut by [`for_each_block`].
fn hash_blocks(files: &[Open], out: &mut dyn Out) -> Result<Vec<[u8; 32]>, Fault> {
    let mut hashes = Vec::new();
    let take = |out: &mut dyn Out, _, payload: Option<Vec<u8>>| {
        if let Some(payload) = payload {
            hashes.push(*blake3::hash(&payload).as_bytes());
            out.give_back(payload);
        }
        Ok(())
    };
    for_each_block(files, out, |_| true, take)?;
    Ok(hashes)
}

/// Returns the hash of each block-sized piece of each extent, so that differences can be attributed
/// to files.
fn hash_pieces(files: &[Open], out: &mut dyn Out) -> Result<Vec<[u8; 32]>, Fault> {
    let mut hashes = Vec::new();
    let mut bytes = out.memory();
    for open in files {
        for (mut offset, mut len) in open.extents.iter().copied() {
            while len > 0 {
                let step = len.min(u64::from(spec::BLOCK_LEN));
                bytes.clear();
                read_at(open, offset, step, &mut bytes)?;
                hashes.push(*blake3::hash(&bytes).as_bytes());
                (offset, len) = (offset + step, len - step);
            }
        }
    }
    out.give_back(bytes);
    Ok(hashes)
}

/// Iterates over the blocks of `files` in order. Needed blocks are passed with their contents.
fn for_each_block(
    files: &[Open],
    out: &mut dyn Out,
    is_needed: impl Fn(u32) -> bool,
    mut take: impl FnMut(&mut dyn Out, u32, Option<Vec<u8>>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let extents = files
        .iter()
        .flat_map(|open| open.extents.iter().map(move |extent| (open, *extent)));
    let mut index = 0;
    let mut filled = 0;
    let mut payload = is_needed(0).then(|| out.memory());
    for (open, (mut offset, mut len)) in extents {
        while len > 0 {
            let step = len.min(u64::from(spec::BLOCK_LEN) - filled);
            if let Some(payload) = &mut payload {
                read_at(open, offset, step, payload)?;
            }
            (offset, len, filled) = (offset + step, len - step, filled + step);
            if filled == u64::from(spec::BLOCK_LEN) {
                take(out, index, payload.take())?;
                (index, filled) = (index + 1, 0);
                payload = is_needed(index).then(|| out.memory());
            }
        }
    }
    match (filled, payload) {
        (0, Some(payload)) => out.give_back(payload),
        (0, None) => {}
        (_, payload) => take(out, index, payload)?,
    }
    Ok(())
}

/// Appends `len` bytes of the file to `payload`.
fn read_at(open: &Open, offset: u64, len: u64, payload: &mut Vec<u8>) -> Result<(), Fault> {
    let at = payload.len();
    let len = usize::try_from(len).unwrap_or(0);
    payload.resize(at + len, 0);
    match open.file.read_exact_at(&mut payload[at..], offset) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(Fault::Shrunk {
            path: crate::fault::shown(&open.path),
        }),
        Err(errno) => Err(Fault::file(&open.path, "read", errno)),
    }
}

/// Returns the next extent with data at or after `at`; an empty one at the end.
fn next_extent(file: &File, at: u64, len: u64) -> (u64, u64) {
    let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) else {
        // No more data (ENXIO), or a file system without this call. In the latter case everything
        // counts as data.
        let is_end = matches!(
            rustix::fs::seek(file, SeekFrom::Data(at)),
            Err(rustix::io::Errno::NXIO)
        );
        return if is_end { (len, len) } else { (at, len) };
    };
    let start = start.min(len);
    match rustix::fs::seek(file, SeekFrom::Hole(start)) {
        Ok(end) if end > start => (start, end.min(len)),
        _ => (start, len),
    }
}

#[cfg(test)]
mod tests;
