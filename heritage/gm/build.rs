// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the shared library as programs that are linked against it will look for it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgm.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
