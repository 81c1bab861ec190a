// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floating-point numbers of 16 bits. They are combined as `f32` and rounded to the nearest, ties to
//! even. All conversions are without branches, so that loops over them can be vectorised.
#![allow(
    unsafe_code,
    reason = "the traits for values of plain bytes are unsafe"
)]

use bytemuck::{Pod, Zeroable};
use std::fmt;

/// IEEE 754 number of 16 bits (binary16), with 11 bits of precision.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(u16);

/// Upper half of an `f32` (bfloat16), with 8 bits of precision.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(u16);

macro_rules! bits {
    ($($type:ident)*) => {$(
        // SAFETY: a `u16` of 0 is valid.
        unsafe impl Zeroable for $type {}
        // SAFETY: it is a transparent `u16`, which is plain data itself.
        unsafe impl Pod for $type {}

        impl $type {
            /// Returns the number with these bits.
            #[must_use]
            pub const fn from_bits(bits: u16) -> $type {
                $type(bits)
            }

            /// Returns the bits of the number.
            #[must_use]
            pub const fn to_bits(self) -> u16 {
                self.0
            }

            pub(super) const fn to_le_bytes(self) -> [u8; 2] {
                self.0.to_le_bytes()
            }

            pub(super) const fn from_le_bytes(bytes: [u8; 2]) -> $type {
                $type(u16::from_le_bytes(bytes))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }
    )*};
}
bits! { F16 Bf16 }

/// Returns the lower half of a word.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the upper half is zero, or wanted elsewhere"
)]
const fn low(word: u32) -> u16 {
    word as u16
}

impl Bf16 {
    /// Rounds a number to the nearest.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(portolan::Bf16::from_f32(1.5).to_f32(), 1.5);
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn from_f32(value: f32) -> Bf16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        // Rounding would turn some NaN into infinity.
        let quiet = bits | 1 << 22;
        Bf16(low(if value.is_nan() { quiet } else { rounded } >> 16))
    }

    /// Converts the number, which is exact.
    ///
    /// # Examples
    /// See [`Bf16::from_f32`].
    #[inline(always)]
    #[must_use]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// Bits of the sign of an `f32`.
const SIGN: u32 = 1 << 31;
/// Bits of infinity.
const INFINITY: u32 = 0xff << 23;
/// Distance of the fractions' positions in `f32` and [`F16`].
const SHIFT: u32 = 23 - 10;
/// Difference of the exponents' biases, at the exponent of an `f32`.
const BIAS: u32 = (127 - 15) << 23;
/// Bits of the smallest `f32` that is a normal number as [`F16`].
const NORMAL_MIN: u32 = (127 - 14) << 23;
/// Bits of the number 2^16, which overflows a [`F16`].
const OVERFLOW: u32 = (127 + 16) << 23;
/// Bits of the number 0.5. Its last fraction bit is worth that of a subnormal [`F16`].
const HALF: u32 = 126 << 23;

impl F16 {
    /// Rounds a number to the nearest. Too large ones become infinite.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(portolan::F16::from_f32(1.5).to_f32(), 1.5);
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn from_f32(value: f32) -> F16 {
        let bits = value.to_bits();
        let (sign, size) = (low((bits & SIGN) >> 16), bits & !SIGN);
        let rounded = size
            .wrapping_sub(BIAS)
            .wrapping_add(0xfff + (size >> SHIFT & 1));
        let normal = low(rounded >> SHIFT);
        // The addition rounds to multiples of the smallest subnormal number.
        let subnormal = low((f32::from_bits(size) + f32::from_bits(HALF))
            .to_bits()
            .wrapping_sub(HALF));
        let special = if size > INFINITY { 0x7e00 } else { 0x7c00 };
        let finite = if size < NORMAL_MIN { subnormal } else { normal };
        F16(sign | if size >= OVERFLOW { special } else { finite })
    }

    /// Converts the number, which is exact.
    ///
    /// # Examples
    /// See [`F16::from_f32`].
    #[inline(always)]
    #[must_use]
    pub fn to_f32(self) -> f32 {
        let (sign, size) = (u32::from(self.0 & 0x8000) << 16, u32::from(self.0 & 0x7fff));
        // The multiplication by 2^112 adds the difference of the biases, also for subnormals.
        let scale = f32::from_bits((127 + 112) << 23);
        let finite = (f32::from_bits(size << SHIFT) * scale).to_bits();
        let special = INFINITY | (size & 0x3ff) << SHIFT;
        f32::from_bits(sign | if size >= 0x7c00 { special } else { finite })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a binary16 by its definition.
    fn defined(bits: u16) -> f64 {
        let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
        let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
        sign * match exponent {
            0 => fraction * 2_f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
        }
    }

    #[test]
    fn every_binary16_is_converted_by_definition_and_back() {
        for bits in 0..=u16::MAX {
            let (value, wanted) = (F16(bits).to_f32(), defined(bits));
            if wanted.is_nan() {
                assert!(value.is_nan() && F16::from_f32(value).to_f32().is_nan());
                continue;
            }
            assert_eq!(f64::from(value), wanted, "{bits:#x}");
            assert_eq!(F16::from_f32(value).0, bits);
        }
    }

    #[test]
    fn binary16_rounds_to_nearest_ties_to_even() {
        for bits in 0..0x7bff_u16 {
            let (low, high) = (defined(bits), defined(bits + 1));
            let middle = f64::midpoint(low, high);
            #[allow(clippy::cast_possible_truncation, reason = "12 bits are exact")]
            let middle = middle as f32;
            let even = bits + (bits & 1);
            assert_eq!(F16::from_f32(middle).0, even, "{bits:#x}");
            assert_eq!(F16::from_f32(f32::from_bits(middle.to_bits() - 1)).0, bits);
            assert_eq!(
                F16::from_f32(f32::from_bits(middle.to_bits() + 1)).0,
                bits + 1
            );
        }
        assert_eq!(F16::from_f32(65519.0).0, 0x7bff);
        assert_eq!(F16::from_f32(65520.0).0, 0x7c00);
        assert_eq!(F16::from_f32(f32::NEG_INFINITY).0, 0xfc00);
        assert_eq!(F16::from_f32(1e30).0, 0x7c00);
        assert_eq!(F16::from_f32(-1e-30).0, 0x8000);
    }

    #[test]
    fn bfloat16_rounds_to_nearest_ties_to_even() {
        for bits in (0..=u16::MAX).filter(|bits| bits & 0x7f80 != 0x7f80) {
            assert_eq!(Bf16::from_f32(Bf16(bits).to_f32()).0, bits);
            let middle = u32::from(bits) << 16 | 0x8000;
            assert_eq!(Bf16::from_f32(f32::from_bits(middle)).0, bits + (bits & 1));
            assert_eq!(Bf16::from_f32(f32::from_bits(middle - 1)).0, bits);
            assert_eq!(Bf16::from_f32(f32::from_bits(middle + 1)).0, bits + 1);
        }
        assert!(
            Bf16::from_f32(f32::from_bits(0x7f80_0001))
                .to_f32()
                .is_nan()
        );
        assert_eq!(Bf16::from_f32(f32::MAX).to_f32(), f32::INFINITY);
    }
}
