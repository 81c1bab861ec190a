// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in two pieces that are sent from where they lie where they must ask or wait. What fits a frame is copied there, as any
//! message is; of a longer one each call gathers its part of both pieces. And calls that take fragments
//! which were lost, wherever they lie. Apart from the way of messages in one piece, which pays nothing for this.

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
    /// Non-blocking send of two buffers as one message, which the library owns meanwhile: nothing to wait
    /// for when they were put into frames.
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
    /// Sends a transmit whose payload is not in one piece by the link it names.
    #[cold]
    pub(super) fn transmit_pieces(
        &mut self,
        turn: u32,
        ops: &Ops,
        transmit: &Transmit<'_>,
    ) -> (PeerId, LinkId, Result<(), TxError>) {
        let (peer, link) = transmit.way();
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
        // Of an operation that was forgotten nothing leaves.
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

/// The pieces of operations' memory that leave with a transmit; `None` if one of the operations was
/// forgotten.
pub(super) fn pieces_of<'a>(ops: &'a Ops, transmit: &Transmit<'_>) -> Option<Vec<&'a [u8]>> {
    let mut pieces = Vec::with_capacity(2 * transmit.payload().len());
    for part in transmit.payload() {
        let both = two_pieces_of(ops, part)?;
        pieces.extend(both.into_iter().filter(|piece| !piece.is_empty()));
    }
    Some(pieces)
}

/// The pieces of an operation's memory that a part of it lies in; the second is empty if that is one.
/// `None` if the operation was forgotten.
pub(super) fn two_pieces_of<'a>(ops: &'a Ops, part: &Payload) -> Option<[&'a [u8]; 2]> {
    let off = usize::try_from(part.off).ok()?;
    part_of(ops.pieces(part.op), off, part.len).filter(|[first, _]| !first.is_empty())
}

/// `len` bytes from `off` on of `first` and `second` behind one another, those that there are in the first
/// place.
fn part_of([first, second]: [&[u8]; 2], off: usize, len: usize) -> Option<[&[u8]; 2]> {
    let Some(behind) = off.checked_sub(first.len()) else {
        let front = &first[off..];
        let front = front.get(..len).unwrap_or(front);
        return Some([front, second.get(..len - front.len())?]);
    };
    Some([second.get(behind..)?.get(..len)?, &[]])
}

/// The slices of a message that hold something.
pub(super) fn filled<'a, 'b>(payload: &'b [IoSlice<'a>; 2]) -> &'b [IoSlice<'a>] {
    &payload[..if payload[1].is_empty() { 1 } else { 2 }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_from_both_pieces_as_from_one() {
        let whole: Vec<u8> = (0..12).collect();
        for border in 0..=12 {
            let pieces = [&whole[..border], &whole[border..]];
            for off in 0..12 {
                for len in 1..=12 - off {
                    let part = part_of(pieces, off, len).unwrap();
                    assert_eq!(part.concat(), whole[off..off + len]);
                    assert!(!part[0].is_empty(), "{border}: {off}, {len}");
                    // Where it lies, not a copy.
                    let lies = |piece: &&[u8]| whole.as_ptr_range().contains(&piece.as_ptr());
                    assert!(part.iter().filter(|piece| !piece.is_empty()).all(lies));
                }
            }
            assert_eq!(part_of(pieces, 0, 13), None);
            assert_eq!(part_of(pieces, 13, 1), None);
        }
    }
}
