// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives messages of unknown length: `portolan run -n 2 -- unknown_length`.

use portolan::{Error, Node, PortConfig, Target};

const PORT: u16 = 1;

fn main() -> Result<(), Error> {
    let mut node = Node::join()?;
    node.open(PORT, PortConfig::default())?;
    if node.rank() != 0 {
        let bytes = vec![1; 100_000 * node.rank() as usize];
        node.send(Target::new(0, PORT), &bytes)?;
        return node.close();
    }
    for rank in 1..node.size() {
        // A new vector, as long as the message.
        let bytes: Vec<u8> = match rank % 2 {
            1 => node.recv_vec_from(rank, PORT)?,
            // Memory of one's own, after a look at the length.
            _ => {
                let mut bytes = vec![0; node.probe_from(rank, PORT)?.len];
                node.recv_from(rank, PORT, &mut bytes)?;
                bytes
            }
        };
        println!("{} bytes from rank {rank}", bytes.len());
    }
    node.close()
}
