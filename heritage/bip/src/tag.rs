// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tags: what is under way at each, which is one receive at most, and the numbers of receives.
//!
//! A receive that was begun gets a number that has its tag in it and counts on, so that a number that is
//! used too late is known.

use crate::init::BIPMAXTAG;
use crate::machine::{Failure, failure};
use portolan::{Request, TagMatch, TagTarget};
use std::ffi::c_int;

/// Bits of a receive's number that are its tag's index.
const INDEX_BITS: u32 = 17;

/// How far the rest of the number counts: it stays positive.
const COUNT_MAX: u32 = (c_int::MAX as u32) >> INDEX_BITS;

/// A tag, or the messages without one, which are the last of all on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(u32);

/// A tag of the program's.
#[inline]
pub(crate) fn checked(tag: c_int) -> Result<Tag, Failure> {
    match u32::try_from(tag) {
        Ok(number) if tag <= BIPMAXTAG => Ok(Tag(number)),
        _ => Err(no_such(tag)),
    }
}

#[cold]
fn no_such(tag: c_int) -> Failure {
    failure(format!("tag {tag}: tags go from 0 to {BIPMAXTAG}"))
}

impl Tag {
    /// Of messages without a tag: behind the highest.
    pub(crate) const NONE: Tag = Tag(BIPMAXTAG as u32 + 1);

    #[inline]
    pub(crate) fn target(self, rank: u32) -> TagTarget {
        TagTarget::new(rank, u64::from(self.0))
    }

    #[inline]
    pub(crate) fn selector(self) -> TagMatch {
        TagMatch::new(u64::from(self.0))
    }

    /// Messages without a tag come first: programs that use no tags have one place.
    fn index(self) -> usize {
        match self {
            Tag::NONE => 0,
            Tag(number) => number as usize + 1,
        }
    }

    /// What people call it.
    pub(crate) fn name(self) -> String {
        match self {
            Tag::NONE => "without a tag".to_owned(),
            Tag(number) => format!("with tag {number}"),
        }
    }
}

/// A message that was received.
#[derive(Clone, Copy)]
pub(crate) struct Got {
    /// Words.
    pub(crate) len: c_int,
    pub(crate) node: c_int,
}

/// What is under way at a tag.
#[derive(Default)]
pub(crate) enum Use {
    #[default]
    Free,
    /// A receive that was begun.
    Receiving(Request),
    /// The program reads a message in the library's memory.
    Reading,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) what: Use,
    /// Receives that were begun here so far.
    count: u32,
    /// How the last one ended.
    pub(crate) ended: Option<Got>,
    /// A message that the program reads; words, because it reads words.
    pub(crate) message: Option<Box<[u32]>>,
}

/// By index, as far as they were used.
#[derive(Default)]
pub(crate) struct Tags(Vec<Place>);

impl Tags {
    #[inline]
    pub(crate) fn place(&mut self, tag: Tag) -> &mut Place {
        let index = tag.index();
        if index >= self.0.len() {
            self.grow(index);
        }
        &mut self.0[index]
    }

    #[cold]
    fn grow(&mut self, index: usize) {
        self.0.resize_with(index + 1, Place::default);
    }

    /// Refuses a receive where another one is under way.
    #[inline]
    pub(crate) fn check_free(&mut self, tag: Tag) -> Result<(), Failure> {
        match self.place(tag).what {
            Use::Free => Ok(()),
            Use::Receiving(_) => Err(in_use(tag, "a receive is under way already; wait for it")),
            Use::Reading => Err(in_use(
                tag,
                "the last message is being read; give it back with bip_tfreemsg()",
            )),
        }
    }

    /// Receives that have not ended.
    pub(crate) fn receiving(&self) -> impl Iterator<Item = Request> {
        self.0.iter().filter_map(|place| match place.what {
            Use::Receiving(request) => Some(request),
            _ => None,
        })
    }

    /// Notes a receive that was begun; its number.
    pub(crate) fn begin(&mut self, tag: Tag, request: Request) -> c_int {
        let place = self.place(tag);
        place.what = Use::Receiving(request);
        place.ended = None;
        place.count = place.count % COUNT_MAX + 1;
        let number = place.count << INDEX_BITS | tag.0;
        c_int::try_from(number).unwrap_or(c_int::MAX)
    }

    /// The tag of the receive with that number, the last one of its tag.
    pub(crate) fn of(&mut self, id: c_int) -> Result<Tag, Failure> {
        let number = u32::try_from(id).unwrap_or(0);
        let tag = Tag(number & ((1 << INDEX_BITS) - 1));
        let count = number >> INDEX_BITS;
        let known = count > 0 && tag.0 <= Tag::NONE.0 && self.place(tag).count == count;
        match known {
            true => Ok(tag),
            false => Err(failure(format!(
                "{id} is not the number of a receive, or another one was begun with its tag since"
            ))),
        }
    }
}

#[cold]
fn in_use(tag: Tag, why: &str) -> Failure {
    failure(format!("of messages {}, {why}", tag.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_place_of_its_own_and_none_comes_first() {
        let mut tags = Tags::default();
        tags.place(Tag::NONE).count = 7;
        assert_eq!(tags.0.len(), 1, "a program without tags pays for none");
        for number in [0, 1, BIPMAXTAG] {
            let Ok(tag) = checked(number) else {
                panic!("{number} is a tag");
            };
            assert_eq!(tags.place(tag).count, 0, "{number}");
            tags.place(tag).count = 1;
        }
        assert_eq!(tags.place(Tag::NONE).count, 7);
    }
}
