// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stream between both ends, which delivers parts piece by piece.

use super::{A, B, Pair, Wire};
use crate::*;
use portolan_wire::Record;
use rand::Rng;

impl Pair {
    /// Receives a part of a stream piece by piece.
    pub(super) fn deliver_part(&mut self, wire: &Wire) {
        if self.is_cut[wire.to] && self.cut_after.is_some() {
            return;
        }
        let from = PeerId(u32::try_from(1 - wire.to).unwrap());
        if let Some(head_len) = head_len_of_message(&wire.frame) {
            return self.deliver_streamed(wire, head_len);
        }
        let end = &mut self.ends[wire.to];
        let head_len = head_len_of_part(&wire.frame).expect("a part");
        let (head, payload) = wire.frame.split_at(head_len);
        let (chunk, payload) = match PartHead::parse(head, payload.len()) {
            Some(PartHead::Chunk(chunk)) => (chunk, payload),
            Some(PartHead::Push(request, done)) => {
                let len = payload.len() as u64;
                let opened = end.core.open_push(self.now, from, (&request, done), len);
                opened.unwrap();
                end.drain(&[]);
                // Nothing is posted while the part waits.
                let chunk = loop {
                    match end.core.place_push(from, &request) {
                        PushPlace::Wait => {}
                        PushPlace::Part(chunk) => break chunk,
                    }
                };
                (chunk, payload)
            }
            None => panic!("no part: {:?}", &wire.frame[..24]),
        };
        let mut at = 0;
        while at < payload.len() {
            let left = payload.len() - at;
            let piece = self.rng.random_range(1..=left);
            let taken = match end.core.place_part(from, &chunk, at as u64, piece as u64) {
                PartPlace::Wrong => panic!("{chunk:?} + {at}: {piece} bytes"),
                PartPlace::Nowhere => piece,
                PartPlace::At { op, off, len } => {
                    let (off, len) = (usize::try_from(off).unwrap(), usize::try_from(len).unwrap());
                    end.memory.get_mut(&op.0).unwrap()[off..off + len]
                        .copy_from_slice(&payload[at..at + len]);
                    len
                }
            };
            end.core
                .handle_part(self.now, from, &chunk, at as u64, taken as u64);
            end.drain(&[]);
            at += taken;
        }
    }

    /// Receives an eager message of a stream piece by piece, at most up to `self.cut_after` bytes.
    fn deliver_streamed(&mut self, wire: &Wire, head_len: usize) {
        let (head, payload) = wire.frame.split_at(head_len);
        let message = StreamMessage::parse(head, payload.len()).unwrap();
        let from = PeerId(u32::try_from(1 - wire.to).unwrap());
        let end = &mut self.ends[wire.to];
        end.core.open_message(from, &message).unwrap();
        let most = self.cut_after.unwrap_or(payload.len()).min(payload.len());
        self.is_cut[wire.to] = most < payload.len();
        let mut at = 0;
        while at < most {
            let piece = self.rng.random_range(1..=most - at);
            let end = &mut self.ends[wire.to];
            let range = (at as u64, piece as u64);
            let place = end.core.place_message(from, &message, range).unwrap();
            end.drain(&[]);
            let mut taken = piece;
            match place {
                MessagePlace::Nowhere => {}
                MessagePlace::Held(id) => {
                    end.core.held_mut(id)[at..at + piece].copy_from_slice(&payload[at..at + piece]);
                }
                MessagePlace::Op { op, off, len } => {
                    let off = usize::try_from(off).unwrap();
                    taken = usize::try_from(len).unwrap();
                    end.memory.get_mut(&op.0).unwrap()[off..off + taken]
                        .copy_from_slice(&payload[at..at + taken]);
                }
            }
            let range = (at as u64, taken as u64);
            end.core.handle_message(self.now, from, &message, range);
            end.drain(&[]);
            at += taken;
        }
    }

    /// Opens a stream, which both ends may use from now on.
    pub(in crate::tests) fn open_stream(&mut self) {
        self.ends[0].core.stream_opened(B);
        self.ends[1].core.stream_opened(A);
    }

    /// Closes the stream, with everything in flight on it.
    pub(in crate::tests) fn close_stream(&mut self) {
        self.leave_stream();
        self.ends[1].core.stream_closed(self.now, A, true);
    }

    /// Closes the stream, but notifies only one end.
    pub(in crate::tests) fn leave_stream(&mut self) {
        self.wires.retain(|wire| wire.link != LinkId::STREAM);
        self.ends[0].core.stream_closed(self.now, B, true);
    }
}

/// Returns the length of the head if a frame of a stream is a part of a transfer.
fn head_len_of_part(frame: &[u8]) -> Option<usize> {
    let records = portolan_wire::Records::new(frame, 0, frame.len());
    let mut records = records.map_while(Result::ok);
    records.find_map(|(record, payload)| match record {
        Record::Chunk(_) | Record::Rts(_) | Record::RemoteSource(_) => Some(payload.start),
        _ => None,
    })
}

/// Returns the length of the head if a frame of a stream is an eager message.
fn head_len_of_message(frame: &[u8]) -> Option<usize> {
    let records = portolan_wire::Records::new(frame, 0, frame.len());
    let mut records = records.map_while(Result::ok);
    records.find_map(|(record, payload)| match record {
        portolan_wire::Record::Fragment(_) => Some(payload.start),
        _ => None,
    })
}
