// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes a token around, to which each process adds its rank: `portolan run -n 4 -- ring [LAPS]`.

use portolan::{Error, Node, PortConfig, Target};

const PORT: u16 = 1;

fn main() -> Result<(), Error> {
    let laps = std::env::args()
        .nth(1)
        .map_or(3, |arg| arg.parse().unwrap_or(3));
    let mut node = Node::join()?;
    let (rank, size) = (node.rank(), node.size());
    let next = Target::new((rank + 1) % size, PORT);
    let mut token = 0_u64;
    node.open(PORT, PortConfig::default())?;
    for _ in 0..laps {
        if rank == 0 {
            node.send(next, &token.to_le_bytes())?;
        }
        let mut bytes = [0; 8];
        node.recv(PORT, &mut bytes)?;
        token = u64::from_le_bytes(bytes) + u64::from(rank);
        if rank != 0 {
            node.send(next, &token.to_le_bytes())?;
        }
    }
    if rank == 0 {
        println!("{laps} laps through {size} processes: {token}");
    }
    node.close()
}
