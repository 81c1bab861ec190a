#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs the experiments of docs/results/bulk.md (about ten minutes on a quiet machine, as root for the labs),
# leaves their JSON in a directory, and renews docs/figures/*.svg and docs/results/tables.
#
#   scripts/bulk-figures.sh [DIRECTORY]      default: target/bulk-figures
#
# Environment: SECONDS_PER_ROW (default 2) and ROUNDS (default 5), for shorter runs.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

out=${1:-target/bulk-figures}
per_row=${SECONDS_PER_ROW:-2}
rounds=${ROUNDS:-5}
tables=docs/results/tables
figures=docs/figures
portolan=$release_dir/portolan
failed=()

[[ -x $portolan ]] || die "$portolan is not there: run 'make build' first"
[[ $EUID -eq 0 ]] || die "labs need root: run this script with sudo"
mkdir -p "$out" "$figures" "$tables"

# run NAME ARGUMENT…: runs one experiment. A failed one keeps its old figures and is named at the
# end.
run() {
    local name=$1
    shift
    say "$name: portolan bench $*"
    if "$portolan" bench "$@" --seconds "$per_row" --repeat "$rounds" --json "$out/$name.json" \
        >"$out/$name.txt"; then
        return
    fi
    # Status 1 with results: some rows are missing, and the table gives the reason.
    [[ -s $out/$name.txt ]] || rm -f "$out/$name.json"
    failed+=("$name")
}

# Stores the table of experiment NAME beside the document.
renew_table() {
    local table=$out/$1.txt
    [[ ! -s $table ]] || sed 's/ *$//' "$table" >"$tables/$1.txt"
}

for mtu in 1500 9000; do
    run "stream-$mtu" stream --path udp,auto --size 16k,64k,256k,1M,4M --vs tcp --limits --mtu "$mtu"
    run "placement-$mtu" stream --path udp --size 1M --placement all --vs tcp --limits \
        --mtu "$mtu"
    run "end-to-end-$mtu" pingpong --path udp,auto --size 64,256,1k,4k,16k,64k,256k,1M,4M --vs tcp \
        --mtu "$mtu"
    run "loaded-$mtu" loaded --path udp,auto --vs tcp --mtu "$mtu"
    run "incast-$mtu" incast --path udp --senders 8 --schedule fair,shortest --mtu "$mtu"
    run "loss-$mtu" stream --path udp --size 1M --vs tcp --loss 1,5 --mtu "$mtu"
done
run "interference-1500" stream --path udp --size 1M --placement bounce,speculative \
    --interfere 10000,100

say "model: portolan tune"
if ! "$portolan" tune --lab --no-store --json "$out/model.json" >"$out/model.txt"; then
    failed+=(model)
fi

for json in "$out"/*.json; do
    name=$(basename "$json" .json)
    "$portolan" plot "$json" --out "$figures" || failed+=("$name (plot)")
    renew_table "$name"
done

# Figures that no document shows are deleted.
for figure in "$figures"/*.svg; do
    grep -qF "figures/$(basename "$figure")" README.md docs/*/*.md || rm "$figure"
done

if [[ ${#failed[@]} -gt 0 ]]; then
    printf 'bulk-figures: INCOMPLETE: %s\n' "${failed[@]}" >&2
    exit 1
fi
say "figures in $figures, tables in $tables, JSON in $out"
