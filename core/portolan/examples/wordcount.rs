// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the words of a text with active messages: `portolan run -n 4 -- wordcount FILE`. Does the
//! same as `examples/c/wordcount.c`.
//!
//! Each process reads its part of the text and sends each word to the process that the word's hash
//! selects, many words in a message. The handler there counts them. An empty message means that its
//! sender is done. A word is a run of ASCII letters, without distinction of case.

use portolan::{Error, Node, PortConfig, ReduceOp, Target};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

const WORDS: u16 = 1;
const BEST: u16 = 2;
const BATCH_LEN: usize = 1000;
const WORD_LEN_MAX: usize = 63;
const BEST_COUNT: usize = 5;

#[derive(Default)]
struct Table {
    counts: HashMap<String, u64>,
    /// Number of senders that are done.
    done: u32,
}

/// Shared by the handler and the program. They run on one thread, so the lock is always free.
type Shared = Arc<Mutex<Table>>;

fn open(table: &Shared) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Computes FNV-1a, 64 bits.
fn hash(word: &[u8]) -> u64 {
    let step = |value: u64, &byte| (value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    word.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Sends the words that begin in this process's part of the text.
fn send_words(node: &mut Node, text: &[u8]) -> Result<(), Error> {
    let (rank, size) = (node.rank() as usize, node.size() as usize);
    let mut batches = vec![Vec::new(); size];
    let (mut at, end) = (text.len() * rank / size, text.len() * (rank + 1) / size);
    let is_letter = |at: usize| text.get(at).is_some_and(u8::is_ascii_alphabetic);
    while at > 0 && is_letter(at - 1) && is_letter(at) {
        at += 1; // began in the preceding part
    }
    while at < end {
        let begin = at;
        while is_letter(at) {
            at += 1;
        }
        if begin == at {
            at += 1;
            continue;
        }
        let word = text[begin..at.min(begin + WORD_LEN_MAX)].to_ascii_lowercase();
        send_word(node, &mut batches, &word)?;
    }
    for (owner, batch) in (0..).zip(&batches) {
        if !batch.is_empty() {
            node.isend_copy(Target::new(owner, WORDS), batch)?;
        }
        node.isend_copy(Target::new(owner, WORDS), &[])?;
    }
    Ok(())
}

fn send_word(node: &mut Node, batches: &mut [Vec<u8>], word: &[u8]) -> Result<(), Error> {
    let owner = u32::try_from(hash(word) % u64::from(node.size())).unwrap_or(0);
    let batch = &mut batches[owner as usize];
    if batch.len() + word.len() + 1 > BATCH_LEN {
        node.isend_copy(Target::new(owner, WORDS), batch)?;
        node.progress()?; // counts received words meanwhile
        batch.clear();
    }
    batch.extend_from_slice(word);
    batch.push(0);
    Ok(())
}

type Word = (u64, String);

/// Returns the most frequent words; words with equal counts are in alphabetical order.
fn best(mut words: Vec<Word>) -> Vec<Word> {
    words.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    words.truncate(BEST_COUNT);
    words
}

fn report(node: &mut Node, counts: HashMap<String, u64>) -> Result<(), Error> {
    let mut sums = [counts.values().sum(), counts.len() as u64];
    node.reduce(0, ReduceOp::Sum, &mut sums)?;
    let own = best(
        counts
            .into_iter()
            .map(|(word, count)| (count, word))
            .collect(),
    );
    let text: String = own
        .iter()
        .map(|(count, word)| format!("{count} {word}\n"))
        .collect();
    node.send(Target::new(0, BEST), text.as_bytes())?;
    if node.rank() != 0 {
        return Ok(());
    }
    let mut all = Vec::new();
    for rank in 0..node.size() {
        let mut bytes = [0; BEST_COUNT * (WORD_LEN_MAX + 22)];
        let got = node.recv_from(rank, BEST, &mut bytes)?;
        let text = String::from_utf8_lossy(&bytes[..got.len]).into_owned();
        all.extend(text.lines().filter_map(|line| {
            let (count, word) = line.split_once(' ')?;
            Some((count.parse().ok()?, word.to_owned()))
        }));
    }
    println!("{} words, {} different", sums[0], sums[1]);
    for (count, word) in best(all) {
        println!("{count} {word}");
    }
    Ok(())
}

fn run(text: &[u8]) -> Result<(), Error> {
    let mut node = Node::join()?;
    let table = Shared::default();
    let counting = Arc::clone(&table);
    node.open(BEST, PortConfig::default())?;
    node.open_active(WORDS, PortConfig::in_place(), move |_, message| {
        let mut table = open(&counting);
        if message.bytes().is_empty() {
            table.done += 1;
        }
        for word in message.bytes().split(|&byte| byte == 0) {
            if !word.is_empty() {
                let word = String::from_utf8_lossy(word).into_owned();
                *table.counts.entry(word).or_default() += 1;
            }
        }
    })?;
    send_words(&mut node, text)?;
    let size = node.size();
    node.wait_until(|| open(&table).done == size)?;
    let counts = std::mem::take(&mut open(&table).counts);
    report(&mut node, counts)
}

fn main() -> std::process::ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: portolan run -n N -- wordcount FILE");
        return std::process::ExitCode::from(2);
    };
    let result = std::fs::read(&path)
        .map_err(|error| format!("{path}: {error}"))
        .and_then(|text| run(&text).map_err(|error| error.to_string()));
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wordcount: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
