// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of recent operations, with their scratch memory. A program that repeats a short operation
//! needs neither a plan nor memory for it again.
//!
//! Invariant: a kept plan equals the plan that its shape would make again. The contents of its
//! scratch memory are undefined.

use super::plan::{self, Plan, Position};
use crate::buffer;
use crate::error::Error;

/// Number of plans that are kept. An iterative program rarely repeats more than four operations, and
/// a search of four takes less time than making a plan.
const KEPT_MAX: usize = 4;

/// Maximum size of a group for which plans are kept. It bounds their memory. In larger groups the
/// messages take much longer than making a plan.
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

/// Arguments that determine a plan.
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

/// Plan of an operation, or the shape from which it can be made.
#[derive(Debug)]
pub(super) enum Planned {
    Made(Plan),
    Of(Shape),
}

impl Planned {
    /// Returns the plan; makes it if necessary.
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
    /// Allocates the scratch memory, unless it is there.
    pub(super) fn allocate(&mut self) -> Result<(), Error> {
        if self.scratch.len() < self.plan.scratch_len {
            let what = "the memory of a collective operation";
            self.scratch = buffer::zeroed(what, self.plan.scratch_len)?;
        }
        Ok(())
    }
}

/// Way to perform an operation.
#[derive(Debug)]
pub(super) enum Choice {
    /// The head and the data of each message travel together; performed without a request.
    Short(Prepared),
    Long(Plan),
}

/// Prepared plans of recent operations, the latest last.
#[derive(Debug, Default)]
pub(in crate::node) struct PreparedPlans(Vec<Prepared>);

impl PreparedPlans {
    /// Returns the kept plan of this shape, or a new one. A new one has no scratch memory yet.
    pub(super) fn take(&mut self, planned: Planned) -> Choice {
        let shape = match planned {
            Planned::Of(shape) => Some(shape),
            Planned::Made(_) => None,
        };
        let is_same = |prepared: &Prepared| prepared.shape == shape;
        let kept = self.0.iter().rposition(is_same);
        if let Some(kept) = kept.filter(|_| shape.is_some()) {
            return Choice::Short(self.0.remove(kept));
        }
        let plan = planned.into_plan();
        match plan.is_short() {
            true => Choice::Short(Prepared {
                shape,
                plan,
                scratch: Vec::new(),
            }),
            false => Choice::Long(plan),
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
        match plans.take(planned) {
            Choice::Short(mut prepared) => {
                prepared.allocate().unwrap();
                Some(prepared)
            }
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
