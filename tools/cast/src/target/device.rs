// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets that are written in place: block devices, and consumers of a byte stream.
//!
//! There is no separate copy that replaces the target at the end, so a failed cast leaves
//! incomplete data there. The report names the host, and the exit status is nonzero.

use super::Sink;
use crate::entry::{Entry, What};
use crate::fault::Fault;
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Zeros for the holes of the source.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Returns the length, if known, of an entry with a single stream of contents.
fn single(entry: &Entry, target: &Path) -> Result<Option<u64>, Fault> {
    match entry.what {
        What::File { len } if entry.path.is_empty() => Ok(Some(len)),
        What::Stream => Ok(None),
        _ => {
            let why = "accepts one stream of bytes, but the source is a directory: cast it to a \
                       directory, or `tar c DIRECTORY | portolan cast - …`";
            Err(Fault::refused(target, why))
        }
    }
}

/// A block device.
pub(super) struct Device {
    path: PathBuf,
    file: File,
    /// Bytes of the device.
    len: u64,
    /// One past the last written byte.
    at: u64,
    source_len: Option<u64>,
}

impl Device {
    /// Opens `path` if it is a device or a pipe; returns `None` otherwise.
    pub(super) fn open(path: &Path) -> Result<Option<Box<dyn Sink>>, Fault> {
        let Ok(stat) = rustix::fs::stat(path) else {
            return Ok(None);
        };
        let refused = |errno| Fault::file(path, "opened for writing", errno);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => {
                // The kernel refuses this while the device is mounted (open(2)).
                let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
                let mut file =
                    File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(refused)?);
                let len = file
                    .seek(SeekFrom::End(0))
                    .map_err(|errno| Fault::file(path, "measured", errno))?;
                Ok(Some(Box::new(Device {
                    path: path.to_owned(),
                    file,
                    len,
                    at: 0,
                    source_len: None,
                })))
            }
            FileType::CharacterDevice | FileType::Fifo => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                let file = rustix::fs::open(path, flags, Mode::empty()).map_err(refused)?;
                Ok(Some(Box::new(Pipe::new(path, Consumer::File(file.into())))))
            }
            _ => Ok(None),
        }
    }

    fn zero_up_to(&mut self, end: u64) -> Result<(), Fault> {
        while self.at < end {
            let len = usize::try_from(end - self.at)
                .unwrap_or(usize::MAX)
                .min(ZEROS.len());
            self.file
                .write_all_at(&ZEROS[..len], self.at)
                .map_err(|errno| Fault::file(&self.path, "written", errno))?;
            self.at += len as u64;
        }
        Ok(())
    }
}

impl Sink for Device {
    fn begin(&mut self, entry: Entry) -> Result<(), Fault> {
        self.source_len = single(&entry, &self.path)?;
        match self.source_len {
            Some(len) if len > self.len => Err(Fault::refused(
                &self.path,
                format!(
                    "has {} bytes, but the source has {len}: cast to a larger one",
                    self.len
                ),
            )),
            _ => Ok(()),
        }
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.zero_up_to(offset)?;
        self.file
            .write_all_at(bytes, offset)
            .map_err(|errno| Fault::file(&self.path, "written", errno))?;
        self.at = offset + bytes.len() as u64;
        Ok(())
    }

    fn retain(&mut self, offset: u64, len: u64) -> Result<(), Fault> {
        self.zero_up_to(offset)?;
        self.at = offset + len;
        Ok(())
    }

    fn prepare(&mut self, root: &Entry) -> Result<(), Fault> {
        single(root, &self.path).map(|_| ())
    }

    fn read_part(&mut self, _path: &[u8], offset: u64, len: u64, bytes: &mut Vec<u8>) -> bool {
        super::append(&self.file, offset, len, bytes)
    }

    fn read_old(&mut self, _path: &[u8], _offset: u64, _len: u64, _bytes: &mut Vec<u8>) -> bool {
        false
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.zero_up_to(self.source_len.unwrap_or(0))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        // A device reports write errors only here.
        self.file
            .sync_all()
            .map_err(|errno| Fault::file(&self.path, "flushed", errno))
    }

    fn take_warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}

enum Consumer {
    File(File),
    Command(Child, String),
}

/// A consumer of a byte stream.
pub(super) struct Pipe {
    path: PathBuf,
    consumer: Consumer,
    at: u64,
    source_len: Option<u64>,
}

impl Pipe {
    fn new(path: &Path, consumer: Consumer) -> Pipe {
        Pipe {
            path: path.to_owned(),
            consumer,
            at: 0,
            source_len: None,
        }
    }

    /// Creates a sink to this process's standard output, which the launcher forwards.
    pub(super) fn to_standard_output() -> Result<Pipe, Fault> {
        let name = Path::new("standard output");
        let fd = std::io::stdout().as_fd().try_clone_to_owned();
        let fd = fd.map_err(|errno| Fault::file(name, "opened", errno))?;
        Ok(Pipe::new(name, Consumer::File(fd.into())))
    }

    /// Creates a sink to the standard input of a shell command.
    pub(super) fn to_command(command: &[u8]) -> Result<Pipe, Fault> {
        let shown = String::from_utf8_lossy(command).into_owned();
        let name = Path::new("sh");
        let child = Command::new("sh")
            .arg("-c")
            .arg(std::ffi::OsStr::from_bytes(command))
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|errno| Fault::file(name, "started", errno))?;
        Ok(Pipe::new(
            Path::new(&shown),
            Consumer::Command(child, shown.clone()),
        ))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let written = match &mut self.consumer {
            Consumer::File(file) => file.write_all(bytes),
            Consumer::Command(child, _) => match &mut child.stdin {
                Some(input) => input.write_all(bytes),
                None => Ok(()),
            },
        };
        self.at += bytes.len() as u64;
        match (written, &mut self.consumer) {
            (Ok(()), _) => Ok(()),
            (Err(_), Consumer::Command(child, command)) => Err(ended(child, command)),
            (Err(errno), Consumer::File(_)) => Err(Fault::file(&self.path, "written", errno)),
        }
    }

    fn zero_up_to(&mut self, end: u64) -> Result<(), Fault> {
        while self.at < end {
            let len = usize::try_from(end - self.at)
                .unwrap_or(usize::MAX)
                .min(ZEROS.len());
            self.write(&ZEROS[..len])?;
        }
        Ok(())
    }
}

/// Returns the error of a command that stopped reading.
fn ended(child: &mut Child, command: &str) -> Fault {
    drop(child.stdin.take());
    let status = match child.wait() {
        Ok(status) => format!("{status} before it had read all data"),
        Err(error) => error.to_string(),
    };
    Fault::Command {
        command: command.to_owned(),
        status,
    }
}

impl Sink for Pipe {
    fn begin(&mut self, entry: Entry) -> Result<(), Fault> {
        self.source_len = single(&entry, &self.path)?;
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.zero_up_to(offset)?;
        self.write(bytes)
    }

    fn retain(&mut self, _offset: u64, _len: u64) -> Result<(), Fault> {
        Err(Fault::Protocol("a resumed stream"))
    }

    fn prepare(&mut self, _root: &Entry) -> Result<(), Fault> {
        let why = "accepts a stream only, which cannot be resumed: cast without --resume";
        Err(Fault::refused(&self.path, why))
    }

    fn read_part(&mut self, _path: &[u8], _offset: u64, _len: u64, _bytes: &mut Vec<u8>) -> bool {
        false
    }

    fn read_old(&mut self, _path: &[u8], _offset: u64, _len: u64, _bytes: &mut Vec<u8>) -> bool {
        false
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.zero_up_to(self.source_len.unwrap_or(0))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        let Consumer::Command(child, command) = &mut self.consumer else {
            return Ok(());
        };
        drop(child.stdin.take());
        let failed = |status: String| Fault::Command {
            command: command.clone(),
            status,
        };
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(status.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn take_warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Consumer::Command(child, _) = &mut self.consumer {
            // The command is killed, because end of file would look like the end of the data.
            let is_done = child.try_wait().is_ok_and(|status| status.is_some());
            if !is_done {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
