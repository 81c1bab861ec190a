// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encoding of probes and answers (`P9.2`).

const MAGIC: &[u8; 4] = b"PtL1";

use std::time::Duration;

/// Magic, kind, idle time, from, to, nonce, keyed hash.
pub(super) const LEN: usize = MAC_OFF + 16;
const MAC_OFF: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Question,
    Answer,
}

/// A probe or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) from: u32,
    pub(super) to: u32,
    /// Time of the probe by the prober's clock; the answer returns it.
    pub(super) nonce: u64,
    /// Of an answer: time since the program last polled its links, in whole milliseconds.
    pub(super) idle: Duration,
}

/// The longest idle time that 24 bits hold: 4.6 hours.
const IDLE_MS_MAX: u128 = (1 << 24) - 1;

/// Key of the hash, derived so that each use of the job's secret has a separate key.
#[derive(Debug)]
pub(super) struct Key([u8; 32]);

impl Key {
    pub(super) fn derive(secret: &[u8; 32]) -> Self {
        Key(blake3::derive_key("portolan 2026 liveness", secret))
    }

    fn hash(&self, fields: &[u8]) -> [u8; 16] {
        let mut short = [0; 16];
        short.copy_from_slice(&blake3::keyed_hash(&self.0, fields).as_bytes()[..16]);
        short
    }
}

/// Returns the receiver's number in bytes that may be a message.
pub(super) fn addressee(bytes: &[u8]) -> Option<u32> {
    let word = bytes.get(12..16)?.try_into().ok()?;
    Some(u32::from_le_bytes(word))
}

impl Message {
    pub(super) fn encode(&self, key: &Key) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = match self.kind {
            Kind::Question => 1,
            Kind::Answer => 2,
        };
        let idle_ms = self.idle.as_millis().min(IDLE_MS_MAX);
        bytes[5..8].copy_from_slice(&idle_ms.to_le_bytes()[..3]);
        bytes[8..12].copy_from_slice(&self.from.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.to.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        let hash = key.hash(&bytes[..MAC_OFF]);
        bytes[MAC_OFF..].copy_from_slice(&hash);
        bytes
    }

    /// Decodes a message; returns `None` unless a process of the job wrote it.
    pub(super) fn decode(bytes: &[u8], key: &Key) -> Option<Message> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let word = |at: usize| Some(u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?));
        let message = Message {
            kind: match bytes[4] {
                1 => Kind::Question,
                2 => Kind::Answer,
                _ => return None,
            },
            from: word(8)?,
            to: word(12)?,
            nonce: u64::from_le_bytes(bytes[16..24].try_into().ok()?),
            idle: Duration::from_millis(u64::from(word(4)? >> 8)),
        };
        (&message.encode(key) == bytes).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Message = Message {
        kind: Kind::Question,
        from: 3,
        to: 0x0102,
        nonce: 0x1122_3344_5566_7788,
        idle: Duration::ZERO,
    };

    #[test]
    fn fields_match_the_protocol() {
        let bytes = QUESTION.encode(&Key::derive(&[7; 32]));
        assert_eq!(bytes[..8], *b"PtL1\x01\0\0\0");
        assert_eq!(bytes[8..16], [3, 0, 0, 0, 2, 1, 0, 0]);
        assert_eq!(
            bytes[16..24],
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]
        );
    }

    #[test]
    fn only_messages_of_the_job_are_accepted() {
        let key = Key::derive(&[7; 32]);
        let answer = Message {
            kind: Kind::Answer,
            idle: Duration::from_millis(0x01_02_03),
            ..QUESTION
        };
        for message in [QUESTION, answer] {
            let bytes = message.encode(&key);
            assert_eq!(Message::decode(&bytes, &key), Some(message));
            assert_eq!(Message::decode(&bytes, &Key::derive(&[8; 32])), None);
            assert_eq!(Message::decode(&bytes[..LEN - 1], &key), None);
            for at in 0..LEN {
                let mut forged = bytes;
                forged[at] ^= 1;
                assert_eq!(Message::decode(&forged, &key), None, "byte {at}");
            }
        }
    }
}
