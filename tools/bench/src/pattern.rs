// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads that prove their arrival.
//!
//! Byte 0 of a message is its stamp: two flags and six bits of sequence number, checked in every
//! message. The rest is a pattern that is written once, not per message. It is compared in full if
//! the stamp requires it: in the first and the last message. The last pattern differs from the
//! first, so a buffer that was never overwritten is detected.

use anyhow::{Result, ensure};

/// Flags of a stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Set in the last message, or in the messages of the last window.
    pub(crate) last: bool,
    /// Set if the whole payload must be compared.
    pub(crate) check: bool,
}

impl Flags {
    /// Flags of a message in the middle.
    pub(crate) const NONE: Flags = Flags {
        last: false,
        check: false,
    };
    /// Flags of the first message.
    pub(crate) const FIRST: Flags = Flags {
        last: false,
        check: true,
    };
    /// Flags of the last message.
    pub(crate) const LAST: Flags = Flags {
        last: true,
        check: true,
    };
}

const LAST_BIT: u8 = 1;
const CHECK_BIT: u8 = 2;
const SEQ_SHIFT: u32 = 2;

/// Writes the stamp of message `seq`. Also writes the pattern if the flags require a comparison.
pub(crate) fn stamp(message: &mut [u8], seq: u64, flags: Flags) {
    if flags.check {
        for (index, byte) in message.iter_mut().enumerate() {
            *byte = pattern(index, flags.last);
        }
    }
    message[0] = encode(seq, flags);
}

/// Checks the sequence number of `message`, and the whole payload if its stamp requires it.
///
/// # Errors
/// The sequence number or a byte of the pattern is wrong.
pub(crate) fn verify(message: &[u8], seq: u64) -> Result<Flags> {
    let stamp = message[0];
    let flags = Flags {
        last: stamp & LAST_BIT != 0,
        check: stamp & CHECK_BIT != 0,
    };
    ensure!(
        stamp == encode(seq, flags),
        "message {seq} has sequence number {} instead of {}: lost or duplicated",
        stamp >> SEQ_SHIFT,
        encode(seq, flags) >> SEQ_SHIFT
    );
    if flags.check {
        verify_pattern(&message[1..], flags.last)?;
    }
    Ok(flags)
}

fn verify_pattern(tail: &[u8], last: bool) -> Result<()> {
    for (index, byte) in tail.iter().enumerate() {
        ensure!(
            *byte == pattern(index + 1, last),
            "payload differs at byte {}",
            index + 1
        );
    }
    Ok(())
}

fn encode(seq: u64, flags: Flags) -> u8 {
    let [low, ..] = seq.to_le_bytes();
    let check = if flags.check { CHECK_BIT } else { 0 };
    let last = if flags.last { LAST_BIT } else { 0 };
    (low << SEQ_SHIFT) | check | last
}

/// Returns byte `index` of the pattern. The period is prime, so that a displacement by a power of
/// two or by a datagram is detected.
fn pattern(index: usize, last: bool) -> u8 {
    const PERIOD: usize = 251;
    #[allow(clippy::cast_possible_truncation, reason = "below 251")]
    let value = (index % PERIOD) as u8;
    if last { !value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamped_message_verifies() {
        for flags in [Flags::FIRST, Flags::LAST] {
            let mut message = vec![0xa5; 1000];
            stamp(&mut message, 77, flags);
            assert_eq!(verify(&message, 77).expect("intact"), flags);
        }
        let mut message = vec![0xa5; 1000];
        stamp(&mut message, 3, Flags::NONE);
        assert_eq!(
            verify(&message, 3).expect("the pattern is not compared"),
            Flags::NONE
        );
    }

    #[test]
    fn damaged_byte_is_detected() {
        for damaged in [0, 1, 500, 999] {
            let mut message = vec![0; 1000];
            stamp(&mut message, 0, Flags::LAST);
            message[damaged] ^= 0x80;
            assert!(verify(&message, 0).is_err(), "byte {damaged}");
        }
    }

    #[test]
    fn out_of_order_message_is_detected() {
        let mut message = [0; 8];
        stamp(&mut message, 9, Flags::NONE);
        assert!(verify(&message, 10).is_err());
    }

    #[test]
    fn stale_buffer_of_the_first_message_is_detected() {
        let (mut first, mut last) = ([0; 64], [0; 64]);
        stamp(&mut first, 0, Flags::FIRST);
        stamp(&mut last, 0, Flags::LAST);
        first[0] = last[0];
        assert!(verify(&first, 0).is_err());
    }
}
