#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Demonstrates the main use on one machine: a parallel program on two hosts, then Portolan next to
# the machine's limit and kernel TCP. Removes all network changes, however it ends.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

lab=demo$(($$ % 100000))
work_dir=${CARGO_TARGET_DIR:-target}/demo
portolan=("$release_dir/portolan")
end_with take_lab_down

# Shows the command, then runs it.
run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# Fills hosts with the arguments of `portolan run` that select the hosts.
choose_hosts() {
    hosts=(--lab "$lab" --per-host 2)
    printf '\n$ %s\n' "${portolan[*]} lab up --hosts 2 --name $lab"
    if bring_lab_up; then
        return 0
    fi
    hosts=()
    say "no lab can be made here, for the reason above: all processes run on this host instead,"
    say "through shared memory; as root, 'make demo' shows two hosts"
}

solve_heat() {
    local report=$work_dir/report.txt
    mkdir -p "$work_dir"
    run "$release_dir/heat" --make-input 1024 768 "$work_dir/initial.pgm"
    run "${portolan[@]}" run -n 4 "${hosts[@]}" -- "$release_dir/heat" "$work_dir/initial.pgm" \
        --steps 500 --check --output "$work_dir/result.png" | tee "$report"
    grep -Eq '^processes +4,' "$report" || die "heat did not run as one job of four processes"
    grep -q 'equal the sequential solution' "$report" ||
        die "heat ended without comparing its result with the sequential solution"
    say "four processes found the sequential solution; it is in $work_dir/result.png"
}

# Half a second per row: enough to show the ratios, not enough to publish figures.
measure() {
    local options=(--path all --limits --vs tcp --seconds 0.5)
    run "${portolan[@]}" bench pingpong --size 8,64,1024 "${options[@]}"
    run "${portolan[@]}" bench stream --size 1M "${options[@]}"
    run "${portolan[@]}" bench rate --size 8 "${options[@]}"
}

scripts/setup.sh
say "building (the first time takes a few minutes)"
"$CARGO" build --release --workspace
if find_root && [[ ${#as_root[@]} -gt 0 ]]; then
    say "using sudo for what needs root"
    portolan=("${as_root[@]}" "${portolan[@]}")
fi
choose_hosts
solve_heat
take_lab_down
measure
say "done"
