// SPDX-License-Identifier: MIT OR Apache-2.0
//! Division of a message of several frames: its bytes per frame and per call. A single message may
//! be divided more finely, so that the stages of the path work at the same time (`P4.11`).

use super::Path;
use crate::base::config::BATCH_LEN_MAX;
use crate::base::context::Context;

/// Division of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    batch_len: usize,
    payload_len_max: usize,
}

impl Division {
    /// Fewest frames and calls.
    pub(crate) const WHOLE: Division = Division {
        batch_len: BATCH_LEN_MAX,
        payload_len_max: usize::MAX,
    };

    /// Returns the maximum length of one GSO batch in bytes.
    #[inline]
    pub(crate) fn batch_len(self) -> usize {
        self.batch_len
    }

    /// Returns the maximum payload length of a frame in bytes, beside the path's own limit.
    #[inline]
    pub(crate) fn payload_len_max(self) -> usize {
        self.payload_len_max
    }
}

impl Path {
    /// Returns the division of a message of `len` bytes that starts now. `P4.11`
    pub(crate) fn division(&self, ctx: &Context, len: usize) -> Division {
        let mut division = Division::WHOLE;
        if self.is_quiet(ctx.limits().ack_every) {
            division.batch_len = ctx.choice().single_batch_len(len as u64);
            // Short frames cost the sender more than pieces do. A message behind frames in flight
            // is part of a stream, which short frames would slow down.
            let choice = ctx.choice();
            if self.unacked.is_empty() && choice.frames_on.is_none_or(|link| link == self.link) {
                division.payload_len_max = choice.single_payload_len(len as u64);
            }
        }
        division
    }

    /// Returns true if no run waits, and all frames in flight may be awaiting a delayed
    /// acknowledgement. A message sent now is then a single one. `P4.11`
    fn is_quiet(&self, ack_every: u32) -> bool {
        self.runs.is_empty() && self.unacked.len() < ack_every as usize
    }
}
