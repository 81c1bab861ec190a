#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Benchmarks the effects of a change. Appends commit, machine and medians to bench-history.jsonl
# (local, not in git), and prints the changes since the previous run that exceed the spread of the
# rounds.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

portolan=$release_dir/portolan
latest=target/bench/latest.json
previous=target/bench/previous.json

[[ -x $portolan ]] || die "$portolan is not there: run 'make build' first"
mkdir -p target/bench
[[ ! -f $latest ]] || mv "$latest" "$previous"
"$portolan" bench pingpong stream rate --path shm,packet,udp --vs tcp --limits --seconds 0.5 \
    --history bench-history.jsonl --json "$latest" || [[ -s $latest ]] || die "nothing was measured"
if [[ -f $previous ]]; then
    say "since the run before:"
    "$portolan" bench compare "$previous" "$latest"
fi
