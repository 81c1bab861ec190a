// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eager messages: copied into a frame at submission, sent without asking, within credit (`P4.5`).

use super::list;
use crate::{Core, PeerId, Refused, SendSpec, Staging};

impl Core {
    /// Accepts a message of `len` bytes and returns the memory to copy it into. Once copied, the
    /// message is complete as far as its sender is concerned: it can be recovered from here.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    #[inline]
    pub fn eager(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        len: usize,
    ) -> Result<Staging<'_>, Refused> {
        if !self.is_live(peer) {
            return Err(Refused::Unknown);
        }
        let Core {
            peers,
            sh,
            ready,
            timed,
            ..
        } = self;
        let Some(Some(state)) = peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        if !state.session().is_up() {
            let refused = state.refuse_submission();
            list(ready, timed, state);
            return Err(refused);
        }
        let staging = state.eager(sh, spec, len)?;
        list(ready, timed, state);
        Ok(staging)
    }
}
