# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Many messages that nobody has asked for yet, and behind them the one that is waited for. Part of
# scripts/test-mpi.sh.

# Seconds for a million messages on a busy machine.
flood_limit=300
# The former is a little more than what filled the memory for early messages once.
flood_counts=(264000 1000000)

flood() {
    local mpi=$1 place how count problem
    build "$mpi" scripts/mpi/flood.c
    for place in "${places[@]}"; do
        across "$place"
        for count in "${flood_counts[@]}"; do
            for how in send isend; do
                problem=''
                logged "$flood_limit" "${job[@]}" 2 "$work_dir/$mpi/flood" "$how" "$count" ||
                    problem="status $?"
                [[ $(grep -c 'rank [01]: 0 wrong' "$work_dir/log") -eq 2 ]] ||
                    problem+=" not both ranks say that all was right"
                verdict "$mpi, $place, $count unexpected messages by $how" "$problem"
            done
        done
    done
}
