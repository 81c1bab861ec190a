#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures GAMMA's figures (latency at 0 bytes, asymptotic bandwidth, half-power point) on every
# path: shared memory and UDP on this host, and as root UDP, raw Ethernet and the automatic choice
# between two hosts of a lab. For a quiet machine with two free cores.
#
#   scripts/gamma-bench.sh [TRIALS]          default: 50, as used by GAMMA's authors
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

trials=${1:-50}
work_dir=${CARGO_TARGET_DIR:-target}/gamma-bench
libraries=$(realpath -m "$release_dir/libraries")
mkdir -p "$work_dir"

"$CARGO" build --release --quiet --package portolan-cli
scripts/build-libraries.sh
cc -O2 -std=c11 -D_GNU_SOURCE -I heritage/gamma/include -o "$work_dir/gamma_pingpong" \
    examples/c/gamma_pingpong.c -L "$libraries" -Wl,-rpath,"$libraries" -l:libgamma.so.0

# measure NAME OPTION…
measure() {
    local name=$1
    shift
    printf '%-28s' "$name"
    "$release_dir/portolan" run -n 2 "$@" -- "$work_dir/gamma_pingpong" "$trials"
}

measure "this host, shm" --path shm
measure "this host, udp" --path udp
if [[ $EUID -ne 0 ]]; then
    skipped "labs need root: nothing was measured between hosts"
    exit 0
fi
for path in udp packet auto; do
    measure "two hosts of a lab, $path" --new-lab 2 --path "$path"
done
