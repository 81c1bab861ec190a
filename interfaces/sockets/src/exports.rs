// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that replace those of the C library. Each calls the original unless a descriptor is
//! observed.
#![allow(unsafe_code)]

mod exec;
mod files;
mod io;
mod waiting;

use crate::process;

extern "C" fn load() {
    process::load();
}

extern "C" fn unload() {
    process::unload();
}

// SAFETY: the loader calls the functions of these sections, which have no arguments in use.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

// SAFETY: as above.
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;
