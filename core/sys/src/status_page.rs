// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page on which a process publishes a text for tools of its user, when one requests it.
//!
//! The page is a memory file without a name. Tools find it among the descriptors that `/proc` lists
//! for the process, and it vanishes with the process, however that ends. Layout, in host byte order:
//!
//! ```text
//!  0  magic u32           4  wanted u32: number of the last request, counted up by tools
//!  8  served u32: number of the request that the text answers
//! 12  edition u32: odd while the text changes        16  len u32        24  text
//! ```
//!
//! Invariant: the process reads nothing from the page but `wanted`, so tools cannot harm it. Readers
//! copy the text by words, and discard a copy during which `edition` changed.
#![allow(
    unsafe_code,
    reason = "refers to words of a mapping as atomic integers"
)]

use crate::mapping::Mapping;
use crate::memfd;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Label of the memory file, as `/proc` shows it.
pub const STATUS_LABEL: &str = "portolan-status";

/// Longest text in bytes.
pub const STATUS_LEN_MAX: usize = PAGE_LEN - TEXT_AT;

const PAGE_LEN: usize = 64 * 1024;
const TEXT_AT: usize = 24;

/// "PtS" and the version of the layout.
const MAGIC: u32 = u32::from_ne_bytes(*b"PtS1");

const MAGIC_AT: usize = 0;
const WANTED_AT: usize = 4;
const SERVED_AT: usize = 8;
const EDITION_AT: usize = 12;
const LEN_AT: usize = 16;

/// Copies of a text that changes meanwhile, before a reader gives up.
const READ_TRIES: u32 = 100;

/// The words of a mapped page.
#[derive(Debug)]
struct Page(Mapping);

impl Page {
    fn map(fd: impl std::os::fd::AsFd) -> io::Result<Page> {
        Mapping::map_lazily(fd, PAGE_LEN).map(Page)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.0.len());
        // SAFETY: the word lies within the mapping, which lives as long as the reference, and is
        // aligned, because a mapping begins at a page. Every access by any process is atomic.
        unsafe { self.0.base().add(at).cast::<AtomicU32>().as_ref() }
    }

    fn text_word(&self, index: usize) -> &AtomicU64 {
        let at = TEXT_AT + index * 8;
        assert!(at + 8 <= self.0.len());
        // SAFETY: as in `word`.
        unsafe { self.0.base().add(at).cast::<AtomicU64>().as_ref() }
    }
}

/// The page of this process.
#[derive(Debug)]
pub struct StatusPage {
    page: Page,
    /// Tools find the page by this descriptor.
    _fd: OwnedFd,
}

impl StatusPage {
    /// Creates the page, with an empty text.
    ///
    /// # Errors
    /// The errors of [`memfd::create_sealed`] and `mmap`.
    pub fn create() -> io::Result<StatusPage> {
        let fd = memfd::create_sealed(STATUS_LABEL, PAGE_LEN as u64)?;
        let page = Page::map(&fd)?;
        page.word(MAGIC_AT).store(MAGIC, Ordering::Relaxed);
        Ok(StatusPage { page, _fd: fd })
    }

    /// Returns the number of a request that was not served.
    #[inline]
    #[must_use]
    pub fn request(&self) -> Option<u32> {
        let wanted = self.page.word(WANTED_AT).load(Ordering::Relaxed);
        (wanted != self.page.word(SERVED_AT).load(Ordering::Relaxed)).then_some(wanted)
    }

    /// Publishes `text` as the answer to `request`.
    ///
    /// # Panics
    /// Panics if the text is longer than [`STATUS_LEN_MAX`].
    pub fn publish(&mut self, request: u32, text: &[u8]) {
        assert!(
            text.len() <= STATUS_LEN_MAX,
            "a text of {} bytes",
            text.len()
        );
        let edition = self.page.word(EDITION_AT).load(Ordering::Relaxed);
        let odd = edition | 1;
        self.page.word(EDITION_AT).store(odd, Ordering::Relaxed);
        // SYNC: status text. Readers that see a new word also see the odd edition.
        fence(Ordering::Release);
        for (index, chunk) in text.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_ne_bytes(word);
            self.page.text_word(index).store(word, Ordering::Relaxed);
        }
        let len = u32::try_from(text.len()).unwrap_or(0);
        self.page.word(LEN_AT).store(len, Ordering::Relaxed);
        self.page.word(SERVED_AT).store(request, Ordering::Relaxed);
        let even = odd.wrapping_add(1);
        // SYNC: status text.
        self.page.word(EDITION_AT).store(even, Ordering::Release);
    }
}

/// The page of another process.
#[derive(Debug)]
pub struct StatusReader(Page);

impl StatusReader {
    /// Opens the page at `path`, a link below `/proc/PID/fd`.
    ///
    /// # Errors
    /// `InvalidData` if the file is no such page, or has another version. Otherwise the error of
    /// opening it: `PermissionDenied` for a process of another user.
    pub fn open(path: &Path) -> io::Result<StatusReader> {
        let file = File::options().read(true).write(true).open(path)?;
        memfd::check(&file, PAGE_LEN as u64)
            .map_err(|refused| io::Error::new(io::ErrorKind::InvalidData, refused))?;
        let page = Page::map(&file)?;
        if page.word(MAGIC_AT).load(Ordering::Relaxed) != MAGIC {
            let why = "no status page of this version";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(StatusReader(page))
    }

    /// Requests a new text, and returns the number of the request.
    #[must_use]
    pub fn request(&self) -> u32 {
        let before = self.0.word(WANTED_AT).fetch_add(1, Ordering::Relaxed);
        before.wrapping_add(1)
    }

    /// Returns the text, and the number of the request that it answers. `None` if the text changed
    /// all the time.
    #[must_use]
    pub fn read(&self) -> Option<(u32, Vec<u8>)> {
        for _ in 0..READ_TRIES {
            // SYNC: status text.
            let edition = self.0.word(EDITION_AT).load(Ordering::Acquire);
            let len = self.0.word(LEN_AT).load(Ordering::Relaxed) as usize;
            let len = len.min(STATUS_LEN_MAX);
            let served = self.0.word(SERVED_AT).load(Ordering::Relaxed);
            let word = |index| {
                self.0
                    .text_word(index)
                    .load(Ordering::Relaxed)
                    .to_ne_bytes()
            };
            let mut text: Vec<u8> = (0..len.div_ceil(8)).flat_map(word).collect();
            text.truncate(len);
            fence(Ordering::Acquire);
            let is_same = self.0.word(EDITION_AT).load(Ordering::Relaxed) == edition;
            if is_same && edition.is_multiple_of(2) {
                return Some((served, text));
            }
            std::thread::yield_now();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicBool;

    fn reader_of(page: &StatusPage) -> StatusReader {
        let path = format!("/proc/self/fd/{}", page._fd.as_raw_fd());
        StatusReader::open(Path::new(&path)).unwrap()
    }

    #[test]
    fn text_answers_a_request() {
        let mut page = StatusPage::create().unwrap();
        let reader = reader_of(&page);
        assert_eq!(page.request(), None);
        assert_eq!(reader.read(), Some((0, Vec::new())));
        let request = reader.request();
        assert_eq!(page.request(), Some(request));
        page.publish(request, b"all is well");
        assert_eq!(page.request(), None);
        assert_eq!(reader.read(), Some((request, b"all is well".to_vec())));
        page.publish(request, &[7; STATUS_LEN_MAX]);
        assert_eq!(reader.read().unwrap().1, [7; STATUS_LEN_MAX]);
    }

    #[test]
    fn copy_is_never_mixed() {
        let mut page = StatusPage::create().unwrap();
        let reader = reader_of(&page);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..2_000_u32 {
                    let [byte, ..] = number.to_le_bytes();
                    page.publish(number, &vec![byte; 100 + number as usize % 900]);
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let Some((number, text)) = reader.read() else {
                    continue;
                };
                let [byte, ..] = number.to_le_bytes();
                assert!(text.iter().all(|other| *other == byte), "{number}");
                assert!(text.is_empty() || text.len() == 100 + number as usize % 900);
            }
        });
    }

    #[test]
    fn other_files_are_refused() {
        let other = memfd::create_sealed("other", PAGE_LEN as u64).unwrap();
        let path = format!("/proc/self/fd/{}", other.as_raw_fd());
        let error = StatusReader::open(Path::new(&path)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(StatusReader::open(Path::new("/proc/self/exe")).is_err());
    }
}
