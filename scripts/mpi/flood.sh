# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Sends many unexpected messages, followed by the one that the receiver waits for. Part of
# scripts/test-mpi.sh.

# Time limit in seconds for a million messages on a busy machine.
flood_limit=300
# The first count once slightly exceeded the memory for unexpected messages.
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
