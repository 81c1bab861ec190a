// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in two pieces. One that fits a frame is copied there, like any other message. A longer
//! one that must be announced or queued is sent from where its pieces are; each call gathers its
//! part of both. This module also sends calls that retransmit lost fragments from anywhere in a
//! message. It is separate from the path of messages in one piece, which pays nothing for it.

use super::Inner;
use super::send::Submitted;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::links::Links;
use crate::ops::{Memory, OpKind, Ops, Owner, Request, State};
use crate::port::Target;
use portolan_link::{Segments, TxError, TxFrame};
use portolan_proto::{LinkId, Payload, PeerId, Transmit};
use std::io::IoSlice;

impl Inner {
    /// Sends two buffers as one message without blocking. The library owns them until the send
    /// completes. Returns `None` if they were copied into frames and there is nothing to wait for.
    pub(crate) fn isend_two(
        &mut self,
        to: &Target,
        pieces: [Buffer; 2],
    ) -> Result<Option<Request>, Error> {
        let peer = self.check_rank(to.rank())?;
        let spec = to.spec();
        if self.try_eager(peer, &spec, &[&pieces[0], &pieces[1]])? == Submitted::Accepted {
            return Ok(None);
        }
        let memory = Memory::Two(Box::new(pieces));
        let owner = Owner::Request(State::Pending);
        let op = self.ops.enter(OpKind::Send(peer), memory, owner);
        self.submit_op(peer, spec, op);
        Ok(Some(Request(op)))
    }
}

impl Links {
    /// Sends a transmit with a payload that is not contiguous on its link.
    #[cold]
    pub(super) fn transmit_pieces(
        &mut self,
        turn: u32,
        ops: &Ops,
        transmit: &Transmit<'_>,
    ) -> (PeerId, LinkId, Result<(), TxError>) {
        let (peer, link) = transmit.destination();
        let Transmit::Bulk {
            headers,
            header_len,
            fragment_len,
            ..
        } = *transmit
        else {
            return (peer, link, Ok(()));
        };
        let cut = Segments {
            header_len,
            payload_len: fragment_len,
        };
        let mut send = |payload: &[IoSlice<'_>]| {
            let frame = TxFrame {
                head: headers,
                payload,
                segments: (headers.len() > header_len).then_some(cut),
            };
            self.send(turn, peer, link, &frame)
        };
        // Nothing is sent for a forgotten operation.
        let sent = match transmit.payload() {
            [part] => two_pieces_of(ops, part).map(|two| send(filled(&two.map(IoSlice::new)))),
            _ => pieces_of(ops, transmit).map(|pieces| {
                let payload: Vec<_> = pieces.into_iter().map(IoSlice::new).collect();
                send(&payload)
            }),
        };
        (peer, link, sent.unwrap_or(Ok(())))
    }
}

/// Returns the pieces of operations' memory that leave with a transmit, or `None` if one of the
/// operations was forgotten.
pub(super) fn pieces_of<'a>(ops: &'a Ops, transmit: &Transmit<'_>) -> Option<Vec<&'a [u8]>> {
    let mut pieces = Vec::with_capacity(2 * transmit.payload().len());
    for part in transmit.payload() {
        let both = two_pieces_of(ops, part)?;
        pieces.extend(both.into_iter().filter(|piece| !piece.is_empty()));
    }
    Some(pieces)
}

/// Returns the pieces of an operation's memory that hold `part`; the second is empty if there is
/// only one. Returns `None` if the operation was forgotten.
pub(super) fn two_pieces_of<'a>(ops: &'a Ops, part: &Payload) -> Option<[&'a [u8]; 2]> {
    let off = usize::try_from(part.off).ok()?;
    part_of(ops.pieces(part.op), off, part.len).filter(|[first, _]| !first.is_empty())
}

/// Returns `len` bytes starting at `off` of the concatenation of `first` and `second`, as slices of
/// the originals.
fn part_of([first, second]: [&[u8]; 2], off: usize, len: usize) -> Option<[&[u8]; 2]> {
    let Some(behind) = off.checked_sub(first.len()) else {
        let front = &first[off..];
        let front = front.get(..len).unwrap_or(front);
        return Some([front, second.get(..len - front.len())?]);
    };
    Some([second.get(behind..)?.get(..len)?, &[]])
}

/// Returns the slices of a message that are not empty.
pub(super) fn filled<'a, 'b>(payload: &'b [IoSlice<'a>; 2]) -> &'b [IoSlice<'a>] {
    &payload[..if payload[1].is_empty() { 1 } else { 2 }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_span_both_pieces() {
        let whole: Vec<u8> = (0..12).collect();
        for border in 0..=12 {
            let pieces = [&whole[..border], &whole[border..]];
            for off in 0..12 {
                for len in 1..=12 - off {
                    let part = part_of(pieces, off, len).unwrap();
                    assert_eq!(part.concat(), whole[off..off + len]);
                    assert!(!part[0].is_empty(), "{border}: {off}, {len}");
                    // Each slice is part of the original, not a copy.
                    let lies = |piece: &&[u8]| whole.as_ptr_range().contains(&piece.as_ptr());
                    assert!(part.iter().filter(|piece| !piece.is_empty()).all(lies));
                }
            }
            assert_eq!(part_of(pieces, 0, 13), None);
            assert_eq!(part_of(pieces, 13, 1), None);
        }
    }
}
