// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of non-blocking operations: the library owns them while an operation is under way, and
//! gives them back with its completion.

use std::ops::Deref;
use std::sync::Arc;

/// Memory for a non-blocking send or a posted receive.
///
/// A `Vec<u8>` belongs to one operation at a time; an `Arc<[u8]>` may be sent many times at once,
/// and cannot be received into.
#[derive(Clone, Debug)]
pub struct Buffer(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Owned(Vec<u8>),
    Shared(Arc<[u8]>),
}

impl Buffer {
    /// The bytes for writing; `None` for shared ones.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Kind::Owned(bytes) => Some(bytes),
            Kind::Shared(_) => None,
        }
    }

    /// The bytes as a vector; shared ones are copied.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Kind::Owned(bytes) => bytes,
            Kind::Shared(bytes) => bytes.to_vec(),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Owned(bytes) => bytes,
            Kind::Shared(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer(Kind::Owned(bytes))
    }
}

impl From<Arc<[u8]>> for Buffer {
    fn from(bytes: Arc<[u8]>) -> Self {
        Buffer(Kind::Shared(bytes))
    }
}

impl From<Buffer> for Vec<u8> {
    fn from(buffer: Buffer) -> Self {
        buffer.into_vec()
    }
}
