// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission of processes that belong to no job with ranks known in advance.

use crate::PeerId;
use std::fmt;
use std::sync::Arc;

/// Bytes of a process's endpoint id: its address, in the caller's encoding.
pub const ENDPOINT_ID_LEN: usize = 64;

/// Assigns numbers to processes by their endpoint ids. Called on the control path only.
pub trait Directory: Send + Sync {
    /// Returns the endpoint id of this process.
    fn own_endpoint_id(&self) -> [u8; ENDPOINT_ID_LEN];

    /// Returns the key of hellos to this process.
    fn own_key(&self) -> [u8; 32];

    /// Returns the number of the process with `endpoint_id`, a new one for an unsolicited peer, or
    /// `None` if it is refused.
    fn number_of(&self, endpoint_id: &[u8; ENDPOINT_ID_LEN]) -> Option<PeerId>;

    /// Returns the key of hellos to `peer`, or `None` if the peer is unknown.
    fn key_of(&self, peer: PeerId) -> Option<[u8; 32]>;
}

/// Settings of a link that is open to every process that has its address. `P8.10`
#[derive(Clone)]
pub struct OpenConfig {
    /// Name of the socket to listen on; must be unguessable.
    pub name: String,
    /// Directory of the processes.
    pub directory: Arc<dyn Directory>,
}

impl fmt::Debug for OpenConfig {
    /// Omits the directory, which contains keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConfig")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
