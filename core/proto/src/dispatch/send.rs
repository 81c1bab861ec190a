// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eager messages: copied into frames at submission and sent without a request, within credit
//! (`P4.5`).

use super::list;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Core, PeerId, Refused, SendSpec, Staging};

impl Core {
    /// Accepts a message of `len` bytes and returns the memory to copy it into. After the copy the
    /// send is complete, since the message can be retransmitted from there.
    ///
    /// # Errors
    /// [`Refused`]; the state is then unchanged.
    #[inline]
    pub fn eager(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        len: usize,
    ) -> Result<Staging<'_>, Refused> {
        self.accept(peer, |state, sh| state.eager(sh, spec, len))
    }

    /// Accepts a message that is longer than the eager limit of shared memory, in parts. Its bytes
    /// go through the ring, so that it arrives even if its receiver makes no call. `P4.13`
    ///
    /// # Errors
    /// Same as [`Core::eager`]; also [`Refused::TooLong`] if messages go by a network, where the
    /// eager limit is the maximum already.
    pub fn eager_in_parts(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        self.accept(peer, |state, sh| state.eager_in_parts(sh, spec, bytes))
    }

    #[inline]
    fn accept<'a, T>(
        &'a mut self,
        peer: PeerId,
        stage: impl FnOnce(&mut Peer, &'a mut Shared) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        if !self.is_live(peer) {
            return Err(Refused::Unknown);
        }
        let Core {
            peers,
            sh,
            ready,
            timed,
            has_staged,
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
        let staged = stage(state, sh)?;
        list(ready, timed, state);
        *has_staged = true;
        Ok(staged)
    }
}
