// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and replies of the broker.

use portolan_link::packet::lease::{Request, decode_reply, encode_reply};

/// Parses `data` as a request and as a reply. A parsed message must survive encoding and parsing. A
/// request must also encode to the same bytes, so that no byte of it is ignored.
///
/// # Panics
/// Panics if that does not hold.
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
