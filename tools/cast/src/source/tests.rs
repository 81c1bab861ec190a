// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the records of a directory.

use super::*;
use rustix::fs::XattrFlags;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Counts entries, payload bytes and warnings.
#[derive(Default)]
struct Counter {
    entries: usize,
    longest: usize,
    warnings: Vec<String>,
}

impl Out for Counter {
    fn memory(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn give_back(&mut self, _memory: Vec<u8>) {}

    fn emit(&mut self, kind: Kind, _: u32, _: u32, payload: Vec<u8>) -> Result<(), Fault> {
        self.longest = self.longest.max(payload.len());
        if kind == Kind::Entries {
            let records = Batch::parse(&payload)?.records;
            let is_entry = |record: &&Record| matches!(record, Record::Entry(_));
            self.entries += records.iter().filter(is_entry).count();
        }
        Ok(())
    }

    fn skip(&mut self, _hash: &[u8; 32]) {}

    fn needs(&mut self, _batch: u32) -> Result<Vec<u8>, Fault> {
        Ok(vec![0xff; 1024])
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }
}

fn read_all(root: &Path, hashes: Hashes) -> (Counter, Totals) {
    let mut out = Counter::default();
    let source = spec::Source::Path(root.as_os_str().as_encoded_bytes().to_vec());
    let totals = read(&source, hashes, &mut out).unwrap();
    (out, totals)
}

#[test]
fn blocks_do_not_exceed_the_block_length() {
    let directory = tempfile::tempdir().unwrap();
    let mut deep = directory.path().to_owned();
    for _ in 0..6 {
        deep.push("d".repeat(250));
    }
    std::fs::create_dir_all(&deep).unwrap();
    for index in 0..3000 {
        let name = [vec![0xff; 240], index.to_string().into_bytes()].concat();
        let path = deep.join(OsString::from_vec(name));
        match index % 3 {
            0 => std::fs::write(path, b"content").unwrap(),
            _ => std::os::unix::fs::symlink("x".repeat(1000), path).unwrap(),
        }
    }
    for hashes in [Hashes::None, Hashes::Blocks, Hashes::Pieces] {
        let (out, totals) = read_all(directory.path(), hashes);
        assert_eq!((out.entries, totals.entries), (3007, 3007));
        assert!(out.longest <= spec::BLOCK_LEN as usize, "{}", out.longest);
    }
}

#[test]
fn oversized_attributes_are_omitted_with_a_warning() {
    let mut out = Counter::default();
    let mut composer = Composer::new(Hashes::None, &mut out);
    let attribute = |number: u8| (vec![b'a' + number], vec![number; 100 << 10]);
    let meta = Meta {
        attributes: (0..4).map(attribute).collect(),
        ..Meta::default()
    };
    let entry = Entry {
        path: b"file".to_vec(),
        what: What::Directory,
        meta,
    };
    composer.push_entry(entry).unwrap();
    composer.flush().unwrap();
    assert!(out.longest > 200 << 10 && out.longest <= spec::BLOCK_LEN as usize);
    assert_eq!(out.warnings.len(), 2, "{:?}", out.warnings);
    assert!(
        out.warnings[0].contains("file has more"),
        "{:?}",
        out.warnings
    );
}

#[test]
fn attributes_are_sent_if_present() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    match rustix::fs::setxattr(path, "user.origin", b"genoa", XattrFlags::empty()) {
        Ok(()) => {
            let file = File::open(path).unwrap();
            let found = walk::attributes(path, &file).unwrap();
            assert!(found.contains(&(b"user.origin".to_vec(), b"genoa".to_vec())));
        }
        Err(errno) => eprintln!("SKIPPED: extended attributes: {errno}"),
    }
}
