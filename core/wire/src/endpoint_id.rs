// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoint ids, which identify processes without a common launcher in a handshake.

use crate::field::array;
use crate::{FRAME_HEADER_LEN, HELLO_LEN, Malformed};

/// Length of an endpoint id in bytes. It contains the address of its owner; `wire` and `proto`
/// treat it as opaque.
pub const ENDPOINT_ID_LEN: usize = 64;

/// Endpoint id; see [`ENDPOINT_ID_LEN`].
pub type EndpointId = [u8; ENDPOINT_ID_LEN];

/// Constant in place of the job id in hellos with an endpoint id. The ids of jobs are random.
pub const OPEN_JOB_ID: [u8; 16] = *b"portolan:address";

/// Length in bytes of a handshake frame with an endpoint id after its hello.
pub const OPEN_HELLO_FRAME_LEN: usize = FRAME_HEADER_LEN + HELLO_LEN + ENDPOINT_ID_LEN;

/// Returns the endpoint id after the hello of a handshake frame. `P2.10`
///
/// # Errors
/// [`Malformed::Truncated`] if the frame ends before the endpoint id does.
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
    fn endpoint_id_follows_the_hello() {
        let mut frame = [0xa5; OPEN_HELLO_FRAME_LEN];
        frame[FRAME_HEADER_LEN + HELLO_LEN..].fill(7);
        assert_eq!(endpoint_id_of(&frame), Ok([7; ENDPOINT_ID_LEN]));
        let short = &frame[..OPEN_HELLO_FRAME_LEN - 1];
        assert_eq!(endpoint_id_of(short), Err(Malformed::Truncated));
    }
}
