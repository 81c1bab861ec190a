// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storing: what blocks bring becomes files, or goes to a device or a command.

mod device;
mod part;
mod tree;

use crate::block::{Block, Kind};
use crate::entry::{Batch, Entry, Record, Totals};
use crate::fault::Fault;
use crate::spec::{Spec, Target};
pub(crate) use part::Cleanup;
use std::collections::VecDeque;

/// What makes the copy.
pub(crate) trait Sink: Send {
    /// Begins an entry.
    ///
    /// # Errors
    /// [`Fault::File`], [`Fault::Refused`].
    fn begin(&mut self, entry: Entry) -> Result<(), Fault>;
    /// Bytes of the file that was begun last; offsets ascend.
    ///
    /// # Errors
    /// [`Fault::File`], [`Fault::Command`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault>;
    /// The file or directory that was begun last and is not complete is complete.
    ///
    /// # Errors
    /// [`Fault::File`].
    fn end(&mut self) -> Result<(), Fault>;
    /// Everything is there, and right: puts the copy in its place.
    ///
    /// # Errors
    /// [`Fault::File`], [`Fault::Command`].
    fn finish(&mut self) -> Result<(), Fault>;
    /// What went differently without being a reason to end.
    fn take_warnings(&mut self) -> Vec<String>;
}

/// What stores for process `rank`.
pub(crate) fn open(spec: &Spec, rank: u32, cleanup: &Cleanup) -> Result<Box<dyn Sink>, Fault> {
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

/// Unpacks blocks, in order, into a [`Sink`].
pub(crate) struct Unpacker {
    sink: Box<dyn Sink>,
    /// Records of the batch that wait for the data before them.
    records: VecDeque<Record>,
    /// What of the first extent is still to come.
    extent: Option<(u64, u64)>,
    /// Bytes of the stream so far.
    streamed: u64,
    hasher: blake3::Hasher,
    totals: Totals,
}

impl Unpacker {
    pub(crate) fn new(sink: Box<dyn Sink>) -> Unpacker {
        Unpacker {
            sink,
            records: VecDeque::new(),
            extent: None,
            streamed: 0,
            hasher: blake3::Hasher::new(),
            totals: Totals::default(),
        }
    }

    /// What has been stored so far.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        self.sink.take_warnings()
    }

    /// Stores a block. With the last one, the copy is in its place.
    ///
    /// # Errors
    /// Those of [`Sink`]; [`Fault::Protocol`], [`Fault::TotalDiffers`].
    pub(crate) fn store(&mut self, block: &Block, payload: &[u8]) -> Result<(), Fault> {
        if block.head.kind == Kind::End {
            return self.end(payload);
        }
        self.hasher.update(&block.head.hash);
        match block.head.kind {
            Kind::Entries => {
                let batch = Batch::parse(payload)?;
                self.records.extend(batch.records);
                self.go_on()
            }
            Kind::Data => self.fill(payload),
            Kind::Stream => {
                self.sink.write_at(self.streamed, payload)?;
                self.streamed += payload.len() as u64;
                self.totals.bytes += payload.len() as u64;
                Ok(())
            }
            Kind::End => Ok(()),
        }
    }

    fn end(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let said: Totals = postcard::from_bytes(payload)
            .map_err(|_| Fault::Protocol("a last block that is none"))?;
        self.totals.hash = *self.hasher.finalize().as_bytes();
        self.totals.vanished = said.vanished;
        if self.totals != said {
            return Err(Fault::TotalDiffers);
        }
        self.sink.finish()
    }

    fn fill(&mut self, mut payload: &[u8]) -> Result<(), Fault> {
        self.totals.bytes += payload.len() as u64;
        while !payload.is_empty() {
            let Some((offset, left)) = self.extent else {
                return Err(Fault::Protocol("data that no entry announced"));
            };
            let len = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(payload.len());
            self.sink.write_at(offset, &payload[..len])?;
            payload = &payload[len..];
            let len = len as u64;
            self.extent = (left > len).then_some((offset + len, left - len));
            self.go_on()?;
        }
        Ok(())
    }

    /// Goes through the records up to the next that needs data.
    fn go_on(&mut self) -> Result<(), Fault> {
        while self.extent.is_none() {
            match self.records.pop_front() {
                None => break,
                Some(Record::Entry(entry)) => {
                    self.totals.entries += 1;
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
