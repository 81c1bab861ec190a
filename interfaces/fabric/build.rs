// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the provider need `libfabric.so.1` at run time without needing it to be built.
//!
//! The provider asks the library that loaded it for its version. A copy loaded privately, as
//! MPICH's own is, is found only if the provider names it as needed. So the provider is linked
//! against an empty library of that name, made here.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = std::env::var_os("OUT_DIR")
        .map(PathBuf::from)
        .unwrap_or_default();
    let stub = out.join("libfabric.so.1");
    let made = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null"])
        .args(["-Wl,-soname,libfabric.so.1", "-o"])
        .arg(&stub)
        .status();
    match made {
        Ok(status) if status.success() => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,--no-as-needed");
            println!("cargo:rustc-cdylib-link-arg={}", stub.display());
            println!("cargo:rustc-cdylib-link-arg=-Wl,--as-needed");
        }
        other => panic!("the C compiler made no stub of libfabric.so.1 ({other:?}); install gcc"),
    }
}
