// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setting `auth`: the authentication that network frames need.

use super::Seals;
use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use portolan_proto::LinkParams;
use portolan_wire::SEAL_LEN;
use ring::aead::{AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305};

/// Minimum frame length, in bytes, that every path must carry (`P6.2`).
const FRAME_LEN_LEAST: usize = 512;

/// Value of the setting `auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// No authentication; for comparing.
    None,
    /// A keyed hash authenticates the handshake, and frames carry the token of the session.
    Token,
    /// As `Token`, and every frame is sealed.
    Aead(Cipher),
}

/// A cipher that authenticates what it encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl Auth {
    pub(crate) fn of(job: &Job) -> Result<Auth, Error> {
        let auth = Auth::of_job(job)?;
        if auth == Auth::None {
            log::warn!("auth=none: any process that reaches this job's ports can join it");
        }
        Ok(auth)
    }

    /// Reads the setting.
    pub(crate) fn of_job(job: &Job) -> Result<Auth, Error> {
        let value = settings::AUTH.of(job);
        Ok(match value.as_deref() {
            None | Some("token") => Auth::Token,
            Some("none") => Auth::None,
            Some("aead" | "aead-aes128") => Auth::Aead(Cipher::Aes128Gcm),
            Some("aead-aes256") => Auth::Aead(Cipher::Aes256Gcm),
            Some("aead-chacha20") => Auth::Aead(Cipher::ChaCha20Poly1305),
            Some(other) => {
                return Err(Error::Setting {
                    name: "auth",
                    value: other.to_owned(),
                    why: "write token, aead, aead-aes256 or aead-chacha20 (or none, to compare)"
                        .to_owned(),
                });
            }
        })
    }

    /// Returns a code that differs between settings with which no session opens.
    pub(crate) fn code(self) -> u8 {
        match self {
            Auth::None => 0,
            Auth::Token => 1,
            Auth::Aead(Cipher::Aes128Gcm) => 2,
            Auth::Aead(Cipher::Aes256Gcm) => 3,
            Auth::Aead(Cipher::ChaCha20Poly1305) => 4,
        }
    }

    /// Returns the key that authenticates handshakes. Each setting has another key, so that
    /// processes with different settings cannot open a session.
    pub(crate) fn handshake_key(self, secret: &[u8; 32]) -> [u8; 32] {
        match self {
            Auth::None => [0; 32],
            Auth::Token => *secret,
            Auth::Aead(cipher) => {
                let mut hasher = blake3::Hasher::new_derive_key("portolan 2026 sealed handshake");
                hasher.update(secret);
                hasher.update(cipher.name().as_bytes());
                *hasher.finalize().as_bytes()
            }
        }
    }

    pub(crate) fn is_sealed(self) -> bool {
        matches!(self, Auth::Aead(_))
    }

    /// Returns the number of bytes that sealing adds to network frames.
    pub(crate) fn overhead_len(self) -> usize {
        match self.is_sealed() {
            true => SEAL_LEN,
            false => 0,
        }
    }

    /// Reduces the core's parameters of a link, so that its frames have room for their seals.
    pub(crate) fn narrow(self, params: LinkParams) -> Result<LinkParams, Error> {
        if params.lossless {
            return Ok(params);
        }
        let frame_len_max = params.frame_len_max.saturating_sub(self.overhead_len());
        // The setting cannot be that small, so the MTU is the cause.
        if params.frame_len_max < FRAME_LEN_LEAST {
            return Err(Error::Setting {
                name: "interface",
                value: format!("frames of {} bytes", params.frame_len_max),
                why: format!("{FRAME_LEN_LEAST} are needed; give it an MTU of 576 bytes or more"),
            });
        }
        if frame_len_max < FRAME_LEN_LEAST {
            return Err(Error::Setting {
                name: "frame_len_max",
                value: params.frame_len_max.to_string(),
                why: format!(
                    "sealed frames need {} bytes at least; write that or more, or auth=token",
                    FRAME_LEN_LEAST + SEAL_LEN
                ),
            });
        }
        Ok(LinkParams {
            frame_len_max,
            // P13.1: a seal detects more errors than a checksum.
            checksum: params.checksum && self.overhead_len() == 0,
            sum: params.sum.filter(|_| self.overhead_len() == 0),
            ..params
        })
    }

    /// Creates the state for sealing, if frames are sealed.
    pub(crate) fn seals(self, job: &Job) -> Option<Box<Seals>> {
        match self {
            Auth::Aead(cipher) => {
                let seals = Seals::new(cipher, &job.secret, job.job_id, job.rank);
                Some(Box::new(seals))
            }
            _ => None,
        }
    }
}

impl Cipher {
    pub(super) fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "AES-128-GCM",
            Cipher::Aes256Gcm => "AES-256-GCM",
            Cipher::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    pub(super) fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}
