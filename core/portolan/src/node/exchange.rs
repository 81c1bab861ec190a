// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collective operations that move or combine blocks of data: allgather, gather, scatter, alltoall,
//! reduce-scatter, scan, and reductions by functions of the program.
//!
//! The blocks of the members are contiguous, in the order of the group. The forms with a `v` take
//! the number of elements of each block. Algorithms are chosen by size and count (`plan`). The rules
//! of [`crate::Node::barrier`] apply: all members make the same calls in the same order.
#![allow(
    unsafe_code,
    reason = "blocking calls pass their slices to operations; see `ops`"
)]

mod blocking;
mod machine;
mod memory;
mod nonblocking;
mod operator;
mod plan;
mod prepared;
mod short;

pub use operator::Operator;
pub(super) use prepared::PreparedPlans;

use crate::buffer::Buffer;
use crate::collective::{CollectiveKind, Head, PART_INLINE_LEN_MAX};
use crate::error::Error;
use crate::node::running::RequestGuard;
use crate::node::{Group, Node};
use crate::ops::Request;
use machine::Exchange;
use memory::{Combine, Memories};
use plan::{Plan, Position};
use prepared::{Choice, Form, Planned, Shape};

/// Bytes of a vector from which an allreduce sends each member one block to combine. Shorter ones are
/// combined as a whole in fewer rounds.
const LONG_ALLREDUCE_MIN: usize = 64 << 10;

/// An operation that has not begun.
struct Operation {
    head: Head,
    plan: Planned,
    combine: Option<Combine>,
}

impl Operation {
    fn new(kind: CollectiveKind, root: u32, len: usize, plan: Planned) -> Operation {
        Operation {
            head: Head::new(kind, root, len),
            plan,
            combine: None,
        }
    }

    /// Begins the operation, and returns its request.
    fn begin(
        self,
        node: &mut Node,
        group: &Group,
        input: Buffer,
        output: Buffer,
    ) -> Result<Request, Error> {
        let Operation {
            head,
            plan,
            combine,
        } = self;
        start(
            node,
            group,
            (head, plan.into_plan(), combine),
            (input, output),
        )
    }

    /// Performs the operation on borrowed memory, which is released before it returns.
    fn perform(
        self,
        node: &mut Node,
        group: &Group,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Error> {
        let Operation {
            head,
            plan,
            combine,
        } = self;
        let plan = match node.plans.take(plan) {
            Choice::Short(mut prepared) => {
                let begun = node.engine.enter().begin_task(group, head);
                match begun {
                    Ok(task) => {
                        let combine = combine.as_ref();
                        let memory = (input, output);
                        let result = prepared.allocate().and_then(|()| {
                            short::perform(&mut prepared, combine, node, &task, memory)
                        });
                        node.plans.keep(prepared);
                        return node.engine.enter().end_task(&task, result);
                    }
                    // It must wait for its turn.
                    Err(Error::GroupBusy { .. }) => prepared.plan,
                    Err(error) => return Err(error),
                }
            }
            Choice::Long(plan) => plan,
        };
        // SAFETY: the guard takes the memory back before the borrows end, and nothing else uses the
        // bytes until then. The input is not written.
        let (input, output) = unsafe {
            (
                Buffer::from_raw(input.as_ptr(), input.len()),
                Buffer::from_raw_mut(output.as_mut_ptr(), output.len()),
            )
        };
        let request = start(node, group, (head, plan, combine), (input, output))?;
        let mut guard = RequestGuard::new(node, request);
        guard.node().wait(request)?;
        Ok(())
    }
}

/// Begins an operation on `input` and `output`, and returns its request.
fn start(
    node: &mut Node,
    group: &Group,
    (head, plan, combine): (Head, Plan, Option<Combine>),
    (input, output): (Buffer, Buffer),
) -> Result<Request, Error> {
    let memories = Memories::new(input, output, plan.scratch_len)?;
    let engine = &mut *node.engine.enter();
    engine.run(group, head, Exchange::new(plan, memories, combine))
}

impl Group {
    fn position(&self) -> Position {
        Position {
            own: self.rank() as usize,
            size: self.size() as usize,
        }
    }

    /// Returns the plan of an operation on blocks of equal lengths.
    fn planned(&self, form: Form) -> Planned {
        Planned::Of(Shape {
            position: self.position(),
            form,
        })
    }
}

/// Returns whether a reduction of `len` bytes in a group of `size` is an operation of this module, which
/// sends values from their place. Shorter ones fit one message with their head.
pub(super) fn is_long_reduction(size: u32, len: usize) -> bool {
    size > 1 && len > PART_INLINE_LEN_MAX
}

/// Returns the error for lengths that do not fit each other.
fn unfit(name: &'static str, value: String, why: String) -> Error {
    Error::Setting { name, value, why }
}

/// Checks that memory has the length of all blocks.
fn check_len(name: &'static str, len: usize, wanted: usize) -> Result<(), Error> {
    match len == wanted {
        true => Ok(()),
        false => Err(unfit(
            name,
            format!("{len} bytes"),
            format!("the blocks of all members have {wanted} bytes"),
        )),
    }
}

/// Returns the total length of the blocks of all members, of `len` bytes each.
fn total_len(group: &Group, len: usize) -> usize {
    len.saturating_mul(group.size() as usize)
}

/// Checks the number of lengths, and that `len` bytes are those of all blocks.
fn check_lens(group: &Group, name: &'static str, lens: &[usize], len: usize) -> Result<(), Error> {
    let size = group.size() as usize;
    if lens.len() != size {
        let why = format!("name one count for each of the {size} members");
        return Err(unfit("number of counts", lens.len().to_string(), why));
    }
    let total = lens
        .iter()
        .try_fold(0_usize, |sum, len| sum.checked_add(*len));
    check_len(name, len, total.unwrap_or(usize::MAX))
}

/// Returns the operation in which every member gets the blocks of all members. The blocks have equal
/// lengths.
fn allgather(group: &Group, mine: usize, all: usize) -> Result<Operation, Error> {
    check_len("memory for all blocks", all, total_len(group, mine))?;
    let plan = group.planned(Form::Allgather { len: mine });
    Ok(Operation::new(CollectiveKind::Allgather, 0, all, plan))
}

/// Returns the operation in which every member gets the blocks of all.
fn allgatherv(group: &Group, mine: usize, all: usize, lens: &[usize]) -> Result<Operation, Error> {
    check_lens(group, "memory for all blocks", lens, all)?;
    check_len("own block", mine, lens[group.rank() as usize])?;
    let plan = Planned::Made(plan::allgather(group.position(), lens));
    Ok(Operation::new(CollectiveKind::Allgather, 0, all, plan))
}

/// Returns the operation in which `root` gets the blocks of all, of equal lengths.
fn gather(group: &Group, root: u32, mine: usize, all: usize) -> Result<Operation, Error> {
    super::group::check_root(root, group)?;
    if group.rank() == root {
        check_len("memory for all blocks", all, total_len(group, mine))?;
    }
    let plan = group.planned(Form::Gather {
        root: root as usize,
        len: mine,
    });
    Ok(Operation::new(CollectiveKind::Gather, root, mine, plan))
}

/// Returns the operation in which `root` gets the blocks of all.
fn gatherv(
    group: &Group,
    root: u32,
    mine: usize,
    all: usize,
    lens: &[usize],
) -> Result<Operation, Error> {
    super::group::check_root(root, group)?;
    if group.rank() == root {
        check_lens(group, "memory for all blocks", lens, all)?;
        check_len("own block", mine, lens[root as usize])?;
    }
    let plan = Planned::Made(plan::gatherv(group.position(), root as usize, mine, lens));
    Ok(Operation::new(CollectiveKind::Gatherv, root, 0, plan))
}

/// Returns the operation in which each member gets its block of `root`, of equal lengths.
fn scatter(group: &Group, root: u32, all: usize, mine: usize) -> Result<Operation, Error> {
    super::group::check_root(root, group)?;
    if group.rank() == root {
        check_len("blocks of all members", all, total_len(group, mine))?;
    }
    let plan = group.planned(Form::Scatter {
        root: root as usize,
        len: mine,
    });
    Ok(Operation::new(CollectiveKind::Scatter, root, mine, plan))
}

/// Returns the operation in which each member gets its block of `root`.
fn scatterv(
    group: &Group,
    root: u32,
    all: usize,
    lens: &[usize],
    mine: usize,
) -> Result<Operation, Error> {
    super::group::check_root(root, group)?;
    if group.rank() == root {
        check_lens(group, "blocks of all members", lens, all)?;
        check_len("memory for the own block", mine, lens[root as usize])?;
    }
    let plan = Planned::Made(plan::scatterv(group.position(), root as usize, mine, lens));
    Ok(Operation::new(CollectiveKind::Scatterv, root, 0, plan))
}

/// Returns the operation in which each member sends blocks of equal lengths to all.
fn alltoall(group: &Group, mine: usize, theirs: usize) -> Result<Operation, Error> {
    let size = group.size() as usize;
    check_len("memory for all blocks", theirs, mine)?;
    if !mine.is_multiple_of(size) {
        let why = format!("they are not the blocks of {size} members");
        return Err(unfit(
            "blocks for all members",
            format!("{mine} bytes"),
            why,
        ));
    }
    let plan = group.planned(Form::Alltoall { len: mine / size });
    Ok(Operation::new(CollectiveKind::Alltoall, 0, mine, plan))
}

/// Returns the operation in which each member sends a block to each member.
fn alltoallv(
    group: &Group,
    (mine, lens): (usize, &[usize]),
    (theirs, their_lens): (usize, &[usize]),
) -> Result<Operation, Error> {
    check_lens(group, "blocks for all members", lens, mine)?;
    check_lens(group, "memory for all blocks", their_lens, theirs)?;
    let own = group.rank() as usize;
    check_len("own block", their_lens[own], lens[own])?;
    let plan = Planned::Made(plan::alltoallv(group.position(), lens, their_lens));
    Ok(Operation::new(CollectiveKind::Alltoallv, 0, 0, plan))
}

/// Returns the operation in which each member gets a part of the combined values, all of one
/// length.
fn reduce_scatter(
    group: &Group,
    operator: Operator,
    values: usize,
    own: usize,
) -> Result<Operation, Error> {
    check_len("values of all members", values, total_len(group, own))?;
    operator.check(own)?;
    let plan = group.planned(Form::ReduceScatter {
        len: own,
        is_ordered: operator.is_ordered(),
    });
    operator.operation(CollectiveKind::ReduceScatter, 0, values, plan)
}

/// Returns the operation in which each member gets its part of the combined values.
fn reduce_scatterv(
    group: &Group,
    operator: Operator,
    values: usize,
    own: usize,
    lens: &[usize],
) -> Result<Operation, Error> {
    check_lens(group, "values of all members", lens, values)?;
    check_len(
        "memory for the own values",
        own,
        lens[group.rank() as usize],
    )?;
    for len in lens {
        operator.check(*len)?;
    }
    let plan = plan::reduce_scatter(group.position(), lens, operator.is_ordered());
    let plan = Planned::Made(plan);
    operator.operation(CollectiveKind::ReduceScatter, 0, values, plan)
}

/// Returns the operation in which each member gets the combined values of the members up to it.
fn scan(group: &Group, operator: Operator, len: usize) -> Result<Operation, Error> {
    let plan = group.planned(Form::Scan { len });
    operator.operation(CollectiveKind::Scan, 0, len, plan)
}

/// Returns the operation in which each member gets the combined values of the members before it.
fn exscan(group: &Group, operator: Operator, len: usize) -> Result<Operation, Error> {
    let plan = group.planned(Form::Exscan { len });
    operator.operation(CollectiveKind::Exscan, 0, len, plan)
}

/// Returns the operation in which all members get the combined values.
fn allreduce(group: &Group, operator: Operator, len: usize) -> Result<Operation, Error> {
    let is_long = len >= LONG_ALLREDUCE_MIN && group.size() > 1;
    let plan = match is_long && !operator.is_ordered() {
        true => {
            let element_len = operator.element_len();
            Planned::Made(plan::allreduce_long(group.position(), len, element_len))
        }
        false => group.planned(Form::Allreduce { len }),
    };
    operator.operation(CollectiveKind::Allreduce, 0, len, plan)
}

/// Returns the operation in which member `root` gets the combined values.
fn reduce(group: &Group, root: u32, operator: Operator, len: usize) -> Result<Operation, Error> {
    super::group::check_root(root, group)?;
    let plan = group.planned(Form::Reduce {
        root: root as usize,
        len,
        is_ordered: operator.is_ordered(),
    });
    operator.operation(CollectiveKind::Reduce, root, len, plan)
}
