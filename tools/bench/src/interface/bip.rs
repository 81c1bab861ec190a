// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows through BIP's tagged messages of words.
#![allow(unsafe_code, reason = "functions of a C library, which take pointers")]

use super::Member;
use crate::logp::Endpoint;
use crate::spec::Role;
use anyhow::{Result, ensure};
use bip::init::{bip_init, bip_mynode, bip_numnodes};
use bip::receive::{bip_rwait, bip_tirecv, bip_trecv};
use bip::send::{bip_swait, bip_tisend, bip_tsend};
use std::ffi::c_int;

/// Tag of all messages of a row.
const TAG: c_int = 7;

/// Bytes of a word.
const WORD: usize = size_of::<c_int>();

/// This process as a BIP node.
pub(super) struct Bip {
    node: c_int,
    /// The non-blocking send; BIP has at most one.
    pending: Option<c_int>,
    /// The receive that has been started.
    prepared: Option<c_int>,
}

impl Bip {
    pub(super) fn join() -> Result<Bip> {
        bip_init();
        // SAFETY: only `bip_init` writes these variables, and it has returned.
        let (node, count) = unsafe { (bip_mynode, bip_numnodes) };
        ensure!(count == 2, "a row has 2 nodes, not {count}");
        Ok(Bip {
            node,
            pending: None,
            prepared: None,
        })
    }
}

/// Returns the words of a message. `len` is a multiple of the word size.
fn words(len: usize) -> Result<c_int> {
    Ok(c_int::try_from(len / WORD)?)
}

impl Endpoint for Bip {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let count = words(message.len())?;
        // SAFETY: `message` has `count` words, which the library reads as bytes until it returns.
        unsafe { bip_tsend(1 - self.node, TAG, message.as_ptr().cast(), count) };
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        let count = words(message.len())?;
        let got = match self.prepared.take() {
            Some(receive) => bip_rwait(receive),
            // SAFETY: `message` has `count` words and is borrowed exclusively; the library writes it
            // as bytes.
            None => unsafe { bip_trecv(TAG, message.as_mut_ptr().cast(), count) },
        };
        ensure!(got == count, "a message of {got} words instead of {count}");
        Ok(())
    }
}

impl Member for Bip {
    fn role(&self) -> Role {
        match self.node {
            0 => Role::Driver,
            _ => Role::Answerer,
        }
    }

    fn begin(&mut self, message: &[u8]) -> Result<()> {
        self.complete()?;
        let count = words(message.len())?;
        // SAFETY: `message` has `count` words, which do not change before `complete`. The library
        // reads them as bytes.
        let send = unsafe { bip_tisend(1 - self.node, TAG, message.as_ptr().cast(), count) };
        self.pending = Some(send);
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        if let Some(send) = self.pending.take() {
            bip_swait(send);
        }
        Ok(())
    }

    fn prepare(&mut self, message: &mut [u8]) -> Result<()> {
        let count = words(message.len())?;
        // SAFETY: `message` has `count` words, which are not used before `receive`. The library
        // writes them as bytes.
        let receive = unsafe { bip_tirecv(TAG, message.as_mut_ptr().cast(), count) };
        self.prepared = Some(receive);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}
