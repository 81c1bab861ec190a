// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of numbers between this host's order and the network's, for all types of GM.

use std::ffi::c_void;

/// Converts an unsigned number of 64 bits from the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ntoh_u64(value: u64) -> u64 {
    u64::from_be(value)
}

/// Converts a signed number of 8 bits from the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ntoh_s8(value: i8) -> i8 {
    value
}

/// Converts a signed number of 16 bits from the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ntoh_s16(value: i16) -> i16 {
    i16::from_be(value)
}

/// Converts a signed number of 32 bits from the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ntoh_s32(value: i32) -> i32 {
    i32::from_be(value)
}

/// Converts a signed number of 64 bits from the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_ntoh_s64(value: i64) -> i64 {
    i64::from_be(value)
}

/// Converts an unsigned number of 8 bits to the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hton_u8(value: u8) -> u8 {
    value
}

/// Converts an unsigned number of 16 bits to the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hton_u16(value: u16) -> u16 {
    value.to_be()
}

/// Converts an unsigned number of 32 bits to the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hton_u32(value: u32) -> u32 {
    value.to_be()
}

/// Converts an unsigned number of 64 bits to the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hton_u64(value: u64) -> u64 {
    value.to_be()
}

/// Converts a signed number of 8 bits to the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hton_s8(value: i8) -> i8 {
    value
}

/// Converts a signed number of 16 bits to the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hton_s16(value: i16) -> i16 {
    value.to_be()
}

/// Converts a signed number of 32 bits to the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hton_s32(value: i32) -> i32 {
    value.to_be()
}

/// Converts a signed number of 64 bits to the network's order.
#[unsafe(no_mangle)]
pub extern "C" fn gm_hton_s64(value: i64) -> i64 {
    value.to_be()
}

/// Converts an address to the network's order, for gm_ntohp().
#[unsafe(no_mangle)]
pub extern "C" fn gm_htonp(address: *mut c_void) -> u64 {
    (address.expose_provenance() as u64).to_be()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_big_endian_on_the_network() {
        assert_eq!(gm_hton_u16(0x0102).to_ne_bytes(), [1, 2]);
        assert_eq!(gm_hton_s32(-2).to_ne_bytes(), [255, 255, 255, 254]);
        assert_eq!(gm_ntoh_u64(gm_hton_u64(7)), 7);
        assert_eq!(gm_ntoh_s16(gm_hton_s16(-7)), -7);
        assert_eq!(gm_ntoh_s64(gm_hton_s64(i64::MIN)), i64::MIN);
    }
}
