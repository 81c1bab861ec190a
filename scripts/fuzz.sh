#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs each fuzz target for a while under libFuzzer with the address sanitizer. Needs a nightly
# compiler and cargo-fuzz: `rustup toolchain install nightly`, `cargo install cargo-fuzz`.
#
#   scripts/fuzz.sh [TARGET…]      default: all of them
#
# Environment: FUZZ_SECONDS per target (default 60), FUZZ_RUNS instead of a time.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

folder=verify/fuzz-targets
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
    targets=(parser core ring launcher endpoint broker)
fi
cargo fuzz --version >/dev/null 2>&1 || die "cargo-fuzz is not there: cargo install cargo-fuzz"

if [[ -n ${FUZZ_RUNS:-} ]]; then
    limit=-runs=$FUZZ_RUNS
else
    limit=-max_total_time=${FUZZ_SECONDS:-60}
fi
# The sanitizer's quarantine keeps freed memory unused for a while. With the usual 256 MB a leak
# could not be distinguished from it.
export ASAN_OPTIONS=quarantine_size_mb=16${ASAN_OPTIONS:+:$ASAN_OPTIONS}
for target in "${targets[@]}"; do
    say "$target"
    options=("$limit" -max_len=2048 -rss_limit_mb=2048 -timeout=60 -print_final_stats=1)
    # Its endpoint outlives an input, which libFuzzer takes for a leak and searches for at length.
    if [[ $target == endpoint ]]; then
        options+=(-detect_leaks=0)
    fi
    # Findings go to a directory that is not committed; the corpus is only read.
    found=$folder/target/found/$target
    mkdir -p "$found"
    cargo +nightly fuzz run --fuzz-dir "$folder" "$target" "$found" "$folder/corpus/$target" -- \
        "${options[@]}"
done
