// SPDX-License-Identifier: MIT OR Apache-2.0
//! A key-value store in the memory of all processes, by remote memory alone:
//! `portolan run -n 4 -- key_value [COUNT]`. No process answers requests.

use portolan::{Error, Node, Window};

const SLOTS: u64 = 4096;
const EMPTY: u64 = 0;

/// Table of keys and values, with open addressing in the part of each process.
struct Store(Window<u64>);

impl Store {
    /// Returns the member and the index of the value of `key`. Takes an empty slot if `insert` is set.
    fn find(&self, node: &mut Node, key: u64, insert: bool) -> Result<Option<(u32, u64)>, Error> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let member = (hash % u64::from(self.0.group().size())) as u32;
        for probe in 0..SLOTS {
            let index = 2 * ((hash >> 32) + probe) % (2 * SLOTS);
            let found = match insert {
                true => self.0.compare_swap(node, member, index, EMPTY, key)?,
                false => self.0.fetch_add(node, member, index, 0)?,
            };
            if found == key || insert && found == EMPTY {
                return Ok(Some((member, index + 1)));
            }
            if found == EMPTY {
                break;
            }
        }
        Ok(None)
    }

    fn put(&self, node: &mut Node, key: u64, value: u64) -> Result<(), Error> {
        let (member, index) = self.find(node, key, true)?.expect("the table is full");
        self.0.put(node, member, index, &[value])
    }

    fn get(&self, node: &mut Node, key: u64) -> Result<Option<u64>, Error> {
        let Some((member, index)) = self.find(node, key, false)? else {
            return Ok(None);
        };
        let mut value = [0];
        self.0.get(node, member, index, &mut value)?;
        Ok(Some(value[0]))
    }
}

fn main() -> Result<(), Error> {
    let count = std::env::args()
        .nth(1)
        .map_or(200, |arg| arg.parse().unwrap_or(200));
    let mut node = Node::join()?;
    let (rank, size) = (u64::from(node.rank()), u64::from(node.size()));
    let store = Store(node.window::<u64>(2 * SLOTS as usize)?);
    for number in 1..=count {
        store.put(&mut node, number * size + rank, number * number)?;
    }
    node.barrier()?;
    // Reads what the next process has written.
    let mut sum = 0;
    for number in 1..=count {
        sum += store
            .get(&mut node, number * size + (rank + 1) % size)?
            .expect("it was put");
    }
    assert_eq!(store.get(&mut node, u64::MAX)?, None);
    println!("rank {rank}: {count} values, sum {sum}");
    store.0.free(&mut node)?;
    node.close()
}
