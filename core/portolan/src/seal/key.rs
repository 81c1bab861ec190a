// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derivation of the keys that seal frames, from the job's secret (`P10.2`).
//!
//! The derivation is a chain of keyed hashes. The root binds the job and the cipher. The direction
//! binds sender and receiver, each with its epoch. The key binds the path and the number of
//! renewals. A frame that was recorded in another job, session, direction or path therefore does
//! not match the key.

use super::auth::Cipher;
use portolan_proto::LinkId;
use portolan_wire::{FRAME_HEADER_LEN, SEAL_TAG_LEN, SealNumber};
use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// A secret for deriving keys, never used to seal.
pub(super) struct Base([u8; 32]);

impl Base {
    pub(super) fn root(secret: &[u8; 32], job_id: [u8; 16], cipher: Cipher) -> Base {
        let mut hasher = blake3::Hasher::new_derive_key("portolan 2026 sealed frames");
        hasher.update(secret);
        hasher.update(&job_id);
        hasher.update(cipher.name().as_bytes());
        Base(*hasher.finalize().as_bytes())
    }

    /// Derives the secret for frames from one process to another. Each process is a rank, an epoch
    /// and a token.
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

/// A key that seals and opens frames. Its type is called "less safe" because the caller must not
/// repeat numbers: see the invariant of [`super`].
pub(super) struct Key(LessSafeKey);

impl Key {
    /// Encrypts `body` in place and returns the tag of it and of `header`.
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

    /// Checks `body`, which ends with its tag, and decrypts it in place.
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
