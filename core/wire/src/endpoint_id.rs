// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calling endpoint id: how processes without a common launcher say who they are in a handshake.

use crate::field::array;
use crate::{FRAME_HEADER_LEN, HELLO_LEN, Malformed};

/// Bytes of an endpoint id: the address at which its owner can be reached. Wire and core do not look into it.
pub const ENDPOINT_ID_LEN: usize = 64;

/// See [`ENDPOINT_ID_LEN`].
pub type EndpointId = [u8; ENDPOINT_ID_LEN];

/// What stands where a job's id would, in hellos that carry an endpoint id. An id of a job is random.
pub const OPEN_JOB_ID: [u8; 16] = *b"portolan:address";

/// Bytes of a handshake frame that carries an endpoint id behind its hello.
pub const OPEN_HELLO_FRAME_LEN: usize = FRAME_HEADER_LEN + HELLO_LEN + ENDPOINT_ID_LEN;

/// The endpoint id behind the hello of a handshake frame. `P2.10`
///
/// # Errors
/// [`Malformed::Truncated`] when the frame ends before it does.
pub fn endpoint_id_of(frame: &[u8]) -> Result<EndpointId, Malformed> {
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
        assert_eq!(endpoint_id_of(&frame), Ok([7; ENDPOINT_ID_LEN]));
        let short = &frame[..OPEN_HELLO_FRAME_LEN - 1];
        assert_eq!(endpoint_id_of(short), Err(Malformed::Truncated));
    }
}
