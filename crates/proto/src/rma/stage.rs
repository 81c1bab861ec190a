// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and answers go into frames: into the lane's open one if they fit, else in parts, each
//! of which says where it belongs.

use crate::base::config::CALL_LEN_MAX;
use crate::mem::slot::SlotPool;
use crate::path::{OpenFrame, Path};
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{FlushHint, Staging};
use portolan_wire::{LaneId, RemoteWrite};

/// A record to be staged, with `len` bytes of payload, in one part or several.
pub(crate) struct Parts<'a> {
    pub(crate) lane: LaneId,
    pub(crate) header_len: usize,
    pub(crate) len: usize,
    /// Writes the header of a part: its offset, its length, where to.
    pub(crate) emit: &'a dyn Fn(usize, usize, &mut [u8]),
}

impl Peer {
    /// Memory for the payload; `None` if there is no path.
    pub(super) fn stage_parts<'a>(
        &mut self,
        sh: &'a mut Shared,
        parts: &Parts<'_>,
    ) -> Option<Staging<'a>> {
        let (small, bulk) = (self.small?, self.bulk);
        let path = self.path_mut(small)?;
        let need = parts.header_len + parts.len;
        if path.header_len() + need <= path.shared_frame_len() {
            let (bytes, hint) = path.take_shared(&mut sh.slots, parts.lane.index(), need);
            (parts.emit)(0, parts.len, bytes);
            return Some(Staging::whole(&mut bytes[parts.header_len..], hint));
        }
        if path.params.lossless {
            let bytes = path.take_alone(&mut sh.slots, parts.lane.index(), need);
            (parts.emit)(0, parts.len, bytes);
            let hint = FlushHint::Full;
            return Some(Staging::whole(&mut bytes[parts.header_len..], hint));
        }
        let by = match bulk {
            Some(bulk) if parts.len > sh.ctx.choice().small_run_len_max => bulk,
            _ => small,
        };
        let path = self.path_mut(by)?;
        let call_len = match path.is_quiet(sh.ctx.limits().ack_every) {
            true => sh.ctx.choice().lone_call_len(parts.len as u64),
            false => CALL_LEN_MAX,
        };
        Some(path.stage_run_of(&mut sh.slots, parts, call_len))
    }
}

impl Path {
    /// Room for a record of `need` bytes in the lane's open frame, or in a new one. `P4.6`
    fn take_shared<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        lane: usize,
        need: usize,
    ) -> (&'a mut [u8], FlushHint) {
        let mut hint = FlushHint::Open;
        if self.open[lane].is_some_and(|open| open.len + need > open.len_max) {
            self.close(lane);
            hint = FlushHint::Full;
        }
        let mut open = match self.open[lane] {
            Some(open) => open,
            None => self.new_frame(slots),
        };
        let start = open.len;
        open.len += need;
        open.numbered = true;
        self.open[lane] = Some(open);
        (&mut slots.bytes_mut(open.slot)[start..open.len], hint)
    }

    /// A frame of a lossless link for one record alone.
    fn take_alone<'a>(
        &mut self,
        slots: &'a mut SlotPool,
        lane: usize,
        need: usize,
    ) -> &'a mut [u8] {
        self.close(lane);
        let slot = slots.take(need);
        self.closed[lane].push_back(OpenFrame {
            slot,
            len: need,
            len_max: need,
            numbered: true,
        });
        &mut slots.bytes_mut(slot)[..need]
    }
}

/// Writes the header of a part of `write`.
pub(super) fn emit_part(write: &RemoteWrite, off: usize, len: usize, out: &mut [u8]) {
    RemoteWrite {
        len: u16::try_from(len).unwrap_or(u16::MAX),
        part_off: write.part_off + u32::try_from(off).unwrap_or(u32::MAX),
        ..*write
    }
    .emit(out);
}

/// Cuts a payload of `len` bytes for records that carry `room` bytes at most: offset and length of
/// each part; of nothing, one empty part.
pub(crate) fn cut_points(len: usize, room: usize) -> impl Iterator<Item = (usize, usize)> {
    let room = room.max(1);
    let count = len.div_ceil(room).max(1);
    (0..count).map(move |index| (index * room, room.min(len - index * room)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn parts_cover_the_whole_once() {
        let parts = |len, room| cut_points(len, room).collect::<Vec<_>>();
        assert_eq!(parts(0, 7), [(0, 0)]);
        assert_eq!(parts(7, 7), [(0, 7)]);
        assert_eq!(parts(15, 7), [(0, 7), (7, 7), (14, 1)]);
    }
}
