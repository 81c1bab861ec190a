// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames or datagrams in one direction at the maximum rate, with the least acknowledgement that
//! avoids loss.
//!
//! A *unit* is the contents of one buffer of a batch: a frame, a datagram, or a 64 KB call with
//! segmentation offload.

use super::payload::{Load, Marks, Pieces};
use crate::end::End;
use crate::measure::{Pass, Sample};
use crate::socket::{self, datagram_len, segments_max};
use crate::spec::Payload;
use crate::spin_wait::SpinWait;
use crate::sys::{self, Batch};
use anyhow::{Result, ensure};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of a record: its length and an 8-byte message.
const RECORD: usize = 16;

/// Units of a pass of small messages. They take milliseconds, so that the last acknowledgement is
/// negligible.
const PASS_UNITS: u64 = 1024;

/// Batch sizes of a flow.
#[derive(Clone, Copy)]
struct Pipeline {
    /// Units per system call.
    batch: usize,
    /// Maximum units in flight.
    in_flight_max: u64,
    /// Units per acknowledgement.
    ack_every: u64,
}

/// Limits for small frames. 128 of them fill half of a default receive buffer of 208 KB, because
/// the kernel counts 768 bytes each.
const SMALL: Pipeline = Pipeline {
    batch: 32,
    in_flight_max: 128,
    ack_every: 32,
};
/// Limits for frames of an MTU, which the kernel counts as up to 4.3 KB each.
const LARGE: Pipeline = Pipeline {
    batch: 16,
    in_flight_max: 40,
    ack_every: 8,
};
/// Limits for calls of 64 KB, of which two fit.
const CALLS: Pipeline = Pipeline {
    batch: 1,
    in_flight_max: 2,
    ack_every: 1,
};

/// Runs the row with raw Ethernet frames.
///
/// # Errors
/// A frame was lost, a payload was wrong, nothing arrived, or the socket cannot be opened.
pub(crate) fn packet(end: &mut End, payload: Payload) -> Result<Option<Sample>> {
    let mtu = end.spec.mtu;
    let size = end.spec.size;
    let (socket, header) = socket::packet(end)?;
    let header = header.as_slice();
    match payload {
        Payload::Single => Flow::new(end, socket, header, 8, SMALL).run(end, Marks::single()),
        Payload::Full => {
            let marks = Marks::records(mtu / RECORD);
            Flow::new(end, socket, header, mtu, LARGE).run(end, marks)
        }
        Payload::Pieces => {
            let pieces = Pieces::new(size, mtu);
            Flow::new(end, socket, header, mtu, LARGE).run(end, pieces)
        }
    }
}

/// Runs the row with datagrams, using segmentation offload if they are full.
///
/// # Errors
/// A datagram was lost, a payload was wrong, or nothing arrived.
pub(crate) fn udp(end: &mut End, payload: Payload) -> Result<Option<Sample>> {
    ensure!(
        payload != Payload::Pieces,
        "large messages are measured by another row"
    );
    if payload == Payload::Single {
        let socket = socket::udp(end, None)?;
        return Flow::new(end, socket, &[], 8, SMALL).run(end, Marks::single());
    }
    // Every datagram has only whole records.
    let segment = datagram_len(end.spec.mtu) / RECORD * RECORD;
    let call_len = segment * segments_max(segment);
    let socket = socket::udp(end, Some(segment))?;
    Flow::new(end, socket, &[], call_len, CALLS).run(end, Marks::records(call_len / RECORD))
}

struct Flow {
    socket: OwnedFd,
    /// Header in front of each unit.
    header: Vec<u8>,
    batch: Batch,
    pipeline: Pipeline,
    spin_wait: SpinWait,
    /// Units sent or received so far.
    count: u64,
    /// Units acknowledged so far.
    acknowledged: u64,
    /// Header and count of an acknowledgement.
    ack: Vec<u8>,
}

impl Flow {
    fn new(
        end: &End,
        socket: OwnedFd,
        header: &[u8],
        payload_max: usize,
        pipeline: Pipeline,
    ) -> Self {
        let mut batch = Batch::new(pipeline.batch, header.len() + payload_max);
        for index in 0..pipeline.batch {
            batch.frame_mut(index)[..header.len()].copy_from_slice(header);
        }
        let ack = [header, &[0; 8]].concat();
        let header = header.to_vec();
        let spin_wait = end.spin_wait();
        Flow {
            socket,
            header,
            batch,
            pipeline,
            spin_wait,
            count: 0,
            acknowledged: 0,
            ack,
        }
    }

    fn run(mut self, end: &mut End, mut load: impl Load) -> Result<Option<Sample>> {
        let units = load.pass_units().unwrap_or(PASS_UNITS);
        if !end.drives() {
            let bytes = load.pass_messages(units) * end.spec.size as u64;
            while !self.receive_pass(units, &mut load)? {
                end.meter.pass(bytes);
            }
            return Ok(None);
        }
        let messages = load.pass_messages(units);
        end.measure(Pass::one_way(messages), |last| {
            self.send_pass(units, last, &mut load)
        })
    }

    fn send_pass(&mut self, units: u64, last: bool, load: &mut impl Load) -> Result<()> {
        load.begin_pass(last);
        let end = self.count + units;
        while self.count < end {
            let ready = self.fill(end - self.count, load);
            let after = self.count + ready as u64;
            self.await_acknowledgement(after.saturating_sub(self.pipeline.in_flight_max))?;
            let mut sent = 0;
            while sent < ready {
                match self.batch.send(self.socket.as_fd(), sent, ready)? {
                    0 => self.spin_wait.wait()?,
                    count => sent += count,
                }
            }
            self.count = after;
        }
        self.await_acknowledgement(end)
    }

    /// Fills a batch with at most `left` units and returns their number.
    fn fill(&mut self, left: u64, load: &mut impl Load) -> usize {
        let ready =
            usize::try_from(left).map_or(self.pipeline.batch, |left| left.min(self.pipeline.batch));
        for index in 0..ready {
            let header_len = self.header.len();
            let len = load.fill(&mut self.batch.frame_mut(index)[header_len..]);
            self.batch.set_len(index, header_len + len);
        }
        ready
    }

    fn await_acknowledgement(&mut self, count: u64) -> Result<()> {
        let header_len = self.header.len();
        while self.acknowledged < count {
            match sys::try_receive(self.socket.as_fd(), &mut self.ack)? {
                Some(_) => {
                    let mut word = [0; 8];
                    word.copy_from_slice(&self.ack[header_len..]);
                    self.acknowledged = u64::from_le_bytes(word);
                    self.spin_wait.reset();
                }
                None => self.spin_wait.wait()?,
            }
        }
        Ok(())
    }

    /// Receives a whole pass. Returns true if it was the last.
    fn receive_pass(&mut self, units: u64, load: &mut impl Load) -> Result<bool> {
        let end = self.count + units;
        let header_len = self.header.len();
        let mut last = false;
        while self.count < end {
            let received = self.batch.receive(self.socket.as_fd())?;
            if received == 0 {
                self.spin_wait.wait()?;
                continue;
            }
            self.spin_wait.reset();
            for index in 0..received {
                let frame = self.batch.frame(index, self.batch.received_len(index));
                ensure!(frame.len() > header_len, "a frame of {} bytes", frame.len());
                last = load.take(&frame[header_len..])?;
            }
            self.count += received as u64;
            if self.count == end || self.count - self.acknowledged >= self.pipeline.ack_every {
                self.acknowledge()?;
            }
        }
        Ok(last)
    }

    fn acknowledge(&mut self) -> Result<()> {
        self.acknowledged = self.count;
        let header_len = self.header.len();
        self.ack[header_len..].copy_from_slice(&self.count.to_le_bytes());
        while !sys::try_send(self.socket.as_fd(), &self.ack)? {
            self.spin_wait.wait()?;
        }
        Ok(())
    }
}
