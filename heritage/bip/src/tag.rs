// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tags: the receive in progress of each tag, at most one, and the numbers of receives.
//!
//! The number of a receive contains its tag and a count, so that outdated numbers are detected.

use crate::init::BIPMAXTAG;
use crate::machine::{Failure, failure};
use portolan::{Request, TagMatch, TagTarget};
use std::ffi::c_int;

/// Bits of a receive's number that contain its tag.
const INDEX_BITS: u32 = 17;

/// Maximum of the count in a receive's number, which keeps the number positive.
const COUNT_MAX: u32 = (c_int::MAX as u32) >> INDEX_BITS;

/// A tag, or the pseudo tag of messages without one, which is the highest on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(u32);

/// Checks a tag that the program passes.
#[inline]
pub(crate) fn checked(tag: c_int) -> Result<Tag, Failure> {
    match u32::try_from(tag) {
        Ok(number) if tag <= BIPMAXTAG => Ok(Tag(number)),
        _ => Err(invalid_tag(tag)),
    }
}

#[cold]
fn invalid_tag(tag: c_int) -> Failure {
    failure(format!("tag {tag} is not between 0 and {BIPMAXTAG}"))
}

impl Tag {
    /// Tag of messages without a tag: one above the highest.
    pub(crate) const NONE: Tag = Tag(BIPMAXTAG as u32 + 1);

    #[inline]
    pub(crate) fn target(self, rank: u32) -> TagTarget {
        TagTarget::new(rank, u64::from(self.0))
    }

    #[inline]
    pub(crate) fn selector(self) -> TagMatch {
        TagMatch::new(u64::from(self.0))
    }

    /// Returns the index in the table. Messages without a tag have index 0, so programs that use no
    /// tags need one entry.
    fn index(self) -> usize {
        match self {
            Tag::NONE => 0,
            Tag(number) => number as usize + 1,
        }
    }

    /// Describes the tag in error messages.
    pub(crate) fn name(self) -> String {
        match self {
            Tag::NONE => "without a tag".to_owned(),
            Tag(number) => format!("with tag {number}"),
        }
    }
}

/// A received message.
#[derive(Clone, Copy)]
pub(crate) struct Received {
    /// Length in words.
    pub(crate) len: c_int,
    pub(crate) node: c_int,
}

/// State of a tag.
#[derive(Default)]
pub(crate) enum Use {
    #[default]
    Free,
    /// A receive is in progress.
    Receiving(Request),
    /// The program reads a message in the library's memory.
    Reading,
}

/// A tag's entry in the table; see the module documentation.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) state: Use,
    /// Number of receives started so far.
    count: u32,
    /// Result of the last receive.
    pub(crate) ended: Option<Received>,
    /// A message that the program reads, stored as words because the program reads words.
    pub(crate) message: Option<Box<[u32]>>,
}

/// Entries by index, up to the highest tag used.
#[derive(Default)]
pub(crate) struct Tags(Vec<Entry>);

impl Tags {
    #[inline]
    pub(crate) fn entry(&mut self, tag: Tag) -> &mut Entry {
        let index = tag.index();
        if index >= self.0.len() {
            self.grow(index);
        }
        &mut self.0[index]
    }

    #[cold]
    fn grow(&mut self, index: usize) {
        self.0.resize_with(index + 1, Entry::default);
    }

    /// Checks that no receive of the tag is in progress.
    #[inline]
    pub(crate) fn check_free(&mut self, tag: Tag) -> Result<(), Failure> {
        match self.entry(tag).state {
            Use::Free => Ok(()),
            Use::Receiving(_) => Err(in_progress(tag)),
            Use::Reading => Err(not_released(tag)),
        }
    }

    /// Returns all receives in progress.
    pub(crate) fn receiving(&self) -> impl Iterator<Item = Request> {
        self.0.iter().filter_map(|entry| match entry.state {
            Use::Receiving(request) => Some(request),
            _ => None,
        })
    }

    /// Records a receive that was started. Returns its number.
    pub(crate) fn begin(&mut self, tag: Tag, request: Request) -> c_int {
        let entry = self.entry(tag);
        entry.state = Use::Receiving(request);
        entry.ended = None;
        entry.count = entry.count % COUNT_MAX + 1;
        let number = entry.count << INDEX_BITS | tag.0;
        c_int::try_from(number).unwrap_or(c_int::MAX)
    }

    /// Returns the tag of a receive, which must be the last one of its tag.
    pub(crate) fn of(&mut self, id: c_int) -> Result<Tag, Failure> {
        let number = u32::try_from(id).unwrap_or(0);
        let tag = Tag(number & ((1 << INDEX_BITS) - 1));
        let count = number >> INDEX_BITS;
        let is_current = count > 0 && tag.0 <= Tag::NONE.0 && self.entry(tag).count == count;
        match is_current {
            true => Ok(tag),
            false => Err(failure(format!(
                "{id} is not the number of a receive, or a later receive of its tag was started"
            ))),
        }
    }
}

#[cold]
fn in_progress(tag: Tag) -> Failure {
    failure(format!(
        "a receive of messages {} is in progress; wait for it with bip_rwait()",
        tag.name()
    ))
}

#[cold]
fn not_released(tag: Tag) -> Failure {
    failure(format!(
        "the last message {} was not released; call bip_tfreemsg()",
        tag.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_separate_and_untagged_is_first() {
        let mut tags = Tags::default();
        tags.entry(Tag::NONE).count = 7;
        assert_eq!(tags.0.len(), 1, "a program without tags needs one entry");
        for number in [0, 1, BIPMAXTAG] {
            let Ok(tag) = checked(number) else {
                panic!("{number} is a tag");
            };
            assert_eq!(tags.entry(tag).count, 0, "{number}");
            tags.entry(tag).count = 1;
        }
        assert_eq!(tags.entry(Tag::NONE).count, 7);
    }
}
