// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the computation asks of the network.
//!
//! Contract for implementations: messages of one sender on one channel arrive in the order they
//! were sent; a request ends, with an error if need be; a receive posted before a message arrives
//! is matched with it in the order of posting.

use crate::decompose::Direction;
use anyhow::Result;

/// A numbered stream of messages towards a process. Each use has its own, because the same process
/// may be a neighbour on two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// From rank 0: the size of the field, or that there is none.
    Plan,
    /// From rank 0: a process's part of the initial field.
    Scatter,
    /// Edge cells that travel in this direction.
    Halo(Direction),
    /// To rank 0: the parts of the result.
    Gather,
    /// To rank 0: where the time went.
    Shares,
}

impl Channel {
    /// All channels, to open them.
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

    /// The channel's place in [`Channel::ALL`].
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
    /// Its length in bytes.
    pub len: usize,
    /// Its sender.
    pub source: usize,
}

/// A process's way to the other processes of its job.
pub trait Comm {
    /// A send or receive under way.
    type Request;

    /// This process's number, from 0.
    fn rank(&self) -> usize;

    /// Processes in the job.
    fn size(&self) -> usize;

    /// Makes `channel` ready to receive.
    ///
    /// # Errors
    /// When the network refuses it.
    fn open(&mut self, channel: Channel) -> Result<()>;

    /// Starts to send `data`; [`Comm::wait_send`] gives the buffer back.
    ///
    /// # Errors
    /// When `to` is gone.
    fn start_send(&mut self, to: usize, channel: Channel, data: Vec<u8>) -> Result<Self::Request>;

    /// Starts to receive into `buffer` (its length, not its capacity, is the room).
    ///
    /// # Errors
    /// When the channel is not open.
    fn start_recv(&mut self, channel: Channel, buffer: Vec<u8>) -> Result<Self::Request>;

    /// Waits for a send to end and returns its buffer.
    ///
    /// # Errors
    /// When the receiver is gone.
    fn wait_send(&mut self, request: Self::Request) -> Result<Vec<u8>>;

    /// Waits for a message and returns it with the buffer that holds it.
    ///
    /// # Errors
    /// When the sender is gone.
    fn wait_recv(&mut self, request: Self::Request) -> Result<(Received, Vec<u8>)>;

    /// Sends and waits; `data` may be reused at once.
    ///
    /// # Errors
    /// When `to` is gone.
    fn send(&mut self, to: usize, channel: Channel, data: &[u8]) -> Result<()>;

    /// Waits for one message, from anybody.
    ///
    /// # Errors
    /// When those who could send are gone, or the message is longer than `buffer`.
    fn recv(&mut self, channel: Channel, buffer: &mut [u8]) -> Result<Received>;

    /// Waits for all processes.
    ///
    /// # Errors
    /// When one of them is gone.
    fn barrier(&mut self) -> Result<()>;
}

/// Writes numbers as bytes, in an order that does not depend on the machine.
///
/// # Panics
/// When `bytes` is not exactly as long as `values` need.
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

/// Reads what [`pack`] wrote.
///
/// # Panics
/// When `bytes` is not exactly as long as `values` need.
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
    fn packed_numbers_are_little_endian_and_come_back() {
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
