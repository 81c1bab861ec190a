// SPDX-License-Identifier: MIT OR Apache-2.0
//! See `portolan_fuzz::launcher`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portolan_fuzz::launcher(data));
