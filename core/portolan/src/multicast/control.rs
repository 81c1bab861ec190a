// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control messages between root and members, little-endian; see P17 in
//! docs/reference/protocol.md.
//!
//! ```text
//! announcement, 24 bytes behind the head of a broadcast
//!   0  version u8 = 1   1  zero   2  bytes of a piece u16   4  window in datagrams u32
//!   8  salt, 16 random bytes
//! control message
//!   0  version u8 = 1   1  kind u8   2  group u16   4  zero 4
//!   8  number of the operation in the group u64   16  by kind:
//!      1 ready    datagrams that the member's socket holds u32
//!      2 refused  the reason, at most 192 bytes
//!      3 report   last datagram that arrived, or never will u64; first incomplete block u64;
//!                 datagrams that arrived u64; missing ranges: block u32, first piece u16, end u16
//!      4 sent     last datagram u64; block u32 and piece u16 after the last sent; zero 2
//!      5 direct   nothing
//!      6 window   datagrams that may be in flight u32
//! ```

use super::Id;
use portolan_multicast::{Front, MissingPieces, Report, Sent};

/// Version of the records.
const VERSION: u8 = 1;

/// Length of the header of every control message, in bytes.
const HEADER_LEN: usize = 16;

/// Length of a report without its ranges, and of a range, in bytes.
const REPORT_LEN: usize = HEADER_LEN + 24;
const RANGE_LEN: usize = 8;

/// Maximum number of ranges in a report. They fit the shortest frame with a header; a message sent
/// by rendezvous would wait forever for a buffer. Further ranges follow in the next report.
const RANGES_MAX: usize = 100;

/// Longest reason, in bytes.
const REASON_LEN_MAX: usize = 192;

/// Announcement behind the header of a broadcast that sends its data by multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// Length of a piece, in bytes.
    pub(super) piece_len: u16,
    /// Window of the root: datagrams that may be in flight.
    pub(super) window: u32,
    /// Random part of the broadcast's keys, which all members derive from it and the job's secret.
    pub(super) salt: [u8; 16],
}

impl Announcement {
    /// Length of an announcement, in bytes.
    pub(crate) const LEN: usize = 24;

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = VERSION;
        bytes[2..4].copy_from_slice(&self.piece_len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.window.to_le_bytes());
        bytes[8..].copy_from_slice(&self.salt);
        bytes
    }

    /// Parses an announcement; returns `None` for other bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Announcement> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        if bytes[..2] != [VERSION, 0] {
            return None;
        }
        Some(Announcement {
            piece_len: u16::from_le_bytes(field(bytes, 2)?),
            window: u32::from_le_bytes(field(bytes, 4)?),
            salt: field(bytes, 8)?,
        })
    }
}

/// A control message about one broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// To the root: this member has joined; its socket holds `window` datagrams.
    Ready { window: u32 },
    /// To the root: this member has not joined.
    Refused { why: String },
    /// To the root: ranges that were received or are missing, and the total number of received
    /// datagrams.
    Report { report: Report, got: u64 },
    /// From the root: numbers of sent datagrams, so that losses are detected.
    Sent(Sent),
    /// From the root: the data arrive in a message.
    Direct,
    /// From the root: its window in datagrams, which is narrower than announced.
    Window { window: u32 },
}

impl Control {
    pub(super) fn to_bytes(&self, id: Id) -> Vec<u8> {
        let kind = match self {
            Control::Ready { .. } => 1,
            Control::Refused { .. } => 2,
            Control::Report { .. } => 3,
            Control::Sent(_) => 4,
            Control::Direct => 5,
            Control::Window { .. } => 6,
        };
        let mut bytes = vec![VERSION, kind];
        bytes.extend_from_slice(&id.group.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&id.seq.to_le_bytes());
        match self {
            Control::Ready { window } | Control::Window { window } => {
                bytes.extend_from_slice(&window.to_le_bytes())
            }
            Control::Refused { why } => {
                bytes.extend_from_slice(truncated(why, REASON_LEN_MAX).as_bytes());
            }
            Control::Report { report, got } => emit_report(&mut bytes, report, *got),
            Control::Sent(Sent { serial, front }) => {
                bytes.extend_from_slice(&serial.to_le_bytes());
                bytes.extend_from_slice(&front.block.to_le_bytes()[..4]);
                bytes.extend_from_slice(&front.pieces.to_le_bytes());
                bytes.extend_from_slice(&[0; 2]);
            }
            Control::Direct => {}
        }
        bytes
    }

    /// Parses a control message and its operation; returns `None` for other bytes.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Id, Control)> {
        let (head, rest) = bytes.split_at_checked(HEADER_LEN)?;
        let id = Id {
            group: u16::from_le_bytes(field(head, 2)?),
            seq: u64::from_le_bytes(field(head, 8)?),
        };
        if head[0] != VERSION {
            return None;
        }
        let control = match (head[1], rest.len()) {
            (1, 4) => Control::Ready {
                window: u32::from_le_bytes(field(rest, 0)?),
            },
            (2, 0..=REASON_LEN_MAX) => Control::Refused {
                why: std::str::from_utf8(rest).ok()?.to_owned(),
            },
            (3, _) => parse_report(bytes)?,
            (4, 16) => Control::Sent(Sent {
                serial: u64::from_le_bytes(field(rest, 0)?),
                front: Front {
                    block: u64::from(u32::from_le_bytes(field(rest, 8)?)),
                    pieces: u16::from_le_bytes(field(rest, 12)?),
                },
            }),
            (5, 0) => Control::Direct,
            (6, 4) => Control::Window {
                window: u32::from_le_bytes(field(rest, 0)?),
            },
            _ => return None,
        };
        Some((id, control))
    }
}

/// Returns the longest prefix of `text` of at most `len_max` bytes that ends between two
/// characters.
fn truncated(text: &str, len_max: usize) -> &str {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn emit_report(bytes: &mut Vec<u8>, report: &Report, got: u64) {
    for number in [report.seen, report.next, got] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let missing = report.missing.iter();
    let ranges = missing.flat_map(|lack| lack.ranges.iter().map(|range| (lack.block, *range)));
    for (block, (first, end)) in ranges.take(RANGES_MAX) {
        bytes.extend_from_slice(&block.to_le_bytes()[..4]);
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&end.to_le_bytes());
    }
}

fn parse_report(bytes: &[u8]) -> Option<Control> {
    let (head, ranges) = bytes.split_at_checked(REPORT_LEN)?;
    let number = |at| Some(u64::from_le_bytes(field(head, at)?));
    let mut missing: Vec<MissingPieces> = Vec::new();
    let mut chunks = ranges.chunks_exact(RANGE_LEN);
    for range in &mut chunks {
        let block = u64::from(u32::from_le_bytes(field(range, 0)?));
        let pieces = (
            u16::from_le_bytes(field(range, 4)?),
            u16::from_le_bytes(field(range, 6)?),
        );
        match missing.last_mut().filter(|last| last.block == block) {
            Some(last) => last.ranges.push(pieces),
            None => missing.push(MissingPieces {
                block,
                ranges: vec![pieces],
            }),
        }
    }
    let report = Report {
        seen: number(HEADER_LEN)?,
        next: number(HEADER_LEN + 8)?,
        missing,
    };
    let got = number(HEADER_LEN + 16)?;
    let is_whole = chunks.remainder().is_empty();
    is_whole.then_some(Control::Report { report, got })
}

fn field<const LEN: usize>(bytes: &[u8], at: usize) -> Option<[u8; LEN]> {
    bytes.get(at..at + LEN)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    const ID: Id = Id {
        group: 0x0102,
        seq: 0x0304_0506_0708,
    };

    fn controls() -> Vec<Control> {
        let missing = |block, ranges: &[(u16, u16)]| MissingPieces {
            block,
            ranges: ranges.to_vec(),
        };
        let report = |missing| Report {
            seen: 7,
            next: 2,
            missing,
        };
        vec![
            Control::Ready { window: 92 },
            Control::Refused {
                why: "no such device".to_owned(),
            },
            Control::Report {
                report: report(Vec::new()),
                got: 5,
            },
            Control::Report {
                report: report(vec![missing(2, &[(0, 3), (7, 8)]), missing(5, &[(1, 2)])]),
                got: u64::MAX,
            },
            Control::Sent(Sent {
                serial: 1 << 40,
                front: Front {
                    block: 3,
                    pieces: 9,
                },
            }),
            Control::Direct,
            Control::Window { window: 16 },
        ]
    }

    #[test]
    fn controls_and_announcements_round_trip() {
        for control in controls() {
            assert_eq!(Control::parse(&control.to_bytes(ID)), Some((ID, control)));
        }
        let announcement = Announcement {
            piece_len: 1416,
            window: 1 << 20,
            salt: [9; 16],
        };
        let bytes = announcement.to_bytes();
        assert_eq!(Announcement::parse(&bytes), Some(announcement));
        assert_eq!(Announcement::parse(&bytes[1..]), None);
    }

    #[test]
    fn invalid_controls_are_rejected() {
        for control in controls() {
            let bytes = control.to_bytes(ID);
            let refused = |bytes: &[u8]| Control::parse(bytes).is_none();
            let mut other = bytes.clone();
            other[0] = 2;
            assert!(refused(&other), "of another version");
            other[..2].copy_from_slice(&[1, 7]);
            assert!(refused(&other), "of another kind");
            assert!(refused(&bytes[..HEADER_LEN - 1]));
            let is_text = matches!(control, Control::Refused { .. });
            assert!(
                is_text || refused(&[&bytes[..], &[0]].concat()),
                "{control:?}"
            );
        }
        let long = Control::Refused {
            why: "ü".repeat(REASON_LEN_MAX),
        };
        let Some((_, Control::Refused { why })) = Control::parse(&long.to_bytes(ID)) else {
            panic!("it is none");
        };
        assert_eq!(why, "ü".repeat(REASON_LEN_MAX / 2));
    }

    #[test]
    fn random_bytes_do_not_panic() {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        for _ in 0..20_000 {
            let mut bytes = vec![0; random.random_range(0..80)];
            random.fill(&mut bytes[..]);
            if let [version, kind, ..] = &mut bytes[..] {
                (*version, *kind) = (1, *kind % 8);
            }
            if let Some((id, control)) = Control::parse(&bytes) {
                assert_eq!(Control::parse(&control.to_bytes(id)), Some((id, control)));
            }
        }
    }
}
