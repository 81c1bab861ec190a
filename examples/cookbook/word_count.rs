// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the words of a text: `portolan run -n 4 -- word_count FILE`. Each process counts some lines,
//! and sends each word to the process that its hash selects.

use portolan::{Node, PortConfig, Target};
use std::collections::BTreeMap;
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};

const WORDS: u16 = 1;
const TOTALS: u16 = 2;

type Counts = BTreeMap<String, u64>;

fn encode(counts: &Counts) -> Vec<u8> {
    let lines = counts
        .iter()
        .map(|(word, count)| format!("{count} {word}\n"));
    lines.collect::<String>().into_bytes()
}

/// Adds the counts of a message from each process.
fn receive(node: &mut Node, port: u16) -> Result<Counts, Box<dyn Error>> {
    let mut counts = Counts::new();
    for _ in 0..node.size() {
        let (bytes, _) = node.recv_vec::<u8>(port)?;
        for line in std::str::from_utf8(&bytes)?.lines() {
            let (count, word) = line.split_once(' ').ok_or("malformed counts")?;
            *counts.entry(word.to_owned()).or_default() += count.parse::<u64>()?;
        }
    }
    Ok(counts)
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: word_count FILE")?;
    let text = std::fs::read_to_string(file)?.to_ascii_lowercase();
    let mut node = Node::join()?;
    let (rank, size) = (node.rank() as usize, node.size() as usize);
    node.open(WORDS, PortConfig::default())?;
    node.open(TOTALS, PortConfig::default())?;
    let mut parts = vec![Counts::new(); size];
    for line in text.lines().skip(rank).step_by(size) {
        for word in line
            .split(|c: char| !c.is_ascii_lowercase())
            .filter(|word| !word.is_empty())
        {
            let mut hash = DefaultHasher::new();
            word.hash(&mut hash);
            let owner = hash.finish() as usize % size;
            *parts[owner].entry(word.to_owned()).or_default() += 1;
        }
    }
    for (owner, part) in (0..).zip(&parts) {
        node.isend_copy(Target::new(owner, WORDS), &encode(part))?;
    }
    let own = receive(&mut node, WORDS)?;
    node.isend_copy(Target::new(0, TOTALS), &encode(&own))?;
    if rank == 0 {
        let mut all: Vec<_> = receive(&mut node, TOTALS)?.into_iter().collect();
        println!(
            "{} words, {} different",
            all.iter().map(|one| one.1).sum::<u64>(),
            all.len()
        );
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all.iter()
            .take(5)
            .for_each(|(word, count)| println!("{count} {word}"));
    }
    Ok(node.close()?)
}
