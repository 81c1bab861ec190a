// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets the soname of the shared library.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgm.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
