#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures goodput against loss (about five minutes on a quiet machine, as root for the lab), writes
# the JSON to a directory, and renews docs/results/tables/loss.txt and docs/figures/loss.svg.
#
#   scripts/reliability-figures.sh [DIRECTORY]      default: target/reliability-figures
#
# Environment: SECONDS_PER_ROW (default 10), divided among ROUNDS (default 5), for shorter runs.
# TCP's retransmission timeout is at least 0.2 s, so rounds below 1 s are not meaningful.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

out=${1:-target/reliability-figures}
table=docs/results/tables/loss.txt
portolan=$release_dir/portolan

[[ -x $portolan ]] || die "$portolan is not there: run 'make build' first"
[[ $EUID -eq 0 ]] || die "labs need root: run this script with sudo"
mkdir -p "$out" docs/figures

# Status 1 with results: some rows are missing, and the table gives the reason.
"$portolan" bench stream --path udp --size 1M --vs tcp --loss 0.1,1,5,10,20 --mtu 1500 \
    --seconds "${SECONDS_PER_ROW:-10}" --repeat "${ROUNDS:-5}" --json "$out/loss.json" \
    >"$out/loss.txt" || [[ -s $out/loss.txt ]] || die "nothing was measured"

sed 's/ *$//' "$out/loss.txt" >"$table"
"$portolan" plot --out "$out" "$out/loss.json"
cp "$out/loss.svg" docs/figures
say "renewed $table and docs/figures/loss.svg"
