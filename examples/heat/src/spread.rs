// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distribution of the field from rank 0, and its collection there.

use crate::comm::{Channel, Comm, pack, unpack};
use crate::decompose::Layout;
use crate::field::Field;
use anyhow::{Result, ensure};

/// Cells per message: 128 KiB, long enough for full bandwidth, and short enough for any receiver's
/// memory.
const PIECE_CELLS: usize = 16 * 1024;

const CELL_LEN: usize = size_of::<f64>();

/// Distributes the field, which rank 0 passes. Every process gets the cells of its block, row by
/// row.
///
/// # Errors
/// When a process has failed.
pub fn scatter<C: Comm>(comm: &mut C, layout: &Layout, field: Option<&Field>) -> Result<Vec<f64>> {
    let rank = comm.rank();
    let Some(field) = field else {
        let mut cells = vec![0.0; layout.rect(rank).cell_count()];
        receive_cells(comm, Channel::Scatter, &mut cells)?;
        return Ok(cells);
    };
    for to in (0..comm.size()).filter(|to| *to != rank) {
        send_cells(comm, to, Channel::Scatter, &field.cut(&layout.rect(to)))?;
    }
    Ok(field.cut(&layout.rect(rank)))
}

/// Collects the blocks' cells; only rank 0 gets the field.
///
/// # Errors
/// When a process has failed.
pub fn gather<C: Comm>(comm: &mut C, layout: &Layout, own: &[f64]) -> Result<Option<Field>> {
    if comm.rank() != 0 {
        send_cells(comm, 0, Channel::Gather, own)?;
        return Ok(None);
    }
    let mut field = Field::new(layout.width, layout.height)?;
    field.paste(&layout.rect(0), own);
    let mut parts: Vec<Part> = (1..comm.size())
        .map(|rank| Part::new(layout, rank))
        .collect();
    let mut buffer = vec![0; PIECE_CELLS * CELL_LEN];
    while parts.iter().any(|part| !part.is_complete()) {
        let received = comm.recv(Channel::Gather, &mut buffer)?;
        ensure!(received.source != 0, "gather: a part from rank 0 itself");
        parts[received.source - 1].append(&buffer[..received.len])?;
    }
    for (rank, part) in (1..).zip(&parts) {
        field.paste(&layout.rect(rank), &part.cells);
    }
    Ok(Some(field))
}

/// Cells received from one process; the pieces of several processes arrive interleaved.
struct Part {
    cells: Vec<f64>,
    filled: usize,
}

impl Part {
    fn new(layout: &Layout, rank: usize) -> Self {
        Part {
            cells: vec![0.0; layout.rect(rank).cell_count()],
            filled: 0,
        }
    }

    fn is_complete(&self) -> bool {
        self.filled == self.cells.len()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let room = &mut self.cells[self.filled..];
        let count = bytes.len() / CELL_LEN;
        ensure!(
            bytes.len().is_multiple_of(CELL_LEN) && count <= room.len(),
            "gather: {} bytes where at most {} cells were due",
            bytes.len(),
            room.len()
        );
        unpack(bytes, room[..count].iter_mut());
        self.filled += count;
        Ok(())
    }
}

fn send_cells<C: Comm>(comm: &mut C, to: usize, channel: Channel, cells: &[f64]) -> Result<()> {
    let mut bytes = vec![0; cells.len().min(PIECE_CELLS) * CELL_LEN];
    for piece in cells.chunks(PIECE_CELLS) {
        let bytes = &mut bytes[..piece.len() * CELL_LEN];
        pack(piece.iter(), bytes);
        comm.send(to, channel, bytes)?;
    }
    Ok(())
}

fn receive_cells<C: Comm>(comm: &mut C, channel: Channel, cells: &mut [f64]) -> Result<()> {
    let mut bytes = vec![0; cells.len().min(PIECE_CELLS) * CELL_LEN];
    for piece in cells.chunks_mut(PIECE_CELLS) {
        let bytes = &mut bytes[..piece.len() * CELL_LEN];
        let received = comm.recv(channel, bytes)?;
        ensure!(
            received.len == bytes.len(),
            "scatter: {} bytes where {} were due",
            received.len,
            bytes.len()
        );
        unpack(bytes, piece.iter_mut());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fake, sample};

    #[test]
    fn scattered_fields_are_gathered_unchanged_in_several_pieces() {
        let field = sample::field(400, 300).unwrap();
        let layout = Layout::new(400, 300, 3).unwrap();
        assert!(layout.rect(2).cell_count() > 2 * PIECE_CELLS);
        let gathered = fake::run(3, |comm| {
            let input = (comm.rank() == 0).then_some(&field);
            let cells = scatter(comm, &layout, input)?;
            gather(comm, &layout, &cells)
        });
        assert_eq!(gathered[0].as_ref(), Some(&field));
        assert!(gathered[1..].iter().all(Option::is_none));
    }
}
