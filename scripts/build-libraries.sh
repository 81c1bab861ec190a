#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the C libraries, optimised across crates, and leaves them under the names that they are
# installed by in target/release/libraries. Gives the libfabric provider, which is built with the
# workspace, the name that libfabric looks for, beside the programs.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

out=$release_dir/libraries

# The crate types are named here because the Rust library beside them, which only tests need, would
# keep the linker from optimising across crates.
"$CARGO" rustc --release --package portolan-capi --lib \
    --crate-type cdylib --crate-type staticlib
install -d -- "$out"
install -m 644 -- "$release_dir/libportolan_c.a" "$out/libportolan.a"
install -m 755 -- "$release_dir/libportolan_c.so" "$out/libportolan.so.0"
say "$(ls "$out" | tr '\n' ' ')are in $out"

provider=$release_dir/libportolan-fi.so
install -m 755 -- "$release_dir/libportolan_fi.so" "$provider"
say "$provider is the provider for libfabric"
