// SPDX-License-Identifier: MIT OR Apache-2.0
//! Size of a source before it is read, for progress and for queries.

use crate::fault::Fault;
use crate::spec::Source;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Size of a source. A file may change before it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of entries.
    pub entries: u64,
    /// Bytes that are read, without holes.
    pub bytes: u64,
}

/// Returns the size of a source; `None` if it is unknown before the end, as for standard input.
///
/// # Errors
/// [`Fault::File`] if the source does not exist or cannot be read.
pub fn measure(source: &Source) -> Result<Option<Size>, Fault> {
    let Source::Path(name) = source else {
        return Ok(None);
    };
    let path = crate::path_of(name);
    let failed = |errno| Fault::file(&path, "read", errno);
    let metadata = fs::metadata(&path).map_err(failed)?;
    let kind = metadata.file_type();
    if kind.is_block_device() {
        let mut file = File::open(&path).map_err(failed)?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        return Ok(Some(Size { entries: 1, bytes }));
    }
    if !kind.is_file() && !kind.is_dir() {
        return Ok(None);
    }
    let mut size = Size::default();
    add(&path, &metadata, &mut size);
    Ok(Some(size))
}

/// Adds `path` and everything below it. Entries that cannot be read are reported later, when they
/// are read.
fn add(path: &Path, metadata: &fs::Metadata, size: &mut Size) {
    size.entries += 1;
    if metadata.is_file() {
        // Blocks of 512 bytes (stat(2)); holes have none.
        size.bytes += metadata.len().min(metadata.blocks().saturating_mul(512));
    }
    if !metadata.is_dir() {
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // Metadata of the entry itself, if it is a symbolic link.
        if let Ok(metadata) = entry.metadata() {
            add(&entry.path(), &metadata, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_excludes_holes_and_links() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("a")).unwrap();
        fs::write(root.join("a/file"), [1; 5000]).unwrap();
        File::create(root.join("hole"))
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        std::os::unix::fs::symlink("..", root.join("up")).unwrap();
        let source = Source::Path(root.as_os_str().as_encoded_bytes().to_vec());
        let size = measure(&source).unwrap().unwrap();
        assert_eq!((size.entries, size.bytes), (5, 5000));
        let absent = Source::Path(b"/nonexistent/x".to_vec());
        assert!(
            measure(&absent)
                .unwrap_err()
                .to_string()
                .contains("/nonexistent/x")
        );
    }
}
