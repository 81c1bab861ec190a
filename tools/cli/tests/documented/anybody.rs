// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks outcomes of receives from any source: each must have taken the next message of some
//! sender, and no message may be taken twice. A truncated receive may have taken the next message
//! of several senders, so all possibilities are searched.

use crate::model::{AnyClass, Streams, received};
use crate::plan::{Message, Outcome, Place, sum};
use std::collections::{BTreeMap, BTreeSet};

/// A taken message, in the order of the receives.
enum Taken<'a> {
    /// Taken by the receive of this step, into this many bytes.
    Receive(usize, &'a Outcome, usize),
    /// Taken by a handler: from this rank, this many bytes with this sum.
    Handler(u32, u64, u64),
}

impl Taken<'_> {
    fn can_be(&self, source: u32, message: Message, place: Place) -> bool {
        match *self {
            Taken::Receive(_, outcome, buffer) => {
                let is_blocking = matches!(outcome, Outcome::Cut { .. });
                received(message, place, source, buffer, is_blocking) == *outcome
            }
            Taken::Handler(from, len, bytes) => {
                from == source && message.len as u64 == len && sum(&message.bytes()) == bytes
            }
        }
    }
}

/// Number of taken messages by sender and lane.
type Places = BTreeMap<(u32, bool), usize>;

struct Search<'a> {
    streams: &'a Streams,
    taken: Vec<Taken<'a>>,
    /// States from which the search cannot continue.
    dead_ends: BTreeSet<Vec<usize>>,
    /// The furthest state of the search.
    furthest: (usize, Places),
}

impl Search<'_> {
    fn search(&mut self, at: usize, places: &mut Places) -> bool {
        if at == self.taken.len() {
            return true;
        }
        if at >= self.furthest.0 {
            self.furthest = (at, places.clone());
        }
        let here: Vec<usize> = places.values().copied().collect();
        if self.dead_ends.contains(&here) {
            return false;
        }
        for (key, stream) in self.streams {
            let place = places[key];
            let next = stream.get(place);
            let fits = next.is_some_and(|&(message, to)| self.taken[at].can_be(key.0, message, to));
            if fits {
                places.insert(*key, place + 1);
                if self.search(at + 1, places) {
                    return true;
                }
                places.insert(*key, place);
            }
        }
        self.dead_ends.insert(here);
        false
    }

    fn difference(&self, rank: u32) -> String {
        let (at, places) = &self.furthest;
        let heads: BTreeMap<_, _> = places
            .iter()
            .filter_map(|(key, &place)| Some((key, self.streams[key].get(place)?)))
            .collect();
        match self.taken[*at] {
            Taken::Receive(step, outcome, _) => format!(
                "rank {rank}, step {step}: {outcome:?} is no next message of anybody; next are {heads:?}"
            ),
            Taken::Handler(source, len, _) => format!(
                "the handler of rank {rank} got {len} bytes from rank {source}; next are {heads:?}"
            ),
        }
    }
}

/// Describes the contradiction if the outcomes `reported` of the rank's steps are impossible.
pub(crate) fn difference(class: &AnyClass, reported: &[Outcome]) -> Option<String> {
    let mut taken = Vec::new();
    for &(step, buffer) in &class.receives {
        // A process that did not reach this step is reported elsewhere.
        taken.push(Taken::Receive(step, reported.get(step)?, buffer));
    }
    if let Some(step) = class.handled
        && let Some(Outcome::Handled(heard)) = reported.get(step)
    {
        let heard = heard.iter();
        taken.extend(heard.map(|&(from, len, bytes)| Taken::Handler(from, len, bytes)));
    }
    let mut places: Places = class.streams.keys().map(|&key| (key, 0)).collect();
    let mut search = Search {
        streams: &class.streams,
        taken,
        dead_ends: BTreeSet::new(),
        furthest: (0, places.clone()),
    };
    (!search.search(0, &mut places)).then(|| search.difference(class.rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Fault;
    use std::collections::VecDeque;

    const PORT: Place = Place::Port(9);

    fn message(id: u32) -> Message {
        Message { id, len: 4096 }
    }

    /// Returns one message of each of two ranks; the first receive was truncated.
    fn class() -> AnyClass {
        let stream = |id| VecDeque::from([(message(id), PORT)]);
        AnyClass {
            rank: 0,
            receives: vec![(0, 4000), (1, 5000)],
            streams: [((0, false), stream(1)), ((1, false), stream(2))].into(),
            handled: None,
        }
    }

    #[test]
    fn message_after_a_truncated_one_arrives_once() {
        let cut = Outcome::Fault(Fault::Truncated {
            port: 9,
            message_len: 4096,
            buffer_len: 4000,
        });
        let whole = |source: u32, id| received(message(id), PORT, source, 5000, true);
        for (source, id) in [(0, 1), (1, 2)] {
            let reported = [cut.clone(), whole(source, id)];
            assert_eq!(difference(&class(), &reported), None);
        }
        let reported = [cut, whole(1, 3)];
        let text = difference(&class(), &reported).unwrap();
        assert!(text.contains("rank 0, step 1"), "{text}");
        let reported = [whole(1, 2), whole(1, 2)];
        assert!(difference(&class(), &reported).is_some());
    }
}
