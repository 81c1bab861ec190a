// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heat on a torus, with an exchange of halos in each step: `portolan run -n 4 -- halo [STEPS]`. The
//! rows are divided among the processes. The result does not depend on their number.

use portolan::{Error, Node, PortConfig, ReduceOp, Target};

const DOWN: u16 = 1;
const UP: u16 = 2;
const WIDTH: usize = 64;
const ROWS: usize = 96;

fn step(now: &[f64], next: &mut [f64]) {
    for at in WIDTH..now.len() - WIDTH {
        let (row, column) = (at / WIDTH * WIDTH, at % WIDTH);
        let [left, right] = [WIDTH - 1, 1].map(|by| now[row + (column + by) % WIDTH]);
        let around = left + right + now[at - WIDTH] + now[at + WIDTH];
        next[at] = now[at] + 0.2 * (around - 4.0 * now[at]);
    }
}

fn main() -> Result<(), Error> {
    let steps = std::env::args().nth(1);
    let steps = steps.map_or(50, |arg| arg.parse().unwrap_or(50));
    let mut node = Node::join()?;
    node.open(DOWN, PortConfig::default())?;
    node.open(UP, PortConfig::default())?;
    let (rank, size) = (node.rank(), node.size());
    let (above, below) = ((rank + size - 1) % size, (rank + 1) % size);
    let start = |rank: u32| ROWS * rank as usize / size as usize;
    let (first, rows) = (start(rank), start(rank + 1) - start(rank));
    // The first row and the last one are halos.
    let mut now = vec![0.0_f64; (rows + 2) * WIDTH];
    for (at, cell) in (first * WIDTH..).zip(&mut now[WIDTH..(rows + 1) * WIDTH]) {
        *cell = (at * at % 1000) as f64;
    }
    let mut next = now.clone();
    for _ in 0..steps {
        let (upper, rest) = now.split_at_mut(WIDTH);
        let (own, lower) = rest.split_at_mut(rows * WIDTH);
        node.scope(|scope| {
            scope.post_recv_from(above, DOWN, upper)?;
            scope.post_recv_from(below, UP, lower)?;
            scope.isend(Target::new(above, UP), &own[..WIDTH])?;
            scope.isend(Target::new(below, DOWN), &own[(rows - 1) * WIDTH..])?;
            Ok(())
        })?;
        step(&now, &mut next);
        std::mem::swap(&mut now, &mut next);
    }
    let own = &now[WIDTH..(rows + 1) * WIDTH];
    let squares = own.iter().map(|cell| cell * cell);
    let mut sums = [own.iter().sum::<f64>(), squares.sum()];
    node.allreduce(ReduceOp::Sum, &mut sums)?;
    if rank == 0 {
        println!("{steps} steps: heat {:.3}, squares {:.3}", sums[0], sums[1]);
    }
    node.close()
}
