// SPDX-License-Identifier: MIT OR Apache-2.0
//! See `portolan_fuzz::ring`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portolan_fuzz::ring(data));
