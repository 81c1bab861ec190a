// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that do not belong to the memory's protocol: copies of global variables, and frees of
//! memory that another process allocated.

use crate::image::Place;
use crate::protocol::wire::FOREIGN_KIND;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Private {
    Distribute { place: Place, bytes: Vec<u8> },
    Stored,
    Free { offset: u64 },
}

const DISTRIBUTE: u32 = FOREIGN_KIND;
const STORED: u32 = FOREIGN_KIND + 1;
const FREE: u32 = FOREIGN_KIND + 2;

impl Private {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Private::Distribute { place, bytes } => {
                let name_len = u32::try_from(place.file.len()).unwrap_or(u32::MAX);
                let mut out = DISTRIBUTE.to_le_bytes().to_vec();
                out.extend_from_slice(&place.offset.to_le_bytes());
                out.extend_from_slice(&name_len.to_le_bytes());
                out.extend_from_slice(&place.file);
                out.extend_from_slice(bytes);
                out
            }
            Private::Stored => STORED.to_le_bytes().to_vec(),
            Private::Free { offset } => {
                let mut out = FREE.to_le_bytes().to_vec();
                out.extend_from_slice(&offset.to_le_bytes());
                out
            }
        }
    }

    /// Reads a message; `None` for an invalid one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Private> {
        let (kind, rest) = bytes.split_first_chunk()?;
        match u32::from_le_bytes(*kind) {
            DISTRIBUTE => {
                let (offset, rest) = rest.split_first_chunk()?;
                let (len, rest) = rest.split_first_chunk()?;
                let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
                let (file, bytes) = rest.split_at_checked(len)?;
                let place = Place {
                    file: file.to_vec(),
                    offset: u64::from_le_bytes(*offset),
                };
                let bytes = bytes.to_vec();
                Some(Private::Distribute { place, bytes })
            }
            STORED => rest.is_empty().then_some(Private::Stored),
            FREE => {
                let offset = u64::from_le_bytes(*rest.first_chunk()?);
                Some(Private::Free { offset })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let place = Place {
            file: b"libx.so".to_vec(),
            offset: 1 << 40,
        };
        let bytes = vec![1, 2, 3];
        for message in [
            Private::Distribute { place, bytes },
            Private::Stored,
            Private::Free { offset: 9 },
        ] {
            let bytes = message.encode();
            assert_eq!(Private::decode(&bytes), Some(message));
            assert_eq!(Private::decode(&bytes[..4.min(bytes.len() - 1)]), None);
        }
    }
}
