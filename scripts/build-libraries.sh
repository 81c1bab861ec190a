#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the C libraries, optimised across crates, under their installed names in
# target/release/libraries. Also builds the libfabric provider, under the name that libfabric
# expects, and the library that `portolan sockets` loads.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

out=$release_dir/libraries

# The crate types are named here because the Rust library, which only tests need, would prevent the
# linker from optimising across crates.
"$CARGO" rustc --release --package portolan-capi --lib \
    --crate-type cdylib --crate-type staticlib
for name in "${heritage[@]}"; do
    "$CARGO" rustc --release --package "portolan-$name" --lib --crate-type cdylib
done
"$CARGO" rustc --release --package portolan-fabric --lib --crate-type cdylib
install -d -- "$out"
install -m 644 -- "$release_dir/libportolan_c.a" "$out/libportolan.a"
install -m 755 -- "$release_dir/libportolan_c.so" "$out/libportolan.so.0"
for name in "${heritage[@]}"; do
    library=$(library_of "$name")
    install -m 755 -- "$release_dir/lib$library.so" "$out/lib$library.so.0"
done
# Also put it next to the programs, which find it when they run from the build directory.
provider=$release_dir/libportolan-fi.so
install -m 755 -- "$release_dir/libportolan_fi.so" "$provider"
install -m 755 -t "$out" -- "$provider"
"$CARGO" rustc --release --package portolan-sockets --lib --crate-type cdylib
sockets=$release_dir/libportolan-sockets.so
install -m 755 -- "$release_dir/libportolan_sockets.so" "$sockets"
install -m 755 -t "$out" -- "$sockets"
say "libportolan.a, libportolan.so.0, those of ${heritage[*]} libportolan-fi.so and libportolan-sockets.so are in $out"
