// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of one connection between two standalone processes.
//!
//! Both sides send a fresh X25519 key. The keys of the connection follow from the agreed secret,
//! the program's secret and both hellos. Only a process with the same secret can therefore open a
//! record, and a recorded connection cannot be read later, even with the secret.

use super::record::{BODY_LEN, HELLO_LEN, SEALED_LEN};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::{SecureRandom, SystemRandom};

/// Length of a public key in bytes.
pub(super) const PUBLIC_LEN: usize = 32;

/// Returns a random number; `None` if the system has no randomness.
pub(super) fn random_u64() -> Option<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Own half of the key agreement.
pub(super) struct Offer {
    private: EphemeralPrivateKey,
    public: [u8; PUBLIC_LEN],
}

impl Offer {
    /// Creates a fresh key; `None` if the system has no randomness.
    pub(super) fn new() -> Option<Offer> {
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).ok()?;
        let public = private.compute_public_key().ok()?;
        let public = public.as_ref().try_into().ok()?;
        Some(Offer { private, public })
    }

    pub(super) fn public(&self) -> [u8; PUBLIC_LEN] {
        self.public
    }

    /// Derives the keys. `hellos` are those of the client and of the server, `theirs` the public
    /// key of the other side. Returns `None` for an invalid public key.
    pub(super) fn agree(
        self,
        is_client: bool,
        theirs: &[u8; PUBLIC_LEN],
        secret: &[u8],
        hellos: [&[u8; HELLO_LEN]; 2],
    ) -> Option<Keys> {
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        let derived = agree_ephemeral(self.private, &theirs, |shared| {
            let mut hasher = blake3::Hasher::new_derive_key("portolan 2026 meeting");
            hasher.update(&(secret.len() as u64).to_le_bytes());
            hasher.update(secret);
            hasher.update(shared);
            hellos.iter().for_each(|hello| _ = hasher.update(*hello));
            let mut bytes = [0; 96];
            hasher.finalize_xof().fill(&mut bytes);
            bytes
        });
        let derived = derived.ok()?;
        let (of_client, rest) = derived.split_first_chunk::<32>()?;
        let (of_server, pair) = rest.split_first_chunk::<32>()?;
        let (tx, rx) = match is_client {
            true => (of_client, of_server),
            false => (of_server, of_client),
        };
        Some(Keys {
            tx: Half::new(tx)?,
            rx: Half::new(rx)?,
            pair: pair.try_into().ok()?,
        })
    }
}

/// Keys of both directions.
pub(super) struct Keys {
    tx: Half,
    rx: Half,
    pair: [u8; 32],
}

/// Key of one direction, and the number of records that it has sealed or opened.
struct Half {
    key: LessSafeKey,
    count: u64,
}

impl Half {
    fn new(bytes: &[u8; 32]) -> Option<Half> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).ok()?;
        let key = LessSafeKey::new(key);
        Some(Half { key, count: 0 })
    }

    /// Returns the next number, which no other record of this direction has.
    fn next_nonce(&mut self) -> Nonce {
        let mut bytes = [0; NONCE_LEN];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        Nonce::assume_unique_for_key(bytes)
    }

    fn seal(&mut self, body: &[u8; BODY_LEN]) -> Option<[u8; SEALED_LEN]> {
        let mut out = [0; SEALED_LEN];
        out[..BODY_LEN].copy_from_slice(body);
        let nonce = self.next_nonce();
        let sealed = &mut out[..BODY_LEN];
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), sealed);
        out[BODY_LEN..].copy_from_slice(tag.ok()?.as_ref());
        Some(out)
    }
}

impl Keys {
    /// Returns the secret from which the two processes derive the keys of their frames.
    pub(super) fn pair(&self) -> [u8; 32] {
        self.pair
    }

    /// Seals the next record to the other side.
    pub(super) fn seal(&mut self, body: &[u8; BODY_LEN]) -> Option<[u8; SEALED_LEN]> {
        self.tx.seal(body)
    }

    /// Opens a record; `None` if its sender does not have the key.
    pub(super) fn open(&mut self, sealed: &[u8; SEALED_LEN]) -> Option<[u8; BODY_LEN]> {
        let mut bytes = *sealed;
        let nonce = self.rx.next_nonce();
        let opened = self.rx.key.open_in_place(nonce, Aad::empty(), &mut bytes);
        <[u8; BODY_LEN]>::try_from(&*opened.ok()?).ok()
    }

    /// Returns the last record to the other side, and the one that it will send if its `body` is
    /// the same. The keys, which need more memory, are then superfluous.
    pub(super) fn last(mut self, body: &[u8; BODY_LEN]) -> Option<[[u8; SEALED_LEN]; 2]> {
        Some([self.tx.seal(body)?, self.rx.seal(body)?])
    }
}
