// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending side of bulk data: runs of fragments of granted transfers, and chunks on lossless links.

use super::rendezvous::TxTransfer;
use crate::base::config::CALL_LEN_MAX;
use crate::path::Cargo;
use crate::path::refragment::{PIECE_HEADER_LEN, Piece};
use crate::peer::Peer;
use crate::peer::transmit::{Sent, View};
use crate::shared::Shared;
use crate::{Instant, LinkId};
use portolan_wire::{
    BULK_HEADER_LEN, BulkHeader, CHUNK_LEN, Chunk, FRAME_HEADER_LEN, FrameHeader, FrameKind,
};

/// Bytes of user data in one chunk: an eighth of shared memory's ring, so that both ends work
/// at the same time.
const CHUNK_PAYLOAD_MAX: usize = 32 * 1024;

impl Peer {
    pub(crate) fn next_chunk(&mut self, sh: &mut Shared, link: LinkId) -> Option<Sent> {
        // Those that the peer has ended meanwhile are not there any more.
        while sh.tx_transfers.get(*self.bulk_ready.front()?).is_none() {
            self.bulk_ready.pop_front();
        }
        let key = *self.bulk_ready.front()?;
        let transfer = sh.tx_transfers.get_mut(key)?;
        let off = transfer.next_off;
        let left = transfer.granted - off;
        let len = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(CHUNK_PAYLOAD_MAX);
        transfer.next_off += len as u64;
        if transfer.next_off >= transfer.granted {
            transfer.queued = false;
            self.bulk_ready.pop_front();
        }
        let out = sh.scratch.start(CHUNK_LEN);
        Chunk {
            transfer: transfer.receiver_transfer,
            offset: off,
        }
        .emit(out);
        let what = View::Bulk {
            op: transfer.op,
            off: transfer.base + off,
            len,
            header_len: CHUNK_LEN,
            fragment_len: len,
        };
        Some(Sent::Chunk {
            peer: self.id,
            link,
            transfer: key,
            off,
            what,
        })
    }

    /// The ring had no room for a chunk: it is sent again from its first byte.
    pub(crate) fn rewind(&mut self, sh: &mut Shared, key: u32, off: u64) {
        if let Some(transfer) = sh.tx_transfers.get_mut(key) {
            transfer.next_off = off;
            if !transfer.queued {
                transfer.queued = true;
                self.bulk_ready.push_front(key);
            }
        }
    }

    /// The first granted transfer that goes by `link`, and its place in the queue.
    fn next_transfer(&mut self, sh: &Shared, link: LinkId) -> Option<(usize, u32)> {
        loop {
            let fits = |key: &u32| {
                let transfer = sh.tx_transfers.get(*key);
                transfer.is_none_or(|transfer| self.route(transfer) == Some(link))
            };
            let place = self.bulk_ready.iter().position(fits)?;
            let key = self.bulk_ready[place];
            if sh.tx_transfers.get(key).is_some() {
                return Some((place, key));
            }
            self.bulk_ready.remove(place);
        }
    }

    /// By which link a transfer goes: the one that its fragments were made for, while it works and
    /// carries them; else the one for bulk data.
    fn route(&self, transfer: &TxTransfer) -> Option<LinkId> {
        let whole = usize::from(transfer.fragment_len) + BULK_HEADER_LEN;
        let own = transfer
            .link
            .and_then(|link| self.paths[link.index()].as_deref());
        let own = own.filter(|path| path.is_usable() && path.frame_len >= whole);
        own.map(|path| path.link).or(self.bulk)
    }

    /// Puts fragments that are too long for their path among the pieces.
    fn cut_fragments(&mut self, transfer: u32, first: u32, fragment_len: usize, len: usize) {
        for (index, off) in (first..).zip((0..len).step_by(fragment_len)) {
            self.pieces.push_back(Piece {
                transfer,
                index,
                within: 0,
                len: u16::try_from(fragment_len.min(len - off)).unwrap_or(u16::MAX),
            });
        }
    }

    /// The next part of a transfer that has left its path or does not fit it: a fragment as it
    /// was, or a chunk as long as the path carries. `P3.12`
    pub(crate) fn next_piece(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        link: LinkId,
    ) -> Option<Sent> {
        let path = self.paths[link.index()].as_deref_mut()?;
        if path.window_left() == 0 {
            return None;
        }
        let (piece, whole_len) = loop {
            let piece = self.pieces.pop_front()?;
            if let Some(transfer) = sh.tx_transfers.get(piece.transfer) {
                let fragment_len = u64::from(transfer.fragment_len);
                let left = transfer.len - u64::from(piece.index) * fragment_len;
                break (piece, fragment_len.min(left));
            }
        };
        let Piece {
            transfer,
            index,
            within,
            ..
        } = piece;
        let len = usize::from(piece.len);
        let is_whole = within == 0 && u64::from(piece.len) == whole_len;
        let (first, checked) = (path.next_num(), path.checked);
        let what = if is_whole && len + BULK_HEADER_LEN <= path.frame_len {
            let frame_len = len + BULK_HEADER_LEN;
            path.push_inflight(now, Cargo::Fragment { transfer, index }, frame_len);
            sh.fragment_view(transfer, index, first, (0, checked), frame_len)
        } else {
            let part = len.min(path.frame_len - PIECE_HEADER_LEN);
            if part < len {
                let part = u16::try_from(part).unwrap_or(u16::MAX);
                self.pieces.push_front(Piece {
                    within: within + part,
                    len: piece.len - part,
                    ..piece
                });
            }
            let frame_len = part + PIECE_HEADER_LEN;
            let cargo = Cargo::Piece {
                transfer,
                index,
                within,
            };
            path.push_inflight(now, cargo, frame_len);
            sh.piece_view(transfer, (index, within), first, (0, checked), frame_len)
        }?;
        path.loss.last_sent_at = now;
        Some(Sent::Numbered {
            peer: self.id,
            link,
            first,
            count: 1,
            what,
        })
    }

    /// A run of fragments of a granted transfer.
    pub(crate) fn next_bulk(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        link: LinkId,
    ) -> Option<Sent> {
        let (place, key) = self.next_transfer(sh, link)?;
        let path = self.paths[link.index()].as_deref_mut()?;
        let window = path.window_left();
        let is_lone = sh.tx_transfers.len() == 1;
        let transfer = sh.tx_transfers.get_mut(key)?;
        let fragment_len = usize::from(transfer.fragment_len);
        // P4.11
        let call_len = if is_lone {
            sh.ctx.choice().lone_call_len(transfer.len)
        } else {
            CALL_LEN_MAX
        };
        let most = path
            .params
            .segments_max
            .min(call_len / (fragment_len + BULK_HEADER_LEN));
        let off = transfer.next_off;
        // P5.4, whole fragments only: a grant may end within one, which waits for the next grant.
        let left = usize::try_from(transfer.granted - off).unwrap_or(usize::MAX);
        let is_end = transfer.granted == transfer.len;
        let count = if is_end {
            left.div_ceil(fragment_len)
        } else {
            left / fragment_len
        };
        let count = count.min(most.max(1)).min(window);
        if count == 0 {
            if window > 0 {
                transfer.queued = false;
                self.bulk_ready.remove(place);
            }
            return None;
        }
        let len = left.min(count * fragment_len);
        transfer.next_off += len as u64;
        let (op, base) = (transfer.op, transfer.base);
        let receiver_transfer = transfer.receiver_transfer;
        if transfer.next_off >= transfer.granted {
            transfer.queued = false;
            self.bulk_ready.remove(place);
        }
        let first_index = u32::try_from(off / fragment_len as u64).unwrap_or(u32::MAX);
        if fragment_len + BULK_HEADER_LEN > path.frame_len {
            self.cut_fragments(key, first_index, fragment_len, len);
            return self.next_piece(now, sh, link);
        }
        let headers = sh.scratch.start(count * BULK_HEADER_LEN);
        let mut first = 0;
        for ahead in 0..count {
            let part = fragment_len.min(len - ahead * fragment_len);
            let index = first_index + u32::try_from(ahead).unwrap_or(0);
            let cargo = Cargo::Fragment {
                transfer: key,
                index,
            };
            let packet_num = path.push_inflight(now, cargo, part + BULK_HEADER_LEN);
            if ahead == 0 {
                first = packet_num;
            }
            let header = FrameHeader {
                kind: FrameKind::Bulk,
                attempt: 0,
                checked: path.checked,
                frame_len: u16::try_from(part + BULK_HEADER_LEN).unwrap_or(u16::MAX),
                packet_num,
                session: self.session.token_theirs,
            };
            let out = &mut headers[ahead * BULK_HEADER_LEN..];
            header.emit(out);
            BulkHeader {
                transfer: receiver_transfer,
                fragment_index: index,
            }
            .emit(out);
        }
        path.loss.last_sent_at = now;
        let what = View::Bulk {
            op,
            off: base + off,
            len,
            header_len: BULK_HEADER_LEN,
            fragment_len,
        };
        let count = u32::try_from(count).unwrap_or(0);
        Some(Sent::Numbered {
            peer: self.id,
            link,
            first,
            count,
            what,
        })
    }
}

impl Shared {
    /// Header and view of a fragment that is sent by itself, or again. `P5.8`
    pub(crate) fn fragment_view(
        &mut self,
        key: u32,
        index: u32,
        packet_num: u32,
        (attempt, checked): (u8, bool),
        frame_len: usize,
    ) -> Option<View> {
        let transfer = self.tx_transfers.get(key)?;
        let header = FrameHeader {
            kind: FrameKind::Bulk,
            attempt,
            checked,
            frame_len: u16::try_from(frame_len).unwrap_or(u16::MAX),
            packet_num,
            session: transfer.session,
        };
        let bulk = BulkHeader {
            transfer: transfer.receiver_transfer,
            fragment_index: index,
        };
        let off = transfer.base + u64::from(index) * u64::from(transfer.fragment_len);
        let len = frame_len - BULK_HEADER_LEN;
        let op = transfer.op;
        let out = self.scratch.start(BULK_HEADER_LEN);
        header.emit(out);
        bulk.emit(out);
        Some(View::Bulk {
            op,
            off,
            len,
            header_len: BULK_HEADER_LEN,
            fragment_len: len,
        })
    }

    /// The same of a part of a fragment, which is a chunk in a data frame. `P3.12`
    pub(crate) fn piece_view(
        &mut self,
        key: u32,
        (index, within): (u32, u16),
        packet_num: u32,
        (attempt, checked): (u8, bool),
        frame_len: usize,
    ) -> Option<View> {
        let transfer = self.tx_transfers.get(key)?;
        let header = FrameHeader {
            kind: FrameKind::Data,
            attempt,
            checked,
            frame_len: u16::try_from(frame_len).unwrap_or(u16::MAX),
            packet_num,
            session: transfer.session,
        };
        let off = u64::from(index) * u64::from(transfer.fragment_len) + u64::from(within);
        let chunk = Chunk {
            transfer: transfer.receiver_transfer,
            offset: off,
        };
        let len = frame_len - PIECE_HEADER_LEN;
        let (op, off) = (transfer.op, transfer.base + off);
        let out = self.scratch.start(PIECE_HEADER_LEN);
        header.emit(out);
        chunk.emit(&mut out[FRAME_HEADER_LEN..]);
        Some(View::Bulk {
            op,
            off,
            len,
            header_len: PIECE_HEADER_LEN,
            fragment_len: len,
        })
    }

    /// A frame that only fills its number: what it carried has moved.
    pub(crate) fn empty_view(
        &mut self,
        session: u64,
        packet_num: u32,
        (attempt, checked): (u8, bool),
    ) -> View {
        let out = self.scratch.start(FRAME_HEADER_LEN);
        FrameHeader {
            kind: FrameKind::Data,
            attempt,
            checked,
            frame_len: u16::try_from(FRAME_HEADER_LEN).unwrap_or(0),
            packet_num,
            session,
        }
        .emit(out);
        View::Empty
    }

    /// `len` bytes of a transfer have arrived; the last ones end the send. `P5.7`
    pub(crate) fn on_part_acked(&mut self, key: u32, len: u64) {
        let Some(transfer) = self.tx_transfers.get_mut(key) else {
            return;
        };
        transfer.acked += len;
        if transfer.acked >= transfer.len
            && let Some(transfer) = self.tx_transfers.remove(key)
        {
            self.end_send(&transfer, Ok(()));
        }
    }
}
