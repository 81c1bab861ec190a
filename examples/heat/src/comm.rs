// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interface between the computation and the network.
//!
//! Contract for implementations:
//! - messages of one sender on one channel arrive in the order in which they were sent;
//! - every request ends, with an error if necessary;
//! - posted receives are matched with messages in the order of posting.

use crate::decompose::Direction;
use anyhow::Result;

/// A numbered stream of messages to a process. Each use has its own channel, because the same
/// process may be a neighbour on two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// From rank 0: the size of the field, or that the job is cancelled.
    Plan,
    /// From rank 0: a process's part of the initial field.
    Scatter,
    /// Edge cells that travel in this direction.
    Halo(Direction),
    /// To rank 0: the parts of the result.
    Gather,
    /// To rank 0: the share of time spent in communication.
    Shares,
}

impl Channel {
    /// All channels, in the order of their indices.
    pub const ALL: [Channel; 8] = [
        Channel::Plan,
        Channel::Scatter,
        Channel::Halo(Direction::West),
        Channel::Halo(Direction::East),
        Channel::Halo(Direction::North),
        Channel::Halo(Direction::South),
        Channel::Gather,
        Channel::Shares,
    ];

    /// Returns the channel's index in [`Channel::ALL`].
    #[must_use]
    pub fn index(self) -> u16 {
        match self {
            Channel::Plan => 0,
            Channel::Scatter => 1,
            Channel::Halo(Direction::West) => 2,
            Channel::Halo(Direction::East) => 3,
            Channel::Halo(Direction::North) => 4,
            Channel::Halo(Direction::South) => 5,
            Channel::Gather => 6,
            Channel::Shares => 7,
        }
    }
}

/// A message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Length in bytes.
    pub len: usize,
    /// Rank of the sender.
    pub source: usize,
}

/// Communication of a process with the other processes of its job.
pub trait Comm {
    /// A send or receive in flight.
    type Request;

    /// Returns this process's rank, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of processes in the job.
    fn size(&self) -> usize;

    /// Makes `channel` ready to receive.
    ///
    /// # Errors
    /// When the network refuses it.
    fn open(&mut self, channel: Channel) -> Result<()>;

    /// Starts to send `data`; [`Comm::wait_send`] returns the buffer.
    ///
    /// # Errors
    /// When `to` has failed.
    fn start_send(&mut self, to: usize, channel: Channel, data: Vec<u8>) -> Result<Self::Request>;

    /// Starts to receive into `buffer`, up to its length (not its capacity).
    ///
    /// # Errors
    /// When the channel is not open.
    fn start_recv(&mut self, channel: Channel, buffer: Vec<u8>) -> Result<Self::Request>;

    /// Waits for a send to end and returns its buffer.
    ///
    /// # Errors
    /// When the receiver has failed.
    fn wait_send(&mut self, request: Self::Request) -> Result<Vec<u8>>;

    /// Waits for a message and returns it with the buffer that holds it.
    ///
    /// # Errors
    /// When the sender has failed.
    fn wait_recv(&mut self, request: Self::Request) -> Result<(Received, Vec<u8>)>;

    /// Sends and waits; `data` may be reused at once.
    ///
    /// # Errors
    /// When `to` has failed.
    fn send(&mut self, to: usize, channel: Channel, data: &[u8]) -> Result<()>;

    /// Waits for one message from any process.
    ///
    /// # Errors
    /// When all possible senders have failed, or the message is longer than `buffer`.
    fn recv(&mut self, channel: Channel, buffer: &mut [u8]) -> Result<Received>;

    /// Waits for all processes.
    ///
    /// # Errors
    /// When one of them has failed.
    fn barrier(&mut self) -> Result<()>;
}

/// Writes numbers as bytes, in an order that does not depend on the machine.
///
/// # Panics
/// When the length of `bytes` is not exactly that of `values`.
pub fn pack<'a>(values: impl ExactSizeIterator<Item = &'a f64>, bytes: &mut [u8]) {
    assert_eq!(
        bytes.len(),
        values.len() * size_of::<f64>(),
        "room for the packed numbers"
    );
    for (chunk, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *chunk = value.to_le_bytes();
    }
}

/// Reads numbers written by [`pack`].
///
/// # Panics
/// When the length of `bytes` is not exactly that of `values`.
pub fn unpack<'a>(bytes: &[u8], values: impl ExactSizeIterator<Item = &'a mut f64>) {
    assert_eq!(
        bytes.len(),
        values.len() * size_of::<f64>(),
        "bytes of the packed numbers"
    );
    for (chunk, value) in bytes.as_chunks().0.iter().zip(values) {
        *value = f64::from_le_bytes(*chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_are_little_endian_and_round_trip() {
        let values = [1.0, -0.0, f64::MIN_POSITIVE];
        let mut bytes = [0xa5; 24];
        pack(values.iter(), &mut bytes);
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        let mut back = [7.0; 3];
        unpack(&bytes, back.iter_mut());
        assert_eq!(back.map(f64::to_bits), values.map(f64::to_bits));
    }

    #[test]
    fn each_channel_has_a_number_of_its_own() {
        for (place, channel) in Channel::ALL.iter().enumerate() {
            assert_eq!(usize::from(channel.index()), place);
        }
    }
}
