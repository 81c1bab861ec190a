#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures the cost of the C interfaces: half a round trip through Rust and through portolan.h,
# gamma.h, bip.h, gm.h (with and without the options of GM+) and vipl.h, in turns. Prints the
# differences of the C programs' medians from Rust's. For a quiet machine with two free cores.
#
#   scripts/c-bench.sh [BYTES [ROUNDS]]      default: 64 bytes, 11 rounds of each
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

len=${1:-64}
rounds=${2:-11}
# Messages each way in a round, as in the Rust example.
trials=200000
work_dir=${CARGO_TARGET_DIR:-target}/c-bench
libraries=$(realpath -m "$release_dir/libraries")
mkdir -p "$work_dir"

"$CARGO" build --release --quiet --package portolan-cli
"$CARGO" build --release --quiet --package portolan --example pingpong
scripts/build-libraries.sh

# compile PROGRAM FOLDER LIBRARY
compile() {
    cc -O2 -std=c11 -D_GNU_SOURCE -I "$2/include" -o "$work_dir/$1" \
        "examples/c/$1.c" -L "$libraries" -Wl,-rpath,"$libraries" "-l:lib$3.so.0"
}

# half PROGRAM ARGUMENT…: prints half a round trip in microseconds.
half() {
    "$release_dir/portolan" run -n 2 -- "$@" | sed -n 's/.*bytes: \([0-9.]*\) µs.*/\1/p'
}

median() {
    sort -n "$work_dir/$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

compile pingpong interfaces/capi portolan
compile gamma_pingpong heritage/gamma gamma
compile bip_ring heritage/bip bip
compile gm_allsize heritage/gm gm
compile vipl_pingpong heritage/vipl vipl
rm -f -- "$work_dir"/times-*
for ((i = 0; i < rounds; i++)); do
    half "$release_dir/examples/pingpong" "$len" >>"$work_dir/times-rust"
    half "$work_dir/pingpong" "$len" >>"$work_dir/times-c"
    half "$work_dir/gamma_pingpong" "$trials" "$len" >>"$work_dir/times-gamma"
    half "$work_dir/bip_ring" "$trials" "$len" >>"$work_dir/times-bip"
    half "$work_dir/gm_allsize" "$trials" "$len" >>"$work_dir/times-gm"
    GM_PLUS=inline,unacknowledged half "$work_dir/gm_allsize" "$trials" "$len" >>"$work_dir/times-gm+"
    half "$work_dir/vipl_pingpong" "$trials" "$len" >>"$work_dir/times-vipl"
done
echo "half round trip of $len bytes, median of $rounds"
rust=$(median times-rust)
for name in rust c gamma bip gm gm+ vipl; do
    awk -v name="$name" -v us="$(median "times-$name")" -v rust="$rust" 'BEGIN {
        printf "%-6s %.3f µs, %+4.0f ns\n", name, us, (us - rust) * 1000 }'
done
