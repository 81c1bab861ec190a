// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retransmission of fragments in GSO batches: as many as a batch takes, followed by granted bytes
//! that were not sent yet (`P3.15`). Otherwise one loss in a hundred frames would cost each end
//! every second call.

use super::Transfers;
use super::send::SendQueue;
use crate::base::context::Context;
use crate::mem::scratch::Scratch;
use crate::path::outgoing::{Bytes, Outgoing, OutgoingKind};
use crate::path::{Contents, Path, Paths};
use crate::{Instant, LinkId};
use portolan_wire::BULK_HEADER_LEN;

impl Transfers {
    /// Returns lost fragments of one length, followed by new ones if those are next in order
    /// (`takes_more`). `None` if the next lost frame is not a fragment.
    pub(crate) fn next_repairs(
        &mut self,
        now: Instant,
        ctx: &mut Context,
        queue: &mut SendQueue,
        (paths, link): (&mut Paths, LinkId),
        scratch: &mut Scratch,
        (session, takes_more): (u64, bool),
    ) -> Option<Outgoing> {
        let path = paths.get_mut(link)?;
        let (key, fragment_len) = self.lost_fragment(path)?;
        let is_single = self.tx.len() == 1;
        let transfer = self.tx.get(key)?;
        let most = transfer.batch_frames(ctx, is_single, path.segments_max());
        scratch.start(0);
        let (mut count, mut len) = (0, 0);
        while count < most
            && path.may_repair()
            // A shorter one ends its batch.
            && len == count * fragment_len
            && let Some((key, alike)) = self.lost_fragment(path)
            && alike == fragment_len
        {
            len += self.repair(now, key, path, scratch, session)?;
            count += 1;
        }
        ctx.counters_mut().retransmits += count as u64;
        let first = path.next_num();
        let room = (most - count).min(path.window_left());
        if takes_more
            && room > 0
            && len == count * fragment_len
            && let Some((place, key)) = self.next_transfer(queue, paths, link)
            && self.fragment_len(key) == Some(fragment_len)
            && let Some(run) = self.take_run(queue, (place, key), room)
        {
            let path = paths.get_mut(link)?;
            self.put_run(now, &run, path, scratch, session);
        }
        let path = paths.get(link)?;
        Some(Outgoing {
            link,
            bytes: Bytes::Gathered {
                header_len: BULK_HEADER_LEN,
                fragment_len,
            },
            kind: OutgoingKind::Repairs {
                first,
                count: path.next_num().wrapping_sub(first),
            },
        })
    }

    /// Returns the transfer of the next lost frame, if that is a fragment, and the length of its
    /// fragments.
    fn lost_fragment(&self, path: &mut Path) -> Option<(u32, usize)> {
        let Contents::Fragment { transfer, .. } = path.peek_lost()? else {
            return None;
        };
        Some((transfer, self.fragment_len(transfer)?))
    }

    fn fragment_len(&self, key: u32) -> Option<usize> {
        self.tx.get(key).map(|tx| usize::from(tx.fragment_len))
    }

    /// Appends the next lost frame, a fragment of transfer `key`; returns its payload length.
    fn repair(
        &self,
        now: Instant,
        key: u32,
        path: &mut Path,
        scratch: &mut Scratch,
        session: u64,
    ) -> Option<usize> {
        let lost = path.next_lost(now)?;
        let Contents::Fragment { index, .. } = lost.contents else {
            return None;
        };
        let header = path.bulk_header((lost.num, lost.attempt), lost.len, session);
        scratch.push_repaired(lost.num);
        self.put_fragment(scratch, (key, index), header)
    }
}
