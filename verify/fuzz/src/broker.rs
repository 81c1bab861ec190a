// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a broker is asked, and what it answers.

use portolan_link::packet::lease::{Request, decode_reply, encode_reply};

/// Reads `data` as a request and as a reply. What was read is written and read again to the same; a
/// request also to the same bytes, so that nothing in one is overlooked.
///
/// # Panics
/// When that does not hold.
pub fn broker(data: &[u8]) {
    if let Ok(request) = Request::decode(data) {
        assert_eq!(
            request.encode().expect("a name that was read").as_slice(),
            data
        );
    }
    if let Some(reply) = decode_reply(data) {
        assert_eq!(decode_reply(&encode_reply(&reply)), Some(reply));
    }
}
