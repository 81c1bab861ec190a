// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links the provider to `libfabric.so.1`, without needing libfabric to build it.
//!
//! The provider queries the version of the library that loaded it. A privately loaded copy, such as
//! MPICH's own, is found only if the provider lists it as needed. The provider is therefore linked
//! against an empty library of that name, which is built here.

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
