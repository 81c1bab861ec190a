// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the shared library as programs that are linked against it will look for it.

fn main() {
    // The number changes with the first release that breaks programs; `scripts/install.sh` makes
    // the link of that name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libportolan.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
