// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets the soname under which programs linked against the shared library load it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtmk.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
