// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of collective operations: what a member sends, receives and computes, in rounds.
//!
//! A plan depends on the member, the group's size, and the lengths of the data. It is made before
//! the first message, and touches no memory. The one invariant: if every member performs its plan,
//! each message has a receive of the same length, in the order of its sender. The tests perform
//! the plans of all members of groups of 1 to 17.
//!
//! Short data go in few rounds (Bruck's algorithm, binomial trees, recursive doubling), long data in
//! as few bytes as possible (rings, pairwise exchanges). See Thakur, Rabenseifner and Gropp,
//! "Optimization of collective communication operations in MPICH" (2005).

mod few;

use crate::collective::PART_INLINE_LEN_MAX;
use crate::node::reduce::{Side, Step, allreduce_steps, reduce_steps};
pub(super) use few::Few;
use std::ops::Range;

/// Memory that a plan refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The program's data, which are not changed.
    Input,
    /// The program's memory for the result.
    Output,
    /// Memory for the time of the operation.
    Scratch,
}

/// Bytes of one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) place: Place,
    pub(super) off: usize,
    pub(super) len: usize,
}

impl Span {
    fn new(place: Place, range: Range<usize>) -> Span {
        Span {
            place,
            off: range.start,
            len: range.end - range.start,
        }
    }
}

/// Work on the member's own memory. Both spans have the same length and do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Copy {
        from: Span,
        to: Span,
    },
    /// Combines `from`, values of the members on `side`, with `to`.
    Combine {
        from: Span,
        to: Span,
        side: Side,
    },
}

/// Messages that are exchanged at the same time, and the work after them.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) sends: Few<(u32, Span)>,
    pub(super) receives: Few<(u32, Span)>,
    pub(super) after: Few<Action>,
}

/// A member's part of an operation.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) rounds: Vec<Round>,
    pub(super) scratch_len: usize,
}

/// Position of a member, and the size of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) own: usize,
    pub(super) size: usize,
}

impl Position {
    /// Returns the member `distance` behind this one.
    fn after(self, distance: usize) -> usize {
        (self.own + distance) % self.size
    }

    /// Returns the member `distance` before this one.
    fn before(self, distance: usize) -> usize {
        (self.own + self.size - distance % self.size) % self.size
    }

    /// Returns this position as seen from `root`, which becomes member 0.
    fn relative_to(self, root: usize) -> Position {
        let own = self.before(root);
        Position { own, ..self }
    }
}

/// Total bytes up to which an allgather takes few rounds.
const ALLGATHER_SHORT_MAX: usize = 32 << 10;

/// Bytes of a block up to which gather and scatter use a tree.
const TREE_BLOCK_MAX: usize = 1 << 10;

/// Bytes of a block up to which an alltoall of many members takes few rounds.
const ALLTOALL_SHORT_MAX: usize = 256;

/// Members from which this is worth its copies.
const ALLTOALL_SHORT_MEMBERS_MIN: usize = 8;

/// Bytes of the vector up to which a reduce-scatter takes few rounds.
const REDUCE_SCATTER_SHORT_MAX: usize = 4 << 10;

/// Bytes that a member receives in one round of a long reduction. They are combined while they are in
/// the cache, and their memory is reused.
const SEGMENT_LEN_MAX: usize = 1 << 20;

/// Alignment of segments: a multiple of the length of every element.
const SEGMENT_ALIGN: usize = 64;

/// Exchanges in flight at a time, so that one slow member does not stop the rest, and scratch
/// memory is limited.
const IN_FLIGHT_MAX: usize = 4;

/// Returns the index of a member, which fits.
fn member(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Returns the offset of each block, and the total length.
fn offsets(lens: &[usize]) -> (Vec<usize>, usize) {
    let mut total = 0;
    let offsets = lens.iter().map(|len| {
        let off = total;
        total += len;
        off
    });
    (offsets.collect(), total)
}

fn copy(from: (Place, usize), to: (Place, usize), len: usize) -> Action {
    Action::Copy {
        from: Span::new(from.0, from.1..from.1 + len),
        to: Span::new(to.0, to.1..to.1 + len),
    }
}

impl Plan {
    /// Returns whether each message fits one with its head.
    pub(super) fn is_short(&self) -> bool {
        let mut spans = self
            .rounds
            .iter()
            .flat_map(|round| round.sends.iter().chain(&round.receives));
        spans.all(|(_, span)| span.len <= PART_INLINE_LEN_MAX)
    }

    /// Adds work that precedes all messages.
    fn begin(&mut self, after: impl IntoIterator<Item = Action>) {
        self.rounds.push(Round {
            after: after.into_iter().collect(),
            ..Round::default()
        });
    }
}

/// Every member gets the data of all, which have the lengths `lens`.
pub(super) fn allgather(position: Position, lens: &[usize]) -> Plan {
    let (offs, total) = offsets(lens);
    match total <= ALLGATHER_SHORT_MAX {
        true if position.size.is_power_of_two() => allgather_doubling(position, lens, offs, total),
        true => allgather_short(position, lens, &offs, total),
        false => {
            let own = position.own;
            let mut plan = Plan::default();
            plan.begin([copy(
                (Place::Input, 0),
                (Place::Output, offs[own]),
                lens[own],
            )]);
            ring(&mut plan, position, lens, &offs);
            plan
        }
    }
}

/// Passes the blocks of the output around a ring.
fn ring(plan: &mut Plan, position: Position, lens: &[usize], offs: &[usize]) {
    let block = |index: usize| Span::new(Place::Output, offs[index]..offs[index] + lens[index]);
    for step in 1..position.size {
        plan.rounds.push(Round {
            sends: Few::one((member(position.after(1)), block(position.before(step - 1)))),
            receives: Few::one((member(position.before(1)), block(position.before(step)))),
            after: Few::default(),
        });
    }
}

/// Recursive doubling: in each round, two halves of a part of the group exchange their blocks.
fn allgather_doubling(
    position: Position,
    lens: &[usize],
    mut offs: Vec<usize>,
    total: usize,
) -> Plan {
    let own = position.own;
    let mut plan = Plan::default();
    plan.begin([copy(
        (Place::Input, 0),
        (Place::Output, offs[own]),
        lens[own],
    )]);
    offs.push(total);
    let mut have = 1;
    while have < position.size {
        let other = own ^ have;
        let blocks = |of: usize| {
            let first = of / have * have;
            Span::new(Place::Output, offs[first]..offs[first + have])
        };
        plan.rounds.push(Round {
            sends: Few::one((member(other), blocks(own))),
            receives: Few::one((member(other), blocks(other))),
            after: Few::default(),
        });
        have *= 2;
    }
    plan
}

/// Bruck's algorithm: a member has its own block and those behind it, twice as many in each round.
fn allgather_short(position: Position, lens: &[usize], offs: &[usize], total: usize) -> Plan {
    let Position { own, size } = position;
    let rotated: Vec<usize> = (0..size).map(|index| lens[position.after(index)]).collect();
    let (mut at, end) = offsets(&rotated);
    at.push(end);
    let mut plan = Plan {
        scratch_len: total,
        ..Plan::default()
    };
    plan.begin([copy((Place::Input, 0), (Place::Scratch, 0), lens[own])]);
    let mut have = 1;
    while have < size {
        let count = have.min(size - have);
        plan.rounds.push(Round {
            sends: Few::one((
                member(position.before(have)),
                Span::new(Place::Scratch, 0..at[count]),
            )),
            receives: Few::one((
                member(position.after(have)),
                Span::new(Place::Scratch, at[have]..at[have + count]),
            )),
            after: Few::default(),
        });
        have += count;
    }
    let tail = total - offs[own];
    plan.begin([
        copy((Place::Scratch, 0), (Place::Output, offs[own]), tail),
        copy((Place::Scratch, tail), (Place::Output, 0), offs[own]),
    ]);
    plan
}

/// Member `root` gets the data of all, which have the same length.
pub(super) fn gather(position: Position, root: usize, len: usize) -> Plan {
    if len > TREE_BLOCK_MAX || position.size <= 2 {
        return gatherv(position, root, len, &vec![len; position.size]);
    }
    let Position { own, size } = position.relative_to(root);
    let actual = |relative: usize| member((root + relative) % size);
    let span =
        |from: usize, count: usize| Span::new(Place::Scratch, from * len..(from + count) * len);
    let (children, parent) = binomial(own, size);
    let mut plan = Plan {
        scratch_len: children.iter().map(|child| child.1).sum::<usize>() * len + len,
        ..Plan::default()
    };
    plan.begin([copy((Place::Input, 0), (Place::Scratch, 0), len)]);
    let receives = children
        .iter()
        .map(|&(child, count)| (actual(child), span(child - own, count)));
    plan.rounds.push(Round {
        receives: receives.collect(),
        ..Round::default()
    });
    match parent {
        Some(parent) => plan.rounds.push(Round {
            sends: Few::one((
                actual(parent),
                Span::new(Place::Scratch, 0..plan.scratch_len),
            )),
            ..Round::default()
        }),
        None => {
            let (root_off, tail) = (root * len, (size - root) * len);
            plan.begin([
                copy((Place::Scratch, 0), (Place::Output, root_off), tail),
                copy((Place::Scratch, tail), (Place::Output, 0), root_off),
            ]);
        }
    }
    plan
}

/// Returns the children of a member in a binomial tree with root 0, each with the size of its
/// subtree, and its parent. A subtree has consecutive members.
fn binomial(own: usize, size: usize) -> (Vec<(usize, usize)>, Option<usize>) {
    let mut children = Vec::new();
    let mut bit = 1;
    while bit < size && own & bit == 0 {
        let child = own + bit;
        if child < size {
            children.push((child, bit.min(size - child)));
        }
        bit <<= 1;
    }
    (children, (own > 0).then(|| own - bit))
}

/// Member `root` gets the data of all. Only it has their lengths.
pub(super) fn gatherv(position: Position, root: usize, own_len: usize, lens: &[usize]) -> Plan {
    let mut plan = Plan::default();
    if position.own != root {
        let all = Span::new(Place::Input, 0..own_len);
        plan.rounds.push(Round {
            sends: Few::one((member(root), all)),
            ..Round::default()
        });
        return plan;
    }
    let (offs, _) = offsets(lens);
    let others = (0..position.size).filter(|index| *index != root);
    let receives = others.map(|index| {
        let block = offs[index]..offs[index] + lens[index];
        (member(index), Span::new(Place::Output, block))
    });
    plan.rounds.push(Round {
        receives: receives.collect(),
        after: Few::one(copy(
            (Place::Input, 0),
            (Place::Output, offs[root]),
            own_len,
        )),
        ..Round::default()
    });
    plan
}

/// Every member gets its part of the data of member `root`. All parts have the same length.
pub(super) fn scatter(position: Position, root: usize, len: usize) -> Plan {
    if len > TREE_BLOCK_MAX || position.size <= 2 {
        return scatterv(position, root, len, &vec![len; position.size]);
    }
    let Position { own, size } = position.relative_to(root);
    let actual = |relative: usize| member((root + relative) % size);
    let (children, parent) = binomial(own, size);
    let mut plan = Plan {
        scratch_len: children.iter().map(|child| child.1).sum::<usize>() * len + len,
        ..Plan::default()
    };
    match parent {
        Some(parent) => plan.rounds.push(Round {
            receives: Few::one((
                actual(parent),
                Span::new(Place::Scratch, 0..plan.scratch_len),
            )),
            ..Round::default()
        }),
        None => {
            let (root_off, tail) = (root * len, (size - root) * len);
            plan.begin([
                copy((Place::Input, root_off), (Place::Scratch, 0), tail),
                copy((Place::Input, 0), (Place::Scratch, tail), root_off),
            ]);
        }
    }
    let sends = children.iter().rev().map(|&(child, count)| {
        let from = (child - own) * len;
        (
            actual(child),
            Span::new(Place::Scratch, from..from + count * len),
        )
    });
    plan.rounds.push(Round {
        sends: sends.collect(),
        after: Few::one(copy((Place::Scratch, 0), (Place::Output, 0), len)),
        ..Round::default()
    });
    plan
}

/// Every member gets its part of the data of member `root`, the only one with all lengths.
pub(super) fn scatterv(position: Position, root: usize, own_len: usize, lens: &[usize]) -> Plan {
    let mut plan = Plan::default();
    if position.own != root {
        let all = Span::new(Place::Output, 0..own_len);
        plan.rounds.push(Round {
            receives: Few::one((member(root), all)),
            ..Round::default()
        });
        return plan;
    }
    let (offs, _) = offsets(lens);
    let others = (0..position.size).filter(|index| *index != root);
    let sends = others.map(|index| {
        let block = offs[index]..offs[index] + lens[index];
        (member(index), Span::new(Place::Input, block))
    });
    plan.rounds.push(Round {
        sends: sends.collect(),
        after: Few::one(copy(
            (Place::Input, offs[root]),
            (Place::Output, 0),
            own_len,
        )),
        ..Round::default()
    });
    plan
}

/// Every member sends a block of the same length to each member.
pub(super) fn alltoall(position: Position, len: usize) -> Plan {
    if len > ALLTOALL_SHORT_MAX || position.size < ALLTOALL_SHORT_MEMBERS_MIN {
        let lens = vec![len; position.size];
        return alltoallv(position, &lens, &lens);
    }
    alltoall_short(position, len)
}

/// Every member sends `lens[i]` bytes to member `i`, and receives `theirs[i]` bytes from it.
pub(super) fn alltoallv(position: Position, lens: &[usize], theirs: &[usize]) -> Plan {
    let ((offs, _), (places, _)) = (offsets(lens), offsets(theirs));
    let own = position.own;
    let mut plan = Plan::default();
    plan.begin([copy(
        (Place::Input, offs[own]),
        (Place::Output, places[own]),
        lens[own].min(theirs[own]),
    )]);
    let steps: Vec<usize> = (1..position.size).collect();
    for steps in steps.chunks(IN_FLIGHT_MAX) {
        let mut round = Round::default();
        for step in steps {
            let (to, from) = (position.after(*step), position.before(*step));
            let block = Span::new(Place::Input, offs[to]..offs[to] + lens[to]);
            round.sends.push((member(to), block));
            let place = Span::new(Place::Output, places[from]..places[from] + theirs[from]);
            round.receives.push((member(from), place));
        }
        plan.rounds.push(round);
    }
    plan
}

/// Bruck's algorithm: in each round, the blocks with the next bit set in their distance move that far.
fn alltoall_short(position: Position, len: usize) -> Plan {
    let size = position.size;
    // Scratch: the blocks by their distance, then those to send, then those received.
    let (sending, receiving) = (size * len, size * len + size.div_ceil(2) * len);
    let mut plan = Plan {
        scratch_len: receiving + size.div_ceil(2) * len,
        ..Plan::default()
    };
    let rotated = |distance: usize| {
        let from = position.after(distance) * len;
        copy((Place::Input, from), (Place::Scratch, distance * len), len)
    };
    plan.begin((0..size).map(rotated));
    let mut bit = 1;
    while bit < size {
        let moved: Vec<usize> = (0..size).filter(|distance| distance & bit != 0).collect();
        let pack = moved.iter().enumerate().map(|(index, distance)| {
            let to = (Place::Scratch, sending + index * len);
            copy((Place::Scratch, distance * len), to, len)
        });
        plan.begin(pack);
        let unpack = moved.iter().enumerate().map(|(index, distance)| {
            let from = (Place::Scratch, receiving + index * len);
            copy(from, (Place::Scratch, distance * len), len)
        });
        let span = |at: usize| Span::new(Place::Scratch, at..at + moved.len() * len);
        plan.rounds.push(Round {
            sends: Few::one((member(position.after(bit)), span(sending))),
            receives: Few::one((member(position.before(bit)), span(receiving))),
            after: unpack.collect(),
        });
        bit <<= 1;
    }
    let placed = |distance: usize| {
        let to = position.before(distance) * len;
        copy((Place::Scratch, distance * len), (Place::Output, to), len)
    };
    plan.begin((0..size).map(placed));
    plan
}

/// Combines the values of all members; each gets its part, which has the length `lens[own]`. With
/// `is_ordered` values are combined in the order of the members.
pub(super) fn reduce_scatter(position: Position, lens: &[usize], is_ordered: bool) -> Plan {
    let own = position.own;
    let (offs, total) = offsets(lens);
    if is_ordered || total <= REDUCE_SCATTER_SHORT_MAX {
        let mut plan = Plan {
            scratch_len: 2 * total,
            ..Plan::default()
        };
        plan.begin([copy((Place::Input, 0), (Place::Scratch, 0), total)]);
        let values = Span::new(Place::Scratch, 0..total);
        let other = Span::new(Place::Scratch, total..2 * total);
        add_steps(&mut plan, &steps_of_allreduce(position), values, other);
        let from = (Place::Scratch, offs[own]);
        plan.begin([copy(from, (Place::Output, 0), lens[own])]);
        return plan;
    }
    let mut plan = Plan::default();
    let own_place = Span::new(Place::Output, 0..lens[own]);
    plan.begin([copy(
        (Place::Input, offs[own]),
        (Place::Output, 0),
        lens[own],
    )]);
    pairwise(&mut plan, position, Place::Input, (lens, &offs), own_place);
    plan
}

/// Sends each member its block of `from`, and combines the received blocks in `into`. Long blocks are
/// sent in segments.
fn pairwise(
    plan: &mut Plan,
    position: Position,
    from: Place,
    (lens, offs): (&[usize], &[usize]),
    into: Span,
) {
    let steps: Vec<usize> = (1..position.size).collect();
    let in_flight = IN_FLIGHT_MAX.min(steps.len()).max(1);
    let segment_len = SEGMENT_LEN_MAX / in_flight / SEGMENT_ALIGN * SEGMENT_ALIGN;
    let slot_len = into.len.min(segment_len);
    plan.scratch_len = plan.scratch_len.max(in_flight * slot_len);
    for steps in steps.chunks(IN_FLIGHT_MAX) {
        let lens_sent = steps.iter().map(|step| lens[position.after(*step)]);
        let longest = lens_sent.max().unwrap_or(0).max(into.len);
        for begin in (0..longest).step_by(segment_len) {
            let segment = |len: usize| begin.min(len)..(begin + segment_len).min(len);
            let own = segment(into.len);
            let into = Span::new(into.place, into.off + own.start..into.off + own.end);
            let mut round = Round::default();
            for (index, step) in steps.iter().enumerate() {
                let (to, source) = (position.after(*step), position.before(*step));
                let sent = segment(lens[to]);
                if !sent.is_empty() {
                    let block = Span::new(from, offs[to] + sent.start..offs[to] + sent.end);
                    round.sends.push((member(to), block));
                }
                if into.len > 0 {
                    let place = index * slot_len..index * slot_len + into.len;
                    let place = Span::new(Place::Scratch, place);
                    round.receives.push((member(source), place));
                    round.after.push(Action::Combine {
                        from: place,
                        to: into,
                        side: side_of(source, position.own),
                    });
                }
            }
            plan.rounds.push(round);
        }
    }
}

fn side_of(other: usize, own: usize) -> Side {
    match other < own {
        true => Side::Lower,
        false => Side::Upper,
    }
}

/// Combines `len` bytes of values of all members in place, in the order of the members.
pub(super) fn allreduce(position: Position, len: usize) -> Plan {
    in_steps(&steps_of_allreduce(position), len)
}

/// Combines values like [`allreduce`], at member `root` alone. With `is_ordered` values are combined
/// in the order of the members.
pub(super) fn reduce(position: Position, root: usize, len: usize, is_ordered: bool) -> Plan {
    let (own, size) = (member(position.own), member(position.size));
    if !is_ordered {
        return in_steps(&reduce_steps(own, member(root), size), len);
    }
    // The tree of a broadcast keeps the order of the members if its root is member 0, which passes
    // the result on.
    let mut steps = reduce_steps(own, 0, size);
    if root != 0 {
        match position.own {
            0 => steps.push(Step::Send(member(root))),
            own if own == root => steps.push(Step::Replace(0)),
            _ => {}
        }
    }
    in_steps(&steps, len)
}

/// Combines long values in place: each member reduces one block, which all get afterwards.
pub(super) fn allreduce_long(position: Position, len: usize, element_len: usize) -> Plan {
    let count = len / element_len;
    let share = |index: usize| count * index / position.size * element_len;
    let lens: Vec<usize> = (0..position.size)
        .map(|index| share(index + 1) - share(index))
        .collect();
    let (offs, _) = offsets(&lens);
    let own = Span::new(
        Place::Output,
        offs[position.own]..offs[position.own] + lens[position.own],
    );
    let mut plan = Plan::default();
    pairwise(&mut plan, position, Place::Output, (&lens, &offs), own);
    ring(&mut plan, position, &lens, &offs);
    plan
}

/// Combines the values of all members up to each one, in place.
pub(super) fn scan(position: Position, len: usize) -> Plan {
    let mut plan = Plan {
        scratch_len: len,
        ..Plan::default()
    };
    let (values, other) = (
        Span::new(Place::Output, 0..len),
        Span::new(Place::Scratch, 0..len),
    );
    let mut distance = 1;
    while distance < position.size {
        let mut round = Round::default();
        if position.own + distance < position.size {
            round.sends.push((member(position.own + distance), values));
        }
        if position.own >= distance {
            round
                .receives
                .push((member(position.own - distance), other));
            round.after.push(Action::Combine {
                from: other,
                to: values,
                side: Side::Lower,
            });
        }
        plan.rounds.push(round);
        distance <<= 1;
    }
    plan
}

/// Combines the values of all members before each one, in place. Member 0 keeps its values.
pub(super) fn exscan(position: Position, len: usize) -> Plan {
    let mut plan = Plan {
        scratch_len: 2 * len,
        ..Plan::default()
    };
    let values = Span::new(Place::Output, 0..len);
    // The values of this member and of those before it that were received so far.
    let partial = Span::new(Place::Scratch, 0..len);
    let other = Span::new(Place::Scratch, len..2 * len);
    plan.begin([copy((Place::Output, 0), (Place::Scratch, 0), len)]);
    let mut distance = 1;
    while distance < position.size {
        let mut round = Round::default();
        if position.own + distance < position.size {
            round.sends.push((member(position.own + distance), partial));
        }
        if position.own >= distance {
            round
                .receives
                .push((member(position.own - distance), other));
            let join = |to: Span| Action::Combine {
                from: other,
                to,
                side: Side::Lower,
            };
            let first = Action::Copy {
                from: other,
                to: values,
            };
            round.after = match distance {
                1 => [first, join(partial)].into_iter().collect(),
                _ => [join(values), join(partial)].into_iter().collect(),
            };
        }
        plan.rounds.push(round);
        distance <<= 1;
    }
    plan
}

fn steps_of_allreduce(position: Position) -> Vec<Step> {
    allreduce_steps(member(position.own), member(position.size)).collect()
}

fn in_steps(steps: &[Step], len: usize) -> Plan {
    let mut plan = Plan {
        scratch_len: len,
        ..Plan::default()
    };
    let values = Span::new(Place::Output, 0..len);
    add_steps(&mut plan, steps, values, Span::new(Place::Scratch, 0..len));
    plan
}

/// Adds the steps of a reduction of `values`; `other` receives those of other members.
fn add_steps(plan: &mut Plan, steps: &[Step], values: Span, other: Span) {
    for step in steps {
        let mut round = Round::default();
        if let Step::Send(to) | Step::Swap(to, _) = *step {
            round.sends.push((to, values));
        }
        match *step {
            Step::Send(_) => {}
            Step::Replace(from) => round.receives.push((from, values)),
            Step::Join(from, side) | Step::Swap(from, side) => {
                round.receives.push((from, other));
                round.after.push(Action::Combine {
                    from: other,
                    to: values,
                    side,
                });
            }
        }
        plan.rounds.push(round);
    }
}

#[cfg(test)]
mod tests;
