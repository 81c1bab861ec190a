// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection setup between two endpoints: messages exchanged over TCP, outside the data path
//! (`P16`).

use crate::field::{array, put, u16_at};
use crate::{ENDPOINT_ID_LEN, EndpointId, Malformed};

/// Maximum length in bytes of the program's data in a connection message, as in libfabric's TCP
/// provider.
pub const CONNECTION_DATA_LEN_MAX: usize = 256;

/// Length in bytes of a connection message before its data.
pub const CONNECTION_HEAD_LEN: usize = 8 + ENDPOINT_ID_LEN;

/// Maximum length in bytes of a connection message.
pub const CONNECTION_LEN_MAX: usize = CONNECTION_HEAD_LEN + CONNECTION_DATA_LEN_MAX;

const MAGIC: [u8; 4] = *b"PCON";
const VERSION: u8 = 1;

/// Kind of connection message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// Requests a connection.
    Request,
    /// Accepts the request.
    Accept,
    /// Rejects the request.
    Reject,
}

/// Connection message.
///
/// ```text
///  0  magic "PCON"      4  version u8 = 1     5  word u8: 1 request, 2 accept, 3 reject
///  6  data_len u16 (at most 256)
///  8  endpoint id (64 bytes) of the sender; zero with reject
/// 72  data
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFrame<'a> {
    /// Kind of message.
    pub kind: ConnectionKind,
    /// Endpoint id of the sender; has no meaning in a rejection.
    pub endpoint_id: EndpointId,
    /// Data of the program, at most [`CONNECTION_DATA_LEN_MAX`] bytes.
    pub data: &'a [u8],
}

impl ConnectionFrame<'_> {
    /// Parses the first message of a byte stream. Returns it with its length, or `None` if more
    /// bytes are needed, which never happens with [`CONNECTION_LEN_MAX`] bytes.
    ///
    /// # Errors
    /// [`Malformed`] if no message can begin with these bytes, whatever follows. `P16.2`
    pub fn parse(bytes: &[u8]) -> Result<Option<(ConnectionFrame<'_>, usize)>, Malformed> {
        let begin = bytes.len().min(MAGIC.len());
        if bytes[..begin] != MAGIC[..begin] {
            return Err(Malformed::Field);
        }
        match bytes.get(4) {
            Some(&version) if version != VERSION => return Err(Malformed::Version(version)),
            _ => {}
        }
        let Some(head) = bytes.get(..CONNECTION_HEAD_LEN) else {
            return Ok(None);
        };
        let kind = kind_of(head[5])?;
        let data_len = usize::from(u16_at(head, 6));
        if data_len > CONNECTION_DATA_LEN_MAX {
            return Err(Malformed::Length);
        }
        let len = CONNECTION_HEAD_LEN + data_len;
        let frame = bytes.get(CONNECTION_HEAD_LEN..len).map(|data| {
            let endpoint_id = array(head, 8);
            let frame = ConnectionFrame {
                kind,
                endpoint_id,
                data,
            };
            (frame, len)
        });
        Ok(frame)
    }

    /// Writes the message to the beginning of `out` and returns its length.
    ///
    /// # Panics
    /// Panics if the data is longer than [`CONNECTION_DATA_LEN_MAX`].
    pub fn emit(&self, out: &mut [u8; CONNECTION_LEN_MAX]) -> usize {
        let len = CONNECTION_HEAD_LEN + self.data.len();
        assert!(len <= CONNECTION_LEN_MAX, "data of {len} bytes");
        let data_len = u16::try_from(self.data.len()).unwrap_or(0);
        put(out, 0, MAGIC);
        out[4] = VERSION;
        out[5] = match self.kind {
            ConnectionKind::Request => 1,
            ConnectionKind::Accept => 2,
            ConnectionKind::Reject => 3,
        };
        put(out, 6, data_len.to_le_bytes());
        put(out, 8, self.endpoint_id);
        out[CONNECTION_HEAD_LEN..len].copy_from_slice(self.data);
        len
    }
}

fn kind_of(byte: u8) -> Result<ConnectionKind, Malformed> {
    match byte {
        1 => Ok(ConnectionKind::Request),
        2 => Ok(ConnectionKind::Accept),
        3 => Ok(ConnectionKind::Reject),
        other => Err(Malformed::FrameKind(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: ConnectionFrame<'_> = ConnectionFrame {
        kind: ConnectionKind::Accept,
        endpoint_id: [7; ENDPOINT_ID_LEN],
        data: b"private",
    };

    fn emitted() -> ([u8; CONNECTION_LEN_MAX], usize) {
        let mut bytes = [0xa5; CONNECTION_LEN_MAX];
        let len = FRAME.emit(&mut bytes);
        (bytes, len)
    }

    #[test]
    fn connection_frames_parse_across_stream_splits() {
        let (bytes, len) = emitted();
        for cut in 0..len {
            assert_eq!(ConnectionFrame::parse(&bytes[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(ConnectionFrame::parse(&bytes), Ok(Some((FRAME, len))));
    }

    // P16.2
    #[test]
    fn first_invalid_byte_is_an_error() {
        let (bytes, _) = emitted();
        let with = |at: usize, byte: u8| {
            let mut wrong = bytes;
            wrong[at] = byte;
            ConnectionFrame::parse(&wrong).map(|_| ())
        };
        assert_eq!(ConnectionFrame::parse(b"G"), Err(Malformed::Field));
        assert_eq!(with(4, 2), Err(Malformed::Version(2)));
        assert_eq!(with(5, 0), Err(Malformed::FrameKind(0)));
        assert_eq!(with(7, 2), Err(Malformed::Length));
    }
}
