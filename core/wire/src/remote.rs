// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of remote memory: requests that refer to the receiver's memory, and their replies
//! (`P12`).

use crate::field::{put, u16_at, u32_at, u64_at};
use crate::{LaneId, Malformed, flags};

/// Length in bytes of the header of a write.
pub const REMOTE_WRITE_LEN: usize = 48;
/// Length in bytes of a request to write with a transfer.
pub const REMOTE_RTS_LEN: usize = 56;
/// Length in bytes of a request to read.
pub const REMOTE_GET_LEN: usize = 40;
/// Length in bytes of the header of a reply.
pub const REMOTE_REPLY_LEN: usize = 16;
/// Length in bytes of the announcement of a transfer that answers a read.
pub const REMOTE_SOURCE_LEN: usize = 24;

pub(crate) const KIND_WRITE: u8 = 32;
pub(crate) const KIND_RTS: u8 = 33;
pub(crate) const KIND_GET: u8 = 34;
pub(crate) const KIND_REPLY: u8 = 35;
pub(crate) const KIND_SOURCE: u8 = 36;

const FLAG_IMM: u8 = 2;
const FLAG_FETCH: u8 = 4;
const FLAG_TRANSFER: u8 = 8;

/// Fields common to all requests: number in the lane, and the memory they refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteHead {
    /// Priority.
    pub lane: LaneId,
    /// Number of the request among the messages of its lane.
    pub seq: u16,
    /// Initiator's number for the operation, returned in the reply.
    pub op: u32,
    /// Key of the region.
    pub key: u64,
    /// Address in the region.
    pub addr: u64,
}

impl RemoteHead {
    fn parse(bytes: &[u8], known_flags: u8) -> Result<RemoteHead, Malformed> {
        // P1.6
        if bytes[1] & !(flags::HIGH | known_flags) != 0 {
            return Err(Malformed::Field);
        }
        Ok(RemoteHead {
            lane: flags::lane_of(bytes[1]),
            seq: u16_at(bytes, 6),
            op: u32_at(bytes, 8),
            key: u64_at(bytes, 24),
            addr: u64_at(bytes, 32),
        })
    }

    fn emit(&self, kind: u8, flags: u8, bytes: &mut [u8]) {
        bytes[0] = kind;
        bytes[1] = flags | flags::of_lane(self.lane);
        put(bytes, 2, [0; 4]);
        put(bytes, 6, self.seq.to_le_bytes());
        put(bytes, 8, self.op.to_le_bytes());
        put(bytes, 24, self.key.to_le_bytes());
        put(bytes, 32, self.addr.to_le_bytes());
    }
}

/// Header of a put or of the operands of an atomic operation, or of a part of either. `len` bytes
/// of payload follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteWrite {
    /// Request number and target memory.
    pub head: RemoteHead,
    /// Atomic operation; 0 for a put.
    pub code: u8,
    /// Number type of an atomic operation.
    pub datatype: u8,
    /// Set if the previous value is to be returned.
    pub fetch: bool,
    /// Payload length of this part in bytes.
    pub len: u16,
    /// Payload length of the whole request in bytes.
    pub total_len: u32,
    /// Byte offset of this part in the payload.
    pub part_off: u32,
    /// Number of bytes of the region that are accessed; `total_len` for a put.
    pub span: u32,
    /// Immediate data for the program at the target.
    pub imm: Option<u64>,
}

impl RemoteWrite {
    pub(crate) fn parse(bytes: &[u8]) -> Result<RemoteWrite, Malformed> {
        let head = RemoteHead::parse(bytes, FLAG_IMM | FLAG_FETCH)?;
        let write = RemoteWrite {
            head,
            code: bytes[2],
            datatype: bytes[3],
            fetch: bytes[1] & FLAG_FETCH != 0,
            len: u16_at(bytes, 4),
            total_len: u32_at(bytes, 12),
            part_off: u32_at(bytes, 16),
            span: u32_at(bytes, 20),
            imm: (bytes[1] & FLAG_IMM != 0).then(|| u64_at(bytes, 40)),
        };
        let end = u64::from(write.part_off) + u64::from(write.len);
        if end > u64::from(write.total_len) {
            return Err(Malformed::Field);
        }
        Ok(write)
    }

    /// Writes the header into the first [`REMOTE_WRITE_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        let fetch = if self.fetch { FLAG_FETCH } else { 0 };
        self.head
            .emit(KIND_WRITE, imm_flag(self.imm) | fetch, bytes);
        (bytes[2], bytes[3]) = (self.code, self.datatype);
        put(bytes, 4, self.len.to_le_bytes());
        put(bytes, 12, self.total_len.to_le_bytes());
        put(bytes, 16, self.part_off.to_le_bytes());
        put(bytes, 20, self.span.to_le_bytes());
        put(bytes, 40, self.imm.unwrap_or(0).to_le_bytes());
    }
}

/// Request to put bytes, which then wait for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRts {
    /// Request number and target memory.
    pub head: RemoteHead,
    /// Length in bytes of each fragment but the last; 0 on a lossless link.
    pub fragment_len: u16,
    /// Initiator's number for the transfer.
    pub transfer: u32,
    /// Number of bytes to put.
    pub len: u64,
    /// Immediate data for the program at the target.
    pub imm: Option<u64>,
    /// Address of the bytes in the initiator's memory, for links that can pull; 0 otherwise.
    pub remote_addr: u64,
}

impl RemoteRts {
    pub(crate) fn parse(bytes: &[u8]) -> Result<RemoteRts, Malformed> {
        Ok(RemoteRts {
            head: RemoteHead::parse(bytes, FLAG_IMM)?,
            fragment_len: u16_at(bytes, 4),
            transfer: u32_at(bytes, 12),
            len: u64_at(bytes, 16),
            imm: (bytes[1] & FLAG_IMM != 0).then(|| u64_at(bytes, 40)),
            remote_addr: u64_at(bytes, 48),
        })
    }

    /// Writes the record into the first [`REMOTE_RTS_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        self.head.emit(KIND_RTS, imm_flag(self.imm), bytes);
        put(bytes, 4, self.fragment_len.to_le_bytes());
        put(bytes, 12, self.transfer.to_le_bytes());
        put(bytes, 16, self.len.to_le_bytes());
        put(bytes, 40, self.imm.unwrap_or(0).to_le_bytes());
        put(bytes, 48, self.remote_addr.to_le_bytes());
    }
}

/// Request to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteGet {
    /// Request number and source memory.
    pub head: RemoteHead,
    /// Set if the data is longer than a reply covered by credit; it must come with a transfer.
    pub by_transfer: bool,
    /// Number of bytes to read.
    pub len: u64,
}

impl RemoteGet {
    pub(crate) fn parse(bytes: &[u8]) -> Result<RemoteGet, Malformed> {
        Ok(RemoteGet {
            head: RemoteHead::parse(bytes, FLAG_TRANSFER)?,
            by_transfer: bytes[1] & FLAG_TRANSFER != 0,
            len: u64_at(bytes, 16),
        })
    }

    /// Writes the record into the first [`REMOTE_GET_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        let by_transfer = if self.by_transfer { FLAG_TRANSFER } else { 0 };
        self.head.emit(KIND_GET, by_transfer, bytes);
        put(bytes, 12, [0; 4]);
        put(bytes, 16, self.len.to_le_bytes());
    }
}

/// Outcome of a request; 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteStatus(pub u8);

impl RemoteStatus {
    /// The request succeeded.
    pub const DONE: RemoteStatus = RemoteStatus(0);
}

/// Completion of a request, with its result or a part of it; `len` bytes of payload follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteReply {
    /// Priority of the request.
    pub lane: LaneId,
    /// Outcome.
    pub status: RemoteStatus,
    /// Payload length of this part in bytes.
    pub len: u16,
    /// Initiator's number for the operation.
    pub op: u32,
    /// Byte offset of this part in the result.
    pub part_off: u32,
}

impl RemoteReply {
    pub(crate) fn parse(bytes: &[u8]) -> Result<RemoteReply, Malformed> {
        if bytes[2] & !flags::HIGH != 0 {
            return Err(Malformed::Field);
        }
        Ok(RemoteReply {
            lane: flags::lane_of(bytes[2]),
            status: RemoteStatus(bytes[1]),
            len: u16_at(bytes, 4),
            op: u32_at(bytes, 8),
            part_off: u32_at(bytes, 12),
        })
    }

    /// Writes the header into the first [`REMOTE_REPLY_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_REPLY;
        bytes[1] = self.status.0;
        bytes[2] = flags::of_lane(self.lane);
        bytes[3] = 0;
        put(bytes, 4, self.len.to_le_bytes());
        put(bytes, 6, [0; 2]);
        put(bytes, 8, self.op.to_le_bytes());
        put(bytes, 12, self.part_off.to_le_bytes());
    }
}

/// Announcement of the transfer that answers a read. The transfer waits for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSource {
    /// Length in bytes of each fragment but the last; 0 on a lossless link.
    pub fragment_len: u16,
    /// Initiator's number for the operation.
    pub op: u32,
    /// Target's number for the transfer.
    pub transfer: u32,
    /// Address of the bytes in the target's memory, for links that can pull; 0 otherwise.
    pub remote_addr: u64,
    /// Set if [`Done`](crate::Done) may wait for the initiating program's next call.
    pub late_done: bool,
}

impl RemoteSource {
    pub(crate) fn parse(bytes: &[u8]) -> RemoteSource {
        RemoteSource {
            fragment_len: u16_at(bytes, 2),
            op: u32_at(bytes, 4),
            transfer: u32_at(bytes, 8),
            remote_addr: u64_at(bytes, 16),
            late_done: bytes[12] != 0,
        }
    }

    /// Writes the record into the first [`REMOTE_SOURCE_LEN`] bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = KIND_SOURCE;
        bytes[1] = 0;
        put(bytes, 2, self.fragment_len.to_le_bytes());
        put(bytes, 4, self.op.to_le_bytes());
        put(bytes, 8, self.transfer.to_le_bytes());
        put(bytes, 12, [u8::from(self.late_done), 0, 0, 0]);
        put(bytes, 16, self.remote_addr.to_le_bytes());
    }
}

fn imm_flag(imm: Option<u64>) -> u8 {
    if imm.is_some() { FLAG_IMM } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, Records};

    const HEAD: RemoteHead = RemoteHead {
        lane: LaneId::High,
        seq: 0x0201,
        op: 0x0605_0403,
        key: 0x1122_3344_5566_7788,
        addr: 0x99,
    };

    const WRITE: RemoteWrite = RemoteWrite {
        head: HEAD,
        code: 3,
        datatype: 9,
        fetch: true,
        len: 4,
        total_len: 12,
        part_off: 8,
        span: 12,
        imm: Some(0xabcd),
    };

    fn only(bytes: &[u8]) -> Result<(Record, core::ops::Range<usize>), Malformed> {
        let mut records = Records::new(bytes, 0, bytes.len());
        let first = records.next().unwrap();
        assert!(records.next().is_none());
        first
    }

    // P1.1
    #[test]
    fn write_emits_expected_bytes() {
        let mut bytes = [0xa5; REMOTE_WRITE_LEN + 4];
        WRITE.emit(&mut bytes);
        assert_eq!(
            bytes[..24],
            [
                32, 7, 3, 9, 4, 0, 1, 2, 3, 4, 5, 6, 12, 0, 0, 0, 8, 0, 0, 0, 12, 0, 0, 0
            ]
        );
        assert_eq!(bytes[24..32], HEAD.key.to_le_bytes());
        assert_eq!(bytes[32..40], HEAD.addr.to_le_bytes());
        assert_eq!(bytes[40..48], 0xabcd_u64.to_le_bytes());
        assert_eq!(bytes[48..], [0xa5; 4]);
        assert_eq!(only(&bytes), Ok((Record::RemoteWrite(WRITE), 48..52)));
    }

    #[test]
    fn other_remote_records_round_trip() {
        let rts = RemoteRts {
            head: HEAD,
            fragment_len: 1448,
            transfer: 7,
            len: 1 << 40,
            imm: None,
            remote_addr: 0x7fff_0000,
        };
        let mut bytes = [0xa5; REMOTE_RTS_LEN];
        rts.emit(&mut bytes);
        assert_eq!(only(&bytes), Ok((Record::RemoteRts(rts), 56..56)));
        let get = RemoteGet {
            head: HEAD,
            by_transfer: true,
            len: 1 << 33,
        };
        let mut bytes = [0xa5; REMOTE_GET_LEN];
        get.emit(&mut bytes);
        assert_eq!(only(&bytes), Ok((Record::RemoteGet(get), 40..40)));
        let source = RemoteSource {
            fragment_len: 1448,
            op: 3,
            transfer: 4,
            remote_addr: 5,
            late_done: true,
        };
        let mut bytes = [0xa5; REMOTE_SOURCE_LEN];
        source.emit(&mut bytes);
        assert_eq!(only(&bytes), Ok((Record::RemoteSource(source), 24..24)));
        let reply = RemoteReply {
            lane: LaneId::Low,
            status: RemoteStatus(2),
            len: 3,
            op: 4,
            part_off: 5,
        };
        let mut bytes = [0xa5; REMOTE_REPLY_LEN + 3];
        reply.emit(&mut bytes);
        assert_eq!(only(&bytes), Ok((Record::RemoteReply(reply), 16..19)));
    }

    // P1.6, P1.7
    #[test]
    fn inconsistent_records_are_refused() {
        let mut bytes = [0; REMOTE_WRITE_LEN + 4];
        WRITE.emit(&mut bytes);
        assert_eq!(only(&bytes[..47]), Err(Malformed::Truncated));
        assert_eq!(only(&bytes[..51]), Err(Malformed::Length));
        bytes[16] = 9;
        assert_eq!(only(&bytes), Err(Malformed::Field), "a part beyond its end");
        bytes[16] = 8;
        bytes[1] |= 8;
        assert_eq!(only(&bytes), Err(Malformed::Field), "an unknown flag");
        let mut reply = [0; REMOTE_REPLY_LEN];
        (reply[0], reply[2]) = (KIND_REPLY, 2);
        assert_eq!(only(&reply), Err(Malformed::Field));
    }
}
