// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys: from the job's secret to the one that seals a frame (`P10.2`).
//!
//! A chain of keyed hashes. What each step binds: the root the job and the cipher; the direction who
//! sends to whom, in which lives; the key the path and how often it was renewed. So a frame that
//! was recorded in another job, session, direction or path meets a key that does not fit it.

use super::auth::Cipher;
use portolan_proto::LinkId;
use portolan_wire::{FRAME_HEADER_LEN, SEAL_TAG_LEN, SealNumber};
use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// A secret from which others are derived, never used to seal.
pub(super) struct Base([u8; 32]);

impl Base {
    pub(super) fn root(secret: &[u8; 32], job_id: [u8; 16], cipher: Cipher) -> Base {
        let mut hasher = blake3::Hasher::new_derive_key("portolan 2026 sealed frames");
        hasher.update(secret);
        hasher.update(&job_id);
        hasher.update(cipher.name().as_bytes());
        Base(*hasher.finalize().as_bytes())
    }

    /// For frames from one process to another; each is a rank, an epoch and a token.
    pub(super) fn direction(&self, from: (u32, (u64, u64)), to: (u32, (u64, u64))) -> Base {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for (rank, (epoch, token)) in [from, to] {
            hasher.update(&rank.to_le_bytes());
            hasher.update(&epoch.to_le_bytes());
            hasher.update(&token.to_le_bytes());
        }
        Base(*hasher.finalize().as_bytes())
    }

    pub(super) fn key(&self, cipher: Cipher, link: LinkId, generation: u32) -> Option<Key> {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&[link.as_u8()]);
        hasher.update(&generation.to_le_bytes());
        let algorithm = cipher.algorithm();
        let bytes = hasher.finalize();
        let key = UnboundKey::new(algorithm, &bytes.as_bytes()[..algorithm.key_len()]).ok()?;
        Some(Key(LessSafeKey::new(key)))
    }
}

/// Seals and opens frames. "Less safe", as its type is called, means that numbers are the caller's
/// duty: see the invariant of [`super`].
pub(super) struct Key(LessSafeKey);

impl Key {
    /// Encrypts `body` where it lies and returns the tag of it and of `header`.
    pub(super) fn seal(
        &self,
        number: SealNumber,
        header: [u8; FRAME_HEADER_LEN],
        body: &mut [u8],
    ) -> Option<[u8; SEAL_TAG_LEN]> {
        let sealed = self
            .0
            .seal_in_place_separate_tag(nonce(number), Aad::from(header), body);
        <[u8; SEAL_TAG_LEN]>::try_from(sealed.ok()?.as_ref()).ok()
    }

    /// Checks `body`, which ends with its tag, and decrypts it where it lies.
    pub(super) fn open(
        &self,
        number: SealNumber,
        header: [u8; FRAME_HEADER_LEN],
        body: &mut [u8],
    ) -> bool {
        self.0
            .open_in_place(nonce(number), Aad::from(header), body)
            .is_ok()
    }
}

fn nonce(number: SealNumber) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&number.to_bytes());
    Nonce::assume_unique_for_key(bytes)
}
