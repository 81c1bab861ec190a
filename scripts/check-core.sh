#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Proves that the protocol core needs no operating system: no clock, no sockets, no randomness.
# (The crates' clippy.toml lists the names of the standard library that their tests may use.)
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

core=(portolan-wire portolan-proto)
bare_target=x86_64-unknown-none

check_attributes() {
    local crate file status=0
    for crate in "${core[@]}"; do
        file=core/${crate#portolan-}/src/lib.rs
        if ! grep -Eq '^#!\[(no_std|cfg_attr\(not\(test\), no_std\))\]' "$file"; then
            say "$file: '#![no_std]' is missing"
            status=1
        fi
        if ! grep -q '^#!\[forbid(unsafe_code)\]' "$file"; then
            say "$file: '#![forbid(unsafe_code)]' is missing"
            status=1
        fi
    done
    return "$status"
}

build_for_bare_target() {
    say "building ${core[*]} for $bare_target"
    "$CARGO" build --quiet --target "$bare_target" "${core[@]/#/--package=}"
}

# Without the bare target: uses the host's own libraries, but none above `alloc`. A crate that needs
# `std`, or depends on one that does, fails to build.
build_without_std() {
    local host lib crate target_dir sysroot
    host=$(rustc -vV | sed -n 's/^host: //p')
    lib=lib/rustlib/$host/lib
    target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")/no-std
    sysroot=$target_dir/sysroot
    # Recreated each time, because the links must refer to the current compiler.
    rm -rf -- "$sysroot"
    mkdir -p "$sysroot/$lib"
    for crate in core alloc compiler_builtins rustc_std_workspace_core; do
        find "$(rustc --print sysroot)/$lib" -name "lib$crate-*" \
            -exec ln -s -t "$sysroot/$lib" {} +
    done
    say "the target $bare_target is not installed: building ${core[*]} without the standard library"
    # With --target, the flags do not apply to build scripts and macros, which may use std.
    RUSTFLAGS="--sysroot=$sysroot" "$CARGO" build --quiet --target "$host" \
        --target-dir "$target_dir" "${core[@]/#/--package=}"
}

check_attributes
if has_target "$bare_target"; then
    build_for_bare_target
else
    build_without_std
fi
say "the core needs no operating system"
