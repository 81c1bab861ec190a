// SPDX-License-Identifier: MIT OR Apache-2.0
//! A list that needs no allocation for one item, as most rounds of short operations have.

use std::iter::Chain;
use std::{option, slice, vec};

/// A list.
#[derive(Debug)]
pub(in crate::node::exchange) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Few<T> {
    /// Returns the list of one item.
    pub(super) fn one(item: T) -> Few<T> {
        Few {
            first: Some(item),
            rest: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, item: T) {
        match self.first {
            None => self.first = Some(item),
            Some(_) => self.rest.push(item),
        }
    }

    pub(in crate::node::exchange) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(super) fn iter(&self) -> Chain<option::Iter<'_, T>, slice::Iter<'_, T>> {
        self.first.iter().chain(&self.rest)
    }
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few {
            first: None,
            rest: Vec::new(),
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Few<T> {
        let mut items = items.into_iter();
        Few {
            first: items.next(),
            rest: items.collect(),
        }
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = Chain<option::IntoIter<T>, vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = Chain<option::Iter<'a, T>, slice::Iter<'a, T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
