// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checksums: the CRC-32 of Ethernet (IEEE 802.3), computed bit by bit, because programs use it
//! only for occasional keys.

use crate::code::gm_size_t;
use std::ffi::{CStr, c_char, c_ulong, c_void};

/// Polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0xedb8_8320;

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            sum >> 1 ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 }
        })
    })
}

/// Returns the checksum of `length` bytes; that of no bytes if `ptr` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_crc(ptr: *const c_void, length: gm_size_t) -> c_ulong {
    let len = usize::try_from(length).unwrap_or(usize::MAX);
    // SAFETY: the program passes valid arguments, as the function's documentation requires.
    let bytes = unsafe { portolan_ffi::bytes(ptr.cast(), len) };
    crc(bytes.unwrap_or(&[])).into()
}

/// Returns the checksum of a string without its zero; that of no bytes if `string` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_crc_str(string: *const c_char) -> c_ulong {
    if string.is_null() {
        return crc(&[]).into();
    }
    // SAFETY: the program passes a zero-terminated string.
    crc(unsafe { CStr::from_ptr(string) }.to_bytes()).into()
}

#[cfg(test)]
mod tests {
    /// Check value of CRC-32 in catalogues of CRCs.
    #[test]
    fn crc_of_check_string() {
        assert_eq!(super::crc(b"123456789"), 0xcbf4_3926);
        assert_eq!(super::crc(b""), 0);
    }
}
