// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calling card: how processes without a common launcher say who they are in a handshake.

use crate::field::array;
use crate::{FRAME_HEADER_LEN, HELLO_LEN, Malformed};

/// Bytes of a card: the address at which its owner can be reached. Wire and core do not look into it.
pub const CARD_LEN: usize = 64;

/// See [`CARD_LEN`].
pub type Card = [u8; CARD_LEN];

/// What stands where a job's id would, in hellos that carry a card. An id of a job is random.
pub const OPEN_JOB_ID: [u8; 16] = *b"portolan:address";

/// Bytes of a handshake frame that carries a card behind its hello.
pub const OPEN_HELLO_FRAME_LEN: usize = FRAME_HEADER_LEN + HELLO_LEN + CARD_LEN;

/// The card behind the hello of a handshake frame. `P2.10`
///
/// # Errors
/// [`Malformed::Truncated`] when the frame ends before it does.
pub fn card_of(frame: &[u8]) -> Result<Card, Malformed> {
    let bytes = frame
        .get(FRAME_HEADER_LEN + HELLO_LEN..OPEN_HELLO_FRAME_LEN)
        .ok_or(Malformed::Truncated)?;
    Ok(array(bytes, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_stands_behind_the_hello_or_nowhere() {
        let mut frame = [0xa5; OPEN_HELLO_FRAME_LEN];
        frame[FRAME_HEADER_LEN + HELLO_LEN..].fill(7);
        assert_eq!(card_of(&frame), Ok([7; CARD_LEN]));
        let short = &frame[..OPEN_HELLO_FRAME_LEN - 1];
        assert_eq!(card_of(short), Err(Malformed::Truncated));
    }
}
