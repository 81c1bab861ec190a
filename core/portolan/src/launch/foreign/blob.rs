// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of any length as values of a key-value space, which are short texts without spaces.

use super::{Space, refused};
use crate::launch::LaunchError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest record, in bytes: an address takes about 600, and settings may be paths.
const LEN_MAX: usize = 256 << 10;

/// Longest head of a value, in bytes: the number of pieces, and a colon.
const HEAD_LEN: usize = 8;

/// Minimum length of a space's values, in bytes. Shorter values would split records into too many
/// pieces.
const VALUE_LEN_MIN: usize = 64;

fn key(what: &str, rank: u32, index: usize) -> String {
    format!("portolan-{what}-{rank}-{index}")
}

/// Puts `record` under the name `what`, in as many pieces as needed.
pub(super) fn put(
    space: &mut dyn Space,
    what: &str,
    record: &impl Serialize,
) -> Result<(), LaunchError> {
    let bytes =
        serde_json::to_vec(record).map_err(|error| refused(space, format!("{what}: {error}")))?;
    let len_max = space.value_len_max();
    if len_max < VALUE_LEN_MIN || bytes.len() > LEN_MAX {
        let len = bytes.len();
        let why = format!(
            "a record of {len} bytes does not fit the values of this launcher, which hold {len_max} bytes"
        );
        return Err(refused(space, why));
    }
    let text = hex::encode(bytes);
    let pieces: Vec<&str> = text
        .as_bytes()
        .chunks(len_max - HEAD_LEN)
        .filter_map(|piece| std::str::from_utf8(piece).ok())
        .collect();
    let rank = space.rank();
    for (index, piece) in pieces.iter().enumerate() {
        space.put(
            &key(what, rank, index),
            &format!("{}:{piece}", pieces.len()),
        )?;
    }
    Ok(())
}

/// Gets the record that `rank` has put under the name `what`.
pub(super) fn get<T: DeserializeOwned>(
    space: &mut dyn Space,
    rank: u32,
    what: &str,
) -> Result<T, LaunchError> {
    let mut text = String::new();
    let mut index = 0;
    loop {
        let value = space.get(rank, &key(what, rank, index))?;
        let head = value.split_once(':').and_then(|(count, piece)| {
            let count: usize = count.parse().ok()?;
            Some((count, piece))
        });
        let Some((count, piece)) = head else {
            return Err(unreadable(space, rank, what));
        };
        text.push_str(piece);
        index += 1;
        if index >= count {
            break;
        }
        if text.len() > 2 * LEN_MAX {
            return Err(unreadable(space, rank, what));
        }
    }
    let bytes = hex::decode(text).map_err(|_| unreadable(space, rank, what))?;
    serde_json::from_slice(&bytes).map_err(|_| unreadable(space, rank, what))
}

/// Creates an error without the record, which may contain the secret.
fn unreadable(space: &dyn Space, rank: u32, what: &str) -> LaunchError {
    let why = format!(
        "cannot read the record `{what}` of rank {rank}; use the same version of the program for all ranks"
    );
    refused(space, why)
}
