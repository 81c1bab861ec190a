// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of elements that reductions combine, and the loops over them.

use super::ReduceOp;
use crate::error::Error;

mod half;

pub use half::{Bf16, F16};

pub(super) mod sealed {
    use super::ReduceOp;

    pub trait Element: bytemuck::Pod + std::fmt::Debug + Send + Sync {
        const LEN: usize;
        /// Number of the type in headers (P14.2).
        const CODE: u8;
        const NAME: &'static str;
        /// Set for types with bitwise operations.
        const HAS_BITS: bool;
        fn combine(op: ReduceOp, lower: Self, upper: Self) -> Self;
        fn write(self, bytes: &mut [u8]);
        fn read(bytes: &[u8]) -> Self;
    }
}

/// Element types of reductions: integers of 8 to 64 bits, `f32`, `f64`, [`F16`] and [`Bf16`].
pub trait Reducible: sealed::Element {}

macro_rules! element {
    ($type:ty, $code:literal, $has_bits:literal, ($op:ident, $lower:ident, $upper:ident) $combine:expr) => {
        impl sealed::Element for $type {
            const LEN: usize = size_of::<$type>();
            const CODE: u8 = $code;
            const NAME: &'static str = stringify!($type);
            const HAS_BITS: bool = $has_bits;

            #[inline(always)]
            fn combine($op: ReduceOp, $lower: Self, $upper: Self) -> Self {
                $combine
            }

            #[inline(always)]
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(bytes);
                <$type>::from_le_bytes(own)
            }
        }

        impl Reducible for $type {}
    };
}

macro_rules! integers {
    ($($type:ty, $code:literal;)*) => {$(
        element! { $type, $code, true, (op, lower, upper) match op {
            ReduceOp::Sum => lower.wrapping_add(upper),
            ReduceOp::Product => lower.wrapping_mul(upper),
            ReduceOp::Min => lower.min(upper),
            ReduceOp::Max => lower.max(upper),
            ReduceOp::And => lower & upper,
            ReduceOp::Or => lower | upper,
            ReduceOp::Xor => lower ^ upper,
        }}
    )*};
}

macro_rules! floats {
    ($($type:ty, $code:literal;)*) => {$(
        element! { $type, $code, false, (op, lower, upper) match op {
            ReduceOp::Sum => lower + upper,
            ReduceOp::Product => lower * upper,
            ReduceOp::Min => lower.min(upper),
            ReduceOp::Max => lower.max(upper),
            // Refused by `check_op`.
            ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => lower,
        }}
    )*};
}

macro_rules! short_floats {
    ($($type:ty, $code:literal;)*) => {$(
        element! { $type, $code, false, (op, lower, upper) {
            let combined = <f32 as sealed::Element>::combine(op, lower.to_f32(), upper.to_f32());
            <$type>::from_f32(combined)
        }}
    )*};
}

integers! {
    i32, 1;
    i64, 2;
    u32, 3;
    u64, 4;
    i8, 7;
    u8, 8;
    i16, 9;
    u16, 10;
}
floats! {
    f32, 5;
    f64, 6;
}
short_floats! {
    F16, 11;
    Bf16, 12;
}

/// Refuses an operation that the type does not have.
pub(in crate::node) fn check_op<T: Reducible>(op: ReduceOp) -> Result<(), Error> {
    match op {
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor if !T::HAS_BITS => Err(Error::Setting {
            name: "reduction",
            value: format!("{op:?} of {}", T::NAME),
            why: "only integers have bitwise operations".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Part of the group that the other member's values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Side {
    Lower,
    Upper,
}

/// Combines values, as bytes, with those of another member.
pub(in crate::node) fn combine<T: Reducible>(
    op: ReduceOp,
    side: Side,
    own: &mut [u8],
    other: &[u8],
) {
    // One loop for each operation, which the compiler can vectorise.
    match op {
        ReduceOp::Sum => each(side, own, other, |a, b| T::combine(ReduceOp::Sum, a, b)),
        ReduceOp::Product => each(side, own, other, |a, b| T::combine(ReduceOp::Product, a, b)),
        ReduceOp::Min => each(side, own, other, |a, b| T::combine(ReduceOp::Min, a, b)),
        ReduceOp::Max => each(side, own, other, |a, b| T::combine(ReduceOp::Max, a, b)),
        ReduceOp::And => each(side, own, other, |a, b| T::combine(ReduceOp::And, a, b)),
        ReduceOp::Or => each(side, own, other, |a, b| T::combine(ReduceOp::Or, a, b)),
        ReduceOp::Xor => each(side, own, other, |a, b| T::combine(ReduceOp::Xor, a, b)),
    }
}

#[inline(always)]
fn each<T: Reducible>(side: Side, own: &mut [u8], other: &[u8], function: impl Fn(T, T) -> T) {
    let pairs = own.chunks_exact_mut(T::LEN).zip(other.chunks_exact(T::LEN));
    match side {
        Side::Lower => {
            pairs.for_each(|(own, other)| function(T::read(other), T::read(own)).write(own));
        }
        Side::Upper => {
            pairs.for_each(|(own, other)| function(T::read(own), T::read(other)).write(own));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined<T: Reducible>(op: ReduceOp, own: &[T], other: &[T]) -> Vec<T> {
        let mut bytes = bytemuck::cast_slice(own).to_vec();
        combine::<T>(op, Side::Upper, &mut bytes, bytemuck::cast_slice(other));
        bytes
            .chunks_exact(T::LEN)
            .map(bytemuck::pod_read_unaligned)
            .collect()
    }

    #[test]
    fn short_integers_wrap_and_have_bits() {
        assert_eq!(combined(ReduceOp::Sum, &[120_i8, -1], &[10, 1]), [-126, 0]);
        assert_eq!(combined(ReduceOp::Product, &[300_u16], &[300]), [24464]);
        assert_eq!(combined(ReduceOp::And, &[0b1100_u8], &[0b1010]), [0b1000]);
        assert_eq!(combined(ReduceOp::Or, &[0b1100_i16], &[0b1010]), [0b1110]);
        assert_eq!(combined(ReduceOp::Xor, &[0b1100_u64], &[0b1010]), [0b0110]);
    }

    #[test]
    fn halves_combine_by_value() {
        let [one, two] = [1.0, 2.5].map(F16::from_f32);
        assert_eq!(
            combined(ReduceOp::Sum, &[one], &[two]),
            [F16::from_f32(3.5)]
        );
        let [one, two] = [-1.0, 2.5].map(Bf16::from_f32);
        assert_eq!(combined(ReduceOp::Min, &[one], &[two]), [one]);
        assert_eq!(
            combined(ReduceOp::Product, &[one], &[two]),
            [Bf16::from_f32(-2.5)]
        );
    }

    #[test]
    fn sides_keep_the_order_of_operands() {
        // The first operand's NaN is returned by the addition of floats.
        let mut bytes = 8_i32.to_le_bytes();
        combine::<i32>(ReduceOp::Min, Side::Lower, &mut bytes, &3_i32.to_le_bytes());
        assert_eq!(i32::from_le_bytes(bytes), 3);
    }

    #[test]
    fn floats_have_no_bits() {
        assert!(check_op::<f32>(ReduceOp::Xor).is_err());
        assert!(check_op::<Bf16>(ReduceOp::And).is_err());
        assert!(check_op::<u8>(ReduceOp::Or).is_ok());
        assert!(check_op::<f64>(ReduceOp::Max).is_ok());
    }
}
