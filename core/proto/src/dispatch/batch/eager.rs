// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of fragments of an eager message.

use crate::session::token_index;
use crate::{Core, Instant, LinkId, TakenRun};
use portolan_wire::{Ack, FragmentFrame};

impl Core {
    /// Handles a run of datagrams with one fragment each, `first` in front; see
    /// [`Core::handle_run`].
    pub(super) fn handle_eager_run<'a>(
        &mut self,
        now: Instant,
        link: LinkId,
        first: &[u8],
        others: impl Iterator<Item = &'a [u8]>,
    ) -> Option<TakenRun> {
        let frame = FragmentFrame::parse(first)?;
        // P3.10: the memory limit applies to each frame. P2.14: a message that is discarded as soon
        // as it is complete has no memory that outlives this call.
        if self.sh.ctx.is_closing() || self.sh.is_full() {
            return None;
        }
        let header = frame.header;
        let peer = match self.peers.get_mut(token_index(header.session)) {
            Some(Some(peer)) if peer.session().token_mine() == header.session => &mut **peer,
            _ => return None,
        };
        let from = peer.id();
        if !peer.is_open() {
            return None;
        }
        let path = peer.paths().get(link)?;
        if !path.takes(header.checked) {
            return None;
        }
        let most = path.run_max(header.packet_num);
        if most == 0 {
            return None;
        }
        let (count, len, ack) = measure(&frame, first, others.take(most as usize - 1));
        let (lanes, env) = &mut peer.lanes(&mut self.sh);
        let dest = lanes
            .take_complete_run(env, &frame.fragment, len as u64)
            .or_else(|| lanes.on_fragments(env, &frame.fragment, len as u64))?;
        peer.on_activity(now);
        let (num, ack_times) = (header.packet_num, self.sh.ctx.bulk_ack_times());
        let path = peer.paths_mut().get_mut(link)?;
        let is_prompt = path.on_numbered_run(now, (num, count, header.attempt), ack_times);
        self.schedule_ack(from, is_prompt);
        self.sh.ctx.counters_mut().frames_received += u64::from(count);
        if let Some(ack) = ack {
            self.on_plain_ack(now, from, &ack);
        }
        self.after_records(from);
        Some(TakenRun {
            dest,
            header_len: frame.head_len(),
            part_len: frame.part_len(),
            len,
            count: count as usize,
        })
    }
}

/// Returns the number of frames that continue `first`, itself included, the length of their parts,
/// and the acknowledgement in the last one.
#[inline]
fn measure<'a>(
    frame: &FragmentFrame,
    first: &[u8],
    others: impl Iterator<Item = &'a [u8]>,
) -> (u32, usize, Option<Ack>) {
    let (mut count, mut len, mut ack) = (1, frame.part_len(), None);
    for other in others {
        let Some(part) = frame.part_ahead(first, other, count) else {
            break;
        };
        count += 1;
        len += part.len;
        ack = part.ack;
        if part.len < frame.part_len() || ack.is_some() {
            break;
        }
    }
    (count, len, ack)
}
