// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eager messages: copied into a frame at submission, sent without asking, within credit (`P4.5`).

use crate::base::credit::charge;
use crate::base::narrow::narrow;
use crate::{Address, Core, FlushHint, PeerId, Refused, SendSpec, Staging};
use portolan_wire::{Fragment, Message};

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
        if !self.is_awake(peer) {
            return Err(Refused::Unknown);
        }
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        let state = &mut **state;
        if !state.session.up {
            let refused = state.session.failed.map_or(Refused::NotUp, Refused::Gone);
            state.session.want();
            self.touch(peer);
            return Err(refused);
        }
        let lane = spec.lane.index();
        let Some(path) = state.paths.small_mut() else {
            return Err(Refused::NotUp);
        };
        let record_len = spec.header_len() + len;
        let fits = path.fits_shared(record_len);
        if !fits && len > self.sh.ctx.eager_len_max(path.is_lossless()) {
            return Err(Refused::TooLong);
        }
        // P7.5, P11.1
        let best_effort = spec.best_effort && fits && matches!(spec.to, Address::Port(_));
        let tx = &mut state.lanes_tx[lane];
        let seq = match path.has_room(lane) {
            true if best_effort => Some(tx.next_best_effort()),
            true => tx.reserve(charge(len)),
            false => None,
        };
        let Some(seq) = seq else {
            tx.starve();
            return Err(Refused::Busy);
        };
        self.sh.ctx.counters_mut().messages_sent += 1;
        if !state.queued {
            state.queued = true;
            self.ready.push_back(peer);
        }
        if !state.timed {
            state.timed = true;
            self.timed.push(peer);
        }
        let message = Message {
            best_effort,
            ..spec.message(u16::try_from(len).unwrap_or(u16::MAX), seq)
        };
        let (slots, header_len) = (&mut self.sh.slots, message.header_len());
        if fits {
            let (out, hint) = path.stage_shared(slots, lane, record_len, !best_effort);
            message.emit(out);
            return Ok(Staging::whole(&mut out[header_len..], hint));
        }
        if path.is_lossless() {
            let out = path.stage_alone(slots, lane, record_len);
            message.emit(out);
            return Ok(Staging::whole(&mut out[header_len..], FlushHint::Full));
        }
        let Some(path) = state.paths.run_path(&self.sh.ctx, len) else {
            return Err(Refused::NotUp);
        };
        let batch_len = path.batch_len(&self.sh.ctx, len);
        let fragment = Fragment {
            message,
            message_len: narrow(len),
            offset: 0,
        };
        Ok(path.stage_run(slots, &fragment, len, batch_len))
    }
}
