// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic operations on numbers in a region.
//!
//! The target's engine performs them one after another, so they are atomic with respect to one
//! another. The target's program uses its memory between calls of this library; the operations
//! happen within calls. Numbers are little-endian and may be at any address.

use portolan_proto::RemoteFault;

/// Atomic operation, applied to each number at the target, *t*, and its operand, *o*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// *t* + *o*; integers wrap around.
    Sum,
    /// *t* × *o*; integers wrap around.
    Product,
    /// Lesser of *t* and *o*.
    Min,
    /// Greater of *t* and *o*.
    Max,
    /// Bitwise *t* and *o*. Whole numbers only, like the next two.
    BitAnd,
    /// Bitwise *t* or *o*.
    BitOr,
    /// Bitwise exclusive or of *t* and *o*.
    BitXor,
    /// 1 if neither is 0, otherwise 0.
    LogicalAnd,
    /// 1 if at least one is not 0, otherwise 0.
    LogicalOr,
    /// 1 if exactly one is not 0, otherwise 0.
    LogicalXor,
    /// *o*.
    Write,
    /// *t*: only returns the number. Has no operands.
    Read,
    /// *o* if *t* is equal to the compared number *c*, otherwise *t*.
    SwapIfEqual,
    /// *o* if *c* ≠ *t*, otherwise *t*.
    SwapIfNotEqual,
    /// *o* if *c* < *t*, otherwise *t*.
    SwapIfLess,
    /// *o* if *c* ≤ *t*, otherwise *t*.
    SwapIfNotGreater,
    /// *o* if *c* > *t*, otherwise *t*.
    SwapIfGreater,
    /// *o* if *c* ≥ *t*, otherwise *t*.
    SwapIfNotLess,
    /// The bits of *o* that are set in *c*, and the other bits of *t*. Whole numbers only.
    SwapMasked,
}

impl AtomicOp {
    /// All operations, in the order of their codes, from 1.
    pub const ALL: [AtomicOp; 19] = [
        AtomicOp::Sum,
        AtomicOp::Product,
        AtomicOp::Min,
        AtomicOp::Max,
        AtomicOp::BitAnd,
        AtomicOp::BitOr,
        AtomicOp::BitXor,
        AtomicOp::LogicalAnd,
        AtomicOp::LogicalOr,
        AtomicOp::LogicalXor,
        AtomicOp::Write,
        AtomicOp::Read,
        AtomicOp::SwapIfEqual,
        AtomicOp::SwapIfNotEqual,
        AtomicOp::SwapIfLess,
        AtomicOp::SwapIfNotGreater,
        AtomicOp::SwapIfGreater,
        AtomicOp::SwapIfNotLess,
        AtomicOp::SwapMasked,
    ];

    /// Returns the code on the wire; see the table in `docs/reference/protocol.md`.
    pub(crate) fn code(self) -> u8 {
        let index = Self::ALL.iter().position(|&op| op == self);
        index
            .and_then(|index| u8::try_from(index + 1).ok())
            .unwrap_or(0)
    }

    pub(crate) fn from_code(code: u8) -> Option<AtomicOp> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Returns `true` if the operation compares. A second array then follows the operands.
    #[must_use]
    pub fn compares(self) -> bool {
        matches!(
            self,
            AtomicOp::SwapIfEqual
                | AtomicOp::SwapIfNotEqual
                | AtomicOp::SwapIfLess
                | AtomicOp::SwapIfNotGreater
                | AtomicOp::SwapIfGreater
                | AtomicOp::SwapIfNotLess
                | AtomicOp::SwapMasked
        )
    }

    /// Returns `true` if the operation exists for this kind of number.
    #[must_use]
    pub fn supports(self, datatype: Datatype) -> bool {
        let on_bits = matches!(
            self,
            AtomicOp::BitAnd | AtomicOp::BitOr | AtomicOp::BitXor | AtomicOp::SwapMasked
        );
        !(on_bits && matches!(datatype, Datatype::F32 | Datatype::F64))
    }

    /// Returns the length of the operands, compared numbers included, for `span` bytes of numbers.
    #[must_use]
    pub fn operands_len(self, span: usize) -> usize {
        match self {
            AtomicOp::Read => 0,
            _ if self.compares() => 2 * span,
            _ => span,
        }
    }
}

/// Kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named as the types are")]
pub enum Datatype {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Datatype {
    /// All kinds, in the order of their codes, from 0.
    pub const ALL: [Datatype; 10] = [
        Datatype::I8,
        Datatype::U8,
        Datatype::I16,
        Datatype::U16,
        Datatype::I32,
        Datatype::U32,
        Datatype::I64,
        Datatype::U64,
        Datatype::F32,
        Datatype::F64,
    ];

    pub(crate) fn code(self) -> u8 {
        let index = Self::ALL.iter().position(|&datatype| datatype == self);
        index
            .and_then(|index| u8::try_from(index).ok())
            .unwrap_or(0)
    }

    pub(crate) fn from_code(code: u8) -> Option<Datatype> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the length of one number in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no number is empty")]
    pub fn len(self) -> usize {
        match self {
            Datatype::I8 | Datatype::U8 => 1,
            Datatype::I16 | Datatype::U16 => 2,
            Datatype::I32 | Datatype::U32 | Datatype::F32 => 4,
            Datatype::I64 | Datatype::U64 | Datatype::F64 => 8,
        }
    }
}

/// Number type of atomic operations: `i8` to `u64`, `f32`, `f64`.
pub trait Number: Copy + PartialOrd + sealed::Sealed {
    /// Kind of the number.
    const DATATYPE: Datatype;
    /// Zero.
    const ZERO: Self;

    /// Returns the number in the first bytes of `bytes`, little-endian.
    ///
    /// # Panics
    /// If `bytes` is too short.
    fn load(bytes: &[u8]) -> Self;

    /// Writes the number into the first bytes of `bytes`, little-endian.
    ///
    /// # Panics
    /// If `bytes` is too short.
    fn store(self, bytes: &mut [u8]);
}

mod sealed {
    /// Arithmetic that the operations require of a number.
    pub trait Sealed: Sized {
        fn sum(self, other: Self) -> Self;
        fn product(self, other: Self) -> Self;
        fn truth(is_true: bool) -> Self;
        /// Applies `f` to the bits of integers; leaves floating-point numbers unchanged.
        fn on_bits(self, other: Self, f: &dyn Fn(u64, u64) -> u64) -> Self;
    }
}

macro_rules! number {
    ($type:ty, $datatype:ident, $zero:literal, $one:literal, $sum:expr, $product:expr, $bits:expr) => {
        impl sealed::Sealed for $type {
            fn sum(self, other: Self) -> Self {
                $sum(self, other)
            }
            fn product(self, other: Self) -> Self {
                $product(self, other)
            }
            fn truth(is_true: bool) -> Self {
                if is_true { $one } else { $zero }
            }
            fn on_bits(self, other: Self, f: &dyn Fn(u64, u64) -> u64) -> Self {
                $bits(self, other, f)
            }
        }

        impl Number for $type {
            const DATATYPE: Datatype = Datatype::$datatype;
            const ZERO: Self = $zero;

            fn load(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(&bytes[..size_of::<$type>()]);
                <$type>::from_le_bytes(own)
            }

            fn store(self, bytes: &mut [u8]) {
                bytes[..size_of::<$type>()].copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}

macro_rules! whole_number {
    ($type:ty, $datatype:ident) => {
        number!(
            $type,
            $datatype,
            0,
            1,
            <$type>::wrapping_add,
            <$type>::wrapping_mul,
            |one: $type, other: $type, f: &dyn Fn(u64, u64) -> u64| {
                let word = |number: $type| {
                    let mut bytes = [0; 8];
                    number.store(&mut bytes);
                    u64::from_le_bytes(bytes)
                };
                <$type>::load(&f(word(one), word(other)).to_le_bytes())
            }
        );
    };
}

macro_rules! fraction {
    ($type:ty, $datatype:ident) => {
        number!(
            $type,
            $datatype,
            0.0,
            1.0,
            std::ops::Add::add,
            std::ops::Mul::mul,
            |one, _, _| one
        );
    };
}

whole_number!(i8, I8);
whole_number!(u8, U8);
whole_number!(i16, I16);
whole_number!(u16, U16);
whole_number!(i32, I32);
whole_number!(u32, U32);
whole_number!(i64, I64);
whole_number!(u64, U64);
fraction!(f32, F32);
fraction!(f64, F64);

/// Operation that was validated for its number of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    op: AtomicOp,
    datatype: Datatype,
}

/// Checks that an operation exists and has the right number of operands.
pub(crate) fn check(
    code: u8,
    datatype: u8,
    span: usize,
    operands_len: usize,
) -> Result<Checked, RemoteFault> {
    let op = AtomicOp::from_code(code).ok_or(RemoteFault::Unsupported)?;
    let datatype = Datatype::from_code(datatype).ok_or(RemoteFault::Unsupported)?;
    let fits = span.is_multiple_of(datatype.len()) && operands_len == op.operands_len(span);
    if !fits || !op.supports(datatype) {
        return Err(RemoteFault::Unsupported);
    }
    Ok(Checked { op, datatype })
}

impl Checked {
    /// Applies the operation to the numbers in `place`. The operands have the length that [`check`]
    /// has validated.
    pub(crate) fn apply(&self, place: &mut [u8], operands: &[u8]) {
        let op = self.op;
        match self.datatype {
            Datatype::I8 => apply_to::<i8>(op, place, operands),
            Datatype::U8 => apply_to::<u8>(op, place, operands),
            Datatype::I16 => apply_to::<i16>(op, place, operands),
            Datatype::U16 => apply_to::<u16>(op, place, operands),
            Datatype::I32 => apply_to::<i32>(op, place, operands),
            Datatype::U32 => apply_to::<u32>(op, place, operands),
            Datatype::I64 => apply_to::<i64>(op, place, operands),
            Datatype::U64 => apply_to::<u64>(op, place, operands),
            Datatype::F32 => apply_to::<f32>(op, place, operands),
            Datatype::F64 => apply_to::<f64>(op, place, operands),
        }
    }
}

fn apply_to<T: Number>(op: AtomicOp, place: &mut [u8], operands: &[u8]) {
    if op == AtomicOp::Read {
        return;
    }
    let len = T::DATATYPE.len();
    let (operands, compared) = operands.split_at(place.len());
    for (index, number) in place.chunks_exact_mut(len).enumerate() {
        let at = index * len;
        let compared = match op.compares() {
            true => T::load(&compared[at..]),
            false => T::ZERO,
        };
        let target = T::load(number);
        combine(op, target, T::load(&operands[at..]), compared).store(number);
    }
}

/// Returns the new value of `t`.
fn combine<T: Number>(op: AtomicOp, t: T, o: T, c: T) -> T {
    let is_true = |number: T| number != T::ZERO;
    let swap = |wanted: bool| if wanted { o } else { t };
    match op {
        AtomicOp::Sum => t.sum(o),
        AtomicOp::Product => t.product(o),
        AtomicOp::Min => swap(o < t),
        AtomicOp::Max => swap(o > t),
        AtomicOp::BitAnd => t.on_bits(o, &|t, o| t & o),
        AtomicOp::BitOr => t.on_bits(o, &|t, o| t | o),
        AtomicOp::BitXor => t.on_bits(o, &|t, o| t ^ o),
        AtomicOp::LogicalAnd => T::truth(is_true(t) && is_true(o)),
        AtomicOp::LogicalOr => T::truth(is_true(t) || is_true(o)),
        AtomicOp::LogicalXor => T::truth(is_true(t) != is_true(o)),
        AtomicOp::Write => o,
        AtomicOp::Read => t,
        AtomicOp::SwapIfEqual => swap(c == t),
        AtomicOp::SwapIfNotEqual => swap(c != t),
        AtomicOp::SwapIfLess => swap(c < t),
        AtomicOp::SwapIfNotGreater => swap(c <= t),
        AtomicOp::SwapIfGreater => swap(c > t),
        AtomicOp::SwapIfNotLess => swap(c >= t),
        AtomicOp::SwapMasked => {
            let kept = t.on_bits(c, &|t, c| t & !c);
            kept.on_bits(o.on_bits(c, &|o, c| o & c), &|kept, new| kept | new)
        }
    }
}

#[cfg(test)]
mod tests;
