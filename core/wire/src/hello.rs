// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshake: the body of `Hello` and `HelloAck` frames.

use crate::field::{array, put, u16_at, u32_at, u64_at};
use crate::{FRAME_HEADER_LEN, Malformed};

/// Length in bytes of the authenticator at the end of a hello.
pub const MAC_LEN: usize = 16;

/// Length in bytes of a hello after the frame header, including the authenticator.
pub const HELLO_LEN: usize = 80;

/// Flag: the sender requests checksums.
const CHECKSUM: u8 = 1;

/// Flag: the endpoint id after the hello is encrypted.
const HIDDEN_ID: u8 = 2;

const BODY_LEN: usize = HELLO_LEN - MAC_LEN;

/// Session parameters that each side sends to the other when a session opens; the layout is the
/// same in both directions.
///
/// ```text
///  0  job_id (16 bytes)
/// 16  from (u32)            20  to (u32)
/// 24  epoch (u64)           32  token (u64)      40  echo_token (u64)
/// 48  credit_low (u32)      52  credit_high (u32)
/// 56  frame_len_max (u16)   58  window_frames (u16)
/// 60  path (u8)  61 flags (1: checksums, 2: hidden endpoint id)  62 0 0
/// 64  mac (16 bytes): keyed hash over the frame header and bytes 0..64 with the job's secret
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Job; a hello of another job is refused.
    pub job_id: [u8; 16],
    /// Rank of the sender.
    pub from: u32,
    /// Rank of the receiver.
    pub to: u32,
    /// Epoch of the sender's session. It grows with each session that the sender opens, also across
    /// its restarts. A higher epoch ends the session of a lower one.
    pub epoch: u64,
    /// Token that the receiver must put into the session field of frames to the sender.
    pub token: u64,
    /// Receiver's own token as known to the sender; 0 while unknown.
    pub echo_token: u64,
    /// Bytes of eager messages that the sender can hold, per lane (low, high).
    pub credits: [u32; 2],
    /// Length in bytes of the largest frame that the sender accepts on this path.
    pub frame_len_max: u16,
    /// Maximum number of unacknowledged frames towards the sender on this path.
    pub window_frames: u16,
    /// Number of the link by which the sender sent this frame.
    pub path: u8,
    /// Set if the sender requests checksums on this path (`P13.1`).
    pub checksum: bool,
    /// Set if the endpoint id that follows is encrypted (`P10.7`).
    pub hidden_id: bool,
}

impl Hello {
    /// Parses the hello after the frame header. Returns it with the bytes that the authenticator
    /// covers, and the authenticator, which is not verified here.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if the frame is too short.
    pub fn parse(frame: &[u8]) -> Result<(Hello, &[u8], [u8; MAC_LEN]), Malformed> {
        let body = frame
            .get(FRAME_HEADER_LEN..FRAME_HEADER_LEN + HELLO_LEN)
            .ok_or(Malformed::Truncated)?;
        let hello = Hello {
            job_id: array(body, 0),
            from: u32_at(body, 16),
            to: u32_at(body, 20),
            epoch: u64_at(body, 24),
            token: u64_at(body, 32),
            echo_token: u64_at(body, 40),
            credits: [u32_at(body, 48), u32_at(body, 52)],
            frame_len_max: u16_at(body, 56),
            window_frames: u16_at(body, 58),
            path: body[60],
            checksum: body[61] & CHECKSUM != 0,
            hidden_id: body[61] & HIDDEN_ID != 0,
        };
        let covered = &frame[..FRAME_HEADER_LEN + BODY_LEN];
        Ok((hello, covered, array(body, BODY_LEN)))
    }

    /// Writes the hello after the frame header, which must be written already. `mac` computes the
    /// authenticator of the bytes passed to it.
    ///
    /// # Panics
    /// Panics if `frame` is shorter than `FRAME_HEADER_LEN + HELLO_LEN`.
    pub fn emit(&self, frame: &mut [u8], mac: impl FnOnce(&[u8]) -> [u8; MAC_LEN]) {
        let body = &mut frame[FRAME_HEADER_LEN..FRAME_HEADER_LEN + HELLO_LEN];
        body.fill(0);
        put(body, 0, self.job_id);
        put(body, 16, self.from.to_le_bytes());
        put(body, 20, self.to.to_le_bytes());
        put(body, 24, self.epoch.to_le_bytes());
        put(body, 32, self.token.to_le_bytes());
        put(body, 40, self.echo_token.to_le_bytes());
        put(body, 48, self.credits[0].to_le_bytes());
        put(body, 52, self.credits[1].to_le_bytes());
        put(body, 56, self.frame_len_max.to_le_bytes());
        put(body, 58, self.window_frames.to_le_bytes());
        body[60] = self.path;
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        body[61] = flag(self.checksum, CHECKSUM) | flag(self.hidden_id, HIDDEN_ID);
        let tag = mac(&frame[..FRAME_HEADER_LEN + BODY_LEN]);
        put(frame, FRAME_HEADER_LEN + BODY_LEN, tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_round_trips_and_leaves_no_byte_unwritten() {
        let hello = Hello {
            job_id: [7; 16],
            from: 1,
            to: 2,
            epoch: 3,
            token: 4,
            echo_token: 5,
            credits: [6, 7],
            frame_len_max: 1472,
            window_frames: 512,
            path: 1,
            checksum: true,
            hidden_id: false,
        };
        let mut first = [0xa5; FRAME_HEADER_LEN + HELLO_LEN];
        let mut second = [0x5a; FRAME_HEADER_LEN + HELLO_LEN];
        hello.emit(&mut first, |body| {
            [u8::try_from(body.len()).unwrap(); MAC_LEN]
        });
        hello.emit(&mut second, |_| [80; MAC_LEN]);
        assert_eq!(first[FRAME_HEADER_LEN..], second[FRAME_HEADER_LEN..]);
        let (parsed, covered, mac) = Hello::parse(&first).unwrap();
        assert_eq!(parsed, hello);
        assert_eq!(covered.len(), 80);
        assert_eq!(mac, [80; MAC_LEN]);
        assert_eq!(Hello::parse(&first[..95]), Err(Malformed::Truncated));
    }
}
