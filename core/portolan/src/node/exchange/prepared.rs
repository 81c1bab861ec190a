// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of recent operations, with their scratch memory. A program that repeats a short operation
//! needs neither a plan nor memory for it again.
//!
//! Invariant: a kept plan is that of its shape, so it is the same as a new one.

use super::plan::{self, Plan, Position};
use crate::buffer;
use crate::error::Error;

/// Number of plans that are kept: those of the operations in one round of a usual program.
const KEPT_MAX: usize = 4;

/// Most members of a group whose plans are kept. The messages of larger groups take much longer
/// than their plans.
const KEPT_SIZE_MAX: usize = 64;

/// Operation on blocks of equal lengths, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Allgather {
        len: usize,
    },
    Gather {
        root: usize,
        len: usize,
    },
    Scatter {
        root: usize,
        len: usize,
    },
    Alltoall {
        len: usize,
    },
    ReduceScatter {
        len: usize,
        is_ordered: bool,
    },
    Scan {
        len: usize,
    },
    Exscan {
        len: usize,
    },
    Allreduce {
        len: usize,
    },
    Reduce {
        root: usize,
        len: usize,
        is_ordered: bool,
    },
}

/// All that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) position: Position,
    pub(super) form: Form,
}

impl Shape {
    fn plan(&self) -> Plan {
        let position = self.position;
        let equal = |len| vec![len; position.size];
        match self.form {
            Form::Allgather { len } => plan::allgather(position, &equal(len)),
            Form::Gather { root, len } => plan::gather(position, root, len),
            Form::Scatter { root, len } => plan::scatter(position, root, len),
            Form::Alltoall { len } => plan::alltoall(position, len),
            Form::ReduceScatter { len, is_ordered } => {
                plan::reduce_scatter(position, &equal(len), is_ordered)
            }
            Form::Scan { len } => plan::scan(position, len),
            Form::Exscan { len } => plan::exscan(position, len),
            Form::Allreduce { len } => plan::allreduce(position, len),
            Form::Reduce {
                root,
                len,
                is_ordered,
            } => plan::reduce(position, root, len, is_ordered),
        }
    }
}

/// Plan of an operation, or all that is needed to make it.
#[derive(Debug)]
pub(super) enum Planned {
    Made(Plan),
    Of(Shape),
}

impl Planned {
    /// Returns the plan for an operation with a request.
    pub(super) fn into_plan(self) -> Plan {
        match self {
            Planned::Made(plan) => plan,
            Planned::Of(shape) => shape.plan(),
        }
    }
}

/// A plan with its scratch memory.
#[derive(Debug)]
pub(super) struct Prepared {
    shape: Option<Shape>,
    pub(super) plan: Plan,
    pub(super) scratch: Vec<u8>,
}

impl Prepared {
    fn new(shape: Option<Shape>, plan: Plan) -> Result<Prepared, Error> {
        let what = "the memory of a collective operation";
        let scratch = buffer::zeroed(what, plan.scratch_len)?;
        Ok(Prepared {
            shape,
            plan,
            scratch,
        })
    }
}

/// How to perform an operation.
#[derive(Debug)]
pub(super) enum Choice {
    /// Each message fits one with its head.
    Short(Prepared),
    Long(Plan),
}

/// Prepared plans of recent operations, the latest last.
#[derive(Debug, Default)]
pub(in crate::node) struct PreparedPlans(Vec<Prepared>);

impl PreparedPlans {
    /// Returns a plan, with its memory if it is short.
    pub(super) fn take(&mut self, planned: Planned) -> Result<Choice, Error> {
        let shape = match planned {
            Planned::Of(shape) => Some(shape),
            Planned::Made(_) => None,
        };
        let is_same = |prepared: &Prepared| prepared.shape == shape;
        let kept = self.0.iter().rposition(is_same);
        if let Some(kept) = kept.filter(|_| shape.is_some()) {
            return Ok(Choice::Short(self.0.remove(kept)));
        }
        let plan = planned.into_plan();
        match plan.is_short() {
            true => Prepared::new(shape, plan).map(Choice::Short),
            false => Ok(Choice::Long(plan)),
        }
    }

    /// Keeps a plan for later operations.
    pub(super) fn keep(&mut self, prepared: Prepared) {
        let is_small = |shape: Shape| shape.position.size <= KEPT_SIZE_MAX;
        if !prepared.shape.is_some_and(is_small) {
            return;
        }
        if self.0.len() == KEPT_MAX {
            self.0.remove(0);
        }
        self.0.push(prepared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(len: usize) -> Planned {
        let position = Position { own: 1, size: 3 };
        let form = Form::Scan { len };
        Planned::Of(Shape { position, form })
    }

    fn taken(plans: &mut PreparedPlans, planned: Planned) -> Option<Prepared> {
        match plans.take(planned).unwrap() {
            Choice::Short(prepared) => Some(prepared),
            Choice::Long(_) => None,
        }
    }

    fn kept(plans: &PreparedPlans) -> Vec<usize> {
        plans.0.iter().map(|plan| plan.scratch.len()).collect()
    }

    #[test]
    fn plans_of_the_latest_short_operations_are_kept() {
        let mut plans = PreparedPlans::default();
        for len in [8, 16, 24, 32, 40] {
            let prepared = taken(&mut plans, scan(len)).unwrap();
            assert_eq!(prepared.scratch, vec![0; len]);
            plans.keep(prepared);
        }
        assert_eq!(kept(&plans), [16, 24, 32, 40]);
        let again = taken(&mut plans, scan(24)).unwrap();
        assert_eq!(kept(&plans), [16, 32, 40]);
        plans.keep(again);
        assert_eq!(kept(&plans), [16, 32, 40, 24]);
        // Neither long plans nor those of other lengths for each member.
        assert!(taken(&mut plans, scan(100_000)).is_none());
        let plan = plan::scan(Position { own: 0, size: 2 }, 8);
        let made = taken(&mut plans, Planned::Made(plan)).unwrap();
        plans.keep(made);
        assert_eq!(kept(&plans), [16, 32, 40, 24]);
    }
}
