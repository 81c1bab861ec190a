// SPDX-License-Identifier: MIT OR Apache-2.0
//! Greeting of a sender: its rank, the receiver's rank, and the length of its ring. `P8.6`
//!
//! ```text
//! 0    4  magic "PSHM"
//! 4    1  version
//! 5    3  zero
//! 8    4  rank of the sender
//! 12   4  rank of the receiver
//! 16   8  bytes of the ring
//! 24  16  job
//! 40  16  nonce
//! 56  32  keyed BLAKE3 over the 56 bytes above and the name of the receiver's socket
//! ```
//! Between processes without a job (`P8.10`) the version is 2 and the ranks are 0. The sender's
//! endpoint id of 64 bytes precedes the hash, which covers it.
//!
//! Integers are little-endian. The socket's name is random for each process, so a recorded hello is
//! useless with another incarnation of the receiver. The nonce makes equal hellos differ. The
//! memory file travels beside the record (`SCM_RIGHTS`).

use super::directory::ENDPOINT_ID_LEN;
use crate::PeerId;

const MAGIC: [u8; 4] = *b"PSHM";
const VERSION: u8 = 1;
const VERSION_OPEN: u8 = 2;
const MAC_OFF: usize = 56;

/// Bytes of a hello.
pub(super) const HELLO_LEN: usize = MAC_OFF + blake3::OUT_LEN;

/// Bytes of a hello with an endpoint id.
pub(super) const OPEN_HELLO_LEN: usize = HELLO_LEN + ENDPOINT_ID_LEN;

/// Key of the hash, derived so that the job's secret is not used for several purposes.
pub(super) struct HelloKey([u8; 32]);

impl HelloKey {
    pub(super) fn derive(secret: &[u8; 32]) -> Self {
        HelloKey(blake3::derive_key("portolan shm hello, version 1", secret))
    }

    fn hash(&self, fields: &[u8], name: &str) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(fields).update(name.as_bytes());
        hasher.finalize()
    }
}

/// Contents of a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) job_id: [u8; 16],
    pub(super) from: PeerId,
    pub(super) to: PeerId,
    pub(super) ring_len: u64,
    pub(super) nonce: [u8; 16],
    pub(super) endpoint_id: Option<[u8; ENDPOINT_ID_LEN]>,
}

impl Hello {
    /// Returns the record to send to the listener called `name`.
    pub(super) fn encode(&self, key: &HelloKey, name: &str) -> Vec<u8> {
        let mut record = vec![0; MAC_OFF];
        record[0..4].copy_from_slice(&MAGIC);
        record[4] = match self.endpoint_id {
            None => VERSION,
            Some(_) => VERSION_OPEN,
        };
        record[8..12].copy_from_slice(&self.from.to_le_bytes());
        record[12..16].copy_from_slice(&self.to.to_le_bytes());
        record[16..24].copy_from_slice(&self.ring_len.to_le_bytes());
        record[24..40].copy_from_slice(&self.job_id);
        record[40..56].copy_from_slice(&self.nonce);
        record.extend_from_slice(
            self.endpoint_id
                .as_ref()
                .map_or(&[], |endpoint_id| endpoint_id),
        );
        let hash = key.hash(&record, name);
        record.extend_from_slice(hash.as_bytes());
        record
    }

    /// Decodes a record received by the listener called `name`. A success proves that a process of
    /// the job wrote it. The caller checks its receiver and its contents.
    ///
    /// # Errors
    /// Returns the reason, as a fixed name for a counter.
    pub(super) fn decode(
        record: &[u8],
        key: &HelloKey,
        name: &str,
        is_open: bool,
    ) -> Result<Self, &'static str> {
        let (len, version) = match is_open {
            false => (HELLO_LEN, VERSION),
            true => (OPEN_HELLO_LEN, VERSION_OPEN),
        };
        if record.len() != len {
            return Err("shm: hello of another length");
        }
        if record[0..4] != MAGIC {
            return Err("shm: not a hello");
        }
        if record[4] != version {
            return Err("shm: hello of another version");
        }
        let mac_off = len - blake3::OUT_LEN;
        // Comparison of blake3 hashes takes constant time.
        if key.hash(&record[..mac_off], name) != blake3::Hash::from_bytes(field(record, mac_off)) {
            return Err("shm: hello with a wrong key");
        }
        Ok(Hello {
            from: PeerId::from_le_bytes(field(record, 8)),
            to: PeerId::from_le_bytes(field(record, 12)),
            ring_len: u64::from_le_bytes(field(record, 16)),
            job_id: field(record, 24),
            nonce: field(record, 40),
            endpoint_id: is_open.then(|| field(record, MAC_OFF)),
        })
    }
}

fn field<const LEN: usize>(record: &[u8], off: usize) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes.copy_from_slice(&record[off..off + LEN]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "portolan-test";

    fn key() -> HelloKey {
        HelloKey::derive(&[7; 32])
    }

    fn hello() -> Hello {
        Hello {
            job_id: [1; 16],
            from: 2,
            to: 3,
            ring_len: 1 << 18,
            nonce: [4; 16],
            endpoint_id: None,
        }
    }

    #[test]
    fn hello_survives_a_round_trip() {
        let record = hello().encode(&key(), NAME);
        assert_eq!(Hello::decode(&record, &key(), NAME, false), Ok(hello()));
        let open = Hello {
            endpoint_id: Some([6; ENDPOINT_ID_LEN]),
            ..hello()
        };
        let mut record = open.encode(&key(), NAME);
        assert_eq!(Hello::decode(&record, &key(), NAME, true), Ok(open));
        assert!(Hello::decode(&record, &key(), NAME, false).is_err());
        record[MAC_OFF] ^= 1;
        assert!(Hello::decode(&record, &key(), NAME, true).is_err());
    }

    #[test]
    fn any_flipped_bit_is_refused() {
        for bit in 0..HELLO_LEN * 8 {
            let mut record = hello().encode(&key(), NAME);
            record[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Hello::decode(&record, &key(), NAME, false).is_err(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn other_secret_and_other_listener_are_refused() {
        let record = hello().encode(&key(), NAME);
        let wrong = Err("shm: hello with a wrong key");
        assert_eq!(
            Hello::decode(&record, &HelloKey::derive(&[8; 32]), NAME, false),
            wrong
        );
        assert_eq!(
            Hello::decode(&record, &key(), "portolan-other", false),
            wrong
        );
    }

    #[test]
    fn version_is_checked_before_the_hash() {
        let mut record = hello().encode(&key(), NAME);
        record[4] = VERSION + 1;
        let refused = Hello::decode(&record, &key(), NAME, false);
        assert_eq!(refused, Err("shm: hello of another version"));
    }

    #[test]
    fn random_records_are_refused() {
        use rand::{Rng, RngCore, SeedableRng};
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        for _ in 0..100_000 {
            let mut record = vec![0; rng.random_range(0..2 * HELLO_LEN)];
            rng.fill_bytes(&mut record);
            if record.len() > 4 && rng.random() {
                record[0..4].copy_from_slice(&MAGIC);
                record[4] = VERSION;
            }
            assert!(Hello::decode(&record, &key(), NAME, false).is_err());
        }
    }
}
