// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may connect where there is no job whose ranks are known beforehand.

use crate::PeerId;
use std::fmt;
use std::sync::Arc;

/// Bytes of a process's endpoint id: its address, as the caller writes it.
pub const ENDPOINT_ID_LEN: usize = 64;

/// Numbers processes by their endpoint ids. Called on the control path only.
pub trait Directory: Send + Sync {
    /// The endpoint id of this process.
    fn own_endpoint_id(&self) -> [u8; ENDPOINT_ID_LEN];

    /// The key of hellos to this process.
    fn own_key(&self) -> [u8; 32];

    /// The number of the process that has shown `endpoint_id`, a new one for an unsolicited peer; `None` if it
    /// may not come in.
    fn number_of(&self, endpoint_id: &[u8; ENDPOINT_ID_LEN]) -> Option<PeerId>;

    /// The key of hellos to `peer`; `None` if it is not known.
    fn key_of(&self, peer: PeerId) -> Option<[u8; 32]>;
}

/// Makes a link open to every process that knows its address. `P8.10`
#[derive(Clone)]
pub struct OpenConfig {
    /// Name of the socket to listen on; must be unguessable.
    pub name: String,
    /// Who is who.
    pub directory: Arc<dyn Directory>,
}

impl fmt::Debug for OpenConfig {
    /// Leaves the directory out, which has keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConfig")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
