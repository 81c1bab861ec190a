// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchange of edge cells between neighbours.
//!
//! One round consists of [`Halo::begin`], work that needs no ghosts, and [`Halo::finish`]. The
//! receives of a round are posted at the end of the round before, so that early messages are
//! received directly into their buffers. Buffers are allocated once and passed along with the
//! requests.

use crate::block::Block;
use crate::comm::{Channel, Comm, Received, pack, unpack};
use crate::decompose::{Direction, Layout};
use anyhow::{Context, Result, ensure};

/// The halo exchange of one block.
pub struct Halo<C: Comm> {
    sides: Vec<Side<C>>,
    rounds_left: u64,
}

struct Side<C: Comm> {
    direction: Direction,
    neighbour: usize,
    /// Held here between rounds, and by the request during a round.
    outgoing: Vec<u8>,
    sending: Option<C::Request>,
    receiving: Option<C::Request>,
}

impl<C: Comm> Halo<C> {
    /// Prepares `rounds` rounds.
    ///
    /// # Errors
    /// When a receive cannot be posted.
    pub fn new(comm: &mut C, layout: &Layout, block: &Block, rounds: u64) -> Result<Self> {
        let rank = comm.rank();
        let mut sides = Vec::new();
        for direction in Direction::ALL {
            let Some(neighbour) = layout.neighbour(rank, direction) else {
                continue;
            };
            let outgoing = vec![0; size_of::<f64>() * block.edge(direction).len()];
            let mut side = Side {
                direction,
                neighbour,
                outgoing,
                sending: None,
                receiving: None,
            };
            if rounds > 0 {
                side.post(comm, vec![0; side.outgoing.len()])?;
            }
            sides.push(side);
        }
        Ok(Halo {
            sides,
            rounds_left: rounds,
        })
    }

    /// Starts to send the block's edges.
    ///
    /// # Errors
    /// When a neighbour has failed.
    ///
    /// # Panics
    /// When there are no rounds left.
    pub fn begin(&mut self, comm: &mut C, block: &Block) -> Result<()> {
        assert!(self.rounds_left > 0, "a round that was prepared");
        self.rounds_left -= 1;
        for side in &mut self.sides {
            side.send(comm, block)?;
        }
        Ok(())
    }

    /// Waits for the neighbours' edges and copies them into the block's ghost cells.
    ///
    /// # Errors
    /// When a neighbour has failed, or sends something other than its edge.
    pub fn finish(&mut self, comm: &mut C, block: &mut Block) -> Result<()> {
        let more = self.rounds_left > 0;
        for side in &mut self.sides {
            let buffer = side.receive(comm, block)?;
            if more {
                side.post(comm, buffer)?;
            }
        }
        for side in &mut self.sides {
            side.complete_send(comm)?;
        }
        Ok(())
    }
}

impl<C: Comm> Side<C> {
    /// Returns the channel of incoming edges: an edge from the west travels east.
    fn incoming(&self) -> Channel {
        Channel::Halo(self.direction.opposite())
    }

    fn post(&mut self, comm: &mut C, buffer: Vec<u8>) -> Result<()> {
        self.receiving = Some(comm.start_recv(self.incoming(), buffer)?);
        Ok(())
    }

    fn send(&mut self, comm: &mut C, block: &Block) -> Result<()> {
        pack(block.edge(self.direction), &mut self.outgoing);
        let bytes = std::mem::take(&mut self.outgoing);
        self.sending =
            Some(comm.start_send(self.neighbour, Channel::Halo(self.direction), bytes)?);
        Ok(())
    }

    fn complete_send(&mut self, comm: &mut C) -> Result<()> {
        let request = self.sending.take().context("finish without begin")?;
        self.outgoing = comm.wait_send(request)?;
        Ok(())
    }

    fn receive(&mut self, comm: &mut C, block: &mut Block) -> Result<Vec<u8>> {
        let request = self.receiving.take().context("finish without begin")?;
        let (received, buffer) = comm.wait_recv(request)?;
        let expected = Received {
            len: buffer.len(),
            source: self.neighbour,
        };
        ensure!(
            received == expected,
            "halo exchange: {expected:?} expected, {received:?} came"
        );
        unpack(&buffer, block.ghosts_mut(self.direction));
        Ok(buffer)
    }
}
