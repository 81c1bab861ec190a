// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits a byte stream into lines.

use super::wire::LINE_LEN_MAX;
use std::io;

/// Received bytes that are not yet a whole line.
///
/// It does not read: the caller appends bytes and takes lines out.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Number of bytes at the front that were already returned.
    taken_len: usize,
    /// Number of bytes after `taken_len` that contain no end of line. They are searched only once.
    searched_len: usize,
}

impl LineBuffer {
    /// Appends received bytes.
    ///
    /// # Errors
    /// `InvalidData` when a line grows beyond [`LINE_LEN_MAX`]: the writer is not a launcher.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.taken_len > 0 {
            self.bytes.drain(..self.taken_len);
            self.taken_len = 0;
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > LINE_LEN_MAX + bytes.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "line too long"));
        }
        Ok(())
    }

    /// Frees memory that a long line needed.
    pub fn shrink(&mut self) {
        self.bytes.drain(..self.taken_len);
        self.taken_len = 0;
        self.bytes.shrink_to_fit();
    }

    /// Takes the next whole line, without its end.
    pub fn next_line(&mut self) -> Option<&[u8]> {
        let start = self.taken_len;
        let rest = &self.bytes[start..];
        let Some(found) = rest[self.searched_len..]
            .iter()
            .position(|byte| *byte == b'\n')
        else {
            self.searched_len = rest.len();
            return None;
        };
        let end = start + self.searched_len + found;
        self.taken_len = end + 1;
        self.searched_len = 0;
        Some(&self.bytes[start..end])
    }

    /// Returns the number of bytes of the incomplete line.
    #[must_use]
    pub fn partial_len(&self) -> usize {
        self.bytes.len() - self.taken_len
    }

    /// Takes the bytes of the incomplete line.
    pub fn take_partial(&mut self) -> Vec<u8> {
        let rest = self.bytes.split_off(self.taken_len);
        *self = LineBuffer::default();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_independent_of_chunking() {
        let text = b"one\n\ntwo and a half\nrest";
        for cut in 1..text.len() {
            let mut buffer = LineBuffer::default();
            let mut lines = Vec::new();
            for piece in text.chunks(cut) {
                buffer.append(piece).unwrap();
                while let Some(line) = buffer.next_line() {
                    lines.push(line.to_vec());
                }
            }
            assert_eq!(
                lines,
                [&b"one"[..], b"", b"two and a half"],
                "pieces of {cut}"
            );
            assert_eq!(buffer.partial_len(), 4);
            assert_eq!(buffer.take_partial(), b"rest");
            assert_eq!(buffer.partial_len(), 0);
        }
    }

    #[test]
    fn unterminated_line_is_bounded() {
        let mut buffer = LineBuffer::default();
        let piece = vec![b'x'; 8 << 20];
        let refused = (0..16).find_map(|_| buffer.append(&piece).err());
        assert!(refused.is_some());
    }
}
