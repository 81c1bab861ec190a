// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a [`TxFrame`] into its datagrams.

use crate::{Segments, TxError, TxFrame};
use std::io::IoSlice;
use std::ops::Range;

/// A frame or a run of segments with a checked shape.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    frame: TxFrame<'a>,
    payload_len: usize,
    /// Number of datagrams.
    pub count: usize,
}

impl<'a> Run<'a> {
    /// Creates a run after checking the shape of `frame`.
    ///
    /// # Panics
    /// Panics if head and payload do not match the frame's segments: each header must be present,
    /// and each segment except the last must be full.
    #[must_use]
    pub fn new(frame: &TxFrame<'a>) -> Self {
        let payload_len = frame.payload_len();
        let count = frame
            .segments
            .map_or(1, |cut| count_of(cut, frame.head.len(), payload_len));
        Run {
            frame: *frame,
            payload_len,
            count,
        }
    }

    /// Returns the bytes of each datagram except the last, which may be shorter.
    #[must_use]
    pub fn datagram_len(&self) -> usize {
        match self.frame.segments {
            Some(cut) => cut.header_len + cut.payload_len.min(self.payload_len),
            None => self.frame.head.len() + self.payload_len,
        }
    }

    /// Returns the total bytes of all datagrams.
    #[must_use]
    pub fn total_len(&self) -> usize {
        self.frame.head.len() + self.payload_len
    }

    /// Returns the bytes in sending order. No piece extends past the end of a datagram.
    pub fn pieces(&self) -> Pieces<'a> {
        let head = self.frame.head;
        let (header_len, segment_len) = match self.frame.segments {
            Some(cut) => (cut.header_len, cut.payload_len),
            None => (head.len(), usize::MAX),
        };
        let datagram_left = if head.is_empty() { segment_len } else { 0 };
        Pieces {
            head,
            header_len,
            payload: self.frame.payload,
            open: &[],
            segment_len,
            datagram_left,
        }
    }

    /// Returns all bytes, if they are contiguous.
    #[inline]
    pub(crate) fn one_piece(&self) -> Option<&'a [u8]> {
        match (self.frame.head, self.frame.payload) {
            (head, []) => Some(head),
            ([], [piece]) => Some(piece),
            _ => None,
        }
    }

    /// Returns the payload slices as they lie in memory, if the run has no headers. These pieces
    /// are fewer and longer; a kernel that segments the run itself copies them faster.
    pub(crate) fn uncut(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        let is_headless = self.frame.head.is_empty();
        is_headless.then(|| self.frame.payload.iter().map(|slice| &**slice))
    }

    /// Returns the datagrams selected by `is_selected` as a frame of their own, or `None` if there
    /// are none. `heads` receives their headers, and `payload` the slices of their payload.
    pub(crate) fn only<'b>(
        &self,
        is_selected: impl Fn(usize) -> bool,
        heads: &'b mut Vec<u8>,
        payload: &'b mut Vec<IoSlice<'a>>,
    ) -> Option<TxFrame<'b>>
    where
        'a: 'b,
    {
        heads.clear();
        let mut first = 0;
        while let Some(from) = (first..self.count).find(|&index| is_selected(index)) {
            let end = (from..self.count).find(|&index| !is_selected(index));
            let end = end.unwrap_or(self.count);
            heads.extend_from_slice(self.heads_of(from..end));
            payload.extend(self.payload_of(from..end).map(IoSlice::new));
            first = end;
        }
        let is_any = !heads.is_empty() || !payload.is_empty();
        is_any.then_some(TxFrame {
            head: heads,
            payload,
            segments: self.frame.segments,
        })
    }

    /// Copies one datagram into `out`, which is cleared first.
    pub(crate) fn copy_datagram(&self, index: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.heads_of(index..index + 1));
        for piece in self.payload_of(index..index + 1) {
            out.extend_from_slice(piece);
        }
    }

    /// Returns the headers of consecutive datagrams.
    fn heads_of(&self, which: Range<usize>) -> &'a [u8] {
        let header_len = self
            .frame
            .segments
            .map_or(self.frame.head.len(), |cut| cut.header_len);
        &self.frame.head[which.start * header_len..which.end * header_len]
    }

    /// Returns the payload pieces of consecutive datagrams.
    fn payload_of(&self, which: Range<usize>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let segment_len = self
            .frame
            .segments
            .map_or(self.payload_len, |cut| cut.payload_len);
        let end = (which.end * segment_len).min(self.payload_len);
        let mut skip = which.start * segment_len;
        let mut left = end.saturating_sub(skip);
        self.frame.payload.iter().filter_map(move |slice| {
            let from = skip.min(slice.len());
            skip -= from;
            let to = from + left.min(slice.len() - from);
            left -= to - from;
            (to > from).then(|| &slice[from..to])
        })
    }

    /// Copies each datagram into `scratch`, which is cleared first, and passes it to `each`.
    pub(crate) fn for_each_copy(&self, scratch: &mut Vec<u8>, mut each: impl FnMut(&mut Vec<u8>)) {
        let full = self.datagram_len();
        scratch.clear();
        let mut left = self.total_len();
        for piece in self.pieces() {
            scratch.extend_from_slice(piece);
            left -= piece.len();
            if scratch.len() == full || left == 0 {
                each(scratch);
                scratch.clear();
            }
        }
    }
}

fn count_of(cut: Segments, head_len: usize, payload_len: usize) -> usize {
    let Segments {
        header_len,
        payload_len: segment_len,
    } = cut;
    assert!(segment_len > 0, "segments need a payload length");
    if header_len == 0 {
        assert!(
            head_len == 0 && payload_len > 0,
            "headless segments have a payload only"
        );
        return payload_len.div_ceil(segment_len);
    }
    assert!(
        head_len > 0 && head_len.is_multiple_of(header_len),
        "head is not a multiple of the header length"
    );
    let count = head_len / header_len;
    let least = (count - 1) * segment_len;
    assert!(
        payload_len >= least && payload_len <= least + segment_len,
        "{payload_len} bytes of payload do not make {count} segments of {segment_len}"
    );
    count
}

/// Iterator over the pieces of a [`Run`].
pub struct Pieces<'a> {
    head: &'a [u8],
    header_len: usize,
    payload: &'a [IoSlice<'a>],
    /// Rest of the current payload slice.
    open: &'a [u8],
    segment_len: usize,
    /// Bytes of payload still to be added to the current datagram.
    datagram_left: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.datagram_left == 0 && self.header_len == 0 {
            self.datagram_left = self.segment_len;
        }
        while self.datagram_left > 0 {
            if self.open.is_empty() {
                let Some((first, rest)) = self.payload.split_first() else {
                    break;
                };
                (self.open, self.payload) = (first, rest);
                continue;
            }
            let (piece, rest) = self.open.split_at(self.open.len().min(self.datagram_left));
            self.open = rest;
            self.datagram_left -= piece.len();
            return Some(piece);
        }
        if self.head.is_empty() {
            return None;
        }
        let (header, rest) = self.head.split_at(self.header_len);
        self.head = rest;
        self.datagram_left = self.segment_len;
        Some(header)
    }
}

/// Returns the bytes of a run of one segment. Longer runs exceed the capabilities of links that
/// send frame by frame.
#[cold]
pub(crate) fn checked_single(frame: &TxFrame<'_>) -> Result<usize, TxError> {
    let run = Run::new(frame);
    if run.count == 1 {
        Ok(run.total_len())
    } else {
        Err(TxError::TooLong { frame_len_max: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(frame: &TxFrame<'_>) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        Run::new(frame).for_each_copy(&mut Vec::new(), |datagram| all.push(datagram.clone()));
        all
    }

    #[test]
    fn run_distributes_payload_behind_headers() {
        let payload = [
            IoSlice::new(b"abcde"),
            IoSlice::new(b""),
            IoSlice::new(b"fgh"),
        ];
        let cut = Segments {
            header_len: 2,
            payload_len: 3,
        };
        let frame = TxFrame {
            head: b"001122",
            payload: &payload,
            segments: Some(cut),
        };
        assert_eq!(datagrams(&frame), [&b"00abc"[..], b"11def", b"22gh"]);
        assert_eq!(
            (Run::new(&frame).count, Run::new(&frame).datagram_len()),
            (3, 5)
        );
    }

    #[test]
    fn run_without_headers_is_contiguous() {
        let payload = [IoSlice::new(b"abcdefgh"), IoSlice::new(b"ij")];
        let mut cut = Segments {
            header_len: 0,
            payload_len: 3,
        };
        let mut frame = TxFrame {
            head: b"",
            payload: &payload,
            segments: Some(cut),
        };
        let uncut = Run::new(&frame).uncut().unwrap();
        assert_eq!(uncut.collect::<Vec<_>>(), [&b"abcdefgh"[..], b"ij"]);
        assert_eq!(datagrams(&frame), [&b"abc"[..], b"def", b"ghi", b"j"]);
        cut.header_len = 1;
        frame.segments = Some(cut);
        frame.head = b"0123";
        assert!(Run::new(&frame).uncut().is_none());
    }

    #[test]
    fn single_frame_is_head_then_payload() {
        let payload = [IoSlice::new(b"body")];
        let frame = TxFrame {
            head: b"head",
            payload: &payload,
            segments: None,
        };
        assert_eq!(datagrams(&frame), [b"headbody"]);
        let frame = TxFrame {
            head: b"",
            payload: &payload,
            segments: None,
        };
        assert_eq!(datagrams(&frame), [b"body"]);
        assert_eq!(datagrams(&TxFrame::contiguous(b"x")), [b"x"]);
    }

    #[test]
    fn last_segment_may_be_only_a_header() {
        let payload = [IoSlice::new(b"abc")];
        let cut = Segments {
            header_len: 1,
            payload_len: 3,
        };
        let frame = TxFrame {
            head: b"01",
            payload: &payload,
            segments: Some(cut),
        };
        assert_eq!(datagrams(&frame), [&b"0abc"[..], b"1"]);
    }

    #[test]
    fn some_datagrams_of_a_run_are_a_run() {
        let payload = [
            IoSlice::new(b"abcde"),
            IoSlice::new(b""),
            IoSlice::new(b"fghij"),
        ];
        let with_headers = TxFrame {
            head: b"00112233",
            payload: &payload,
            segments: Some(Segments {
                header_len: 2,
                payload_len: 3,
            }),
        };
        let without = TxFrame {
            head: b"",
            segments: Some(Segments {
                header_len: 0,
                payload_len: 3,
            }),
            ..with_headers
        };
        let single = TxFrame {
            segments: None,
            ..with_headers
        };
        for frame in [with_headers, without, single] {
            let (run, all) = (Run::new(&frame), datagrams(&frame));
            for chosen in 0..1_usize << run.count {
                let is_chosen = |index: usize| chosen >> index & 1 == 1;
                let expected = (0..run.count).filter(|&index| is_chosen(index));
                let expected: Vec<_> = expected.map(|index| all[index].clone()).collect();
                let (mut heads, mut slices) = (vec![0xa5], Vec::new());
                let only = run.only(is_chosen, &mut heads, &mut slices);
                assert_eq!(only.map_or(Vec::new(), |only| datagrams(&only)), expected);
            }
            let mut copy = vec![0xa5];
            for (index, datagram) in all.iter().enumerate() {
                run.copy_datagram(index, &mut copy);
                assert_eq!(&copy, datagram);
            }
        }
    }

    #[test]
    #[should_panic(expected = "do not make 3 segments")]
    fn segment_without_its_payload_is_refused() {
        let payload = [IoSlice::new(b"abc")];
        let cut = Segments {
            header_len: 1,
            payload_len: 3,
        };
        let frame = TxFrame {
            head: b"012",
            payload: &payload,
            segments: Some(cut),
        };
        let _ = Run::new(&frame);
    }
}
