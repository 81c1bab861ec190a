// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of collective operations as bytes, little-endian; see P14 in docs/reference/protocol.md.
//!
//! ```text
//! head, 32 bytes
//!   0  version u8 = 2   1  kind u8: 1 barrier, 2 broadcast, 3 allreduce, 4 reduce, 5 cast,
//!      6 allgather, 7 gather, 8 gatherv, 9 scatter, 10 scatterv, 11 alltoall, 12 alltoallv,
//!      13 reduce-scatter, 14 scan, 15 exscan; plus 128 if the length of the message's data u64
//!      follows
//!   2  reduction u8: 1 sum, 2 product, 3 min, 4 max, 5 of the program, 6 and, 7 or, 8 xor, else 0
//!   3  type u8: 1 i32, 2 i64, 3 u32, 4 u64, 5 f32, 6 f64, 7 i8, 8 u8, 9 i16, 10 u16, 11 f16,
//!      12 bf16, else 0
//!   4  root u32, as a member, else 0   8  number of the operation in the group u64, from 1
//!  16  bytes that the member passed u64, 0 if other members do not know   24  FNV-1a of the group's ranks in order, u32 each
//! notice, 80 bytes
//!   0  version u8 = 2   1  kind u8: 1 waiting, 2 mismatch, 3 gone   2  group u16
//!   4  rank u32   8  its head   40  another rank u32, zero 4   48  its head
//!      kind 1 uses the first head, kind 3 the first rank and up to 192 bytes of text behind
//! ```

use super::{CollectiveCall, CollectiveKind, PENDING_OPS_MAX};

/// Version of the records. Each begins with it, so that another version is recognised.
const VERSION: u8 = 2;

/// Length of a head in bytes.
pub(crate) const HEAD_LEN: usize = 32;

/// Maximum length of a notice in bytes: both heads, and a text that fits two lines of a terminal.
#[cfg(test)]
pub(crate) const NOTICE_LEN_MAX: usize = NOTICE_LEN + TEXT_LEN_MAX;
const NOTICE_LEN: usize = SECOND_AT + HEAD_LEN;
/// Offset of the first head, after four fields. A rank and the second head follow.
const FIRST_AT: usize = 8;
const OTHER_AT: usize = FIRST_AT + HEAD_LEN;
const SECOND_AT: usize = OTHER_AT + 8;
const TEXT_LEN_MAX: usize = 192;

/// Operation as a member has called it; sent before its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: CollectiveKind,
    /// Operation of a reduction: position in a row of [`VALUES`], from 1; 0 for none.
    pub(crate) op: u8,
    /// Type of a reduction: row of [`VALUES`], from 1; 0 for none.
    pub(crate) datatype: u8,
    pub(crate) root: u32,
    /// Number of the operation in the group, from 1.
    pub(crate) seq: u64,
    /// Length of the member's data in bytes.
    pub(crate) len: u64,
    /// Digest of the members and their order.
    pub(crate) members: u64,
}

/// Bytes of data in the message of a head with their length.
pub(crate) const PART_INLINE_LEN_MAX: usize = 1024 - HEAD_LEN - PART_LEN_LEN;

/// Bytes of the length of a part.
const PART_LEN_LEN: usize = 8;

/// Bit of the kind of a head that the length of a part follows.
const IS_PART: u8 = 1 << 7;

/// Number of reduction operations.
const OP_COUNT: usize = 8;

/// Reduction by a function of the program.
pub(crate) const OWN_OP: u8 = 5;

/// Kinds and their numbers.
const KINDS: [(CollectiveKind, u8); 15] = [
    (CollectiveKind::Barrier, 1),
    (CollectiveKind::Broadcast, 2),
    (CollectiveKind::Allreduce, 3),
    (CollectiveKind::Reduce, 4),
    (CollectiveKind::Cast, 5),
    (CollectiveKind::Allgather, 6),
    (CollectiveKind::Gather, 7),
    (CollectiveKind::Gatherv, 8),
    (CollectiveKind::Scatter, 9),
    (CollectiveKind::Scatterv, 10),
    (CollectiveKind::Alltoall, 11),
    (CollectiveKind::Alltoallv, 12),
    (CollectiveKind::ReduceScatter, 13),
    (CollectiveKind::Scan, 14),
    (CollectiveKind::Exscan, 15),
];

macro_rules! names {
    ($($datatype:literal),*) => {
        [$([
            concat!("Sum of ", $datatype),
            concat!("Product of ", $datatype),
            concat!("Min of ", $datatype),
            concat!("Max of ", $datatype),
            "by a function",
            concat!("And of ", $datatype),
            concat!("Or of ", $datatype),
            concat!("Xor of ", $datatype),
        ]),*]
    };
}

/// Names of reductions, one row per type.
const VALUES: [[&str; OP_COUNT]; 12] = names!(
    "i32", "i64", "u32", "u64", "f32", "f64", "i8", "u8", "i16", "u16", "f16", "bf16"
);

impl Head {
    /// Creates the head of a call that has no number yet.
    pub(crate) fn new(kind: CollectiveKind, root: u32, len: usize) -> Head {
        Head {
            kind,
            op: 0,
            datatype: 0,
            root,
            seq: 0,
            len: len as u64,
            members: 0,
        }
    }

    /// Returns the index of the group's port for this operation.
    pub(crate) fn slot(&self) -> usize {
        usize::from(!self.seq.is_multiple_of(PENDING_OPS_MAX as u64))
    }

    pub(crate) fn call(&self) -> CollectiveCall {
        let (op, datatype) = (usize::from(self.op), usize::from(self.datatype));
        let values = VALUES.get(datatype.wrapping_sub(1));
        CollectiveCall {
            kind: self.kind,
            root: self.root,
            len: self.len,
            values: match self.op {
                OWN_OP => Some("by a function"),
                _ => values.and_then(|names| names.get(op.wrapping_sub(1)).copied()),
            },
        }
    }

    /// Returns whether no further message follows `bytes`, which begin with this head.
    pub(crate) fn is_complete(&self, bytes: &[u8]) -> bool {
        let is_part = bytes.get(1).is_some_and(|kind| kind & IS_PART != 0);
        let (head_len, data_len) = match bytes.get(HEAD_LEN..).and_then(<[u8]>::first_chunk) {
            Some(len) if is_part => (HEAD_LEN + PART_LEN_LEN, u64::from_le_bytes(*len)),
            _ => (HEAD_LEN, self.len),
        };
        (bytes.len() as u64).checked_sub(head_len as u64) == Some(data_len)
    }

    pub(crate) fn to_bytes(self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        let found = KINDS.iter().find(|(kind, _)| *kind == self.kind);
        let kind = found.map_or(0, |(_, number)| *number);
        bytes[..4].copy_from_slice(&[VERSION, kind, self.op, self.datatype]);
        bytes[4..8].copy_from_slice(&self.root.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_le_bytes());
        bytes[24..].copy_from_slice(&self.members.to_le_bytes());
        bytes
    }

    /// Tests whether a message begins with the head `own`, in either layout.
    pub(crate) fn begins(message: &[u8], own: &[u8; HEAD_LEN]) -> bool {
        message.first_chunk().is_some_and(|theirs| {
            let mut theirs: [u8; HEAD_LEN] = *theirs;
            theirs[1] &= !IS_PART;
            theirs == *own
        })
    }

    /// Parses the head at the beginning of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Head> {
        let (&[version, kind, op, datatype], rest) = bytes.split_first_chunk()?;
        let (root, rest) = rest.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (members, _) = rest.split_first_chunk()?;
        let number = kind & !IS_PART;
        let (kind, _) = *KINDS.iter().find(|(_, listed)| *listed == number)?;
        let known = usize::from(op) <= OP_COUNT && usize::from(datatype) <= VALUES.len();
        (version == VERSION && known).then_some(Head {
            kind,
            op,
            datatype,
            root: u32::from_le_bytes(*root),
            seq: u64::from_le_bytes(*seq),
            len: u64::from_le_bytes(*len),
            members: u64::from_le_bytes(*members),
        })
    }
}

/// Layout of the message that begins with a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The data follow, of the length that every member has passed.
    Whole,
    /// The length of the data in the message follows, then the data.
    Part,
}

impl Layout {
    /// Returns the length of a message with `len` bytes of data.
    pub(crate) fn message_len(self, len: usize) -> usize {
        match self {
            Layout::Whole => HEAD_LEN + len,
            Layout::Part => HEAD_LEN + PART_LEN_LEN + len,
        }
    }

    /// Writes a message to `place` and returns it: `head`, the total length `len` of the data in
    /// [`Layout::Part`], then `inline`. `inline` is all of the data, or empty if they follow in
    /// another message.
    pub(crate) fn write<'a>(
        self,
        head: &[u8; HEAD_LEN],
        len: usize,
        inline: &[u8],
        place: &'a mut [u8],
    ) -> &'a [u8] {
        let data_at = self.message_len(0);
        let message = &mut place[..data_at + inline.len()];
        message[..HEAD_LEN].copy_from_slice(head);
        if self == Layout::Part {
            message[1] |= IS_PART;
            message[HEAD_LEN..data_at].copy_from_slice(&(len as u64).to_le_bytes());
        }
        message[data_at..].copy_from_slice(inline);
        message
    }

    /// Splits `behind`, the bytes after the head, into the total length of the data and the data in
    /// this message. `len` is the length for [`Layout::Whole`]. Returns `None` if the length is cut
    /// off.
    pub(crate) fn split(self, len: usize, behind: &[u8]) -> Option<(u64, &[u8])> {
        match self {
            Layout::Whole => Some((len as u64, behind)),
            Layout::Part => {
                let (len, data) = behind.split_first_chunk()?;
                Some((u64::from_le_bytes(*len), data))
            }
        }
    }
}

fn put_head(place: &mut [u8], head: &Head) {
    place[..HEAD_LEN].copy_from_slice(&head.to_bytes());
}

/// Message of a member to other members, separate from its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupNotice {
    /// The sender waits for the receiver in this operation.
    Waiting { group: u16, head: Head },
    /// These two ranks were in different operations: the group is broken.
    Mismatch {
        group: u16,
        first: (u32, Head),
        second: (u32, Head),
    },
    /// An operation needed a member that has failed: the group is broken.
    Gone { group: u16, rank: u32, why: String },
}

const WAITING: u8 = 1;
const MISMATCH: u8 = 2;
const GONE: u8 = 3;

impl GroupNotice {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; NOTICE_LEN];
        let (kind, group) = match self {
            GroupNotice::Waiting { group, .. } => (WAITING, group),
            GroupNotice::Mismatch { group, .. } => (MISMATCH, group),
            GroupNotice::Gone { group, .. } => (GONE, group),
        };
        bytes[..2].copy_from_slice(&[VERSION, kind]);
        bytes[2..4].copy_from_slice(&group.to_le_bytes());
        match self {
            GroupNotice::Waiting { head, .. } => put_head(&mut bytes[FIRST_AT..], head),
            GroupNotice::Mismatch { first, second, .. } => {
                bytes[4..8].copy_from_slice(&first.0.to_le_bytes());
                put_head(&mut bytes[FIRST_AT..], &first.1);
                bytes[OTHER_AT..OTHER_AT + 4].copy_from_slice(&second.0.to_le_bytes());
                put_head(&mut bytes[SECOND_AT..], &second.1);
            }
            GroupNotice::Gone { rank, why, .. } => {
                bytes[4..8].copy_from_slice(&rank.to_le_bytes());
                bytes.extend(why.bytes().take(TEXT_LEN_MAX));
            }
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<GroupNotice> {
        let (head, text) = bytes.split_at_checked(NOTICE_LEN)?;
        let &[version, kind, ref rest @ ..] = head else {
            return None;
        };
        if version != VERSION || text.len() > TEXT_LEN_MAX {
            return None;
        }
        let group = u16::from_le_bytes(*rest.first_chunk()?);
        let rank = u32::from_le_bytes(*head[4..].first_chunk()?);
        let other = u32::from_le_bytes(*head[OTHER_AT..].first_chunk()?);
        match kind {
            WAITING => Some(GroupNotice::Waiting {
                group,
                head: Head::parse(&head[FIRST_AT..])?,
            }),
            MISMATCH => Some(GroupNotice::Mismatch {
                group,
                first: (rank, Head::parse(&head[FIRST_AT..])?),
                second: (other, Head::parse(&head[SECOND_AT..])?),
            }),
            GONE => Some(GroupNotice::Gone {
                group,
                rank,
                why: String::from_utf8_lossy(text).into_owned(),
            }),
            _ => None,
        }
    }
}
