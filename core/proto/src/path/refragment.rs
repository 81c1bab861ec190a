// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refragmentation of data that a path can no longer carry: for another path if it has gone silent,
//! for itself if its frames have become shorter (`P3.12`). Rare, so it copies.

use super::control::Control;
use super::division::Division;
use super::stage::cut_points;
use super::{Contents, OpenFrame, Path, Paths, TxState};
use crate::LinkId;
use crate::base::narrow::narrow;
use crate::mem::slot::SlotPool;
use alloc::vec::Vec;
use portolan_wire::{
    BULK_HEADER_LEN, CHUNK_LEN, FRAME_HEADER_LEN, Fragment, LABEL_LEN_MAX, MESSAGE_LEN_MAX,
    Message, REMOTE_GET_LEN, REMOTE_REPLY_LEN, REMOTE_RTS_LEN, REMOTE_WRITE_LEN, RTS_LEN, Record,
    Records, RemoteReply, RemoteWrite,
};

/// Bytes before a part of a bulk fragment, which is sent as a chunk in a data frame.
pub(crate) const PART_HEADER_LEN: usize = FRAME_HEADER_LEN + CHUNK_LEN;

/// Bytes of a transfer to be retransmitted on whichever path carries bulk data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FragmentPart {
    pub(crate) transfer: u32,
    /// Index of the fragment, and offset of the part in it.
    pub(crate) index: u32,
    pub(crate) within: u16,
    pub(crate) len: u16,
}

/// Records and parts taken off a path that must wait elsewhere, with control records and transfers;
/// and the lanes that must send their credit again.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) controls: Vec<Control>,
    pub(crate) parts: Vec<FragmentPart>,
    pub(crate) credit: [bool; 2],
}

/// Frames taken off a path.
#[derive(Debug, Default)]
struct Taken {
    /// Complete frames.
    frames: Vec<Vec<u8>>,
    parts: Vec<FragmentPart>,
}

impl Path {
    /// Takes everything that waits or is in flight in frames of more than `len_max` bytes. The
    /// numbers of frames in flight stay in use and are filled by empty frames.
    fn take_longer(&mut self, slots: &mut SlotPool, len_max: usize) -> Taken {
        let mut taken = Taken::default();
        self.free_left = 0;
        let silent = self.health.is_silent();
        let mut num = self.base_num;
        for entry in &mut self.unacked {
            let len = usize::from(entry.len);
            if entry.state != TxState::Acked && len > len_max {
                match core::mem::replace(&mut entry.contents, Contents::Nothing) {
                    Contents::Slot { slot, off } => {
                        let off = off as usize;
                        taken
                            .frames
                            .push(slots.bytes(slot)[off..off + len].to_vec());
                        slots.release(slot);
                    }
                    Contents::Fragment { transfer, index } => taken.parts.push(FragmentPart {
                        transfer,
                        index,
                        within: 0,
                        len: payload_len(len, BULK_HEADER_LEN),
                    }),
                    Contents::FragmentPart {
                        transfer,
                        index,
                        within,
                    } => taken.parts.push(FragmentPart {
                        transfer,
                        index,
                        within,
                        len: payload_len(len, PART_HEADER_LEN),
                    }),
                    Contents::Nothing => {}
                }
                if !silent && entry.state == TxState::Sent {
                    entry.state = TxState::Lost;
                    self.in_flight -= 1;
                    self.lost.push_back(num);
                }
            }
            if silent && entry.state == TxState::Lost {
                entry.state = TxState::Sent;
                self.in_flight += 1;
            }
            num = num.wrapping_add(1);
        }
        if silent {
            self.lost.clear();
        }
        self.take_waiting(slots, len_max, &mut taken.frames);
        self.drop_best_effort(slots, len_max);
        taken
    }

    /// Takes the frames that have no number yet.
    fn take_waiting(&mut self, slots: &mut SlotPool, len_max: usize, frames: &mut Vec<Vec<u8>>) {
        for lane in [1, 0] {
            let room = self.shared_frame_len();
            if let Some(open) = &mut self.open[lane] {
                open.len_max = open.len_max.min(room.max(open.len));
                if open.len > len_max {
                    self.close(lane);
                }
            }
            self.closed[lane].retain(|frame| {
                if frame.len > len_max {
                    frames.push(slots.bytes(frame.slot)[..frame.len].to_vec());
                    slots.release(frame.slot);
                }
                frame.len <= len_max
            });
        }
        self.runs.retain(|run| {
            let fits = run.segment_len - run.front_len <= len_max;
            if !fits {
                let bytes = &slots.bytes(run.slot)[run.off..run.off + run.len];
                let segments = bytes.chunks(run.segment_len);
                frames.extend(segments.map(|segment| segment[run.front_len..].to_vec()));
                slots.release(run.slot);
            }
            fits
        });
    }
}

impl Paths {
    /// Moves what `link` has in frames of more than `len_max` bytes to the current paths for small
    /// messages and bulk data, refragmented for them. Returns the rest, which waits for other
    /// frames.
    pub(crate) fn move_frames(
        &mut self,
        slots: &mut SlotPool,
        link: LinkId,
        len_max: usize,
    ) -> Moved {
        let Some(path) = self.get_mut(link) else {
            return Moved::default();
        };
        let taken = path.take_longer(slots, len_max);
        let mut mover = Mover {
            paths: self,
            slots,
            frames: Default::default(),
            moved: Moved::default(),
        };
        for frame in &taken.frames {
            mover.move_records(frame);
        }
        let Mover {
            frames, mut moved, ..
        } = mover;
        if let Some(path) = self.small_mut() {
            path.free_left = 0;
            for (lane, frames) in frames.into_iter().enumerate() {
                for frame in frames.into_iter().rev() {
                    path.closed[lane].push_front(frame);
                }
            }
        }
        moved.parts = taken.parts;
        moved
    }
}

/// Moves the records of frames into other frames.
struct Mover<'a> {
    paths: &'a mut Paths,
    slots: &'a mut SlotPool,
    /// Frames being filled, per lane.
    frames: [Vec<OpenFrame>; 2],
    moved: Moved,
}

impl Mover<'_> {
    fn move_records(&mut self, frame: &[u8]) {
        for item in Records::new(frame, FRAME_HEADER_LEN, frame.len()) {
            let Ok((record, range)) = item else { return };
            let payload = &frame[range];
            match record {
                Record::Message(message) => self.move_message(&message, payload),
                Record::Fragment(fragment) => self.split(&fragment, payload),
                Record::Rts(rts) => {
                    let mut bytes = [0; RTS_LEN + LABEL_LEN_MAX];
                    rts.emit(&mut bytes);
                    let bytes = &bytes[..rts.wire_len()];
                    self.move_record(rts.message.lane.index(), true, &[bytes]);
                }
                // P3.12: the current limit, not the old one.
                Record::Credit(credit) => self.moved.credit[credit.lane.index()] = true,
                Record::Grant(grant) => self.moved.controls.push(Control::Grant(grant)),
                Record::Done(done) => self.moved.controls.push(Control::Done(done)),
                Record::RemoteWrite(write) => self.move_write(&write, payload),
                Record::RemoteRts(rts) => {
                    let mut bytes = [0; REMOTE_RTS_LEN];
                    rts.emit(&mut bytes);
                    self.move_record(rts.head.lane.index(), true, &[&bytes]);
                }
                Record::RemoteGet(get) => {
                    let mut bytes = [0; REMOTE_GET_LEN];
                    get.emit(&mut bytes);
                    self.move_record(get.head.lane.index(), true, &[&bytes]);
                }
                Record::RemoteReply(reply) => self.move_reply(&reply, payload),
                Record::RemoteSource(source) => self.moved.controls.push(Control::Source(source)),
                Record::StreamMark(mark) => self.moved.controls.push(Control::StreamMark(mark)),
                // A newer record will be sent anyway.
                Record::Ack(_) | Record::Marks(_) | Record::Probe(_) | Record::Chunk(_) => {}
                // Never in a frame that is kept.
                Record::BestEffortPart(_) => {}
            }
        }
    }

    fn move_message(&mut self, message: &Message, payload: &[u8]) {
        let room = self
            .paths
            .small_mut()
            .map_or(0, |path| path.shared_frame_len());
        let header_len = message.header_len();
        if FRAME_HEADER_LEN + header_len + payload.len() <= room {
            let mut header = [0; MESSAGE_LEN_MAX];
            message.emit(&mut header);
            let (lane, header) = (message.lane.index(), &header[..header_len]);
            self.move_record(lane, !message.best_effort, &[header, payload]);
        } else if !message.best_effort {
            let fragment = Fragment {
                message: *message,
                message_len: u32::from(message.len),
                offset: 0,
            };
            self.split(&fragment, payload);
        }
    }

    /// Moves a write in parts. It keeps its number, and each part states its offset.
    fn move_write(&mut self, write: &RemoteWrite, payload: &[u8]) {
        let room = self.payload_room(REMOTE_WRITE_LEN);
        for (off, len) in cut_points(payload.len(), room) {
            let mut header = [0; REMOTE_WRITE_LEN];
            RemoteWrite {
                len: narrow(len),
                part_off: write.part_off + narrow::<_, u32>(off),
                ..*write
            }
            .emit(&mut header);
            let parts = [&header[..], &payload[off..off + len]];
            self.move_record(write.head.lane.index(), true, &parts);
        }
    }

    fn move_reply(&mut self, reply: &RemoteReply, payload: &[u8]) {
        let room = self.payload_room(REMOTE_REPLY_LEN);
        for (off, len) in cut_points(payload.len(), room) {
            let mut header = [0; REMOTE_REPLY_LEN];
            RemoteReply {
                len: narrow(len),
                part_off: reply.part_off + narrow::<_, u32>(off),
                ..*reply
            }
            .emit(&mut header);
            let parts = [&header[..], &payload[off..off + len]];
            self.move_record(reply.lane.index(), true, &parts);
        }
    }

    /// Returns the payload bytes of a record with a header of `header_len` bytes in a frame of its
    /// own.
    fn payload_room(&mut self, header_len: usize) -> usize {
        let frame = self
            .paths
            .small_mut()
            .map_or(0, |path| path.shared_frame_len());
        frame.saturating_sub(FRAME_HEADER_LEN + header_len)
    }

    /// Appends a record to the frames being filled.
    fn move_record(&mut self, lane: usize, numbered: bool, parts: &[&[u8]]) {
        let Some(path) = self.paths.small_mut() else {
            return;
        };
        let (room, frames) = (path.shared_frame_len(), &mut self.frames[lane]);
        let need: usize = parts.iter().map(|part| part.len()).sum();
        if frames.last().is_none_or(|frame| frame.len + need > room) {
            frames.push(path.new_frame(self.slots));
        }
        let Some(frame) = frames.last_mut() else {
            return;
        };
        frame.numbered |= numbered;
        for part in parts {
            self.slots.bytes_mut(frame.slot)[frame.len..frame.len + part.len()]
                .copy_from_slice(part);
            frame.len += part.len();
        }
    }

    /// Cuts a fragment into fragments that the path for bulk data carries.
    fn split(&mut self, fragment: &Fragment, payload: &[u8]) {
        if let Some(path) = self.paths.bulk_mut() {
            path.stage_run(self.slots, fragment, payload.len(), Division::WHOLE)
                .push(payload);
        }
    }
}

fn payload_len(frame_len: usize, header_len: usize) -> u16 {
    narrow(frame_len.saturating_sub(header_len))
}
