#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What the C interface costs: half a round trip by examples/c/pingpong.c and by the same loop in
# Rust, in turns, and the difference of their medians. For a quiet machine with two free cores.
#
#   scripts/c-bench.sh [BYTES [ROUNDS]]      default: 64 bytes, 11 rounds of each
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

len=${1:-64}
rounds=${2:-11}
work_dir=${CARGO_TARGET_DIR:-target}/c-bench
libraries=$(realpath -m "$release_dir/libraries")
mkdir -p "$work_dir"

"$CARGO" build --release --quiet --package portolan-cli
"$CARGO" build --release --quiet --package portolan --example pingpong
scripts/build-libraries.sh
cc -O2 -std=c11 -D_GNU_SOURCE -I crates/capi/include -o "$work_dir/pingpong" \
    examples/c/pingpong.c -L "$libraries" -Wl,-rpath,"$libraries" -l:libportolan.so.0

# half PROGRAM: microseconds of half a round trip.
half() {
    "$release_dir/portolan" run -n 2 -- "$1" "$len" | sed -n 's/.*bytes: \([0-9.]*\) µs.*/\1/p'
}

median() {
    sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

: >"$work_dir/c"
: >"$work_dir/rust"
for ((i = 0; i < rounds; i++)); do
    half "$release_dir/examples/pingpong" >>"$work_dir/rust"
    half "$work_dir/pingpong" >>"$work_dir/c"
done
rust=$(median <"$work_dir/rust")
c=$(median <"$work_dir/c")
awk -v rust="$rust" -v c="$c" -v len="$len" -v rounds="$rounds" 'BEGIN {
    printf "half round trip of %d bytes, median of %d: Rust %.3f µs, C %.3f µs, difference %.0f ns\n",
           len, rounds, rust, c, (c - rust) * 1000 }'
