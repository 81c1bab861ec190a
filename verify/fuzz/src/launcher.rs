// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the launcher, split into lines and parsed.

use crate::input::Input;
use portolan::binding::launch::LineBuffer;
use portolan::binding::launch::wire::{ToAgent, ToProcess};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads `data` as a stream of lines, in pieces of the length given by its first byte. Each line is
/// parsed as a message of either direction. A parsed message must survive encoding and parsing.
///
/// # Panics
/// Panics if the lines depend on the pieces of the stream, or a message does not survive encoding.
pub fn launcher(data: &[u8]) {
    let mut input = Input::new(data);
    let step = 1 + usize::from(input.byte());
    let stream = input.take(data.len());
    let mut lines = LineBuffer::default();
    let mut seen = Vec::new();
    for piece in stream.chunks(step) {
        lines.append(piece).expect("short lines");
        while let Some(line) = lines.next_line() {
            seen.push(line.to_vec());
        }
    }
    let mut complete: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    let rest = complete.pop().unwrap_or_default();
    assert_eq!(seen, complete);
    assert_eq!(lines.take_partial(), rest);
    for line in complete.iter().chain([&rest]) {
        survives::<ToProcess>(line);
        survives::<ToAgent>(line);
    }
}

fn survives<M: DeserializeOwned + Serialize>(line: &[u8]) {
    let Ok(message) = serde_json::from_slice::<M>(line) else {
        return;
    };
    let written = serde_json::to_string(&message).expect("written");
    assert!(!written.contains('\n'), "a message is one line");
    let again: M = serde_json::from_str(&written).expect("read again");
    assert_eq!(serde_json::to_string(&again).expect("written"), written);
}
