// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that resemble those of a job but are not.

use portolan_wire::{FRAME_HEADER_LEN, FrameHeader, FrameKind, HELLO_LEN, Hello};

/// Makes random bytes resemble a frame in one of several ways, if they are long enough.
pub(crate) fn disguise(bytes: &mut [u8], word: u64) {
    if bytes.len() < FRAME_HEADER_LEN {
        return;
    }
    let len = u16::try_from(bytes.len()).unwrap();
    let kinds = [
        FrameKind::Data,
        FrameKind::Unnumbered,
        FrameKind::Bulk,
        FrameKind::Reset,
    ];
    let kind = kinds[(word >> 8) as usize % kinds.len()];
    let mut header = FrameHeader {
        kind,
        attempt: 0,
        checked: false,
        frame_len: len,
        packet_num: 1,
        session: word,
    };
    match word % 6 {
        // Random bytes.
        0 => return,
        // An unknown version.
        1 => {
            header.emit(bytes);
            bytes[0] = 0x20 | bytes[0] & 0x0f;
            return;
        }
        // Truncated.
        2 => header.frame_len = len + 1,
        // An old session of the right peer.
        3 => header.session = word << 20 | 1,
        // A handshake of another job.
        4 if bytes.len() >= FRAME_HEADER_LEN + HELLO_LEN => return hello(bytes, word),
        // An unknown kind of frame.
        5 => {
            header.emit(bytes);
            bytes[0] |= 0x0f;
            return;
        }
        _ => {}
    }
    header.emit(bytes);
}

fn hello(bytes: &mut [u8], word: u64) {
    let kind = FrameKind::Hello;
    let frame_len = u16::try_from(bytes.len()).unwrap();
    FrameHeader {
        kind,
        attempt: 0,
        checked: false,
        frame_len,
        packet_num: 0,
        session: 0,
    }
    .emit(bytes);
    let mut job_id = [0; 16];
    job_id[..8].copy_from_slice(&word.to_le_bytes());
    let hello = Hello {
        job_id,
        from: 1,
        to: 0,
        epoch: u64::MAX,
        token: word,
        echo_token: 0,
        credits: [u32::MAX; 2],
        frame_len_max: 1472,
        window_frames: u16::MAX,
        path: 1,
        checksum: false,
        hidden_id: false,
    };
    hello.emit(bytes, |_| [7; 16]);
}
