// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handing what the core transmits to the link it names, with payload from user memory.

use crate::links::Links;
use crate::ops::Ops;
use crate::seal::Seals;
use portolan_link::{Segments, TxError, TxFrame};
use portolan_proto::{LinkId, OpId, PeerId, Transmit};
use std::io::IoSlice;

impl Links {
    /// As [`Links::transmit`], sealed where the link is a network.
    pub(super) fn transmit_sealed(
        &mut self,
        turn: u32,
        ops: &Ops,
        seals: &mut Seals,
        transmit: &Transmit<'_>,
    ) -> (PeerId, LinkId, Result<(), TxError>) {
        let (peer, link) = transmit.way();
        if link == LinkId::SHM {
            return self.transmit(turn, ops, transmit);
        }
        let payload = match *transmit {
            Transmit::Bulk { op, off, len, .. } => payload_of(ops, op, off, len),
            _ => Some(&[][..]),
        };
        let Some(payload) = payload else {
            return (peer, link, Ok(()));
        };
        let send = |frame: &TxFrame<'_>| self.send(turn, peer, link, frame);
        (peer, link, seals.transmit(transmit, payload, send))
    }

    /// Sends one transmit of the core by the link it names.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        turn: u32,
        ops: &Ops,
        transmit: &Transmit<'_>,
    ) -> (PeerId, LinkId, Result<(), TxError>) {
        match *transmit {
            Transmit::Frame { peer, link, bytes } => {
                let result = self.send(turn, peer, link, &TxFrame::whole(bytes));
                (peer, link, result)
            }
            Transmit::Run {
                peer,
                link,
                bytes,
                more,
                segment_len,
            } => {
                let payload = [IoSlice::new(bytes), IoSlice::new(more)];
                let payload = &payload[..if more.is_empty() { 1 } else { 2 }];
                let segments = Some(Segments {
                    header_len: 0,
                    payload_len: segment_len,
                });
                let frame = TxFrame {
                    head: &[],
                    payload,
                    segments,
                };
                (peer, link, self.send(turn, peer, link, &frame))
            }
            Transmit::Bulk {
                peer,
                link,
                op,
                off,
                len,
                headers,
                header_len,
                fragment_len,
            } => {
                let Some(bytes) = payload_of(ops, op, off, len) else {
                    return (peer, link, Ok(()));
                };
                let payload = [IoSlice::new(bytes)];
                let cut = Segments {
                    header_len,
                    payload_len: fragment_len,
                };
                let segments = (headers.len() > header_len).then_some(cut);
                let frame = TxFrame {
                    head: headers,
                    payload: &payload,
                    segments,
                };
                (peer, link, self.send(turn, peer, link, &frame))
            }
        }
    }
}

/// Part of an operation's buffer; `None` if it was forgotten, when its transfer fails at the peer's
/// end.
#[inline]
fn payload_of(ops: &Ops, op: OpId, off: u64, len: usize) -> Option<&[u8]> {
    let off = usize::try_from(off).unwrap_or(usize::MAX);
    ops.bytes(op).get(off..)?.get(..len)
}
