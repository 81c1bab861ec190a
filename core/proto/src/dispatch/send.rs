// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eager messages: copied into frames at submission, sent without asking, within credit (`P4.5`).

use super::list;
use crate::peer::Peer;
use crate::shared::Shared;
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
        self.submit(peer, |state, sh| state.eager(sh, spec, len))
    }

    /// Accepts a message that is longer than shared memory takes without asking, in parts: its bytes
    /// go through the ring, so that it arrives whether its receiver asks or not. `P4.13`
    ///
    /// # Errors
    /// As of [`Core::eager`]; [`Refused::TooLong`] also where messages go by a network, which takes as
    /// much without asking as ever goes so.
    pub fn eager_in_parts(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        self.submit(peer, |state, sh| state.eager_in_parts(sh, spec, bytes))
    }

    #[inline]
    fn submit<'a, T>(
        &'a mut self,
        peer: PeerId,
        accept: impl FnOnce(&mut Peer, &'a mut Shared) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
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
        let accepted = accept(state, sh)?;
        list(ready, timed, state);
        Ok(accepted)
    }
}
