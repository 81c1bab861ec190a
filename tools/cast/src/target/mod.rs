// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storing of received blocks, as files or to a device or command.

mod check;
mod device;
mod names;
mod old;
mod part;
mod tree;

use crate::block::{Block, Kind};
use crate::entry::{Batch, Entry, Record, Totals};
use crate::event::{Checked, Event};
use crate::fault::Fault;
use crate::spec::{Spec, Target};
use old::{Found, Plan};
pub(crate) use part::Cleanup;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Writer of the copy.
pub(crate) trait Sink: Send {
    /// Begins an entry.
    ///
    /// # Errors
    /// [`Fault::File`], [`Fault::Refused`].
    fn begin(&mut self, entry: Entry) -> Result<(), Fault>;
    /// Writes bytes of the most recent file. Offsets ascend.
    ///
    /// # Errors
    /// [`Fault::File`], [`Fault::Command`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault>;
    /// Writes bytes that are equal in the older copy, as read by [`Sink::read_old`].
    ///
    /// # Errors
    /// See [`Sink::write_at`].
    fn write_old(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.write_at(offset, bytes)
    }
    /// Retains bytes of the most recent file that are already present, as found by
    /// [`Sink::read_part`].
    ///
    /// # Errors
    /// See [`Sink::write_at`].
    fn retain(&mut self, offset: u64, len: u64) -> Result<(), Fault>;
    /// Announces the type of the source, before queries about existing data.
    ///
    /// # Errors
    /// See [`Sink::begin`].
    fn prepare(&mut self, root: &Entry) -> Result<(), Fault>;
    /// Appends data of an unfinished copy; returns `false` if it has less.
    fn read_part(&mut self, path: &[u8], offset: u64, len: u64, bytes: &mut Vec<u8>) -> bool;
    /// Appends data of an older copy; returns `false` if it has less.
    fn read_old(&mut self, path: &[u8], offset: u64, len: u64, bytes: &mut Vec<u8>) -> bool;
    /// Completes the most recent file or directory that is still open.
    ///
    /// # Errors
    /// [`Fault::File`].
    fn end(&mut self) -> Result<(), Fault>;
    /// Moves the complete and verified copy into place.
    ///
    /// # Errors
    /// [`Fault::File`], [`Fault::Command`].
    fn finish(&mut self) -> Result<(), Fault>;
    /// Returns problems that do not end the cast.
    fn take_warnings(&mut self) -> Vec<String>;
}

/// Consumer of received blocks, in order.
pub(crate) trait Store {
    /// Handles a block. After the last one, the copy is in place or has been compared. Returns the
    /// data blocks of a batch that are missing here, if the source requests them.
    ///
    /// # Errors
    /// The errors of [`Sink`], [`Fault::Protocol`], and [`Fault::TotalDiffers`].
    fn store(&mut self, block: &Block, payload: &[u8]) -> Result<Option<Vec<u8>>, Fault>;
    /// Returns the amount stored or compared so far.
    fn totals(&self) -> &Totals;
    /// Returns new events for the command.
    fn take_events(&mut self) -> Vec<Event>;
    /// Returns the result of a comparison so far.
    fn checked(&self) -> Option<Checked>;
}

/// Creates the store of process `rank`.
pub(crate) fn open(spec: &Spec, rank: u32, cleanup: &Cleanup) -> Result<Box<dyn Store>, Fault> {
    Ok(match spec.verify {
        true => Box::new(check::Checker::new(spec, rank)),
        false => Box::new(Unpacker::new(open_sink(spec, rank, cleanup)?)),
    })
}

/// Compares the totals of the last block with those found here, which go into `totals`.
fn conclude(payload: &[u8], totals: &mut Totals, hash: [u8; 32]) -> Result<(), Fault> {
    let expected: Totals =
        postcard::from_bytes(payload).map_err(|_| Fault::Protocol("an invalid last block"))?;
    totals.hash = hash;
    totals.vanished = expected.vanished;
    match *totals == expected {
        true => Ok(()),
        false => Err(Fault::TotalDiffers),
    }
}

fn open_sink(spec: &Spec, rank: u32, cleanup: &Cleanup) -> Result<Box<dyn Sink>, Fault> {
    match &spec.target {
        Target::StandardOutput => Ok(Box::new(device::Pipe::to_standard_output()?)),
        Target::Command(command) => {
            let command = crate::spec::expand(command.as_bytes(), spec.host(rank));
            Ok(Box::new(device::Pipe::to_command(&command)?))
        }
        Target::Path(_) => {
            let path = spec.target_path(rank).unwrap_or_default();
            match device::Device::open(&path)? {
                Some(device) => Ok(device),
                None => Ok(Box::new(tree::Tree::new(path, spec, cleanup.clone()))),
            }
        }
    }
}

/// Unpacks blocks in order into a [`Sink`].
struct Unpacker {
    sink: Box<dyn Sink>,
    /// Records of the batch that wait for the data before them.
    records: VecDeque<Record>,
    /// Remaining part of the first extent.
    extent: Option<(u64, u64)>,
    /// Blocks of the batch that are already present.
    plan: Plan,
    /// File of the last extent.
    current: Vec<u8>,
    /// Bytes of the stream so far.
    streamed: u64,
    hasher: blake3::Hasher,
    totals: Totals,
}

impl Unpacker {
    fn new(sink: Box<dyn Sink>) -> Unpacker {
        Unpacker {
            sink,
            records: VecDeque::new(),
            extent: None,
            plan: Plan::default(),
            current: Vec::new(),
            streamed: 0,
            hasher: blake3::Hasher::new(),
            totals: Totals::default(),
        }
    }

    fn end(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let hash = *self.hasher.finalize().as_bytes();
        conclude(payload, &mut self.totals, hash)?;
        self.sink.finish()
    }

    fn find_present_blocks(&mut self, batch: &Batch) -> Result<Vec<u8>, Fault> {
        if let Some(Record::Entry(root)) = batch.records.first()
            && root.path.is_empty()
        {
            self.sink.prepare(root)?;
        }
        self.plan = Plan::make(batch, &self.current, &mut *self.sink);
        Ok(self.plan.needs())
    }

    /// Skips blocks that are already present, up to the next one to receive.
    fn skip_present_blocks(&mut self) -> Result<(), Fault> {
        while let Some((found, hash, len)) = self.plan.next_present() {
            self.hasher.update(&hash);
            match found {
                Found::Part => self.fill(len, None, Fill::Retain)?,
                Found::Old => {
                    let bytes = self.plan.read_old(&mut *self.sink);
                    if *blake3::hash(&bytes).as_bytes() != hash {
                        return Err(Fault::Protocol("the older copy changed while it was read"));
                    }
                    self.fill(len, Some(&bytes), Fill::Old)?;
                }
                Found::Nowhere => {}
            }
            self.plan.next += 1;
        }
        Ok(())
    }

    /// Writes or retains `len` bytes of the extents.
    fn fill(&mut self, mut len: u64, bytes: Option<&[u8]>, how: Fill) -> Result<(), Fault> {
        self.totals.bytes += len;
        let mut bytes = bytes.unwrap_or_default();
        while len > 0 {
            let Some((offset, left)) = self.extent else {
                return Err(Fault::Protocol("data without an entry"));
            };
            let step = left.min(len);
            match how {
                Fill::Retain => self.sink.retain(offset, step)?,
                Fill::Write | Fill::Old => {
                    // A block is in memory, so its length fits.
                    let (now, later) = bytes.split_at(usize::try_from(step).unwrap_or(usize::MAX));
                    match how {
                        Fill::Old => self.sink.write_old(offset, now)?,
                        _ => self.sink.write_at(offset, now)?,
                    }
                    bytes = later;
                }
            }
            len -= step;
            self.extent = (left > step).then_some((offset + step, left - step));
            self.process_records()?;
        }
        Ok(())
    }

    /// Processes the records up to the next that needs data.
    fn process_records(&mut self) -> Result<(), Fault> {
        while self.extent.is_none() {
            match self.records.pop_front() {
                None => break,
                Some(Record::Entry(entry)) => {
                    self.totals.entries += 1;
                    self.current.clone_from(&entry.path);
                    self.sink.begin(entry)?;
                }
                Some(Record::Extent { offset, len }) => {
                    self.extent = (len > 0).then_some((offset, len));
                }
                Some(Record::End) => self.sink.end()?,
            }
        }
        Ok(())
    }
}

impl Store for Unpacker {
    fn store(&mut self, block: &Block, payload: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let head = &block.head;
        match head.kind {
            Kind::Entries => {
                self.hasher.update(&head.hash);
                let batch = Batch::parse(payload)?;
                let needs = match batch.hashes.is_empty() {
                    true => None,
                    false => Some(self.find_present_blocks(&batch)?),
                };
                self.records.extend(batch.records);
                self.process_records()?;
                self.skip_present_blocks()?;
                return Ok(needs);
            }
            // Already present here; a downstream process lacks it.
            Kind::Data if self.plan.is_past(head.index) => {}
            Kind::Data => {
                self.hasher.update(&head.hash);
                self.plan.next += 1;
                self.fill(payload.len() as u64, Some(payload), Fill::Write)?;
                self.skip_present_blocks()?;
            }
            Kind::Stream => {
                self.hasher.update(&head.hash);
                self.sink.write_at(self.streamed, payload)?;
                self.streamed += payload.len() as u64;
                self.totals.bytes += payload.len() as u64;
            }
            Kind::End => self.end(payload)?,
        }
        Ok(None)
    }

    fn totals(&self) -> &Totals {
        &self.totals
    }

    fn take_events(&mut self) -> Vec<Event> {
        let warnings = self.sink.take_warnings().into_iter();
        warnings.map(|text| Event::Warning { text }).collect()
    }

    fn checked(&self) -> Option<Checked> {
        None
    }
}

/// Appends `len` bytes of a file. Returns `false` if the file has fewer there or cannot be read.
fn append(file: &File, offset: u64, len: u64, bytes: &mut Vec<u8>) -> bool {
    let at = bytes.len();
    // A block is in memory, so its length fits.
    bytes.resize(at + usize::try_from(len).unwrap_or(0), 0);
    file.read_exact_at(&mut bytes[at..], offset).is_ok()
}

/// Action for the bytes of an extent.
#[derive(Clone, Copy)]
enum Fill {
    Write,
    Old,
    Retain,
}
