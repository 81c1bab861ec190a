// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests every operation on every kind of number against a table of results.

use super::*;

/// Operation; numbers at the target, operands, compared numbers; results at the target. All fit a
/// signed and an unsigned byte.
type Row = (AtomicOp, [u8; 4], [u8; 4], [u8; 4], [u8; 4]);

const C0: [u8; 4] = [0; 4];

const ROWS: [Row; 19] = [
    (AtomicOp::Sum, [1, 2, 3, 0], [5, 0, 7, 9], C0, [6, 2, 10, 9]),
    (
        AtomicOp::Product,
        [1, 2, 3, 0],
        [5, 0, 7, 9],
        C0,
        [5, 0, 21, 0],
    ),
    (AtomicOp::Min, [1, 2, 3, 9], [5, 0, 3, 8], C0, [1, 0, 3, 8]),
    (AtomicOp::Max, [1, 2, 3, 9], [5, 0, 3, 8], C0, [5, 2, 3, 9]),
    (
        AtomicOp::BitAnd,
        [12, 7, 1, 0],
        [10, 3, 2, 1],
        C0,
        [8, 3, 0, 0],
    ),
    (
        AtomicOp::BitOr,
        [12, 7, 1, 0],
        [10, 3, 2, 1],
        C0,
        [14, 7, 3, 1],
    ),
    (
        AtomicOp::BitXor,
        [12, 7, 1, 0],
        [10, 3, 2, 1],
        C0,
        [6, 4, 3, 1],
    ),
    (
        AtomicOp::LogicalAnd,
        [0, 0, 5, 6],
        [0, 7, 0, 8],
        C0,
        [0, 0, 0, 1],
    ),
    (
        AtomicOp::LogicalOr,
        [0, 0, 5, 6],
        [0, 7, 0, 8],
        C0,
        [0, 1, 1, 1],
    ),
    (
        AtomicOp::LogicalXor,
        [0, 0, 5, 6],
        [0, 7, 0, 8],
        C0,
        [0, 1, 1, 0],
    ),
    (
        AtomicOp::Write,
        [1, 2, 3, 4],
        [9, 8, 7, 6],
        C0,
        [9, 8, 7, 6],
    ),
    (AtomicOp::Read, [1, 2, 3, 4], C0, C0, [1, 2, 3, 4]),
    (
        AtomicOp::SwapIfEqual,
        [1, 2, 3, 4],
        [9, 9, 9, 9],
        [1, 3, 2, 4],
        [9, 2, 3, 9],
    ),
    (
        AtomicOp::SwapIfNotEqual,
        [1, 2, 3, 4],
        [9, 9, 9, 9],
        [1, 3, 2, 4],
        [1, 9, 9, 4],
    ),
    (
        AtomicOp::SwapIfLess,
        [1, 2, 3, 4],
        [9, 9, 9, 9],
        [1, 3, 2, 4],
        [1, 2, 9, 4],
    ),
    (
        AtomicOp::SwapIfNotGreater,
        [1, 2, 3, 4],
        [9, 9, 9, 9],
        [1, 3, 2, 4],
        [9, 2, 9, 9],
    ),
    (
        AtomicOp::SwapIfGreater,
        [1, 2, 3, 4],
        [9, 9, 9, 9],
        [1, 3, 2, 4],
        [1, 9, 3, 4],
    ),
    (
        AtomicOp::SwapIfNotLess,
        [1, 2, 3, 4],
        [9, 9, 9, 9],
        [1, 3, 2, 4],
        [9, 9, 3, 9],
    ),
    (
        AtomicOp::SwapMasked,
        [15, 0, 5, 1],
        [0, 15, 9, 6],
        [3, 10, 0, 7],
        [12, 10, 5, 6],
    ),
];

trait FromByte: Number + std::fmt::Debug {
    fn from_byte(byte: u8) -> Self;
}

macro_rules! from_byte {
    ($($type:ty),*) => {
        $(impl FromByte for $type {
            fn from_byte(byte: u8) -> Self {
                <$type>::try_from(byte).unwrap()
            }
        })*
    };
}

from_byte!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);

fn bytes<T: FromByte>(numbers: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xa5; numbers.len() * T::DATATYPE.len()];
    for (out, &number) in bytes.chunks_exact_mut(T::DATATYPE.len()).zip(numbers) {
        T::from_byte(number).store(out);
    }
    bytes
}

fn check_rows<T: FromByte>() {
    for (op, target, operand, compared, wanted) in ROWS {
        let mut place = bytes::<T>(&target);
        let (span, kind) = (place.len(), T::DATATYPE);
        let mut operands = bytes::<T>(&operand);
        operands.extend(bytes::<T>(&compared));
        operands.truncate(op.operands_len(span));
        let checked = check(op.code(), kind.code(), span, operands.len());
        if !op.supports(kind) {
            assert_eq!(checked.unwrap_err(), RemoteFault::Unsupported);
            continue;
        }
        checked.unwrap().apply(&mut place, &operands);
        assert_eq!(place, bytes::<T>(&wanted), "{op:?} on {kind:?}");
    }
}

#[test]
fn every_operation_on_every_datatype() {
    assert_eq!(ROWS.map(|row| row.0), AtomicOp::ALL);
    check_rows::<i8>();
    check_rows::<u8>();
    check_rows::<i16>();
    check_rows::<u16>();
    check_rows::<i32>();
    check_rows::<u32>();
    check_rows::<i64>();
    check_rows::<u64>();
    check_rows::<f32>();
    check_rows::<f64>();
}

fn one<T: Number>(op: AtomicOp, target: T, operand: T) -> T {
    combine(op, target, operand, T::ZERO)
}

#[test]
fn integers_wrap_and_stay_signed() {
    assert_eq!(one(AtomicOp::Sum, i8::MAX, 1), i8::MIN);
    assert_eq!(one(AtomicOp::Sum, u64::MAX, 2), 1);
    assert_eq!(one(AtomicOp::Product, i32::MIN, -1), i32::MIN);
    assert_eq!(one(AtomicOp::Min, -1_i16, 1), -1);
    assert_eq!(one(AtomicOp::Min, u16::MAX, 1), 1);
    assert_eq!(one(AtomicOp::BitXor, -1_i64, 1), -2);
    assert_eq!(one(AtomicOp::LogicalAnd, -1_i8, -2), 1);
}

#[test]
fn nan_is_ignored_by_min_and_max() {
    assert_eq!(one(AtomicOp::Min, 1.5_f64, f64::NAN), 1.5);
    assert_eq!(one(AtomicOp::Max, 1.5_f32, f32::NAN), 1.5);
    assert_eq!(
        combine(AtomicOp::SwapIfEqual, f64::NAN, 1.0, f64::NAN).to_bits(),
        f64::NAN.to_bits()
    );
    assert_eq!(one(AtomicOp::Sum, 0.5_f32, 0.25), 0.75);
}

#[test]
fn codes_round_trip() {
    for op in AtomicOp::ALL {
        assert_eq!(AtomicOp::from_code(op.code()), Some(op));
    }
    for datatype in Datatype::ALL {
        assert_eq!(Datatype::from_code(datatype.code()), Some(datatype));
    }
    assert_eq!(
        (AtomicOp::from_code(0), AtomicOp::from_code(20)),
        (None, None)
    );
    assert_eq!(Datatype::from_code(10), None);
}

#[test]
fn operand_count_must_match() {
    let (sum, swap) = (AtomicOp::Sum.code(), AtomicOp::SwapIfEqual.code());
    let long = Datatype::U64.code();
    assert!(check(sum, long, 16, 16).is_ok());
    assert!(check(swap, long, 16, 32).is_ok());
    assert!(check(AtomicOp::Read.code(), long, 16, 0).is_ok());
    for (code, span, len) in [(sum, 16, 8), (sum, 12, 12), (swap, 16, 16), (sum, 0, 8)] {
        assert_eq!(
            check(code, long, span, len).unwrap_err(),
            RemoteFault::Unsupported
        );
    }
}
