// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operators of reductions: those of the library, and functions of the program.

use super::Operation;
use super::memory::Combine;
use super::prepared::Planned;
use crate::collective::{CollectiveKind, Head, OWN_OP};
use crate::error::Error;
use crate::node::reduce::{self, ReduceOp, Reducible, Side};
use bytemuck::Pod;
use std::fmt;

/// Combines the values of two members.
///
/// A function must be associative. It gets the values of lower members on the left, so it need not
/// be commutative. Every member must pass the same function.
pub struct Operator {
    /// Head with the numbers of operation and type.
    head: Head,
    element_len: usize,
    combine: Combine,
    /// Error for an operation that the type does not have.
    unfit: Option<Error>,
}

impl Operator {
    /// Returns the operator `op` for elements of type `T`. Operations refuse it if the type does
    /// not have it.
    ///
    /// # Examples
    /// See [`crate::Group::scan`].
    #[must_use]
    pub fn new<T: Reducible>(op: ReduceOp) -> Operator {
        Operator {
            head: reduce::head_of_len::<T>(CollectiveKind::Allreduce, 0, op, 0),
            element_len: size_of::<T>(),
            combine: Combine::Known(op, reduce::combine::<T>),
            unfit: reduce::check_op::<T>(op).err(),
        }
    }

    /// Returns the operator that combines two elements by `function`, which gets the lower member's
    /// element first.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, Operator};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// let mut flags = [1_u8 << (node.rank() % 8)];
    /// node.allreduce_by(Operator::by(|lower: u8, upper: u8| lower | upper), &mut flags)?;
    /// assert_eq!(flags[0].count_ones(), node.size().min(8));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by<T: Pod>(function: impl Fn(T, T) -> T + Send + 'static) -> Operator {
        let element_len = size_of::<T>().max(1);
        Operator::of_function(element_len, move |side, own, other| {
            let pairs = own
                .chunks_exact_mut(element_len)
                .zip(other.chunks_exact(element_len));
            for (own, other) in pairs {
                let mine: T = bytemuck::pod_read_unaligned(own);
                let theirs: T = bytemuck::pod_read_unaligned(other);
                let result = match side {
                    Side::Lower => function(theirs, mine),
                    Side::Upper => function(mine, theirs),
                };
                own.copy_from_slice(bytemuck::bytes_of(&result));
            }
        })
    }

    /// Returns the operator that combines elements of `element_len` bytes by `function`. It gets
    /// the elements of lower members, and those of upper members, which it replaces by the result.
    /// For interfaces in other languages.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let or = Operator::of_bytes(1, |lower, upper| {
    ///     upper.iter_mut().zip(lower).for_each(|(one, other)| *one |= other);
    /// });
    /// let mut bits = [1_u8 << (node.rank() % 8)];
    /// node.allreduce_by(or, &mut bits)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn of_bytes(
        element_len: usize,
        function: impl Fn(&[u8], &mut [u8]) + Send + 'static,
    ) -> Operator {
        Operator::of_function(element_len, move |side, own, other| match side {
            Side::Lower => function(other, own),
            Side::Upper => {
                let mut upper = other.to_vec();
                function(own, &mut upper);
                own.copy_from_slice(&upper);
            }
        })
    }

    fn of_function(
        element_len: usize,
        combine: impl Fn(Side, &mut [u8], &[u8]) + Send + 'static,
    ) -> Operator {
        let head = Head::new(CollectiveKind::Allreduce, 0, 0);
        Operator {
            head: Head { op: OWN_OP, ..head },
            element_len: element_len.max(1),
            combine: Combine::Own(Box::new(combine)),
            unfit: None,
        }
    }

    /// Returns whether the order of the operands may matter.
    pub(super) fn is_ordered(&self) -> bool {
        self.head.op == OWN_OP
    }

    pub(super) fn element_len(&self) -> usize {
        self.element_len
    }

    /// Checks that `len` bytes are whole elements.
    pub(super) fn check(&self, len: usize) -> Result<(), Error> {
        let element_len = self.element_len;
        match len.is_multiple_of(element_len) {
            true => Ok(()),
            false => Err(Error::PartialElement { len, element_len }),
        }
    }

    /// Returns the operation of this kind on `len` bytes.
    pub(super) fn operation(
        self,
        kind: CollectiveKind,
        root: u32,
        len: usize,
        plan: Planned,
    ) -> Result<Operation, Error> {
        self.check(len)?;
        if let Some(unfit) = self.unfit {
            return Err(unfit);
        }
        let head = Head {
            kind,
            root,
            len: len as u64,
            ..self.head
        };
        Ok(Operation {
            head,
            plan,
            combine: Some(self.combine),
        })
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("is_ordered", &self.is_ordered())
            .field("element_len", &self.element_len)
            .finish()
    }
}
