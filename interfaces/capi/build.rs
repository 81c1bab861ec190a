// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets the soname that linked programs load.

fn main() {
    // The number changes with the first release that breaks programs. `scripts/install.sh` creates
    // the symbolic link of that name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libportolan.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
